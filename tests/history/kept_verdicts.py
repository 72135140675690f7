"""Verdicts and jobs to be kept."""

import re
from dataclasses import replace
from pathlib import Path

from aggregator import verdict as v

RUNS = Path(__file__).parents[2] / "sample_runs"
DAY = 86_400 * 10**9
START = 1_772_625_784 * 10**9


def job_on(folder, day):
    """The job of a sample run, as if it had run on that day of March 2025."""
    for path in (RUNS / "eval-oom-no-grad" / "job").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            text = re.sub(r"2025-03-06|2025/03/06", lambda found: f"{found[0][:-2]}{day:02}", text)
            text = re.sub(r"(?m)^([IWE])0306 ", rf"\g<1>03{day:02} ", text)
            target = folder / path.relative_to(RUNS / "eval-oom-no-grad" / "job")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape")
    return str(folder)


def failed(day=0, kind="cuda_oom", host="node-b", gpu="1", **changes):
    """A verdict on a job that failed so many days after the first."""
    time = START + day * DAY
    failure = v.Failure(
        status=v.Status.IDENTIFIED, confidence=0.9, kind=kind, message="m", ranks=(3,), hosts=(host,), gpu=gpu,
        time=time,
    )  # fmt: skip
    return v.Verdict(
        job=v.Job(path="runs/1", started=time - 10**9, ended=time, world_size=4),
        outcome=v.Outcome.FAILED, first_failure=replace(failure, **changes), collateral=(), clocks=(),
        attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=failure),),
        coverage=v.Coverage(files=1, bytes=1, lines=1),
    )  # fmt: skip
