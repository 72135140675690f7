"""Tells jobs apart that ran one after the other and left their logs in one folder: a script submitted again, say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from aggregator.correlate.evidence import JobEvidence
from parsers.records import Source, SourceKind

_NAMED_BY_JOB = frozenset({"slurm-out", "slurm-array", "submitit", "job-out"})
"""Layouts of names in which the number is surely a job's id."""


def jobs_of(evidence: JobEvidence) -> list[tuple[str | None, JobEvidence]]:
    """The evidence of each job with its id, the oldest first; just one, without an id, where jobs can't be told apart.

    Jobs are apart if their ids are in the names of their logs and each ended before the next began, as their own stamps
    tell. Logs without an id are the newest job's; the kernel's and what is no log belong to all.
    """
    spans: dict[str, list[int]] = defaultdict(list)
    for source, _, activity in evidence.activities:
        if (job := _job_of(source)) is not None:
            spans[job] += [s.ns for s in (activity.first_stamp, activity.last_stamp) if s is not None and s.year_known]
    order = sorted(spans, key=lambda job: min(spans[job], default=0))
    one_by_one = all(spans.values()) and all(max(spans[a]) < min(spans[b]) for a, b in pairwise(order))
    if len(order) <= 1 or not one_by_one:
        return [(None, evidence)]
    return [(job, _part(evidence, job, is_newest=job == order[-1])) for job in order]


def _job_of(source: Source) -> str | None:
    return source.job_id if source.kind is SourceKind.LOG and source.layout in _NAMED_BY_JOB else None


def _part(evidence: JobEvidence, job: str, *, is_newest: bool) -> JobEvidence:
    """The evidence of one job. Sources keep their numbers; those of other jobs tell nothing."""

    def belongs(source: Source) -> bool:
        named = _job_of(source)
        return named == job or (named is None and (is_newest or source.kind is not SourceKind.LOG))

    ours = {source.index for source in evidence.sources if belongs(source)}
    dumps = [pair for pair in zip(evidence.dumps, evidence.dump_sources, strict=True) if is_newest and pair[1] in ours]
    return replace(
        evidence,
        sources=tuple(
            source if source.index in ours else replace(source, rank=None, local_rank=None, host=None, job_id=None)
            for source in evidence.sources
        ),
        scans=tuple(scan for scan in evidence.scans if scan.source.index in ours),
        extra_signals=tuple(signal for signal in evidence.extra_signals if signal.source in ours),
        dumps=tuple(dump for dump, _ in dumps),
        dump_sources=tuple(index for _, index in dumps),
    )
