"""Who is not where the others wait, by dumps of stacks; and what else keeps a job from going on."""

import pytest
from correlate_jobs import brief, cancelled, hello, identified, kernel, lines, say, steps

HUNG = "collective_timeout"
BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
REDUCE = ("torch/distributed/distributed_c10d.py", "all_reduce")
BARRIER = ("torch/distributed/distributed_c10d.py", "barrier")


def dump(*inner, line=27, function="main", file="fit.py"):
    """What faulthandler prints when its timer ends; `inner` are library frames, innermost first."""
    return lines(
        "Timeout (0:00:40)!",
        "Thread 0x00007f7c4be17b80 (most recent call first):",
        *(f'  File "/opt/venv/lib/python3.11/site-packages/{path}", line 9 in {name}' for path, name in inner),
        f'  File "/home/mira/{file}", line {line} in {function}',
        '  File "/home/mira/fit.py", line 61 in <module>',
    )


def job(dumps, more=None):
    world = len(dumps)
    return {
        f"rank{rank}.log": lines(hello(rank, world), steps(rank, 1, 5), text, (more or {}).get(rank, ""))
        for rank, text in enumerate(dumps)
    }


def test_the_rank_that_is_elsewhere_while_most_wait_has_not_arrived(judge):
    verdict = judge(job([dump(BACKWARD), dump(BACKWARD), dump(line=26), dump(BACKWARD)]))
    assert brief(verdict) == identified(2, HUNG, "hung")
    assert "26" in verdict.first_failure.location
    assert any("rank 2 is in main (/home/mira/fit.py:26)" in reason for reason in verdict.first_failure.reasons)


def test_two_of_six_elsewhere_are_both_suspects(judge):
    verdict = judge(job([*[dump(REDUCE)] * 4, dump(line=26), dump(line=26)]))
    assert brief(verdict)[2:] == ((4, 5), HUNG)


def test_a_half_that_is_elsewhere_proves_nothing(judge):
    assert judge(job([dump(REDUCE), dump(REDUCE), dump(line=26), dump(line=26)])).first_failure is None


def test_where_all_wait_in_one_place_nobody_is_blamed(judge):
    assert judge(job([dump(REDUCE)] * 4)).first_failure is None


def test_the_last_dump_of_a_rank_counts(judge):
    early = [dump(line=20), *[dump(BACKWARD)] * 3]
    late = [dump(BACKWARD), dump(line=26), dump(BACKWARD), dump(BACKWARD)]
    assert brief(judge(job([one + two for one, two in zip(early, late, strict=True)])))[2] == (1,)


def test_a_dump_that_the_job_worked_on_after_is_no_standstill(judge):
    later = {rank: steps(rank, 6, 9, 60) for rank in range(4)}
    verdict = judge(job([dump(BACKWARD), dump(BACKWARD), dump(line=26), dump(BACKWARD)], later))
    assert brief(verdict)[:2] == ("running", None)


def test_one_rank_in_another_collective_called_elsewhere_is_in_the_wrong_one(judge):
    odd = dump(BARRIER, function="save", line=40)
    assert brief(judge(job([dump(REDUCE), odd, dump(REDUCE), dump(REDUCE)])))[2:] == ((1,), "collective_mismatch")


def test_stages_of_a_pipeline_stand_at_different_ends_of_a_transfer(judge):
    send, recv = (("torch/distributed/distributed_c10d.py", name) for name in ("send", "recv"))
    assert judge(job([dump(recv), dump(send, line=30), dump(recv), dump(recv)])).first_failure is None


def test_of_two_ranks_the_one_that_waits_waits_for_the_other(judge):
    assert brief(judge(job([dump(REDUCE), dump(line=26)])))[2] == (1,)


