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
from aggregator.correlate.evidence import NS, JobEvidence, number
from aggregator.correlate.hardware import find_broken_link_ends
from aggregator.correlate.identity import Identity, stream_rank
from aggregator.correlate.jobs import jobs_of
from aggregator.correlate.learn import build_identity
from aggregator.correlate.machines import find_struck_machines
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
_RESTARTS = frozenset({"te.restart"})
_TELL_RESTARTS = _RESTARTS | {"te.failed", "slurm.srun_abort"}
"""Without one of these a file tells of no restart."""


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
    find_broken_link_ends(signals)
    find_struck_machines(evidence, signals, table)
    moved = set_zones(evidence, signals, table)
    loosen_bounds(signals, table)
    signals = drop_echoes(signals)
    clocks = estimate(signals, table)
    attempts = tuple(
        JudgedAttempt(index, judge_attempt(evidence, part, table, clocks), part)
        for index, part in _split_attempts(evidence, signals)
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


def _split_attempts(evidence: JobEvidence, signals: list[Signal]) -> list[tuple[int, list[Signal]]]:
    """Signals by incarnation: folders tell it, and restart lines inside a file."""
    folders = {source.attempt for source in evidence.sources if source.attempt is not None}
    newest = max(folders, default=0)
    restarts = _restarts(signals, newest)
    if not folders and not restarts:
        return [(0, signals)]
    parts: dict[int, list[Signal]] = {}
    for signal in signals:
        source = evidence.source(signal)
        index = source.attempt
        if index is None:
            marks = restarts.get(signal.source, [])
            index = sum(1 for mark in marks if mark.offset < signal.offset) if marks else newest
        parts.setdefault(index, []).append(signal)
    if not parts:
        return [(0, [])]
    final = max(parts)
    shared = [s for s in signals if s.role is Role.IDENTITY]
    return [
        (index, part if index == final else [*part, *(s for s in shared if s not in part)])
        for index, part in sorted(parts.items())
    ]


def _restarts(signals: Sequence[Signal], newest: int) -> dict[int, list[Signal]]:
    """By source, the lines after which the next incarnation runs.

    An agent tells of a restart at level INFO, mostly hidden; what it always prints is the end of the last one. That
    is a restart where processes introduce themselves anew below it, or count their steps anew, or where the attempts'
    folders (`newest` is the last one's number) show that there were so many. Of a step that srun ended it is one only
    where the program begins anew below: a batch script may run it again.
    """
    told: dict[int, list[Signal]] = {}
    ends: dict[int, list[Signal]] = {}
    over: dict[int, Signal] = {}
    begun: dict[int, int] = {}
    final: set[int] = set()
    steps: dict[tuple[int, int | None, str], int] = {}
    tell = {signal.source for signal in signals if signal.signature in _TELL_RESTARTS}
    for signal in [signal for signal in signals if signal.source in tell] if tell else ():
        if signal.signature in _RESTARTS:
            told.setdefault(signal.source, []).append(signal)
        elif signal.signature == "te.failed":
            ends.setdefault(signal.source, []).append(signal)
        elif signal.signature == "te.childfailed":
            final.add(signal.source)
        elif signal.signature == "slurm.srun_abort" and "Force Terminated" in signal.text:
            over[signal.source] = signal
        elif _begins(signal, steps):
            begun[signal.source] = signal.offset
            if signal.source in over:
                told.setdefault(signal.source, []).append(over.pop(signal.source))
    for source, marks in ends.items():
        if source not in told:
            found = [mark for mark in marks if mark.offset < begun.get(source, 0)]
            # An agent whose workers write elsewhere tells of nothing else; what it raises at last is no restart.
            found = found or (marks[:-1] if source in final else marks)[:newest]
            if found:
                told[source] = found
    return told


def _begins(signal: Signal, steps: dict[tuple[int, int | None, str], int]) -> bool:
    """Whether a process introduces itself, or counts its steps anew; `steps` keeps the highest of each writer."""
    if signal.role is Role.PROGRESS:
        step = number(signal.fields.get("step"))
        writer = (signal.source, signal.rank, signal.signature)
        if step is None:
            return False
        if step < steps.get(writer, -1):
            return True
        steps[writer] = step
        return False
    return signal.role is Role.IDENTITY or (signal.role is Role.PHASE and signal.phase == "init")


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
