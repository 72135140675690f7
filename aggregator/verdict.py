"""The verdict on one job, as plain values, and its JSON form.

The classes mirror `verdict.schema.json` (shipped beside this module) field for field, with three differences: times
are int nanoseconds since the epoch, UTC, or None; each object that has times also has `time_resolution_ns`, the step of
the clock that wrote them, which decides how many digits are shown; and `Failure.would_settle` is an addition, which the
schema allows. Nothing here reads a file or a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from aggregator import safe

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

SCHEMA_VERSION = 1
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000

TEXT_LIMIT = 4096
"""Characters of one line of foreign text (a log line, a message) that a verdict carries, head and tail."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = frozenset({"time", "started", "ended"})
_PATHS = frozenset({"file", "path"})


class Outcome(StrEnum):
    """How the job, or one attempt of it, ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    HUNG = "hung"
    CANCELLED = "cancelled"
    RUNNING = "running"
    UNKNOWN = "unknown"


class Status(StrEnum):
    """How far the evidence goes."""

    IDENTIFIED = "identified"
    """The evidence settles who failed first."""
    AMBIGUOUS = "ambiguous"
    """Two or more candidates that the evidence cannot order; `Failure.ranks` holds them all."""
    UNDETERMINED = "undetermined"
    """Something failed and the logs cannot say where it began; `Failure.ranks` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One line of one file, and what it proves. `file` is relative to `Job.path`, `line` counts from 1."""

    file: str
    line: int
    text: str
    why: str
    rank: int | None = None
    host: str | None = None
    time: int | None = None
    time_resolution_ns: int = NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Another rank that was considered, and why it lost."""

    rank: int | None
    kind: str
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A named, well-known failure that the evidence fits, with the way out. `score` is 0 to 1.

    `against` is what speaks against it, `nearest` the entry that would be named otherwise, `node` what to do with the
    machine (keep, reset, drain, replace), `code` the fix as code for the user's `stack`. These are additions to the
    contract, as `status` is: `supported` by the logs; `confirmed` by the source that failed; `kind-only` where nothing
    but the kind of failure speaks for it.
    """

    entry: str
    title: str
    root_cause: str
    fix: str
    verify: str
    score: float
    matched: tuple[str, ...] = ()
    check_next: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    status: str = "supported"
    against: tuple[str, ...] = ()
    nearest: str | None = None
    why_not_nearest: str | None = None
    node: str | None = None
    stack: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first failure. `kind`, `phase` and `layer` are words of `parsers.lineformats`.

    `confidence` is a calibrated probability, 0 to 1, that of verdicts of the same `basis`. `candidates` are best
    first. `would_settle` says what log or dump would decide where the evidence does not.
    """

    status: Status
    confidence: float
    kind: str
    message: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpu: str | None = None
    phase: str = "unknown"
    layer: str = "unknown"
    time: int | None = None
    time_uncertainty_s: float | None = None
    step: int | None = None
    exception: str | None = None
    location: str | None = None
    evidence: tuple[Evidence, ...] = ()
    reasons: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    diagnosis: Diagnosis | None = None
    would_settle: tuple[str, ...] = ()
    time_resolution_ns: int = NS_PER_S
    basis: str = ""
    """What the decision rests on, in words; not part of the contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collateral:
    """A rank whose errors follow from the first failure, and how (`because`)."""

    rank: int | None
    kind: str
    message: str
    because: str
    host: str | None = None
    time: int | None = None
    evidence: tuple[Evidence, ...] = ()
    time_resolution_ns: int = NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One incarnation of the job (an elastic restart, a Slurm requeue), counted from 0."""

    index: int
    outcome: Outcome
    first_failure: Failure | None = None
    collateral: tuple[Collateral, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What was added to a host's stamps, in seconds, to bring them to the job's common time, and how that is known."""

    host: str | None
    offset_s: float
    uncertainty_s: float | None
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file that was not read, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was read."""

    files: int
    bytes: int
    lines: int
    lines_timestamped: int = 0
    files_skipped: tuple[SkippedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job that was read. `path` is as the user gave it; ranks are global."""

    path: str
    id: str | None = None
    world_size: int | None = None
    ranks_seen: tuple[int, ...] = ()
    ranks_missing: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    started: int | None = None
    ended: int | None = None
    time_resolution_ns: int = NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer. Outcome, first failure and collateral are those of the attempt that ended the job."""

    schema_version: int = SCHEMA_VERSION
    job: Job
    outcome: Outcome
    first_failure: Failure | None
    collateral: tuple[Collateral, ...]
    attempts: tuple[Attempt, ...]
    clocks: tuple[Clock, ...]
    coverage: Coverage
    warnings: tuple[str, ...] = ()


def iso_time(ns: int | None, resolution_ns: int = NS_PER_S) -> str | None:
    """ISO 8601 in UTC with `Z`, to the second, ms or µs, whichever is the coarsest that `resolution_ns` needs.

    None for None and for moments outside the years 1 to 9999 (a damaged stamp).
    """
    if ns is None:
        return None
    if resolution_ns >= NS_PER_S:
        step_ns, spec = NS_PER_S, "seconds"
    elif resolution_ns >= NS_PER_MS:
        step_ns, spec = NS_PER_MS, "milliseconds"
    else:
        step_ns, spec = NS_PER_US, "microseconds"
    try:
        moment = _EPOCH + timedelta(microseconds=ns // step_ns * step_ns // NS_PER_US)
    except OverflowError:
        return None
    return moment.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


def to_json(verdict: Verdict, *, redact: bool = True) -> dict[str, Json]:
    """The verdict as `verdict.schema.json` has it.

    Every string is made safe to show (`safe.show`); unless `redact` is false, secrets are masked, in file names too.
    Numbers that are not finite become None: JSON has none.
    """

    @cache  # a thousand ranks say the same
    def clean(text: str) -> str:
        return safe.show_block(safe.mask(text) if redact else text, TEXT_LIMIT)

    return cast("dict[str, Json]", _plain(verdict, clean))


_INTERNAL = frozenset({"time_resolution_ns", "basis"})
"""Fields that reports use and the contract does not hold."""


def _plain(value: object, clean: Callable[[str], str]) -> Json:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, tuple):
        return [_plain(item, clean) for item in value]
    if is_dataclass(value):
        return _plain_object(value, clean)
    raise TypeError(f"a verdict holds no {type(value).__name__}")


def _plain_object(value: object, clean: Callable[[str], str]) -> dict[str, Json]:
    resolution_ns: int = getattr(value, "time_resolution_ns", NS_PER_S)
    result: dict[str, Json] = {}
    for field in fields(value):  # type: ignore[arg-type]  # `_plain` asked is_dataclass
        item = getattr(value, field.name)
        if field.name in _TIMES:
            result[field.name] = iso_time(item, resolution_ns)
        elif field.name in _PATHS:
            result[field.name] = clean(item).replace("\n", "\u240a")  # a name is one line, whatever is in it
        elif field.name not in _INTERNAL:
            result[field.name] = _plain(item, clean)
    return result
