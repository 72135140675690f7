"""The epilog in a real Slurm: what it says of each way in which a job can end, and what it does to the nodes.

All jobs run at once, in one cluster; each test looks at the end of one of them. Skipped without root or Slurm.
"""

import json
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from slurm_cluster import USER, Cluster, cgroup_version, why_no_cluster

import aggregator

PATIENCE_S = 120
"""For the end of any job: Slurm looks at time limits and for lost nodes a few times a minute."""
NODES = tuple(f"trial-{number}" for number in range(1, 6))
LOST = "trial-4"
SAFE_NODES = ("-x", "trial-[4-5]")  # the others: one of these will be lost
TRAP = "batch_trap.sh"
AS_SLURM = ("setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", "env")

pytestmark = [pytest.mark.timeout(2 * PATIENCE_S)]

RANK = "srun --label --kill-on-bad-exit=1 {rank}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A job: its batch script (`{rank}` is the program of a rank, `{trap}` our file) and how it is submitted."""

    script: str
    options: tuple[str, ...]


JOBS = {
    "raises": Kind(f"{RANK} raise 3", ("-N2", "-n4", "-w", "trial-1,trial-2")),
    "oom": Kind(f"{RANK} allocate 2", ("-N2", "-n4", "--output=%x-%j.log", "--job-name=big", *SAFE_NODES)),
    "healthy": Kind(f"{RANK} none -", ("-N2", "-n2", *SAFE_NODES)),
    "cancelled": Kind(f"{RANK} never -", ("-N1", "-n2", *SAFE_NODES)),
    "time limit": Kind(f"{RANK} never -", ("-N1", "-n2", *SAFE_NODES)),
    "node lost": Kind(f"{RANK} never -", ("-N2", "-n2", "-w", "trial-3,trial-4", "--no-requeue")),
    "first node lost": Kind(f"{RANK} never -", ("-N2", "-n2", "-w", "trial-4,trial-5", "--no-requeue")),
    "array": Kind(
        f"[ $SLURM_ARRAY_TASK_ID = 8 ] && fault=raise || fault=none; {RANK} $fault 1",
        ("--array=7-9", "-n2", *SAFE_NODES),
    ),
    "heterogeneous": Kind(
        "srun --label --kill-on-bad-exit=1 --het-group=0,1 {rank} raise 2",
        ("-n1", *SAFE_NODES, "--mem=60", ":", "-n2", *SAFE_NODES),
    ),
    "with a trap": Kind(f". {{trap}}; {RANK} raise 0", ("-N1", "-n2", *SAFE_NODES)),
    "file a rank": Kind(
        "mkdir -p logs/$SLURM_JOB_ID; srun --output=logs/%j/rank-%t.out --error=logs/%j/rank-%t.err"
        " --kill-on-bad-exit=1 {rank} raise 3; echo the batch script goes on",
        ("-N2", "-n4", "-w", "trial-1,trial-2"),
    ),
}


class Trial:
    """The cluster with all jobs in it, and what became of each; `program` is the command line that the nodes have."""

    def __init__(self, cluster: Cluster, program: list[str], ids: dict[str, int]):
        self.cluster, self.program, self.ids = cluster, program, ids
        self.reports = cluster.root / "reports"

    def over(self, name: str, epilogs: int = 1) -> int:
        """Waits until that many nodes have run the epilog of a job; its number."""
        number = self.ids[name]
        self.cluster.until(lambda: len(self.runs(number)) >= epilogs, PATIENCE_S, f"the end of job {number} ({name})")
        return number

    def runs(self, number: int):
        return [run for run in self.cluster.runs() if run.job == number]

    def line(self, number: int) -> str:
        """What the nodes' system logs are told of a job."""
        return "\n".join(line for line in self.cluster.system_log.lines if f"job {number} " in line)

    def comment(self, number: int) -> str:
        """What the controller's epilog has asked Slurm's accounting to keep of a job."""
        log = self.cluster.root / "notes" / "comments"

        def lines() -> list[str]:
            return [line for line in log.read_text().splitlines() if str(number) in line] if log.exists() else []

        self.cluster.until(lines, 20, f"a comment on job {number}\n{self.line(number)}")
        return lines()[-1]

    def reported(self, number: int) -> list[Path]:
        """The admin's copies of the reports on a job."""
        return [
            self.reports / name
            for name in (f"denpex-{number}.txt", f"denpex-{number}.json")
            if (self.reports / name).exists()
        ]

    def verdict(self, name: str, number: int) -> dict:
        """The report in the job's own folder; the admin's must say the same."""
        file = self.cluster.folder(name) / f"denpex-{number}.json"
        verdict = json.loads(file.read_text())
        copy = self.reports / file.name
        assert json.loads(copy.read_text())["first_failure"] == verdict["first_failure"]
        assert (file.owner(), stat.S_IMODE(file.stat().st_mode)) == (USER, 0o600)
        assert (copy.owner(), copy.group(), stat.S_IMODE(copy.stat().st_mode)) == ("root", "slurm", 0o640)
        return verdict


