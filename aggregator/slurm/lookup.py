"""Asks Slurm about a job, for `denpex-agg postmortem 123456`.

Never used by the epilog: the ends of many jobs at once would keep the controller from its work.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from aggregator.errors import InputError
from aggregator.slurm.job import SlurmJob
from aggregator.slurm.logs import log_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_S = 10.0
"""How long each of Slurm's commands may take: where the controller is down they wait for minutes."""
_JOB = re.compile(r"(?P<id>[0-9]{1,10})(?:_(?P<task>[0-9]{1,10}))?(?:\+[0-9]{1,4})?(?:\.[0-9a-z]{1,12})?")
_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z]*)=")
_USER = re.compile(r"(\S*)\((\d{1,10})\)")
_NOTHING = frozenset({"(null)", "(none)", "None", "None assigned", "Unknown", "N/A", "UNLIMITED"})
_BETWEEN = "\x1f"
_FIELDS = ("JobIDRaw", "JobID", "User", "UID", "NodeList", "Start", "ExitCode", "WorkDir", "JobName")
_PATHS = ("StdOut", "StdErr")
"""Fields of sacct since 24.05; before, only the controller knows them, for some minutes after the job's end."""
_SHOWN = 3
_MISSING = "no "
_HELP = "give the job's log folder or its files"


def is_job_id(text: str) -> bool:
    """Whether a word is a job as Slurm writes it: `123`, `123_4` of an array, `123.0` or `123.batch` for a step."""
    return _JOB.fullmatch(text) is not None


def find_job(text: str) -> SlurmJob:
    """The job of which Slurm tells under this id; a step stands for its job.

    Raises:
        InputError: it is no job id, there is no Slurm, or it does not tell of that job.
    """
    named = _JOB.fullmatch(text)
    if named is None:
        raise InputError("not the id of a Slurm job", where=text, help="as in 123456, 123456_7 or 123456.0")
    whole = f"{named['id']}_{named['task']}" if named["task"] else named["id"]
    problems: list[str] = []
    for ask in (_ask_controller, _ask_accounting):
        try:
            jobs = ask(whole)
        except _NoAnswer as error:
            problems.append(str(error))
            continue
        job = _chosen(jobs, int(named["id"]), int(named["task"]) if named["task"] else None)
        if job is not None:
            _refuse_for_root(job)
            return job
    if len(problems) == sum(problem.startswith(_MISSING) for problem in problems) > 0:
        raise InputError("there is no Slurm here to ask about a job", where=text, help=_HELP)
    why = f" ({'; '.join(problems)})" if problems else ""
    raise InputError(f"Slurm does not tell of this job{why}", where=text, help=_HELP)


def logs_of(text: str) -> list[str]:
    """The log files and folders of the job with this id.

    Raises:
        InputError: as `find_job`, or none of its logs is there.
    """
    job = find_job(text)
    paths = log_paths(job)
    if not paths:
        raise InputError("no log of this job was found", where=job.stdout or job.work_dir or text, help=_HELP)
    return paths


def _chosen(jobs: Sequence[SlurmJob], number: int, task: int | None) -> SlurmJob | None:
    """The job that is meant; a number may be that of a whole array, or of one task of another one."""
    if task is not None:
        return next((job for job in jobs if (job.array_id, job.array_task) == (number, task)), None)
    of_array = [job for job in jobs if job.array_id == number]
    if len(of_array) > 1:
        names = ", ".join(f"{number}_{job.array_task}" for job in of_array[:_SHOWN] if job.array_task is not None)
        raise InputError("this is an array of jobs", where=str(number), help=f"name one of them, as in {names}")
    return next((job for job in [*of_array, *jobs] if number in {job.id, job.array_id}), None)


def _refuse_for_root(job: SlurmJob) -> None:
    """Raises InputError where root would read whatever files the job's user has named."""
    if os.geteuid() == 0 and job.uid != 0:
        user = job.user or "its user"
        raise InputError(
            "root does not read the files that another user's job names", where=str(job.id),
            help=f"run it as {user}, or name the files yourself",
        )  # fmt: skip


