"""What Slurm tells of a job: in the environment of its epilogs and of the job itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(r"[0-9]{1,10}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of a job array. What Slurm did not tell is None or empty; all text may be hostile.

    `stdout` and `stderr` are as the user gave them, relative to `work_dir` and with Slurm's marks (`%j`) in them.
    """

    id: int
    user: str = ""
    uid: int | None = None
    array_id: int | None = None
    array_task: int | None = None
    name: str = ""
    work_dir: str = ""
    stdout: str = ""
    stderr: str = ""
    node: str = ""
    """The node on which this runs."""
    nodes: str = ""
    """The job's nodes as Slurm's host list."""
    context: str = ""
    """`epilog_slurmd`, `epilog_slurmctld`, `epilog_task`; empty in the job itself and by hand."""
    exit_code: str = ""
    """`code:signal` of the batch script. No proof of success: time limit, cancellation and a lost node give `0:0`."""
    restarts: int | None = None
    start_s: int | None = None
    """When it began, seconds since the epoch; since Slurm 23.02."""


def job_of(environment: Mapping[str, str]) -> SlurmJob:
    """The job that an environment tells of.

    Source: doc/html/prolog_epilog.shtml and src/slurmd/slurmd/req.c of Slurm 20.11 to 25.11; the job's own environment
    has the same names but for those of its paths.

    Raises:
        UsageError: it names no job, or not by a number.
    """

    def number(*names: str) -> int | None:
        text = next((environment[name] for name in names if environment.get(name)), "")
        return int(text) if _NUMBER.fullmatch(text) else None

    def word(*names: str) -> str:
        text = next((environment[name] for name in names if environment.get(name)), "")
        return text if _NAME.fullmatch(text) else ""

    job_id = number("SLURM_JOB_ID", "SLURM_JOBID")
    if job_id is None:
        raise UsageError("SLURM_JOB_ID names no job", help="run it from a Slurm epilog, or in a job")
    return SlurmJob(
        id=job_id,
        user=word("SLURM_JOB_USER"),
        uid=number("SLURM_JOB_UID"),
        array_id=number("SLURM_ARRAY_JOB_ID"),
        array_task=number("SLURM_ARRAY_TASK_ID"),
        name=environment.get("SLURM_JOB_NAME", ""),
        work_dir=environment.get("SLURM_JOB_WORK_DIR") or environment.get("SLURM_SUBMIT_DIR", ""),
        stdout=environment.get("SLURM_JOB_STDOUT", ""),
        stderr=environment.get("SLURM_JOB_STDERR", ""),
        node=word("SLURMD_NODENAME"),
        nodes=environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST", ""),
        context=word("SLURM_SCRIPT_CONTEXT"),
        exit_code=environment.get("SLURM_JOB_EXIT_CODE2", ""),
        restarts=number("SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"),
        start_s=number("SLURM_JOB_START_TIME"),
    )
