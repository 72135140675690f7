"""Small jobs: log lines in the wordings of launchers and libraries, verdicts on them, and bare signals.

A job is a dict of relative path to the text (or bytes) of the file. Times are seconds after START.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from pathlib import Path

from jsonschema import Draft202012Validator

from aggregator.correlate.evidence import NS, JobEvidence
from aggregator.pipeline import postmortem
from aggregator.verdict import Evidence, Verdict, to_json
from parsers.records import Known, Role, Signal, Source, SourceKind, Stamp, StampQuality

START = datetime(2026, 12, 1, 10, 0, 0, tzinfo=UTC)
START_NS = int(START.timestamp()) * NS
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.20 GiB is free."
)
KEY = "KeyError: 'labels'"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
RESET = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Read error [10.4.0.7]:37602: "
    "Connection reset by peer"
)
GLOO_WAIT = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
    "operation to complete"
)
FULL = "OSError: [Errno 28] No space left on device: './out/checkpoint-1190/{}'"


@cache
def validator() -> Draft202012Validator:
    schema = json.loads((resources.files("aggregator") / "verdict.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())


def judged(
    root: Path, files: Mapping[str, str | bytes], order: Callable[[list[str]], Sequence[str]] | None = None
) -> Verdict:
    """The verdict on a folder, or on its files in the order that `order` gives; its form holds."""
    write(root, files)
    verdict = postmortem([str(root)] if order is None else order([str(root / path) for path in files]))
    assert not list(validator().iter_errors(to_json(verdict)))
    if order is None:
        for item in cited(verdict):
            assert_points_at_a_line(root, item)
    return verdict


def cited(verdict: Verdict) -> list[Evidence]:
    """Every line that a verdict cites, of all attempts."""
    found = []
    for attempt in verdict.attempts:
        found.extend(attempt.first_failure.evidence if attempt.first_failure is not None else ())
        found.extend(item for row in attempt.collateral for item in row.evidence)
    return found


def assert_points_at_a_line(root: Path, item: Evidence) -> None:
    path = root / item.file
    assert path.is_file(), item
    if path.suffix in {".json", ""}:
        return  # a dump or error file is cited as a whole
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    assert 1 <= item.line <= len(lines), item
    shown = item.text.split("\n", 1)[0].split(": ", 1)[-1][:30].strip()
    assert shown in lines[item.line - 1], item


def brief(verdict: Verdict) -> tuple[str, str | None, tuple[int, ...], str | None]:
    """Outcome, status, ranks and kind."""
    failure = verdict.first_failure
    if failure is None:
        return str(verdict.outcome), None, (), None
    return str(verdict.outcome), str(failure.status), failure.ranks, failure.kind


def identified(rank: int | Sequence[int], kind: str, outcome: str = "failed") -> tuple:
    """What `brief` gives for a failure that is certain."""
    return outcome, "identified", (rank,) if isinstance(rank, int) else tuple(rank), kind


# Lines


def lines(*parts: str) -> str:
    """Text of a file: each part ends with a line end."""
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def at(seconds: float, separator: str = " ") -> str:
    """A time as Python's logging writes it."""
    return (START + timedelta(seconds=seconds)).strftime(f"%Y-%m-%d{separator}%H:%M:%S,%f")[:-3]


def say(seconds: float, rank: int | None, text: str, level: str = "INFO") -> str:
    """One line of a logger, with the rank where there is one."""
    return f"{at(seconds)} {f'[rank {rank}] ' if rank is not None else ''}{level} tinylm: {text}"


def hello(rank: int, world: int, host: str = "node-a", pid: int | None = None, seconds: float = 0) -> str:
    pid = pid if pid is not None else 4100 + rank
    return say(seconds, rank, f"initialised process group: rank {rank} of {world} on {host} pid {pid}")


def steps(rank: int | None, first: int, last: int, start: float = 1, skew: float = 0) -> str:
    """A line a step and second."""
    return lines(
        *(
            say(start + number - first + skew, rank, f"step {number}/400 loss 5.30{number % 10}")
            for number in range(first, last + 1)
        )
    )


def traceback(error: str, tag: str = "", file: str = "/home/mira/proj/train.py", function: str = "main") -> str:
    """A Python traceback, each line with a tag."""
    return lines(
        *(
            tag + line
            for line in (
                "Traceback (most recent call last):",
                f'  File "{file}", line 157, in <module>',
                f"    {function}()",
                f'  File "{file}", line 135, in {function}',
                "    run(batch)",
                error,
            )
        )
    )