class _NoAnswer(Exception):  # noqa: N818 - it is none of the user's mistakes
    """One of Slurm's commands did not tell; the text says why."""


def _run(command: Sequence[str]) -> str:
    """The output of one of Slurm's commands."""
    environment = os.environ | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False,
            encoding="utf-8", errors="backslashreplace",
        )  # fmt: skip
    except OSError:
        raise _NoAnswer(f"{_MISSING}{command[0]}") from None
    except subprocess.TimeoutExpired:
        raise _NoAnswer(f"{command[0]} took longer than {LIMIT_S:g} s") from None
    if done.returncode != 0:
        why = next(iter(done.stderr.strip().splitlines()), f"it ended with {done.returncode}")
        raise _NoAnswer(f"{command[0]}: {why[:200]}")
    return done.stdout


def _ask_controller(job: str) -> list[SlurmJob]:
    """What `scontrol` tells: jobs that run, wait, or ended a few minutes ago; one a line."""
    told = map(_read_line, _run(["scontrol", "show", "job", "-o", job]).split("\n"))
    return [found for found in told if found is not None]


def _read_line(line: str) -> SlurmJob | None:
    """One line of `scontrol show job -o`. Values are not quoted, so what looks like a key may be in a job's name.

    Ids come before all that users choose; paths after it.
    """
    _, *words = _KEY.split(line)
    pairs = list(zip(words[::2], map(str.strip, words[1::2]), strict=True))
    first, last = dict(reversed(pairs)), dict(pairs)
    number = _number(first.get("JobId"))
    if number is None:
        return None
    users = {value for key, value in pairs if key == "UserId"}
    user = _USER.fullmatch(users.pop()) if len(users) == 1 else None
    return SlurmJob(
        id=number,
        user=user[1] if user else "",
        uid=int(user[2]) if user else None,
        array_id=_number(first.get("ArrayJobId")),
        array_task=_number(first.get("ArrayTaskId")),
        name=_value(first.get("JobName")),
        work_dir=_value(last.get("WorkDir")),
        stdout=_value(last.get("StdOut")),
        stderr=_value(last.get("StdErr")),
        nodes=_value(last.get("NodeList")),
        exit_code=_value(last.get("ExitCode")),
        restarts=_number(last.get("Restarts")),
        start_s=_number(last.get("StartTime")),
    )


def _ask_accounting(job: str) -> list[SlurmJob]:
    """What `sacct` tells: all jobs that the site keeps accounts of."""
    fields = [*_PATHS, *_FIELDS]
    try:
        output = _run(_sacct(job, fields))
    except _NoAnswer as error:
        if "nvalid field" not in str(error):
            raise
        fields = [*_FIELDS]
        output = _run(_sacct(job, fields))
    rows = [line.split(_BETWEEN, len(fields) - 1) for line in output.split("\n")]
    told = [_read_row(dict(zip(fields, row, strict=True))) for row in rows if len(row) == len(fields)]
    return [found for found in told if found is not None]


def _sacct(job: str, fields: Sequence[str]) -> list[str]:
    form = ["--allocations", "--noheader", "--parsable2", f"--delimiter={_BETWEEN}", f"--format={','.join(fields)}"]
    return ["sacct", *form, "--jobs", job]


def _read_row(row: Mapping[str, str]) -> SlurmJob | None:
    number, named = _number(row["JobIDRaw"]), _JOB.fullmatch(row["JobID"])
    if number is None:
        return None
    return SlurmJob(
        id=number,
        user=_value(row["User"]),
        uid=_number(row["UID"]),
        array_id=int(named["id"]) if named and named["task"] else None,
        array_task=int(named["task"]) if named and named["task"] else None,
        name=_value(row["JobName"]),
        work_dir=_value(row["WorkDir"]),
        stdout=_value(row.get("StdOut")),
        stderr=_value(row.get("StdErr")),
        nodes=_value(row["NodeList"]),
        exit_code=_value(row["ExitCode"]),
        start_s=_number(row["Start"]),
    )


def _value(text: str | None) -> str:
    return "" if text is None or text in _NOTHING else text


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch("[0-9]{1,12}", text) else None
