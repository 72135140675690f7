"""What a viewer of a running job is given: one immutable picture at a time.

The screen, the plain lines and the notifier are all drawn from a `LiveView`; none of them looks into the watch itself.
Text that comes from logs (names, lines, messages) is as it was read: a viewer passes it through `safe.mask` and
`safe.show` before anybody sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from aggregator.verdict import Verdict
from parsers.records import Skipped


class LiveState(StrEnum):
    """How the job is doing."""

    WAITING = "waiting"
    """Nothing has been written yet, or what there is has not been judged yet."""
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Somebody keeps the others waiting, or nobody makes progress; nothing has ended yet."""
    FAILED = "failed"
    FINISHED = "finished"


class RankState(StrEnum):
    """How one rank is doing."""

    OK = "ok"
    SLOW = "slow"
    """Behind its group, but still writing."""
    SILENT = "silent"
    """Has not written for much longer than it used to, as others have not either."""
    SUSPECT = "suspect"
    """Keeps the others waiting, as far as can be told."""
    FAILED = "failed"
    """Where the first failure is."""
    VICTIM = "victim"
    """Failed as a consequence."""
    ENDED = "ended"
    UNKNOWN = "unknown"
    """No line of it has been read."""


@dataclass(frozen=True, slots=True)
class RankHealth:
    """One rank. `step` is the last one it reported; `idle_s` seconds since its last line arrived (None: never)."""

    rank: int
    state: RankState
    host: str | None = None
    step: int | None = None
    idle_s: float | None = None
    last_line: str = ""
    path: str | None = None
    """The file of its last line, relative to the job folder."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One line worth showing, or a note of the watch itself (then without a path).

    `time` is what the line says, ns UTC; `seen` when the watch read it, ns UTC.
    """

    seen: int
    text: str
    level: str = "info"
    """`info`, `warning` or `error`."""
    time: int | None = None
    rank: int | None = None
    host: str | None = None
    path: str | None = None
    line: int | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Who keeps the job waiting, and why that is thought. `ranks` is empty where nobody can be named.

    `since` is ns UTC, by this machine's clock.
    """

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    reason: str
    since: int


@dataclass(frozen=True, slots=True)
class Counters:
    """What the watch has done so far. All of them only grow, but for `files`, `open_files` and `lines_per_s`."""

    files: int = 0
    open_files: int = 0
    bytes: int = 0
    lines: int = 0
    lines_per_s: float = 0.0
    truncations: int = 0
    """How often a file was cut or overwritten: what had not been read by then is gone."""
    rotations: int = 0
    unread_bytes: int = 0
    """Bytes known to have been lost to truncation or removal before they were read."""
    backlog_bytes: int = 0
    """Read, but not stored yet (the disk of the state folder is full, say)."""


@dataclass(frozen=True, slots=True)
class LiveView:
    """One picture of the job. Times are ns UTC by this machine's clock; `events` are oldest first and bounded.

    `verdict` is the newest one, None until there was reason to judge. `attempt` is the incarnation that runs.
    """

    job: str
    state: LiveState
    since: int
    now: int
    headline: str
    ranks: tuple[RankHealth, ...] = ()
    world_size: int | None = None
    events: tuple[LiveEvent, ...] = ()
    suspicion: Suspicion | None = None
    verdict: Verdict | None = None
    attempt: int = 0
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    counters: Counters = field(default_factory=Counters)
