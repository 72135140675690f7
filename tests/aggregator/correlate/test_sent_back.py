"""Exceptions that torch.distributed.rpc raises at the caller of the worker that raised them."""

from correlate_jobs import brief, hello, identified, lines, steps

RAISED = lines(
    "Traceback (most recent call last):",
    '  File "/w/train_rpc.py", line 118, in run',
    "    losses = [f.wait() for f in futs]",
    '  File "/v/torch/distributed/rpc/internal.py", line 233, in _handle_exception',
    "    raise exc",
    "ValueError: On WorkerInfo(id=3, name=trainer3):",
    "ValueError('Target size must be the same as input size')",
    "Traceback (most recent call last):",
    '  File "/v/torch/distributed/rpc/internal.py", line 207, in _run_function',
    "    result = python_udf.func(*python_udf.args, **python_udf.kwargs)",
    '  File "/w/train_rpc.py", line 71, in local_step',
    "    loss = bce(out, y)",
    "ValueError: Target size must be the same as input size",
)


def test_the_worker_that_raised_is_blamed_and_not_its_caller(judge):
    files = {f"rank{rank}.log": lines(hello(rank, 5), steps(rank, 1, 20)) for rank in range(5)}
    files["rank0.log"] += RAISED
    verdict = judge(files)
    assert brief(verdict) == identified(3, "python_exception")
    assert 0 in {row.rank for row in verdict.collateral}


def test_a_fault_of_the_caller_itself_stays_its_own(judge):
    files = {f"rank{rank}.log": lines(hello(rank, 5), steps(rank, 1, 20)) for rank in range(5)}
    files["rank0.log"] += RAISED.replace("On WorkerInfo(id=3, name=trainer3):", "bad input")
    assert brief(judge(files))[2] == (0,)