def test_a_hang_that_stacks_show_is_the_failure_although_the_job_was_cancelled_later(judge):
    files = job([dump(BACKWARD), dump(BACKWARD), dump(line=26), dump(BACKWARD)])
    verdict = judge(files | {"slurm-1.out": cancelled(4000)})
    assert verdict.first_failure.ranks == (2,)


def spy(pid, local, *frames, command="python -u train.py --local-rank={}"):
    head = [f"Process {pid}: {command.format(local)}", "Python v3.10.14 (/usr/bin/python3.10)", ""]
    return lines(*head, f'Thread {pid} (idle): "MainThread"', *(f"    {frame}" for frame in frames), "")


SYNC = ("synchronize (torch/cuda/__init__.py:954)", "step (train.py:144)", "<module> (train.py:330)")


def test_a_console_with_a_dump_of_each_process_names_the_one_whose_loader_is_stuck(judge):
    loader = ("select (selectors.py:416)", "__next__ (torch/utils/data/dataloader.py:631)", "epoch (train.py:190)")
    worker = (
        "acquire (filelock/_api.py:344)",
        "cached (data/cache.py:61)",
        "_worker_loop (torch/utils/data/_utils/worker.py:3)",
    )
    dumps = [spy(7040 + rank, rank, *(loader if rank == 2 else SYNC)) for rank in range(4)]
    verdict = judge({"console.txt": lines("step 1240/2000 loss 1.49", "$ dump", *dumps, spy(7301, 2, *worker))})
    assert brief(verdict) == identified(2, HUNG, "hung")
    assert verdict.first_failure.phase == "data_loading"
    assert any("cached (data/cache.py:61)" in reason for reason in verdict.first_failure.reasons)


def test_a_process_is_found_by_the_pid_that_its_rank_told(judge):
    log = lines(*(hello(rank, 3) for rank in range(3)), *(steps(rank, 1, 5) for rank in range(3)))
    dumps = [
        spy(4100 + rank, 0, *(SYNC if rank else ("f (train.py:9)",)), command="python train.py") for rank in range(3)
    ]
    assert brief(judge({"train.log": log, "pyspy.txt": lines(*dumps)}))[2] == (0,)


# The kernel and the GPU's firmware

GSP = "NVRM: Xid (PCI:0000:5d:00): 119, pid={}, name={}, Timeout after 45s of waiting for RPC response from GPU3 GSP!"


def test_a_process_that_the_gpus_firmware_keeps_waiting_hangs_and_is_not_dead(judge):
    log = lines(*(hello(rank, 2) for rank in range(2)), *(steps(rank, 1, 5) for rank in range(2)))
    told = lines(
        kernel(7, GSP.format(4101, "python3")),
        kernel(60, GSP.format(9931, "nvidia-smi")),
        kernel(200, "INFO: task python3:4101 blocked for more than 120 seconds."),
    )
    verdict = judge({"train.log": log, "node-a.dmesg": told})
    assert brief(verdict) == identified(1, "gpu_xid", "hung")


def test_a_process_that_ended_is_not_kept_waiting(judge):
    log = lines(*(hello(rank, 2) for rank in range(2)), say(9, 1, "CUDA error: unspecified launch failure", "ERROR"))
    told = kernel(7, GSP.format(4101, "python3"))
    bad = "RuntimeError: CUDA error: unspecified launch failure"
    assert judge({"train.log": lines(log, bad), "node-a.dmesg": told}).outcome == "failed"


# Schedulers, and processes that never came


@pytest.mark.parametrize(
    "line",
    [
        "=>> PBS: job killed: walltime 21642 exceeded limit 21600",
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    ],
)
def test_a_scheduler_that_ends_the_job_at_its_limit_is_the_failure_and_not_what_it_tears_down(judge, line):
    ends = [f"node-{'ab'[rank % 2]}: rank {rank} died from signal 15" for rank in range(2)]
    log = lines(*(hello(rank, 2) for rank in range(2)), *(steps(rank, 1, 5) for rank in range(2)), line, *ends)
    verdict = judge({"job.o123456": log, "job.e123456": "terminate called without an active exception\n"})
    assert brief(verdict) == ("cancelled", "identified", (), "time_limit")


