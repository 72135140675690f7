"""What comes again in the kept verdicts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aggregator.history.record import Ending, Record
from aggregator.verdict import Status

AGAIN = 2
"""So often is again."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The first failure of one attempt of one job."""

    record: Record
    ending: Ending

    @property
    def time(self) -> int:
        """When, in ns; of an attempt without a time the moment of the job's end."""
        return self.ending.time if self.ending.time is not None else self.record.time


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Something that failed more than once: `name` is a cause (with its `title`), a host, or a host and its GPU.

    `others` counts what it came with: the hosts of a cause, the kinds of failure of a host or GPU.
    """

    name: str
    title: str
    times: int
    jobs: int
    first: int
    last: int
    others: tuple[tuple[str, int], ...]


def latest_runs(records: Iterable[Record]) -> list[Record]:
    """One record a run, the one that was made last, in order of time: a job is often looked at more than once.

    A run is known by its job and its start; and, whatever its files are called, by start and first failure.
    """
    by_start = {(record.job, _beginning(record)): record for record in records}
    by_failure = {}
    for record in by_start.values():
        last = record.last
        known = record.started is not None and last.kind
        key = (record.started, last.time, last.kind, last.ranks, last.hosts) if known else (record,)
        by_failure[key] = record
    return sorted(by_failure.values(), key=lambda record: record.time)


def _beginning(record: Record) -> int | None:
    return next((ns for ns in (record.started, record.last.time, record.ended) if ns is not None), None)


def failures(runs: Iterable[Record]) -> list[Failed]:
    """All first failures, in order of time."""
    found = [Failed(record, ending) for record in runs for ending in record.attempts if ending.kind]
    return sorted(found, key=lambda failed: failed.time)


def causes(failed: Iterable[Failed]) -> list[Recurrence]:
    """Causes that came again, the most frequent first."""
    groups: defaultdict[str, list[Failed]] = defaultdict(list)
    for item in failed:
        groups[item.ending.cause].append(item)
    return _recurrences(groups, lambda item: item.ending.hosts)


def hosts(failed: Iterable[Failed]) -> list[Recurrence]:
    """Hosts on which a job failed first again; only where the verdict is settled."""
    groups: defaultdict[str, list[Failed]] = defaultdict(list)
    for item in _settled(failed):
        for host in item.ending.hosts:
            groups[host].append(item)
    return _recurrences(groups, lambda item: (item.ending.kind,))


def gpus(failed: Iterable[Failed]) -> list[Recurrence]:
    """GPUs on which a job failed first again."""
    groups: defaultdict[str, list[Failed]] = defaultdict(list)
    for item in _settled(failed):
        if item.ending.gpu is not None and len(item.ending.hosts) == 1:
            groups[f"{item.ending.hosts[0]} GPU {item.ending.gpu}"].append(item)
    return _recurrences(groups, lambda item: (item.ending.kind,))


def repeated_jobs(runs: Iterable[Record]) -> list[list[Record]]:
    """The runs of each job that was run, or tried, more than once."""
    jobs: defaultdict[str, list[Record]] = defaultdict(list)
    for record in runs:
        jobs[record.job].append(record)
    return [listed for listed in jobs.values() if sum(len(record.attempts) for record in listed) >= AGAIN]


def _settled(failed: Iterable[Failed]) -> list[Failed]:
    return [item for item in failed if item.ending.status == Status.IDENTIFIED]


def _recurrences(groups: dict[str, list[Failed]], others: Callable[[Failed], Sequence[str]]) -> list[Recurrence]:
    found = [
        Recurrence(
            name=name,
            title=items[-1].ending.title if items[-1].ending.cause == name else "",
            times=len(items),
            jobs=len({item.record.job for item in items}),
            first=items[0].time,
            last=items[-1].time,
            others=tuple(Counter(other for item in items for other in others(item)).most_common()),
        )
        for name, items in groups.items()
        if len(items) >= AGAIN
    ]
    return sorted(found, key=lambda item: (-item.times, -item.last, item.name))
