"""What the epilog tells people and programs of a job, in words and values of its own.

The verdict comes from a process that has read hostile files with the user's rights: it is checked value by value, and
no text of it but that of the reports gets further than the user's own folder and the admin's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.reports import words
from aggregator.verdict import Coverage, Failure, Job, Outcome, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aggregator.slurm.folder import Folder
    from aggregator.slurm.job import SlurmJob

COMMENT_LIMIT = 200
HARDWARE = frozenset({"gpu_ecc", "gpu_lost", "gpu_xid", "nvlink_error"})
"""Kinds of failures after which a node should rest, if its own kernel tells of them."""

_MAX_RANK = 1 << 17
_MAX_HOSTS = 2
_REASON_LIMIT = 160
_PROM_LIMIT = 1 << 20
_FORMER = re.compile(r'denpex_jobs_total\{outcome="([a-z]{1,20})",kind="([a-z_]{1,40})"\} ([0-9]{1,15})')
_FORMER_SECONDS = re.compile(r"denpex_epilog_seconds_total ([0-9]{1,12}\.[0-9]{3})")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,40}")
_NOT_IN_COMMENTS = re.compile(r"[^A-Za-z0-9 .,:()\[\]/_+-]")


def checked_verdict(told: object, job: SlurmJob) -> Verdict:
    """What may be believed of a verdict's JSON: numbers, words of our own and names of hosts, but no text.

    Raises:
        ValueError: it is none.
    """
    document = _object(told)
    first = document.get("first_failure")
    coverage = _object(document.get("coverage"))
    return Verdict(
        job=Job(path="", id=label(job)),
        outcome=Outcome(str(document.get("outcome"))),
        first_failure=None if first is None else _failure(_object(first)),
        collateral=(), attempts=(), clocks=(),
        coverage=Coverage(files=_count(coverage.get("files")), bytes=_count(coverage.get("bytes")), lines=0),
    )  # fmt: skip


def _failure(told: Mapping[str, object]) -> Failure:
    confidence, kind, gpu, step = (told.get(key) for key in ("confidence", "kind", "gpu", "step"))
    if not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ValueError("not a confidence")
    return Failure(
        status=Status(str(told.get("status"))),
        confidence=float(confidence),
        kind=kind if isinstance(kind, str) and kind in words.KINDS else "unknown",
        message="",
        ranks=tuple(min(_count(rank), _MAX_RANK) for rank in _list(told.get("ranks"))[:_MAX_RANK]),
        hosts=tuple(host for host in _list(told.get("hosts")) if isinstance(host, str) and _HOST.fullmatch(host)),
        gpu=gpu if isinstance(gpu, str) and _GPU.fullmatch(gpu) else None,
        phase=str(told.get("phase")) if told.get("phase") in words.PHASES else "unknown",
        step=None if step is None else _count(step),
    )


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - a value of a document, not of the program
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError("not a list")  # noqa: TRY004 - as above
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError("not a count")
    return value


def label(job: SlurmJob) -> str:
    """The job's id as Slurm shows it: `123`, `120_4`."""
    return f"{job.id}" if job.array_id is None or job.array_task is None else f"{job.array_id}_{job.array_task}"


def report_name(job: SlurmJob, suffix: str = "") -> str:
    """The name of a file of ours on a job. By the raw id: an epilog knows no other of an array's task."""
    return f"denpex-{job.id}{suffix}"


def ended_well(job: SlurmJob, verdict: Verdict, lost: str = "") -> bool:
    """Whether neither the logs nor Slurm tell of trouble. Many jobs print nothing when they have done their work.

    `lost` is a node of the job that should have run its epilog before us and has not.
    """
    quiet = verdict.outcome in {Outcome.COMPLETED, Outcome.RUNNING, Outcome.UNKNOWN} and verdict.first_failure is None
    return quiet and job.exit_code in {"", "0:0"} and (not lost or verdict.outcome is Outcome.COMPLETED)


