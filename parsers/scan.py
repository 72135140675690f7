"""What reading one log yields: its signals, who wrote in it, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from parsers.multiline import Place
from parsers.records import Signal, Source, Stamp


class StreamKey(NamedTuple):
    """Which writer a line of a file is from, as far as its own tags tell. A tuple: it is made for every line."""

    rank: int | None = None
    local_rank: int | None = None
    task: str | None = None
    other: str | None = None


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
