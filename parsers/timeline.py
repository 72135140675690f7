"""When the signals of one file were: by their own stamps, else by those around them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from parsers.multiline import Block, Place
from parsers.records import Role, Signal, Stamp, StampQuality
from parsers.timestamps import StampContext, read_stamp

if TYPE_CHECKING:
    from parsers.scan import Twins


@dataclass(slots=True)
class Timeline:
    """The stamps of one file so far, and the signals that wait for one below them.

    Keys are those of the file's streams; lines, signals and blocks are taken in file order.
    """

    incomplete: bool = False
    """Whether there were stamps without a year: a reference completed them."""
    _last: dict[Hashable, Stamp] = field(default_factory=dict)
    _newest: Stamp | None = None
    _trail: tuple[list[int], list[Stamp]] = field(default_factory=lambda: ([], []))
    """Offsets and stamps of all lines that have one."""
    _unstamped: list[Signal] = field(default_factory=list)
    _open_ended: list[Signal] = field(default_factory=list)

    def copy(self, twins: Twins) -> Timeline:
        """A timeline of its own that goes on from here with the copies of the signals."""
        return replace(
            self,
            _last=dict(self._last),
            _trail=(self._trail[0][:], self._trail[1][:]),
            _unstamped=twins.all(self._unstamped),
            _open_ended=twins.all(self._open_ended),
        )

    @property
    def waiting(self) -> bool:
        """Whether a stamp below is looked for."""
        return bool(self._unstamped or self._open_ended)

    def above(self, key: Hashable) -> Stamp | None:
        """The last stamp of a stream, or of the file."""
        return self._last.get(key) or self._newest

    def note(self, key: Hashable, place: Place, stamp: Stamp) -> None:
        """A line has a stamp of its own."""
        if not stamp.boot:
            self._trail[0].append(place.offset)
            self._trail[1].append(stamp)
            self.incomplete |= not stamp.year_known
        self._last[key] = self._newest = stamp
        if self._unstamped or self._open_ended:
            self._bound(stamp)

    def date(self, signal: Signal, key: Hashable, own: Stamp | None) -> None:
        """Gives a signal its time: what its text tells, its line's stamp, or one near it."""
        told = _told(signal)
        if told is not None and signal.role in {Role.EXTERNAL, Role.TEARDOWN}:
            self._bound(told)
        own = told or own
        if own is not None:
            signal.stamp, signal.quality = own, StampQuality.OWN
        elif key in self._last:
            signal.stamp, signal.quality = self._last[key], StampQuality.INHERITED
            self._open_ended.append(signal)
        elif self._newest is not None:
            signal.stamp, signal.quality = self._newest, StampQuality.BOUNDED
            self._open_ended.append(signal)
        else:
            self._unstamped.append(signal)

    def date_block(self, signal: Signal, block: Block) -> None:
        """A block is filed when it has ended, perhaps long after: its time is that of its own place in the file."""
        if signal.quality is StampQuality.OWN:
            return
        offsets, stamps = self._trail
        after = bisect_right(offsets, block.places[-1].offset)
        if isinstance(block.mark, Stamp):
            signal.stamp, signal.quality = block.mark, StampQuality.INHERITED
        if after < len(stamps):  # a line of another stream has bounded it already
            signal.until_ns = stamps[after].ns
            if not isinstance(block.mark, Stamp):
                signal.stamp, signal.quality = stamps[after], StampQuality.BOUNDED
            for waiting in (self._open_ended, self._unstamped):
                if waiting and waiting[-1] is signal:
                    waiting.pop()

    def _bound(self, stamp: Stamp) -> None:
        """Signals above a stamp are earlier than it, as far as one file keeps order."""
        for signal in self._unstamped:
            signal.stamp = stamp
            signal.quality = StampQuality.BOUNDED
        for signal in (*self._unstamped, *self._open_ended):
            signal.until_ns = None if stamp.boot else stamp.ns
        self._unstamped.clear()
        self._open_ended.clear()


def _told(signal: Signal) -> Stamp | None:
    """The time that the text itself gives (a summary box, `CANCELLED AT …`): nearer to the event than its line."""
    text = signal.fields.get("time") or signal.fields.get("box_time")
    if not text:
        return None
    for form in ("iso", "elastic", "asctime"):  # all of which have a year
        stamp = read_stamp(form, text, StampContext())
        if stamp is not None:
            return stamp
    return None