def cause(job: SlurmJob, verdict: Verdict, lost: str = "") -> str:
    """One line on how the job ended: `rank 13 on node-b: CUDA out of memory in evaluation [0.94]`, in plain ASCII."""
    failure = verdict.first_failure
    if failure is None:
        if verdict.outcome is Outcome.COMPLETED and ended_well(job, verdict):
            return "completed"
        code = f"ended with {job.exit_code}; " if re.fullmatch(r"(?!0:0$)[0-9]{1,5}:[0-9]{1,5}", job.exit_code) else ""
        if verdict.outcome in {Outcome.FAILED, Outcome.HUNG, Outcome.CANCELLED}:
            return f"{code}{verdict.outcome}, but its logs do not tell what failed first"
        silence = f", and its first node {lost} ran no epilog: lost?" if lost else ""
        return f"{code}its logs tell of no failure{silence}"
    who = words.ranks_words(failure.ranks) if failure.ranks else "the job"
    if failure.status is Status.AMBIGUOUS:
        who = f"one of {who}"
    elif failure.status is Status.UNDETERMINED:
        who = "rank not told by its logs"
    hosts = failure.hosts if len(failure.hosts) <= _MAX_HOSTS else (words.counted(len(failure.hosts), "node"),)
    place = f" on {', '.join(hosts)}" if hosts else ""
    phase = f" {words.PHASES[failure.phase]}" if failure.phase in words.PHASES else ""
    return safe.show(f"{who}{place}: {words.kind_words(failure.kind)}{phase} [{failure.confidence:.2f}]", 400)


def one_line(job: SlurmJob, text: str) -> str:
    """`job 123 (alice): …`."""
    return f"job {label(job)} ({job.user or job.uid or 'unknown user'}): {text}"


def comment(text: str) -> str:
    """A text that can be an argument of `scontrol update … AdminComment=`: short, no quotes, no control characters."""
    return _NOT_IN_COMMENTS.sub("_", text)[:COMMENT_LIMIT]


def clean_document(told: object) -> object:
    """A JSON value with all text of it made safe to show."""
    if isinstance(told, str):
        return safe.show_block(told)
    if isinstance(told, list):
        return [clean_document(item) for item in told]
    if isinstance(told, dict):
        return {safe.show(str(key)): clean_document(item) for key, item in told.items()}
    return told


def hosts_to_rest(verdict: Verdict, nodes: Iterable[str], kernel: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """The nodes whose own kernel tells of the very kind of hardware failure that the verdict names, each with the line.

    Logs of the job are no proof: its user can write anything into them.
    """
    from parsers.lexicon import default_lexicon  # noqa: PLC0415 - only the node that reports has read the formats
    from parsers.records import Role  # noqa: PLC0415 - as above

    failure = verdict.first_failure
    if failure is None or failure.kind not in HARDWARE or failure.status is Status.AMBIGUOUS:
        return []
    proven = []
    for node in nodes:
        for line in kernel.get(node, ()) if node in failure.hosts else ():
            told = default_lexicon().match(line.partition(" kernel: ")[2])
            if any(message.kind == failure.kind and message.role in {Role.ROOT, Role.EITHER} for message, _ in told):
                proven.append((node, line))
                break
    return proven


def exclude(folder: Folder, name: str, job: SlurmJob, verdict: Verdict, node: str, line: str, now_s: float) -> None:
    """Adds a node to the list that `sbatch --exclude=FILE` takes, with the reason; once is enough.

    Raises:
        OutputError: it cannot be written.
    """
    day = datetime.fromtimestamp(now_s, UTC).date()
    kind = verdict.first_failure.kind if verdict.first_failure else ""
    reason = comment(line.partition(" kernel: ")[2] or line)[:_REASON_LIMIT]
    folder.append(name, f"{node} # {day} job {label(job)} {kind}: {reason}", 0o644, known=node)


def count_job(folder: Folder, name: str, verdict: Verdict, seconds: float) -> None:
    """Adds a job to the counters of this node, in a file for node_exporter's textfile collector.

    Raises:
        OutputError: it cannot be written.
    """
    kind = verdict.first_failure.kind if verdict.first_failure else "none"
    with folder.locked():
        former = folder.read(name, _PROM_LIMIT) or ""
        counts = {(outcome, what): int(number) for outcome, what, number in _FORMER.findall(former)}
        counts[verdict.outcome.value, kind] = counts.get((verdict.outcome.value, kind), 0) + 1
        total = sum(float(number) for number in _FORMER_SECONDS.findall(former)) + seconds
        lines = [
            "# HELP denpex_jobs_total Jobs that the epilog has judged on this node.",
            "# TYPE denpex_jobs_total counter",
            *(f'denpex_jobs_total{{outcome="{o}",kind="{k}"}} {n}' for (o, k), n in sorted(counts.items())),
            "# HELP denpex_epilog_seconds_total Time that this took.",
            "# TYPE denpex_epilog_seconds_total counter",
            f"denpex_epilog_seconds_total {total:.3f}",
        ]
        folder.write(name, "\n".join(lines) + "\n", 0o644)