def glog(seconds: float, text: str, level: str = "W", pid: int = 4000) -> str:
    """A line of torchrun's agent."""
    stamp = (START + timedelta(seconds=seconds)).strftime("%m%d %H:%M:%S.%f")
    return f"{level}{stamp} {pid} torch/distributed/elastic/multiprocessing/api.py:900] {text}"


def closing(seconds: float, *pids: int) -> str:
    return lines(*(glog(seconds, f"Sending process {pid} closing signal SIGTERM") for pid in pids))


def failed(seconds: float, code: int, local: int, pid: int) -> str:
    text = f"failed (exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3"
    return glog(seconds, text, "E")


def box(seconds: float, *entries: tuple[int, int, int, int], host: str = "node-a") -> str:
    """The agent's closing summary; entries are rank, local rank, exit code, pid, the first is its root cause."""
    stamp = (START + timedelta(seconds=seconds)).strftime("%Y-%m-%d_%H:%M:%S")

    def entry(index: int, rank: int, local: int, code: int, pid: int) -> list[str]:
        how = f"Signal {-code} (SIG{'KILL' if code == -9 else 'ABRT'}) received by PID {pid}"
        return [
            f"[{index}]:", f"  time      : {stamp}", f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {local})", f"  exitcode  : {code} (pid: {pid})",
            "  error_file: <N/A>",
            "  traceback : " + (how if code < 0 else "To enable traceback see: https://pytorch.org/docs/stable/x.html"),
        ]  # fmt: skip

    others = [line for index, item in enumerate(entries[1:], 1) for line in entry(index, *item)]
    return lines(
        "=" * 60, "train.py FAILED", "-" * 60, "Failures:", *(others or ["  <NO_OTHER_FAILURES>"]), "-" * 60,
        "Root Cause (first observed failure):", *entry(0, *entries[0]), "=" * 60,
    )  # fmt: skip


def c10(seconds: float, rank: int, text: str, level: str = "E") -> str:
    """A line of ProcessGroupNCCL with the rank's tag."""
    stamp = (START + timedelta(seconds=seconds)).strftime("%m%d %H:%M:%S.%f")
    return f"[rank{rank}]:[{level}{stamp}000 ProcessGroupNCCL.cpp:629] {text}"


def watchdog(seconds: float, rank: int, seq: int = 81, op: str = "ALLREDUCE", numel: int = 4096) -> str:
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000)"
    text = f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before"
    return c10(seconds, rank, text + " timing out.")


def status(seconds: float, rank: int, seq: int, enqueued: int, completed: int) -> str:
    text = (
        f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} "
        f"PG status: last enqueued work: {enqueued}, last completed work: {completed}"
    )
    return c10(seconds, rank, text)


def cancelled(seconds: float, why: str = "", what: str = "STEP 123.0", node: str = "node-a") -> str:
    stamp = (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"slurmstepd: error: *** {what} ON {node} CANCELLED AT {stamp}{why} ***"


def kernel(seconds: float, text: str) -> str:
    """A line of `dmesg -T`."""
    moment = START + timedelta(seconds=seconds)
    return f"[{moment.strftime('%a %b')} {moment.day:2d} {moment.strftime('%H:%M:%S %Y')}] {text}"


def oom_kill(seconds: float, pid: int) -> str:
    return lines(
        kernel(seconds, "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        kernel(
            seconds,
            f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
            f"task_memcg=/user.slice/x,task=python3,pid={pid},uid=1007",
        ),
        kernel(
            seconds,
            f"Out of memory: Killed process {pid} (python3) total-vm:182340000kB, anon-rss:98340000kB, "
            "file-rss:120000kB, shmem-rss:64kB, UID:1007 pgtables:240000kB oom_score_adj:0",
        ),
    )


# Bare records


def source(index: int = 0, path: str = "train.log", kind: SourceKind = SourceKind.LOG, **more: object) -> Source:
    return Source(index, path, None, kind, **more)


def signal(
    role: Role, signature: str = "test.signal", *, seconds: float | None = None, own: bool = True, **more: object
) -> Signal:
    """A signal; each one of a source stands below the last one made."""
    given = {"source": 0, "line": 1, "offset": 0, "text": signature, **more}
    found = Signal(signature=signature, role=role, **given)
    if found.rank is not None and found.rank_how is Known.NONE:
        found.rank_how = Known.TAG
    if seconds is not None:
        found.stamp = Stamp(START_NS + int(seconds * NS), 1_000_000)
        found.quality = StampQuality.OWN if own else StampQuality.INHERITED
    return found


def evidence(*sources: Source) -> JobEvidence:
    return JobEvidence("job", sources or (source(),), ())
