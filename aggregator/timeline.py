"""What every rank did when, on the job's common time, as plain values for charts.

Times are ns, UTC, corrected by what is known of each host's clock (`Lane.uncertainty_s` says how well). Only what the
logs tell is here: a bar ends with the rank's last line, not with its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Doing(StrEnum):
    """What a bar stands for."""

    INIT = "init"
    TRAINING = "training"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    DATA_LOADING = "data_loading"
    SHUTDOWN = "shutdown"
    WAITING = "waiting"
    """In a collective that others did not come to, as its watchdog tells in the end."""
    UNKNOWN = "unknown"


class MarkKind(StrEnum):
    """What a mark stands for."""

    FIRST = "first failure"
    FAULT = "fault"
    CONSEQUENCE = "consequence"
    STOPPED = "stopped"
    ENDED = "ended"
    RECOVERED = "recovered"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of one rank's time. `attempt` counts incarnations from 0."""

    start: int
    end: int
    doing: Doing
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of one rank. `kind` is a word of `parsers.lineformats`; `exact` says whether the line has a stamp of its
    own, or one from near it.
    """

    time: int
    what: MarkKind
    kind: str
    text: str
    file: str
    line: int
    exact: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank: bars and marks in order of time, and the moments at which it told of a step."""

    rank: int
    host: str | None
    uncertainty_s: float | None
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()
    """(time, step)."""
    lines: int = 0
    last_text: str = ""
    last_place: tuple[str, int] | None = None
    """File and line of the last line seen."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All ranks, by number. `started` and `ended` bound all that is drawn; None where no rank's time is known."""

    lanes: tuple[Lane, ...] = ()
    started: int | None = None
    ended: int | None = None
