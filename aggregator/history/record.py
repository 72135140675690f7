"""One kept verdict, and its line of JSON. Times are ns, UTC; secrets are masked before anything is kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aggregator import safe
from aggregator.remote import is_url, local_path, shown

if TYPE_CHECKING:
    from aggregator.verdict import Failure, Verdict

VERSION = 1
"""Of a line. To be raised whenever an older program would misread what a newer one writes."""
_TEXT_LIMIT = 200
_MAX_RANKS = 64
_MAX_HOSTS = 32
_MAX_ATTEMPTS = 32


class DamagedRecordError(ValueError):
    """A line that no version of this program has written."""


class NewerRecordError(Exception):
    """A line that a newer version has written."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt of a job ended, and what failed first in it (`kind` is empty if nothing did).

    `cause` is the catalogue's entry where one was named, else the kind; `status` as in the verdict. Of many ranks and
    hosts the first are kept.
    """

    outcome: str
    status: str = ""
    kind: str = ""
    cause: str = ""
    title: str = ""
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    gpu: str | None = None
    location: str | None = None
    confidence: float = 0.0
    time: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One verdict. `job` is the same for all verdicts on the same paths; `name` and `path` are for people.

    `attempts` has at least one ending, the last of which is the job's.
    """

    recorded: int
    job: str
    name: str
    path: str
    attempts: tuple[Ending, ...]
    started: int | None = None
    ended: int | None = None
    world_size: int | None = None

    @property
    def last(self) -> Ending:
        """How the job ended."""
        return self.attempts[-1]

    @property
    def time(self) -> int:
        """When it ended, as near as is known."""
        return next((ns for ns in (self.last.time, self.ended, self.started) if ns is not None), self.recorded)


def record_of(paths: Sequence[str], verdict: Verdict, now_ns: int) -> Record:
    """What is kept of a verdict on `paths`.

    Raises:
        OSError: the paths are relative and the working folder is gone.
    """
    real = sorted(shown(path) if is_url(path) else os.path.realpath(local_path(path)) for path in paths)
    job = verdict.job
    endings = [_ending(attempt.outcome, attempt.first_failure) for attempt in verdict.attempts[-_MAX_ATTEMPTS:]]
    last = _ending(verdict.outcome, verdict.first_failure)
    return Record(
        recorded=now_ns,
        job=job_key(real),
        name=_clean(job.id or job.path),
        path=_clean(real[0]),
        attempts=(*endings[:-1], last),
        started=job.started,
        ended=job.ended,
        world_size=job.world_size,
    )


def job_key(real: Sequence[str]) -> str:
    """What `Record.job` is for a job of these resolved paths, in order."""
    return hashlib.sha256("\0".join(real).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _ending(outcome: str, failure: Failure | None) -> Ending:
    if failure is None:
        return Ending(str(outcome))
    diagnosis = failure.diagnosis
    return Ending(
        outcome=str(outcome),
        status=str(failure.status),
        kind=failure.kind,
        cause=_clean(diagnosis.entry if diagnosis is not None else failure.kind),
        title=_clean(diagnosis.title if diagnosis is not None else ""),
        ranks=failure.ranks[:_MAX_RANKS],
        hosts=tuple(map(_clean, failure.hosts[:_MAX_HOSTS])),
        gpu=None if failure.gpu is None else _clean(failure.gpu),
        location=None if failure.location is None else _clean(failure.location),
        confidence=round(failure.confidence, 3),
        time=failure.time,
    )


def _clean(text: str) -> str:
    return safe.show(safe.mask(text), _TEXT_LIMIT)


def to_line(record: Record) -> bytes:
    """The record as one line of ASCII, with its newline."""
    return (json.dumps({"v": VERSION, **asdict(record)}, separators=(",", ":"), allow_nan=False) + "\n").encode()


def from_line(line: bytes) -> Record:
    """The record of a line.

    Raises:
        NewerRecordError: a newer version wrote it.
        DamagedRecordError: nobody did.
    """
    try:
        told = json.loads(line)
        if _whole(told["v"]) > VERSION:
            raise NewerRecordError
        attempts = tuple(_ending_from(item) for item in told["attempts"])
        record = Record(
            recorded=_whole(told["recorded"]), job=_text(told["job"]), name=_text(told["name"]),
            path=_text(told["path"]), attempts=attempts, started=_whole_or_none(told["started"]),
            ended=_whole_or_none(told["ended"]), world_size=_whole_or_none(told["world_size"]),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise DamagedRecordError(str(error)) from None
    if not attempts:
        raise DamagedRecordError("no attempt")
    return record


def _ending_from(told: Mapping[str, Any]) -> Ending:
    return Ending(
        outcome=_text(told["outcome"]), status=_text(told["status"]), kind=_text(told["kind"]),
        cause=_text(told["cause"]), title=_text(told["title"]), ranks=tuple(map(_whole, told["ranks"])),
        hosts=tuple(map(_text, told["hosts"])), gpu=None if told["gpu"] is None else _text(told["gpu"]),
        location=None if told["location"] is None else _text(told["location"]),
        confidence=float(told["confidence"]), time=_whole_or_none(told["time"]),
    )  # fmt: skip


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    return value


def _whole_or_none(value: object) -> int | None:
    return None if value is None else _whole(value)
