"""From everything that was read of a job to its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggregator.catalogue.facts import Scene
from aggregator.catalogue.naming import SHIPPED, Naming
from aggregator.correlate.attempt import Judgement, judge_attempt
from aggregator.correlate.clocks import ClockModel, estimate, loosen_bounds
from aggregator.correlate.consequences import collateral
from aggregator.correlate.contested import contest
from aggregator.correlate.evidence import NS, JobEvidence
from aggregator.correlate.hardware import find_broken_link_ends
from aggregator.correlate.identity import Identity, stream_rank
from aggregator.correlate.jobs import jobs_of
from aggregator.correlate.learn import build_identity
from aggregator.correlate.machines import find_struck_machines
from aggregator.correlate.restarts import outlived, split_attempts
from aggregator.correlate.sections import drop_echoes, join_sections
from aggregator.correlate.zones import set_zones
from aggregator.verdict import (
    Attempt,
    Clock,
    Coverage,
    Failure,
    Job,
    SkippedFile,
    Verdict,
)
from parsers.records import Role, Signal, Stamp, StampQuality

_LONGEST_NS = 30 * 86_400 * NS
"""No job writes without a date for longer before its first line that has one, or after the last."""
_CUDA_NS = 1_182_556_800 * NS
"""When CUDA 1.0 came out: a clock that shows an earlier time was not set yet."""


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """One attempt, by its number, and the signals that it was judged by."""

    index: int
    judgement: Judgement
    signals: Sequence[Signal]


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on a job, and what it was made of."""

    verdict: Verdict
    evidence: JobEvidence
    table: Identity
    clocks: ClockModel
    attempts: tuple[JudgedAttempt, ...]


def judge(evidence: JobEvidence, naming: Naming = SHIPPED) -> Verdict:
    """The verdict on a job."""
    return judge_job(evidence, naming).verdict


def judge_job(evidence: JobEvidence, naming: Naming = SHIPPED) -> Judged:
    """The verdict on a job, with the table of who is who, the clocks and the ranks' stories.

    Of several jobs in one folder the newest is judged; those before it stand as its earlier attempts.
    """
    *earlier, (job, newest) = jobs_of(evidence)
    judged = _judge_one(newest, naming)
    if job is None:
        return judged
    before = [attempt for _, older in earlier for attempt in _judge_one(older, naming).verdict.attempts]
    shift = len(before)
    rows = [*before, *judged.verdict.attempts]
    listed = ", ".join(name for name, _ in earlier if name is not None)
    warning = f"the logs of earlier jobs lie beside those of job {job}: {listed}; they are told of as earlier attempts"
    verdict = replace(
        judged.verdict,
        attempts=tuple(replace(row, index=index) for index, row in enumerate(rows)),
        coverage=_coverage(evidence),
        warnings=(*judged.verdict.warnings, warning),
    )
    attempts = tuple(replace(item, index=shift + number) for number, item in enumerate(judged.attempts))
    return replace(judged, verdict=verdict, attempts=attempts)


def _judge_one(evidence: JobEvidence, naming: Naming) -> Judged:
    signals = join_sections(evidence.signals())
    table = build_identity(evidence, signals)
    find_broken_link_ends(evidence, signals)
    find_struck_machines(evidence, signals, table)
    moved = set_zones(evidence, signals, table)
    loosen_bounds(signals, table)
    signals = drop_echoes(signals)
    clocks = estimate(signals, table)
    *earlier, (newest, rest) = split_attempts(evidence, signals)
    moved_on = bool(earlier) and bool(outlived(signals))
    parts = [(index, part, _table_of(evidence, part, table) if moved_on else table) for index, part in earlier]
    attempts = tuple(
        JudgedAttempt(index, judge_attempt(evidence, part, own, clocks), part)
        for index, part, own in [*parts, (newest, rest, table)]
    )
    rows = []
    contests: list[str] = []
    for item in attempts:
        judgement = item.judgement
        listed = collateral(evidence, judgement.stories, judgement.failure)
        failure = judgement.failure
        contests.clear()
        if failure is not None:
            failure, told = contest(failure, judgement.leads, evidence, item.signals, table)
            contests += told
            scene = Scene(failure, judgement, item.signals, listed, table.world_size, len(attempts))
            failure = replace(failure, diagnosis=naming.diagnosis(scene))
        rows.append(Attempt(index=item.index, outcome=judgement.outcome, first_failure=failure, collateral=listed))
    last = rows[-1]
    verdict = Verdict(
        job=_job(evidence, signals, table, clocks, last.first_failure), outcome=last.outcome,
        first_failure=last.first_failure,
        collateral=last.collateral, attempts=tuple(rows), clocks=_clocks(clocks, table), coverage=_coverage(evidence),
        warnings=(*_warnings(evidence, signals, table), *moved, *contests),
    )  # fmt: skip
    return Judged(verdict, evidence, table, clocks, attempts)


