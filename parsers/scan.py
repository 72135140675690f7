"""What reading one log yields: its signals, who wrote in it, and what was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import NamedTuple

from parsers.clip import clip
from parsers.multiline import Place
from parsers.prefixes import Origin
from parsers.records import Signal, Source, Stamp


class StreamKey(NamedTuple):
    """Which writer a line of a file is from, as far as its own tags tell. A tuple: it is made for every line."""

    rank: int | None = None
    local_rank: int | None = None
    task: str | None = None
    other: str | None = None


def stream_key(origin: Origin) -> StreamKey:
    """The writer that a line's prefixes tell."""
    tags = origin.tags
    if not tags:
        return StreamKey(origin.rank, origin.local_rank)
    return StreamKey(origin.rank, origin.local_rank, tags.get("task"), tags.get("pod") or tags.get("actor"))


class Told(NamedTuple):
    """One line of a stream: its number, its time where it has one, and its text, prefixes stripped."""

    line: int
    ns: int | None
    text: str


_RECENT = 16
_HEAD = 24
_NO_DIGITS = str.maketrans("", "", "0123456789")


@dataclass(slots=True)
class Activity:
    """What a stream was last seen doing."""

    lines: int = 0
    first: Place | None = None
    last: Place | None = None
    first_stamp: Stamp | None = None
    last_stamp: Stamp | None = None
    last_body: str = ""
    host: str | None = None
    newest: Told | None = None
    earlier: tuple[Told, ...] = ()
    _head: str = ""
    pid: int | None = None
    """The process that its tags name first."""
    several_pids: bool = False
    ip: str | None = None

    def note(self, origin: Origin, place: Place) -> None:
        """The stream has one more line."""
        self.lines += 1
        self.last = place
        if origin.host is not None:
            self.host = origin.host
        if origin.pid is not None:
            self._written_by(origin.pid, origin.tags.get("ip"))
        if origin.body.strip():
            self.last_body = clip(origin.body, 400)
            head = self.last_body[:_HEAD].translate(_NO_DIGITS)
            if head != self._head and self.newest is not None:
                self.earlier = (*self.earlier[2 - _RECENT :], self.newest)
            self._head = head
            self.newest = Told(place.line, origin.stamp.ns if origin.stamp is not None else None, self.last_body)
        if origin.stamp is not None:
            self.last_stamp = origin.stamp
            if self.first_stamp is None:
                self.first_stamp = origin.stamp

    def _written_by(self, pid: int, ip: str | None) -> None:
        if self.pid is None:
            self.pid = pid
        self.several_pids |= pid != self.pid
        self.ip = self.ip or ip

    @property
    def recent(self) -> tuple[Told, ...]:
        """The last lines; of those that follow each other and begin alike, numbers apart, the last one."""
        return self.earlier if self.newest is None else (*self.earlier, self.newest)


@dataclass(slots=True)
class Counts:
    """What was read, for coverage."""

    bytes: int = 0
    lines: int = 0
    stamped: int = 0
    long_lines: int = 0
    undecodable: int = 0
    repeats: int = 0


@dataclass(slots=True)
class Scan:
    """The outcome for one source."""

    source: Source
    signals: list[Signal] = field(default_factory=list)
    activity: dict[StreamKey, Activity] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    def copy(self, twins: Twins | None = None) -> Scan:
        """A scan whose signals, activities and counts may be written into."""
        twins = Twins() if twins is None else twins
        activity = {key: replace(known) for key, known in self.activity.items()}
        return Scan(self.source, twins.all(self.signals), activity, replace(self.counts))


_FIELDS = attrgetter(*(field.name for field in fields(Signal)))
"""`replace` takes four times as long, and a job may have a hundred thousand signals."""


class Twins:
    """Copies signals, each of them once: what shares a signal shares its copy."""

    def __init__(self) -> None:
        self._made: dict[int, Signal] = {}

    def one(self, signal: Signal) -> Signal:
        """The copy of a signal, which must not have gone meanwhile."""
        twin = self._made.get(id(signal))
        if twin is None:
            twin = self._made[id(signal)] = Signal(*_FIELDS(signal))
            twin.fields = dict(signal.fields)
        return twin

    def all(self, signals: Iterable[Signal]) -> list[Signal]:
        """The copies of signals, in their order."""
        return [self.one(signal) for signal in signals]
