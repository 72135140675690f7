"""What of a large file is worth a look: which lines, and what of each.

A loud writer must cost little and hide no other; a line of gigabytes must cost no more than its ends.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from parsers.stacks import TRACEBACK_HEAD

if TYPE_CHECKING:
    from parsers.lexicon import Lexicon

MAX_LINE = 64 << 10
"""Bytes of a line that are looked at: the first and last half of this."""
LOOK_BELOW = 4 << 10
"""Bytes below a line that may be looked at; whoever calls has them at hand."""
_ENDS = ((64 << 10, 4 << 10, 128 << 10), (128 << 10, 8 << 10, 384 << 10))
"""Head and tail of a file that are parsed line by line: at most, at least, and of all files of a job together."""
_OWN_ENDS = 8 << 10, 16 << 10
"""At most so much of a file whose rank is known: who writes need not be learned, and one writer's steps come often."""
_ABOVE = 4 << 10
"""Bytes above a fault that are parsed with it."""
_MANY_FILES = 256
"""Beyond so many files less is read closely, of tails half as much at least: it is lines that take the time."""
_SHORT_HEAD = 1 << 10
"""Then, bytes of the head of a file whose rank is known."""
_SHORT_ABOVE = 3 << 9
"""Then, bytes above a fault."""
_FIRST = 32 << 10
_SHORT_FIRST = 8 << 10
"""Bytes at the beginning of a file in which the form of its lines is looked for, and where there are many files."""
_REPEATS = 48
"""How many hits of one keyword set behind one line head are parsed; the rest are counted."""
_ALIKE = 4
"""How many blocks of one keyword set, line head and exception line are parsed beyond that."""
_MANY = 10_000
_FEW = 1
"""After so many parsed hits in a file, so many of a kind."""
_KINDS = 10_000
"""How many heads, and how many kinds, are told apart in a file."""
_BURSTS = 512
_HEAD_BURSTS = 8
"""How often the lines around a fault are parsed: in a file, and behind one line head."""
_SHORT = 12
"""Bytes of a head that count once there are too many kinds."""
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d[\d.,]*|\d{1,12}\.\d{3,9}")
_MAX_BAR = 1024
_DIGITS = re.compile(rb"[0-9]+")
_HEAD = TRACEBACK_HEAD.encode()


class Sizes(NamedTuple):
    """Bytes that are looked at closely.

    At the head and at the tail of a file, and above a fault, they are parsed line by line. Of a tail that tells of
    nothing else, `enough` are if they tell how far the writer has come. In the `first` the form of lines is looked for.
    """

    head: int
    tail: int
    above: int
    enough: int
    first: int


