"""Sample runs as plain values: what they hold, whose each line is, and what is answered about a changed copy.

A job is a dict of relative path to bytes. Everything that changes a job takes one and returns a new one.
"""

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aggregator.pipeline import postmortem
from aggregator.verdict import Outcome, Status, Verdict

SAMPLES = Path(__file__).parents[2] / "sample_runs"
Files = dict[str, bytes]
Rewrite = Callable[[str, str], str]
"""Path and line (without its end) to the new line."""

_PODS = {"master": 0, "worker": 1}


@dataclass(frozen=True, slots=True)
class Truth:
    """What expected.json says. `status` is None where nothing failed."""

    outcome: str
    status: str | None
    ranks: frozenset[int]
    hosts: frozenset[str]
    kind: str | None
    collateral: tuple[int, ...]


@cache
def load(name: str) -> tuple[tuple[str, bytes], ...]:
    job = SAMPLES / name / "job"
    return tuple((str(p.relative_to(job)), p.read_bytes()) for p in sorted(job.rglob("*")) if p.is_file())


def job_of(name: str) -> Files:
    return dict(load(name))


def truth_of(name: str) -> Truth:
    raw = json.loads((SAMPLES / name / "expected.json").read_text(encoding="utf-8"))
    collateral = tuple(raw["collateral"] or ())
    ranks, hosts = frozenset(raw["ranks"]), frozenset(raw["hosts"])
    return Truth(raw["outcome"], raw["status"], ranks, hosts, raw["kind"], collateral)


def is_text(path: str) -> bool:
    return "_trace_rank_" not in path and not path.endswith("error.json")


def write(files: Files, root: Path) -> list[str]:
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return [str(root / path) for path in files]


def judge(files: Files, order: Callable[[list[str]], Sequence[str]] | None = None) -> Verdict:
    """The verdict on a job: of its folder, or of its files in the order that `order` gives."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "job"
        paths = write(files, root)
        return postmortem([str(root)] if order is None else order(paths))


def brief(verdict: Verdict) -> str:
    failure = verdict.first_failure
    if failure is None:
        return f"{verdict.outcome}: nothing failed first"
    return f"{verdict.outcome}: {failure.status} {list(failure.ranks)} {failure.kind} {list(failure.hosts)}"


def assert_same(verdict: Verdict, truth: Truth) -> None:
    """Outcome, certainty, ranks and kind are those of the truth."""
    failure = verdict.first_failure
    assert verdict.outcome == truth.outcome, brief(verdict)
    if truth.status is None:
        assert failure is None, brief(verdict)
        return
    assert failure is not None, brief(verdict)
    assert failure.status == truth.status, brief(verdict)
    assert (set(failure.ranks), failure.kind) == (truth.ranks, truth.kind), brief(verdict)


def assert_not_flipped(verdict: Verdict, truth: Truth) -> None:
    """The answer is the true one or a weaker one, never another one that is sure of itself."""
    failure = verdict.first_failure
    if truth.status is None:
        assert verdict.outcome in {Outcome.COMPLETED, Outcome.UNKNOWN}, brief(verdict)
        assert failure is None or failure.status is not Status.IDENTIFIED, brief(verdict)
        return
    assert verdict.outcome in {truth.outcome, Outcome.HUNG, Outcome.UNKNOWN}, brief(verdict)
    if failure is None or failure.status is Status.UNDETERMINED:
        return
    if failure.status is Status.AMBIGUOUS:
        assert truth.ranks & set(failure.ranks), brief(verdict)
        return
    assert (set(failure.ranks), failure.kind) == (truth.ranks, truth.kind), brief(verdict)


def rewrite(files: Files, change: Rewrite) -> Files:
    """Every line of every text file changed by `change`; ends of lines and undecodable bytes stay as they are."""
    result = {}
    for path, data in files.items():
        if not is_text(path):
            result[path] = data
            continue
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        result[path] = "\n".join(change(path, line) for line in lines).encode("utf-8", "surrogateescape")
    return result


def lines_of(data: bytes) -> list[str]:
    """The lines of a file, the empty one after the last line end left out."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def joined(lines: Sequence[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")


_RANK_IN_PATH = {
    "eval-oom-no-grad": r"rank(\d)\.log$",
    "torchrun-logdir-eval-oom": r"attempt_0/(\d)/",
    "collective-shape-mismatch": r"attempt_0/(\d)/",
    "slurm-node-failure": r"tx-.\.(\d+)\.log$",
    "hang-flight-recorder": r"trace_rank_(\d)(?:\.json)?$",
}
_RANK_IN_LINE = {
    "interleaved-nan": r"^(?:[\d-]+ [\d:,]+ )?\[rank ?(\d)\]",
    "slurm-label-cgroup-oom": r"^(\d): ",
    "hang-flight-recorder": r"^(?:\[rank(\d)\]|rank (\d) step)",
    "collective-shape-mismatch": r"^\[default(\d)\]:",
    "completed-noisy-shutdown": r"^\[rank(\d)\]|, rank: (\d),",
}
_LABEL_HOST = {"0": "node-1", "1": "node-1", "2": "node-2", "3": "node-2"}


def _found(patterns: dict[str, str], name: str, text: str) -> int | None:
    found = re.search(patterns[name], text) if name in patterns else None
    return int(found[found.lastindex or 0]) if found else None


def rank_of(name: str, path: str, line: str) -> int | None:
    """The global rank whose line it is, None for the launcher's, the kernel's and the scheduler's."""
    if name == "two-node-segfault":
        node, local = re.match(r"dgx-r7-0(\d)/", path), re.search(r"attempt_0/(\d)/", path)
        local = local or re.match(r"\[default(\d)\]:", line)
        return 2 * (int(node[1]) - 1) + int(local[1]) if node and local else None
    if name == "k8s-oomkilled":
        pod = re.match(r"\[pod/vits-large-(master|worker)-(\d)/", line)
        return _PODS[pod[1]] + int(pod[2]) if pod else None
    rank = _found(_RANK_IN_PATH, name, path)
    return rank if rank is not None else _found(_RANK_IN_LINE, name, line)


def host_of(name: str, path: str, line: str) -> str | None:
    """The host whose clock stamped the line; None in runs of one host."""
    if name == "two-node-segfault":
        return path.split("/", maxsplit=1)[0]
    if name == "slurm-node-failure":
        found = re.search(r"(tx-.)\.\d+\.log$", path)
        return found[1] if found else "tx-a"
    if name == "k8s-oomkilled":
        pod = re.match(r"\[pod/([\w-]+)/", line)
        return pod[1] if pod else "cluster"
    if name == "slurm-label-cgroup-oom":
        return "node-2" if path.startswith("dmesg") else _LABEL_HOST.get(line[:1], "node-1")
    return None


def without_rank(name: str, files: Files, rank: int) -> Files:
    """The job with all that this rank wrote lost: its files, or its lines of a merged file."""
    result = {}
    for path, data in files.items():
        if rank_of(name, path, "") == rank:
            continue
        result[path] = data
        if is_text(path) and rank_of(name, path, "") is None:
            result[path] = joined([line for line in lines_of(data) if rank_of(name, path, line) != rank])
    return result