@pytest.fixture(scope="session")
def trial(no_worker):
    if reason := why_no_cluster():
        pytest.skip(f"no real Slurm: {reason}")
    cluster = Cluster(NODES)
    try:
        program = [interpreter(cluster), "-I", "-m", "aggregator"]
        install(cluster, program)
        cluster.start()
        ids = {name: submit(cluster, name, kind) for name, kind in JOBS.items()}
        reached(cluster, ids, "cancelled", "time limit", "node lost", "first node lost")
        cluster.ask("scancel", str(ids["cancelled"]))
        cluster.ask("scontrol", "update", f"JobId={ids['time limit']}", "EndTime=now+2")
        cluster.lose(LOST)
        yield Trial(cluster, program, ids)
    finally:
        cluster.stop()


def interpreter(cluster: Cluster) -> str:
    """A Python with the program that not only root can run, as an admin would install it for all."""
    if subprocess.run([*AS_SLURM, sys.executable, "-c", ""], capture_output=True, check=False).returncode == 0:
        return sys.executable
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(system).exists():
        pytest.skip(f"user slurm can run neither {sys.executable} nor {system}")
    venv = cluster.root / "venv"
    subprocess.run([system, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    parts = [sysconfig.get_path("purelib"), str(Path(aggregator.__file__).parents[1])]
    (packages / "parts.pth").write_text("\n".join(parts))
    return str(venv / "bin" / "python")


def install(cluster: Cluster, program: list[str]) -> None:
    """As the epilog's help tells an admin to; but there is no accounting here, only a note of what it is asked."""
    reports = cluster.root / "reports"
    reports.mkdir()
    reports.chmod(0o750)
    shutil.chown(reports, "root", "slurm")
    settings = cluster.root / "slurm.toml"
    settings.write_text(f'report_dir = "{reports}"\n')
    recorder = cluster.root / "sacctmgr"
    recorder.write_text(f'#!/bin/sh\necho "$*" >>{cluster.root}/notes/comments\n')
    recorder.chmod(0o755)
    for name, place in (
        ("epilog.sh", cluster.epilog),
        ("epilog_slurmctld.sh", cluster.epilog_slurmctld),
        (TRAP, cluster.root / TRAP),
    ):
        script = subprocess.run(
            [*program, "slurm-epilog", "--print", name], capture_output=True, check=True, text=True
        ).stdout
        if name != TRAP:
            script = script.replace(" slurm-epilog ", f" slurm-epilog --config {settings} ")
        place.write_text(re.sub("/usr/bin/(sacctmgr|scontrol)", str(recorder), script))
        place.chmod(0o755)


def submit(cluster: Cluster, name: str, kind: Kind) -> int:
    script = kind.script.format(rank=cluster.rank, trap=cluster.root / TRAP)
    return cluster.submit(name, script, "--mem=120", *kind.options)


def reached(cluster: Cluster, ids: dict[str, int], *names: str) -> None:
    """Waits until these jobs are at work."""
    for name in names:
        log = cluster.folder(name) / f"slurm-{ids[name]}.out"
        cluster.until(lambda log=log: log.exists() and "step 5" in log.read_text(), PATIENCE_S, f"work of {name}")


def failure(verdict: dict) -> tuple[str, list[int], list[str], str]:
    first = verdict["first_failure"]
    return verdict["outcome"], first["ranks"], first["hosts"], first["kind"]


def test_a_rank_that_raises_is_named_and_not_those_that_were_stopped(trial):
    number = trial.over("raises", epilogs=2)
    assert failure(trial.verdict("raises", number)) == ("failed", [3], ["trial-2"], "cuda_oom")
    assert "rank 3 on trial-2: CUDA out of memory" in trial.comment(number)


@pytest.mark.skipif(cgroup_version() is None, reason="Slurm can limit no memory here: no cgroups that it may write")
def test_a_rank_that_the_kernel_killed_is_named(trial):
    number = trial.over("oom", epilogs=2)
    outcome, ranks, _, kind = failure(trial.verdict("oom", number))
    assert (outcome, ranks, kind) == ("failed", [2], "host_oom")
    assert "rank 2 on trial-" in trial.comment(number)


def test_a_time_limit_is_no_ranks_fault(trial):
    number = trial.over("time limit")
    assert failure(trial.verdict("time limit", number)) == ("cancelled", [], [], "time_limit")
    assert "the job: time limit reached" in trial.comment(number)


def test_a_cancelled_job_is_no_ranks_fault(trial):
    number = trial.over("cancelled")
    assert failure(trial.verdict("cancelled", number)) == ("cancelled", [], [], "cancelled")
    assert "the job: cancelled" in trial.comment(number)


def test_a_lost_node_is_named(trial):
    number = trial.over("node lost")
    outcome, _, hosts, kind = failure(trial.verdict("node lost", number))
    assert (outcome, hosts, kind) == ("failed", [LOST], "node_failure")
    assert f"on {LOST}: node failure" in trial.comment(number)


def test_where_the_first_node_is_lost_the_second_one_reports(trial):
    """No log tells of it: the one who would have written that was on the node."""
    number = trial.over("first node lost")
    assert f"its first node {LOST} ran no epilog" in trial.line(number)
    assert (trial.cluster.folder("first node lost") / f"denpex-{number}.txt").read_text()


def test_a_healthy_job_gets_no_files_and_costs_little_time(trial, healthy_epilog):
    number = trial.over("healthy", epilogs=2)
    for name in JOBS:
        trial.over(name)
    alone = submit(trial.cluster, "alone", JOBS["healthy"])
    trial.cluster.until(lambda: len(trial.runs(alone)) == 2, PATIENCE_S, "the end of a job that is alone")
    assert not list(trial.cluster.folder("healthy").glob("denpex*"))
    assert trial.reported(number) == []
    assert "completed" in trial.line(number)
    assert all(run.code == 0 for run in trial.runs(number))
    healthy_epilog += [run.seconds for run in trial.runs(alone)]
    assert max(healthy_epilog) < 10


def test_of_an_array_the_task_that_failed_is_judged_by_its_own_log(trial):
    numbers = {job["ArrayTaskId"]: int(job["JobId"]) for job in trial.cluster.jobs(trial.ids["array"])}
    for number in numbers.values():
        trial.cluster.until(lambda number=number: trial.runs(number), PATIENCE_S, f"the end of job {number}")
    assert "rank 1" in trial.line(numbers["8"])
    assert all("CUDA out of memory" not in trial.line(numbers[task]) for task in ("7", "9"))
    assert "rank 1" in trial.comment(numbers["8"])
    reports = {file.name for file in trial.cluster.folder("array").glob("denpex*")}
    assert reports == {f"denpex-{numbers['8']}.{suffix}" for suffix in ("txt", "json", "html")}


def test_of_a_heterogeneous_job_the_leader_reports_for_all(trial):
    number = trial.over("heterogeneous")
    assert failure(trial.verdict("heterogeneous", number))[1] == [2]
    assert "rank 2" in trial.comment(number)
    assert trial.reported(number + 1) == []


def test_files_of_each_rank_are_found(trial):
    number = trial.over("file a rank", epilogs=2)
    assert failure(trial.verdict("file a rank", number)) == ("failed", [3], ["trial-2"], "cuda_oom")


def test_a_batch_script_reports_by_itself_without_an_admin(trial):
    number = trial.over("with a trap")
    assert "rank 0" in trial.line(number)
    told = (trial.cluster.folder("with a trap") / f"slurm-{number}.out").read_text().splitlines()[-1]
    assert "rank 0 on trial-" in told
    assert "CUDA out of memory" in told


def test_a_user_finds_the_logs_by_the_jobs_number(trial):
    number = trial.over("oom", epilogs=2)
    told = trial.cluster.ask_as_user(*trial.program, "postmortem", str(number), "--json")
    assert failure(json.loads(told.stdout))[1] == [2]


def test_no_epilog_fails_and_no_node_is_drained(trial):
    for name in JOBS:
        trial.over(name)
    assert [run for kind in ("epilog", "epilog_slurmctld") for run in trial.cluster.runs(kind) if run.code] == []
    states = {node: state for node, state in trial.cluster.states().items() if node != LOST}
    assert all("drain" not in state and "fail" not in state for state in states.values()), states
    reasons = trial.cluster.ask("sinfo", "-h", "-R", "-o", "%N %E").stdout.split("\n")
    assert {line.split()[0] for line in reasons if line} <= {LOST}