def test_a_process_that_never_registered_is_the_one_that_the_coordinator_lists(judge):
    files = {}
    for rank in range(3):
        text = [f"JAX_PROCESS_ID={rank} JAX_NUM_PROCESSES=4 coordinator=a-0:1234"]
        if rank == 0:
            text += ["Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. # of tasks: 3/4.",
                     "The first task at the barrier: /job:jax_worker/replica:0/task:2. Some timed out task names:",
                     "/job:jax_worker/replica:0/task:3"]  # fmt: skip
        text += ["jax.errors.JaxRuntimeError: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN"]
        files[f"slice-0-{rank}.log"] = lines(*text)
    assert brief(judge(files)) == identified(3, "rendezvous_failure")


def test_an_image_that_cannot_be_pulled_fails_the_pod_that_left_no_file(judge):
    files = {
        f"slice-0-{rank}.log": lines(f"JAX_PROCESS_ID={rank} JAX_NUM_PROCESSES=4 coordinator=a-0:1234", "waiting")
        for rank in range(3)
    }
    event = '9m   Warning   Failed   pod/slice-0-3   Failed to pull image "r/x:1": no space left on device'
    head = "LAST SEEN   TYPE   REASON   OBJECT   MESSAGE"
    assert judge(files | {"events.txt": lines(head, event)}).first_failure.ranks == (3,)


# Whose traceback it is


def pdsh(host, text):
    return lines(*(f"{host}: {line}" for line in text.splitlines()))


STALE = "OSError: [Errno 116] Stale file handle: '/nfs/part-0061.jsonl'"


def test_a_traceback_right_below_a_ranks_error_is_that_ranks(judge):
    mapping = "global_rank_mapping=defaultdict(<class 'list'>, {'wk-a': [0, 1], 'wk-b': [2, 3]})"
    trace = f'Traceback (most recent call last):\n  File "/w/sft.py", line 4, in <module>\n    f()\n{STALE}'
    log = lines(
        *(pdsh(host, say(0, None, mapping)) for host in ("wk-a", "wk-b")),
        *(
            pdsh(host, say(number, None, f"step {number} synced"))
            for number in range(1, 6)
            for host in ("wk-a", "wk-b")
        ),
        pdsh("wk-a", "[2026-12-01 10:01:30] rank0: NCCL peer went away"),
        pdsh("wk-b", f"[2026-12-01 10:01:10] rank3: loader raised at step 6\n{trace}"),
    )
    verdict = judge({"train.log": log})
    assert brief(verdict) == identified(3, "storage_io")
    assert verdict.first_failure.hosts == ("wk-b",)


def test_the_stack_below_a_crash_tells_what_the_rank_was_doing(judge):
    crash = (
        "python3: /build/csrc/dispatch.cpp:211: void dispatch(int): Assertion `n <= capacity' failed.",
        "Fatal Python error: Aborted",
        "",
        "Current thread 0x00007fb1e0ffd640 (most recent call first):",
        '  File "/opt/moe/ops.py", line 51 in dispatch',
        '  File "/opt/moe/model.py", line 210 in forward',
    )
    ranks = {f"rank_{r}.log": lines(hello(r, 2), steps(r, 1, 9)) for r in range(2)}
    failure = judge(ranks | {"rank_1.log": ranks["rank_1.log"] + lines(*crash)}).first_failure
    assert (failure.ranks, failure.kind, failure.phase) == ((1,), "abort", "forward")
    apart = [*crash[:1], *(f"line {number}" for number in range(40)), *crash[1:]]
    failure = judge(ranks | {"rank_1.log": ranks["rank_1.log"] + lines(*apart)}).first_failure
    assert (failure.ranks, failure.kind) == ((1,), "abort")
