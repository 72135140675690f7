"""The history as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggregator.history import recurring
from aggregator.history.record import Ending, Record
from aggregator.history.recurring import Recurrence
from aggregator.reports import words
from aggregator.verdict import Json, iso_time

SCHEMA_VERSION = 1
"""Of the JSON form. Fields are added, not changed."""
_SHOWN = 10
_NAMES = 4


def lines(runs: Sequence[Record], kept: int) -> Iterator[str]:
    """The runs for people, not yet safe to show; `kept` is the number of all verdicts, asked for or not."""
    if not runs:
        nothing = "No verdict is kept: postmortem, report and watch keep theirs."
        yield f"None of the {words.counted(kept, 'verdict')} that are kept fits." if kept else nothing
        return
    failed = recurring.failures(runs)
    jobs = len({record.job for record in runs})
    amount = f"{words.counted(len(runs), 'run')} of {words.counted(jobs, 'job')}"
    yield f"{amount}, {_day(runs[0].time)} to {_day(runs[-1].time)}"
    sections = (
        ("Causes that came again", recurring.causes(failed), False),
        ("Hosts that failed first again", recurring.hosts(failed), True),
        ("GPUs that failed first again", recurring.gpus(failed), True),
    )
    for title, found, are_kinds in sections:
        yield from _section(title, found, are_kinds=are_kinds)
    repeated = recurring.repeated_jobs(runs)
    if repeated:
        yield from ("", "Jobs that were tried again")
        for listed in repeated[-_SHOWN:]:
            yield f"  {listed[-1].name} ({listed[-1].path})"
            for record in listed:
                yield from (f"    {_told(record, ending)}" for ending in record.attempts)
    yield from ("", "Latest")
    for record in reversed(runs[-_SHOWN:]):
        yield f"  {_told(record, record.last)}"
        yield f"    {record.path}"


def _section(title: str, found: Sequence[Recurrence], *, are_kinds: bool) -> Iterator[str]:
    if not found:
        return
    yield from ("", title)
    for item in found[:_SHOWN]:
        yield f"  {item.name}" + (f": {item.title}" if item.title else "")
        names = [f"{words.kind_words(name) if are_kinds else name} ({number})" for name, number in item.others[:_NAMES]]
        more = f" and {len(item.others) - _NAMES} more" if len(item.others) > _NAMES else ""
        what = f"{'' if are_kinds else 'on '}{', '.join(names)}{more}" if names else "on no host that is known"
        often = f"{item.times} times in {words.counted(item.jobs, 'job')}"
        yield f"    {often}, {_day(item.first)} to {_day(item.last)}: {what}"
    if len(found) > _SHOWN:
        yield f"  … and {len(found) - _SHOWN} more: see --json"


def _told(record: Record, ending: Ending) -> str:
    """One attempt in a line."""
    moment = words.moment(ending.time if ending.time is not None else record.time)
    text = f"{moment or 'at an unknown time'} {ending.outcome}"
    return f"{text}: {failure_words(ending)}" if ending.kind else text


def failure_words(ending: Ending) -> str:
    """What failed first in an attempt in which something did: `rank 3 (node-a): CUDA out of memory`."""
    who = words.ranks_words(ending.ranks) if ending.ranks else "no rank named"
    where = f" ({', '.join(ending.hosts[:_NAMES])})" if ending.hosts else ""
    return f"{who}{where}: {words.kind_words(ending.kind)}"


def _day(ns: int) -> str:
    return (iso_time(ns) or "?")[:10]


def document(runs: Sequence[Record]) -> dict[str, Json]:
    """The runs and what comes again in them, for programs."""
    failed = recurring.failures(runs)
    return {
        "schema_version": SCHEMA_VERSION,
        "recurring": {
            "causes": [_recurrence(item, "hosts") for item in recurring.causes(failed)],
            "hosts": [_recurrence(item, "kinds") for item in recurring.hosts(failed)],
            "gpus": [_recurrence(item, "kinds") for item in recurring.gpus(failed)],
        },
        "repeated": [listed[0].job for listed in recurring.repeated_jobs(runs)],
        "runs": [_run(record) for record in runs],
    }


def _recurrence(item: Recurrence, others: str) -> dict[str, Json]:
    return {
        "name": item.name, "title": item.title, "times": item.times, "jobs": item.jobs,
        "first": iso_time(item.first), "last": iso_time(item.last), others: dict(item.others),
    }  # fmt: skip


def _run(record: Record) -> dict[str, Json]:
    return {
        "job": record.job, "name": record.name, "path": record.path, "recorded": iso_time(record.recorded),
        "started": iso_time(record.started), "ended": iso_time(record.ended), "world_size": record.world_size,
        "attempts": [
            {
                "outcome": ending.outcome, "status": ending.status or None, "kind": ending.kind or None,
                "cause": ending.cause or None, "title": ending.title or None, "ranks": list(ending.ranks),
                "hosts": list(ending.hosts), "gpu": ending.gpu, "location": ending.location,
                "confidence": ending.confidence, "time": iso_time(ending.time),
            }
            for ending in record.attempts
        ],
    }  # fmt: skip
