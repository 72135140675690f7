"""A failure to tell."""

import pytest

from aggregator import verdict as v
from aggregator.notify import FailureMessage


@pytest.fixture
def failed():
    """Makes a verdict: a rank ran out of memory. Keywords replace fields of the failure, of the evidence or the job."""

    def make(*, text="torch.OutOfMemoryError: CUDA out of memory.", file="rank3.log", job="4242",
             outcome=v.Outcome.FAILED, **changes):  # fmt: skip
        failure = v.Failure(**{
            "status": v.Status.IDENTIFIED, "confidence": 0.97, "kind": "cuda_oom", "message": "a message not cited",
            "ranks": (3,), "hosts": ("node-b",), "gpu": "1", "phase": "evaluation", "step": 1200,
            "time": 1_772_625_784 * 10**9, "evidence": (v.Evidence(file=file, line=1234, text=text, why="first"),),
        } | changes)  # fmt: skip
        return v.Verdict(
            job=v.Job(path="runs/4242", id=job),
            outcome=outcome,
            first_failure=failure,
            collateral=(),
            attempts=(),
            clocks=(),
            coverage=v.Coverage(files=1, bytes=1, lines=1),
        )

    return make


@pytest.fixture
def message(failed):
    """Makes a message on such a verdict."""
    return lambda *, correction=False, redact=True, **changes: FailureMessage(failed(**changes), correction, redact)