def close_sizes(files: int, *, named: bool = False) -> Sizes:
    """How much is read closely where a job has so many files, of one that is `named` after its rank or not."""
    files = max(files, 1)
    (head, tail) = (max(least, min(most, every // files)) for most, least, every in _ENDS)
    if named:
        head, tail = min(head, _OWN_ENDS[0]), min(tail, _OWN_ENDS[1])
    if files <= _MANY_FILES:
        return Sizes(head, tail, _ABOVE, tail, _FIRST)
    tail = max(tail * _MANY_FILES // files, tail // 2)
    if named:
        return Sizes(_SHORT_HEAD, tail, _SHORT_ABOVE, tail // 2, _SHORT_FIRST)
    return Sizes(head, tail, _SHORT_ABOVE, tail, _SHORT_FIRST)


def shortened(raw: bytes) -> bytes:
    """What of a line is looked at."""
    if len(raw) <= MAX_LINE:
        return raw
    return raw[: MAX_LINE // 2] + b" ... " + raw[-MAX_LINE // 2 :]


def long_lines(data: bytes, start: int, end: int) -> int:
    """How many lines of data[start:end] are longer than `MAX_LINE`."""
    count = 0
    while end - start > MAX_LINE:
        stop = data.rfind(b"\n", start, start + MAX_LINE + 1)
        if stop < 0:
            count += 1
            stop = data.find(b"\n", start, end)
            if stop < 0:
                break
        start = stop + 1
    return count


def context_start(data: bytes, cursor: int, line_start: int, above: int) -> int:
    """Where the lines worth parsing begin, so many bytes above a line; lines beyond `MAX_LINE` are none."""
    start = data.rfind(b"\n", cursor, max(cursor, line_start - above)) + 1 or cursor
    if line_start - start > above + MAX_LINE:
        start = data.find(b"\n", start) + 1
    return start


def visible(text: str) -> list[str]:
    """The parts of a line that carriage returns leave visible: every part but superseded progress bars."""
    parts = [part for part in text.split("\r") if part]
    last = len(parts) - 1
    return [part for number, part in enumerate(parts) if number == last or not _is_bar(part)]


def _is_bar(part: str) -> bool:
    return (
        len(part) < _MAX_BAR
        and ("it/s" in part or "s/it" in part or "%|" in part or "?it" in part)
        and (TRACEBACK_HEAD not in part and "Error" not in part)
    )


@dataclass(slots=True)
class Repeats:
    """Counts what the hit lines of one file look like."""

    _lexicon: Lexicon
    _heads: Counter[bytes] = field(default_factory=Counter)
    _seen: Counter[tuple[bytes, frozenset[int], bytes]] = field(default_factory=Counter)
    _bursts: Counter[bytes] = field(default_factory=Counter)
    _parsed: int = 0

    def copy(self) -> Repeats:
        """Counts of its own that go on from here."""
        return replace(self, _heads=self._heads.copy(), _seen=self._seen.copy(), _bursts=self._bursts.copy())

    def wanted(self, data: bytes, line_start: int, line_end: int) -> bool:
        """Whether a hit line is to be parsed.

        Lines are of one kind if they begin alike, a stamp apart, and hold the same literals. Blocks begin alike
        whatever they tell: those with another exception line are parsed beyond the limit.
        """
        limit = _REPEATS if self._parsed < _MANY else _FEW
        wanted = self._is_new(data, line_start, line_end, limit)
        self._parsed += wanted
        return wanted

    def loud(self, data: bytes, line_start: int, line_end: int) -> bool:
        """Whether one more traceback begins here behind a head that has had its share: it is a hit of its own then."""
        if data.find(_HEAD, line_start, line_end) < 0 or data.find(b"Original " + _HEAD, line_start, line_end) >= 0:
            return False
        head = _head(data, line_start, line_end)
        if len(self._heads) >= _KINDS and head not in self._heads:
            return True
        self._heads[head] += 1
        return self._heads[head] > _REPEATS

    def context(self, data: bytes, line_start: int, line_end: int) -> bool:
        """Whether the lines around a hit line are to be parsed too: it tells a fault, one of few of its head."""
        head = _head(data, line_start, line_end)
        if self._bursts[head] >= _HEAD_BURSTS or self._bursts.total() >= _BURSTS:
            return False
        if not self._lexicon.may_be_fault(shortened(data[line_start:line_end]).decode(errors="replace")):
            return False
        self._bursts[head] += 1
        return True

    def _is_new(self, data: bytes, line_start: int, line_end: int, limit: int) -> bool:
        head = _head(data, line_start, line_end)
        if len(self._heads) < _KINDS or head in self._heads:
            self._heads[head] += 1
            if self._heads[head] <= limit:
                return True
        kinds = self._lexicon.scanned(shortened(data[line_start:line_end]).decode(errors="replace"))
        if self._count(head, kinds, b"") <= limit:
            return True
        if not self._lexicon.begins_block(kinds):
            return False
        return self._count(head, kinds, _outcome(data, line_start, line_end)) <= min(limit, _ALIKE)

    def _count(self, head: bytes, kinds: frozenset[int], outcome: bytes) -> int:
        key = (head, kinds, outcome)
        for room, coarser in ((1, (head[:_SHORT], kinds, b"")), (2, (b"", kinds, b"")), (3, (b"", frozenset(), b""))):
            if key in self._seen or len(self._seen) < room * _KINDS:
                break
            key = coarser
        self._seen[key] += 1
        return self._seen[key]


def _head(data: bytes, line_start: int, line_end: int) -> bytes:
    """How a line begins, the time of day left out."""
    raw = data[line_start : min(line_end, line_start + 96)]
    clock = _CLOCK.search(raw)
    return (raw[: clock.start()] + raw[clock.end() :] if clock else raw)[:32]


def _outcome(data: bytes, line_start: int, line_end: int) -> bytes:
    """What tells a block that begins on a line from others: its first line below that is not indented, digits apart."""
    width = max(data.find(_HEAD, line_start, line_end) - line_start, 0)
    position, limit = line_end + 1, line_end + LOOK_BELOW
    while position < limit:
        stop = data.find(b"\n", position, limit)
        if stop < 0:
            break
        body = data[position + width : stop]
        if body and body[:1] not in {b" ", b"\t", b"\r"}:
            return _DIGITS.sub(b"", body[:200])
        position = stop + 1
    return b""