def _table_of(evidence: JobEvidence, part: list[Signal], table: Identity) -> Identity:
    """Who is who in an incarnation before the last, whose ranks may have run on other hosts."""
    for signal in part:
        if signal.rank is not None and signal.host == table.host_of_rank.get(signal.rank):
            signal.host = None
    return build_identity(evidence, part)


def _job(
    evidence: JobEvidence, signals: Sequence[Signal], table: Identity, clocks: ClockModel, failure: Failure | None
) -> Job:
    stamps = _span(evidence, signals, table, clocks)
    if stamps and failure is not None and failure.time is not None:
        stamps.append(failure.time)
    ids = [source.job_id for source in evidence.sources if source.job_id]
    ids += [signal.fields["job_id"] for signal in signals if signal.fields.get("job_id")]
    ranks = tuple(sorted(table.ranks))
    missing = (
        tuple(sorted(set(range(table.world_size)) - table.ranks))
        if table.world_size and table.world_size <= 1 << 17
        else ()
    )
    return Job(
        path=evidence.path, id=ids[0] if ids else None, world_size=table.world_size,
        ranks_seen=ranks, ranks_missing=missing,
        hosts=tuple(table.hosts), started=min(stamps, default=None), ended=max(stamps, default=None),
    )  # fmt: skip


def _span(evidence: JobEvidence, signals: Sequence[Signal], table: Identity, clocks: ClockModel) -> list[int]:
    """Moments of the job, in ns of the common time. Those whose year was completed count where they fit the others."""
    told: list[tuple[Stamp, str | None]] = []
    for source, key, activity in evidence.activities:
        rank = stream_rank(source, key, table)
        host = (table.host_of_rank.get(rank) if rank is not None else None) or source.host
        told += [(stamp, host) for stamp in (activity.first_stamp, activity.last_stamp) if stamp is not None]
    told += [
        (signal.stamp, signal.host) for signal in signals
        if signal.role in {Role.EXTERNAL, Role.EXIT} and signal.stamp is not None and signal.quality is StampQuality.OWN
    ]  # fmt: skip
    known = [clocks.common(stamp.ns, host) for stamp, host in told if stamp.year_known and not stamp.boot]
    known = [ns for ns in known if ns >= _CUDA_NS] or known
    if not known:
        return []
    first, last = min(known) - _LONGEST_NS, max(known) + _LONGEST_NS
    guessed = [clocks.common(stamp.ns, host) for stamp, host in told if not stamp.year_known and not stamp.boot]
    return known + [ns for ns in guessed if first <= ns <= last]


def _clocks(model: ClockModel, table: Identity) -> tuple[Clock, ...]:
    rows = []
    for number_of, host in enumerate(table.hosts or [None]):
        known = model.hosts.get(host) if host is not None else None
        if known is not None:
            rows.append(
                Clock(
                    host=host, offset_s=-known.offset_ns / NS, uncertainty_s=known.epsilon_ns / NS, method=known.method,
                )
            )  # fmt: skip
        else:
            alone = len(table.hosts) <= 1 and number_of == 0
            rows.append(
                Clock(
                    host=host, offset_s=0.0, uncertainty_s=0.0 if alone else None,
                    method="reference" if alone else "assumed",
                )
            )  # fmt: skip
    return tuple(rows)


def _coverage(evidence: JobEvidence) -> Coverage:
    return Coverage(
        files=len(evidence.sources), bytes=evidence.bytes, lines=sum(scan.counts.lines for scan in evidence.scans),
        lines_timestamped=sum(scan.counts.stamped for scan in evidence.scans),
        files_skipped=tuple(SkippedFile(file=item.path, reason=item.reason) for item in evidence.skipped),
    )  # fmt: skip


def _warnings(evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> list[str]:
    warnings = list(evidence.notes)
    conflicts = {(s.rank, s.fields["conflict_rank"]) for s in signals if "conflict_rank" in s.fields}
    for rank, told in sorted(conflicts, key=str)[:5]:
        warnings.append(
            f"lines of rank {rank} call themselves rank {told}: where they were found outranks what they say"
        )
    if table.world_size:
        missing = table.world_size - len(table.ranks)
        if missing > 0:
            warnings.append(f"no line of {missing} of {table.world_size} ranks was found")
    undecodable = sum(scan.counts.undecodable for scan in evidence.scans)
    if undecodable:
        warnings.append(f"{undecodable} lines held bytes that are not UTF-8; these were replaced")
    long_lines = sum(scan.counts.long_lines for scan in evidence.scans)
    if long_lines:
        warnings.append(f"{long_lines} very long lines were read at their head and tail only")
    return warnings
