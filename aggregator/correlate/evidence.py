"""What the correlator is given: everything that was read of one job."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from parsers.records import Signal, Skipped, Source, StampQuality
from parsers.scan import Activity, Scan, StreamKey

if TYPE_CHECKING:
    from parsers.flight_recorder import FlightDump

NS = 1_000_000_000
MAX_WORLD = 1 << 17
"""A larger world size is a misread number."""


@dataclass(frozen=True)
class JobEvidence:
    """One job's sources, what was found in each, and the dumps."""

    path: str
    sources: tuple[Source, ...]
    scans: tuple[Scan, ...]
    dumps: tuple[FlightDump, ...] = ()
    dump_sources: tuple[int, ...] = ()
    """The source of each dump."""
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0
    extra_signals: tuple[Signal, ...] = field(default=())
    """Signals of files that are not line logs (error.json)."""

    def signals(self) -> list[Signal]:
        """All signals, by source and position."""
        found = [signal for scan in self.scans for signal in scan.signals]
        found.extend(self.extra_signals)
        found.sort(key=lambda signal: (signal.source, signal.offset))
        return found

    def source(self, signal: Signal) -> Source:
        """The source of a signal."""
        return self.sources[signal.source]

    @cached_property
    def activities(self) -> list[tuple[Source, StreamKey, Activity]]:
        """Every stream of every log."""
        return [(scan.source, key, activity) for scan in self.scans for key, activity in scan.activity.items()]


def precise(signal: Signal) -> bool:
    """Whether a signal's time is its own rather than a neighbour's."""
    return signal.ns is not None and signal.quality is StampQuality.OWN


_DIGITS = 40
"""A longer word is no list of ranks."""


def ints(text: str | None) -> tuple[int, ...]:
    """The numbers of a list such as `1,3-5`, `[1, 3]` or `0 2`; empty where there are none, or more than can be."""
    if not text:
        return ()
    numbers: list[int] = []
    for part in text.replace("[", " ").replace("]", " ").replace(",", " ").split():
        first, dash, last = part.partition("-")
        if not first.isdigit() or len(part) > _DIGITS:
            continue
        if dash and last.isdigit() and 0 <= int(last) - int(first) < MAX_WORLD:
            numbers.extend(range(int(first), int(last) + 1))
        elif dash and last.isdigit():
            return ()
        else:
            numbers.append(int(first))
        if len(numbers) > MAX_WORLD:
            return ()
    return tuple(numbers)


def number(text: str | None) -> int | None:
    """An integer field, None where absent or not a number."""
    if text is None or len(text) > _DIGITS:
        return None
    try:
        return int(text)
    except ValueError:
        return None
