"""Of the bytes that have just come: which lines may change the verdict, and who wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parsers.lexicon import default_lexicon
from parsers.prefixes import PrefixStripper
from parsers.records import Role
from parsers.scan import StreamKey, stream_key
from parsers.skim import shortened
from parsers.timestamps import StampContext
from parsers.urgent import urgent_lines

_CARRY = 4 << 10
"""Bytes of an unfinished line that are kept until its end comes."""
_MOST = 50
"""Lines of one tick that are told; all count."""
_LEVELS = {
    Role.TEARDOWN: "warning", Role.EXTERNAL: "warning", Role.SUCCESS: "info", Role.PHASE: "info", Role.IDENTITY: "info",
    Role.PROGRESS: "info", Role.STATE: "info", Role.CONTEXT: "info", Role.RECOVERED: "info",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewLine:
    """A line that may change the verdict. `line` counts from 1, None where the stream was not read from its start."""

    stream_id: int
    text: str
    key: StreamKey
    time: int | None
    line: int | None
    level: str
    signature: str | None
    is_end: bool
    """Whether it says that the work of its writer has ended as meant."""


class NewLines:
    """Looks at what each tick brought, lines put together across ticks."""

    def __init__(self, resumed: Iterable[int] = ()) -> None:
        """Begin; of the streams `resumed`, whose lines above are not known, the lines are not numbered."""
        self._resumed = frozenset(resumed)
        self._lexicon = default_lexicon()
        self._stripper = PrefixStripper(self._lexicon.prefixes, StampContext())
        self._carried: dict[int, bytes] = {}
        self._counts: dict[int, int] = {}
        self.touched: set[int] = set()
        """Streams with such lines in the last tick."""

    def take(self, arrived: Sequence[tuple[int, bytes]]) -> list[NewLine]:
        """The newest lines of a tick that may change the verdict, at most `_MOST`; all are counted in `touched`."""
        parts, begins, owners, size = [], [], [], 0
        for stream_id, data in arrived:
            whole = data.rfind(b"\n") + 1
            if not whole:
                self._carried[stream_id] = (self._carried.get(stream_id, b"") + data)[:_CARRY]
                continue
            part = self._carried.pop(stream_id, b"") + data[:whole]
            if whole < len(data):
                self._carried[stream_id] = data[whole : whole + _CARRY]
            parts.append(part)
            begins.append(size)
            owners.append(stream_id)
            size += len(part)
        starts = urgent_lines(b"".join(parts)) if parts else []
        self.touched.clear()
        found, place = [], 0
        for start in starts:
            while place + 1 < len(begins) and begins[place + 1] <= start:
                place += 1
            self.touched.add(owners[place])
            found.append((place, start - begins[place]))
        lines = [self._line(owners[place], parts[place], start) for place, start in found[-_MOST:]]
        for stream_id, part in zip(owners, parts, strict=True):
            self._counts[stream_id] = self._counts.get(stream_id, 0) + part.count(b"\n")
        return lines

    def _line(self, stream_id: int, part: bytes, start: int) -> NewLine:
        text = shortened(part[start : part.find(b"\n", start)]).decode(errors="replace").rstrip("\r")
        origin = self._stripper.strip(text)
        message = next((message for message, _ in self._lexicon.match(origin.body)), None)
        above = None if stream_id in self._resumed else self._counts.get(stream_id, 0)
        return NewLine(
            stream_id, text, stream_key(origin), origin.stamp.ns if origin.stamp and not origin.stamp.boot else None,
            None if above is None else above + part.count(b"\n", 0, start) + 1,
            _LEVELS.get(message.role, "error") if message is not None else "error",
            message.id if message is not None else None, message is not None and message.role is Role.SUCCESS,
        )  # fmt: skip
