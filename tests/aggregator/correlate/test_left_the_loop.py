"""Ranks that end or go on while the others still wait: gloo tells of it as lost connections, time-outs and aborts."""

import pytest
from correlate_jobs import brief, closing, failed, hello, identified, lines, say, steps

from aggregator.verdict import Outcome, Status

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/{}"
CLOSED = GLOO.format("pair.cc:553] Connection closed by peer [127.0.0.1]:43418.")
WAITED = GLOO.format("unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete")
DIFFERS = """\
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. \
68 vs 4. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?
"""
STORE = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined."
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def raised(rank, error, call="all_reduce", line=9):
    frames = (
        f'  File "/job/train.py", line {line}, in main\n    dist.{call}(x)\n  File "{C10D}", line 3252, in {call}\n'
    )
    return f"[rank{rank}]: Traceback (most recent call last):\n" + "".join(
        f"[rank{rank}]: {text}\n" for text in (frames + f"    work.wait()\n{error}").splitlines()
    )


def test_a_rank_that_was_done_did_not_come_and_was_not_killed(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 3), steps(rank, 1, 9)) for rank in range(3)}
    files["rank_0.log"] += raised(0, CLOSED)
    files["rank_1.log"] += say(10, 1, "training done") + "\n"
    files["rank_2.log"] += raised(2, CLOSED)
    verdict = judge(files)
    assert brief(verdict) == identified(1, "collective_timeout")
    assert verdict.first_failure.diagnosis.entry == "uneven-inputs"


def test_one_that_was_done_does_not_complete_a_job_in_which_the_others_wait(judge):
    told = "".join(say(10 + rank, None, f"[rank {rank}] {WAITED}") + "\n" for rank in (0, 2, 3))
    text = lines(*(hello(rank, 4) for rank in range(4)), steps(0, 1, 5), say(6, 1, "training done"), told)
    assert judge({"train.log": text}).outcome is not Outcome.COMPLETED


def test_a_job_that_was_done_after_its_troubles_is_complete(judge):
    text = lines(*(hello(rank, 2) for rank in range(2)), raised(0, CLOSED), raised(1, CLOSED), "job finished in 3012 s")
    assert judge({"train.log": text}).outcome is Outcome.COMPLETED


def test_all_waited_and_one_in_another_call(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), steps(rank, 1, 9)) for rank in range(4)}
    for rank in (0, 2, 3):
        files[f"rank_{rank}.log"] += raised(rank, WAITED)
    files["rank_1.log"] += raised(1, CLOSED, "barrier", 16)
    verdict = judge(files)
    assert brief(verdict) == identified(1, "collective_mismatch")
    assert "rank 1 alone waited in barrier; the other 3 ranks in allreduce" in verdict.first_failure.reasons


@pytest.mark.parametrize(
    "calls",
    [
        {0: "all_reduce", 1: "all_reduce", 2: "barrier", 3: "barrier"},
        {0: "barrier", 1: "broadcast", 2: "broadcast", 3: "broadcast"},
        {0: "all_reduce", 1: "all_reduce", 2: "barrier"},
    ],
    ids=["halves", "one-sided", "one-silent"],
)
def test_calls_that_differ_name_nobody_where_others_may_be_missing(judge, calls):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), steps(rank, 1, 9)) for rank in range(4)}
    for rank, call in calls.items():
        files[f"rank_{rank}.log"] += raised(rank, WAITED, call)
    failure = judge(files).first_failure
    assert failure.ranks in {(), (3,)}
    assert failure.kind != "collective_mismatch"


def test_who_aborts_because_calls_differ_is_one_of_two(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 3), steps(rank, 1, 9)) for rank in range(3)}
    files["rank_0.log"] += raised(0, CLOSED)
    files["rank_1.log"] += DIFFERS
    files["torchrun.log"] = lines(closing(10, 4100, 4102), failed(10, -6, 1, 4101))
    failure = judge(files).first_failure
    assert (failure.status, failure.ranks, failure.kind) == (Status.AMBIGUOUS, (1,), "collective_mismatch")
    assert failure.confidence < 0.6


def test_a_rank_that_is_missing_when_the_job_meets_failed_to_meet(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), say(600, rank, STORE, "ERROR")) for rank in (0, 1, 2)}
    assert brief(judge(files))[2:] == ((3,), "rendezvous_failure")
