"""Of what a writer tells again and again, the signals that are worth keeping."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from parsers.records import Role, Signal
from parsers.scan import StreamKey, Twins

_MARKS = 8


@dataclass(slots=True)
class Thinning:
    """The signals of one file, in file order.

    Of a stream's marks of progress the first, the first after each phase and the last few are kept; of what a process
    tells of itself (its rank, its GPU, the peers that it is tied to) what it has not told before.
    """

    _marks: dict[tuple[StreamKey, str], deque[Signal]] = field(default_factory=dict)
    _turned: set[StreamKey] = field(default_factory=set)
    _told: set[tuple[object, ...]] = field(default_factory=set)

    def copy(self, twins: Twins) -> Thinning:
        """What goes on from here with the copies of the signals."""
        marks = {key: deque(twins.all(marks), maxlen=_MARKS) for key, marks in self._marks.items()}
        return replace(self, _marks=marks, _turned=set(self._turned), _told=set(self._told))

    def keeps(self, key: StreamKey, signal: Signal) -> bool:
        """Whether a stream's next signal is kept; a mark of progress that is not may be one of the last."""
        if signal.role is Role.PROGRESS:
            return self._keeps_mark(key, signal)
        if signal.role is Role.PHASE:
            self._turned.add(key)
        elif signal.role is Role.IDENTITY and signal.pid is not None:
            told = (key, signal.signature, signal.pid, signal.host, *signal.fields.items())
            if told in self._told:
                return False
            self._told.add(told)
        return True

    def _keeps_mark(self, key: StreamKey, signal: Signal) -> bool:
        marks = self._marks.get((key, signal.signature))
        if marks is not None and key not in self._turned:
            marks.append(signal)
            return False
        self._marks.setdefault((key, signal.signature), deque(maxlen=_MARKS))
        self._turned.discard(key)
        return True

    def last_marks(self) -> Iterable[Signal]:
        """The file has ended: each stream's last marks of progress."""
        return [signal for marks in self._marks.values() for signal in marks]
