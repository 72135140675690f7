"""Whether the number in brackets at the front of a file's lines is a launcher's label: `[4] text`.

Hydra (`mpiexec -l`, `-prepend-rank`: MPICH, Intel MPI) and home-made launchers number the lines of their processes so.
But programs number epochs, requests and threads in the same form. A launcher labels whatever a process writes, also
what no program prints itself; or the processes name themselves by the same numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from parsers.later import later
from parsers.stacks import TRACEBACK_HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

TAGGED: Final = later(r"(?:(?P<host>[a-z][a-z_-]{0,40}\d[\w.-]{0,60}) )?(?:[rR]ank[ =:]{0,2}|r)(?P<rank>\d{1,5}) ")
"""A rank in front of a text that could be a sentence about it: `rank 3 ready`, `pw2 r3 step 5`."""
_MAY_BE_TAGGED: Final = later(r"[rR](?:ank[ =:]{0,2}|(?<=\br))\d{1,5} ")
_NUMBERED: Final = later(r"\[(\d{1,5})\] ")
_SELF: Final = later(r"(?i)(?<![a-z_])(?:global[ _])?(?:rank|procid)[ :=_]{0,3}(\d{1,6})\b")
_TAGGED: Final = later(r"(?:\d[\d:., TZ-]{7,34} )?\[(?i:rank)[ :=_]?(\d{1,6})\]")
_FEW: Final = 2
"""Processes at least, and lines of each on average."""
_SURE: Final = 4
"""Lines that name themselves as their label does, for each that does not."""


def may_be_tagged(lines: Sequence[str]) -> bool:
    """Whether half of a file's first lines hold what `TAGGED` may find, wherever: asked before any is taken apart."""
    misses = 0
    for line in lines:
        if _MAY_BE_TAGGED.search(line) is None:
            misses += 1
            if misses * 2 >= len(lines):
                return False
    return bool(lines)


def looks_numbered(lines: Sequence[str]) -> bool:
    """Whether a launcher labelled these lines; pass the first of a file that are not empty."""
    if sum(line[0] == "[" for line in lines) * 2 <= len(lines):
        return False
    numbers: Counter[int] = Counter()
    named: Counter[bool] = Counter()
    agreed: set[int] = set()
    tagged: set[int] = set()
    written: set[int] = set()
    for line in lines:
        found = _NUMBERED.match(line)
        if found is None:
            if own := _TAGGED.match(line):
                tagged.add(int(own[1]))
            continue
        number = int(found[1])
        numbers[number] += 1
        body = line[found.end() :]
        if body.startswith((TRACEBACK_HEAD, '  File "')):
            written.add(number)
        elif own := _SELF.search(body):
            named[int(own[1]) == number] += 1
            agreed.update({number} & {int(own[1])})
    distinct = len(numbers)
    if distinct < _FEW or numbers.total() * 2 <= len(lines) or numbers.total() < distinct * _FEW:
        return False
    if max(numbers) - min(numbers) >= distinct * _FEW or named[False] * _SURE > named[True] > 0:
        return False
    return len(written) >= _FEW or len(agreed) >= _FEW or tagged == numbers.keys()
