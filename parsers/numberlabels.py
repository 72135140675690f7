"""Whether the number in brackets at the front of a file's lines is a launcher's label: `[4] text`, `(4) text`.

Hydra (`mpiexec -l`, `-prepend-rank`: MPICH, Intel MPI) and home-made launchers number the lines of their processes so.
But programs number epochs, requests and threads in the same form. A launcher labels whatever a process writes, also
what no program prints itself; or the processes name themselves by the same numbers, or count the same steps.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from parsers.later import later
from parsers.stacks import TRACEBACK_HEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TAGGED: Final = later(r"(?:(?P<host>[a-z][a-z_-]{0,40}\d[\w.-]{0,60}) )?(?:[rR]ank[ =:]{0,2}|r)(?P<rank>\d{1,5})[ |]")
"""A rank in front of a text that could be a sentence about it: `rank 3 ready`, `pw2 r3 step 5`, `r3|ready`."""
_MAY_BE_TAGGED: Final = later(r"[rR](?:ank[ =:]{0,2}|(?<=\br))\d{1,5}[ |]")
_NUMBERED: Final = later(r"(?:\[(\d{1,5})(?:/\d{1,5})?\]|\((\d{1,5})(?:/\d{1,5})?\)):? ")
_COUNTED: Final = later(r"(?i)\b(?:global_?step|step|iter|iteration|it|batch)[ :=#]{1,3}(\d{1,9})\b")
_SELF: Final = later(r"(?i)(?<![a-z_])(?:global[ _])?(?:rank|procid)[ :=_]{0,3}(\d{1,6})\b")
_TAGGED: Final = later(r"(?:\d[\d:., TZ-]{7,34} )?\[(?i:rank)[ :=_]?(\d{1,6})\]")
_ONE_OF: Final = 7
"""Of so many lines one is asked first, where there are so many of these: if not a quarter fits, half of all do not.
Not eight: where eight ranks take turns, that would ask one of them alone."""
_FEW: Final = 2
"""Processes at least, and lines of each on average."""
_LOCKSTEP: Final = 3
"""Steps in a row that all processes must be seen to make together: a loop over something else does not look so."""
_SURE: Final = 4
"""Lines that name themselves as their label does, for each that does not."""


def may_be_tagged(lines: Sequence[str]) -> bool:
    """Whether half of a file's first lines hold what `TAGGED` may find, wherever: asked before any is taken apart."""
    return most(lines, _holds_a_tag)


def _holds_a_tag(line: str) -> bool:
    return _MAY_BE_TAGGED.search(line) is not None


def most(lines: Sequence[str], are_so: Callable[[str], bool]) -> bool:
    """Whether more than half of some lines are so; of many, some are asked first, which settles it for most files."""
    some = lines[::_ONE_OF]
    if len(some) >= _ONE_OF and sum(map(are_so, some)) * 4 < len(some):
        return False
    misses = 0
    for line in lines:
        if not are_so(line):
            misses += 1
            if misses * 2 >= len(lines):
                return False
    return bool(lines)


def looks_numbered(lines: Sequence[str]) -> bool:
    """Whether a launcher labelled these lines; pass the first of a file that are not empty."""
    if sum(line[0] in "[(" for line in lines) * 2 <= len(lines):
        return False
    numbers: Counter[int] = Counter()
    named: Counter[bool] = Counter()
    agreed: set[int] = set()
    tagged: set[int] = set()
    written: set[int] = set()
    counted: list[tuple[str, int]] = []
    for line in lines:
        found = _NUMBERED.match(line)
        if found is None:
            if own := _TAGGED.match(line):
                tagged.add(int(own[1]))
            continue
        number = int(found[1] or found[2])
        numbers[number] += 1
        body = line[found.end() :]
        if body.startswith((TRACEBACK_HEAD, '  File "')):
            written.add(number)
        elif own := _SELF.search(body):
            named[int(own[1]) == number] += 1
            agreed.update({number} & {int(own[1])})
        elif step := _COUNTED.search(body):
            counted.append((step[1], number))
    distinct = len(numbers)
    if distinct < _FEW or numbers.total() * 2 <= len(lines) or numbers.total() < distinct * _FEW:
        return False
    if max(numbers) - min(numbers) >= distinct * _FEW or named[False] * _SURE > named[True] > 0:
        return False
    return (
        len(written) >= _FEW or len(agreed) >= _FEW or tagged == numbers.keys() or _in_lockstep(counted, set(numbers))
    )


def _in_lockstep(counted: Sequence[tuple[str, int]], numbers: set[int]) -> bool:
    """Whether all make a step before any makes the next, some times in a row."""
    rounds = [{number for _, number in told} for _, told in groupby(counted, key=itemgetter(0))]
    return sum(found == numbers for found in rounds) >= max(_LOCKSTEP, len(rounds) - 1)
