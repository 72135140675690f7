"""Cases that the tests of reports share: sample runs, and a verdict that is hostile in every field."""

import io
from functools import cache
from pathlib import Path

from aggregator import __version__
from aggregator import verdict as v
from aggregator.case import Case
from aggregator.pipeline import investigate
from aggregator.reports import ReportOptions, reporter

ROOT = Path(__file__).parents[2]
START = 1_772_625_784_000_000_000


class Utf8(io.StringIO):
    encoding = "utf-8"


@cache
def sample(name):
    return investigate([str(ROOT / "sample_runs" / name / "job")])


def rendered(case, name, **options):
    out = Utf8()
    reporter(name, ReportOptions(**options)).render(case if isinstance(case, Case) else Case(case), out)
    return out.getvalue()


def without_root(text):
    """As if the project were at /project, by version X."""
    return text.replace(str(ROOT), "/project").replace(f'"version": "{__version__}"', '"version": "X"')


def hostile(text, *, status=v.Status.IDENTIFIED):
    """A failed job that says `text` wherever a job can say anything."""
    proof = v.Evidence(file=f"f{text}", line=7, text=f"{text}\nsecond {text}", why=text, rank=3, host=text, time=START)
    failure = v.Failure(
        status=status, confidence=0.97, kind="cuda_oom", message=text, ranks=(3,), hosts=(text,), gpu=text,
        phase="evaluation", time=START, step=12, exception=text, location=f"{text}:88", evidence=(proof, proof),
        reasons=(text,), candidates=(v.Candidate(rank=1, kind="unknown", why_not=text),), would_settle=(text,),
        diagnosis=v.Diagnosis(
            entry="eval-oom-missing-no-grad", title=text, root_cause=text, fix=text, verify=text, score=0.9,
            matched=(text,), check_next=(text,), against=(text,), code=text, node="drain",
        ),
    )  # fmt: skip
    followed = v.Collateral(rank=1, kind="killed", message=text, because=text, host=text, evidence=(proof,))
    return v.Verdict(
        job=v.Job(path=text, id=text, hosts=(text,), ranks_seen=(1, 3), ranks_missing=(2,), started=START, ended=START),
        outcome=v.Outcome.FAILED, first_failure=failure, collateral=(followed,),
        attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=failure),) * 2,
        clocks=(v.Clock(host=text, offset_s=9.0, uncertainty_s=1.0, method=text),),
        coverage=v.Coverage(files=1, bytes=1, lines=1, files_skipped=(v.SkippedFile(file=text, reason=text),)),
        warnings=(text,),
    )  # fmt: skip


COMPLETED = v.Verdict(
    job=v.Job(path="runs/1"), outcome=v.Outcome.COMPLETED, first_failure=None, collateral=(), attempts=(), clocks=(),
    coverage=v.Coverage(files=1, bytes=1, lines=1),
)  # fmt: skip
