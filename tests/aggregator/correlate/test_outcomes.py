"""How a job ended: failed, hung, cancelled from outside, or with a lost node; and what came first."""

from datetime import timedelta

import pytest
from correlate_jobs import (
    GLOO_WAIT,
    KEY,
    RESET,
    START,
    box,
    brief,
    cancelled,
    closing,
    failed,
    glog,
    hello,
    identified,
    lines,
    say,
    steps,
    traceback,
    watchdog,
)

from aggregator.verdict import Outcome

ABORTED = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."


def train(*more, world=4, last=20):
    text = [hello(rank, world) for rank in range(world)] + [steps(rank, 1, last) for rank in range(world)]
    return lines(*text, *more)


# Cancelled


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (cancelled(30, " DUE TO TIME LIMIT", "JOB 123"), "time_limit"),
        (cancelled(30, " DUE TO PREEMPTION", "JOB 123"), "preempted"),
        (cancelled(30, "", "JOB 123"), "cancelled"),
        (cancelled(30, " DUE TO JOB REQUEUE", "JOB 123"), "cancelled"),
        (glog(30, "Received SIGTERM death signal, shutting down workers"), "cancelled"),
        ("srun: interrupt (one more within 1 sec to abort)", "cancelled"),
    ],
)
def test_an_act_from_outside_that_nothing_preceded_cancelled_the_job(judge, act, kind):
    verdict = judge({"slurm-7.out": train(act)})
    assert brief(verdict) == ("cancelled", "identified", (), kind)
    assert verdict.first_failure.step == 20


PY_SPY = """### rank {rank} (py-spy dump --pid {pid})
Process {pid}: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 0x7F1A (active): "MainThread"
    {frames}
"""
ALL_REDUCE = "all_reduce (torch/distributed/distributed_c10d.py:2810)\n    reduce_loss (/home/w/train.py:121)"
READING = "read (ssl.py:1167)\n    __iter__ (/home/w/data/tarstream.py:52)\n    next_batch (/home/w/train.py:80)"


@pytest.mark.parametrize(("limit", "told"), [(7200, ("hung", "identified", (1,), "collective_timeout")),
                                             (60, ("cancelled", "identified", (), "time_limit"))])  # fmt: skip
def test_a_job_that_stood_still_long_before_its_time_limit_hung(judge, limit, told):
    dumps = "".join(
        PY_SPY.format(rank=rank, pid=4100 + rank, frames=READING if rank == 1 else ALL_REDUCE) for rank in range(4)
    )
    verdict = judge({"slurm-7.out": train(cancelled(limit, " DUE TO TIME LIMIT", "JOB 123")), "pyspy.txt": dumps})
    assert brief(verdict) == told


@pytest.mark.parametrize(("blocked", "told"), [(130, ("hung", "identified", (1,), "collective_timeout")),
                                               (130 - 7200, ("hung", "identified", (1,), "collective_timeout")),
                                               (-600, ("cancelled", "identified", (), "time_limit"))])  # fmt: skip
def test_a_process_that_its_kernel_kept_waiting_since_its_last_words_hung_the_job(judge, blocked, told):
    stamp = (START + timedelta(seconds=blocked)).strftime("%Y-%m-%dT%H:%M:%S.000000+00:00")
    kernel = f"{stamp} node-a kernel: INFO: task python3:4101 blocked for more than 120 seconds."
    files = {"slurm-7.out": train(cancelled(7200, " DUE TO TIME LIMIT", "JOB 123")), "dmesg-node-a.txt": lines(kernel)}
    assert brief(judge(files)) == told


def test_what_ranks_that_are_done_see_of_each_others_end_is_no_failure(judge):
    gone = (
        "TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=71, addr=[localhost]:53012, "
        "remote=[localhost]:41233): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server "
        "shutdown or crash?"
    )
    done = [say(30, rank, "Training completed") for rank in range(4)]
    late = [f"[rank{rank}]:[W1201 10:00:33.423938499 {gone}" for rank in (1, 3)]
    verdict = judge({"train.log": train(*done, *late)})
    assert brief(verdict) == ("completed", None, (), None)
    assert verdict.job.ended == int(START.timestamp() + 33) * 10**9
    assert brief(judge({"train.log": train(*done[:1], *late)}))[0] == "failed"


def test_what_nccl_tells_of_each_process_that_ends_is_no_failure_below_the_end_of_the_work(judge):
    done = "{'train_runtime': 1350.2, 'train_samples_per_second': 18.9, 'train_loss': 1.52, 'epoch': 3.0}"
    left = [
        f"node-a:{4100 + r}:79{r} [{r}] NCCL INFO [Service thread] Connection closed by localRank {1 - r}"
        for r in (0, 1)
    ]
    text = [*(hello(rank, 2) for rank in range(2)), *(steps(rank, 1, 5) for rank in range(2))]
    assert brief(judge({"train.log": lines(*text, done, *left)}))[0] == "completed"
    assert brief(judge({"train.log": lines(*text, *left)}))[0] != "completed"


def test_a_line_of_sacct_tells_a_time_limit(judge):
    acct = lines(
        "JobID           JobName  Partition      State ExitCode               Start                 End    Elapsed",
        "------------ ---------- ---------- ---------- -------- ------------------- ------------------- ----------",
        "123               train     gpu_p1    TIMEOUT      0:0 2026-12-01T10:00:00 2026-12-01T11:00:00   01:00:00",
    )
    verdict = judge({"slurm-123.out": train(), "sacct.txt": acct})
    assert brief(verdict) == ("cancelled", "identified", (), "time_limit")


def test_errors_that_the_cancelling_causes_are_no_failures(judge):
    echo = [traceback(RESET, f"[rank{rank}]: ") for rank in range(4)]
    ends = ["srun: error: node-a: tasks 0-3: Terminated"]
    verdict = judge({"slurm-7.out": train(cancelled(30, " DUE TO TIME LIMIT"), *echo, *ends)})
    assert brief(verdict) == ("cancelled", "identified", (), "time_limit")


def test_a_fault_before_the_time_limit_is_the_failure(judge):
    fault = say(21, 2, "Loss is nan at step 20, stopping training", "ERROR")
    verdict = judge({"slurm-7.out": train(fault, cancelled(600, " DUE TO TIME LIMIT"))})
    assert brief(verdict) == identified(2, "nan_loss")


def test_a_fault_after_the_time_limit_is_its_consequence(judge):
    fault = say(35, 2, "Loss is nan at step 20, stopping training", "ERROR")
    verdict = judge({"slurm-7.out": train(cancelled(30, " DUE TO TIME LIMIT"), fault)})
    assert brief(verdict) == ("cancelled", "identified", (), "time_limit")
    assert [row.rank for row in verdict.first_failure.candidates] == [2]


def test_sruns_own_cleaning_up_after_a_task_failed_is_no_cancelling(judge):
    ends = ["srun: error: node-a: task 2: Exited with exit code 1", ABORTED, cancelled(21)]
    ends += ["srun: error: node-a: tasks 0-1,3: Terminated"]
    verdict = judge({"slurm-7.out": train(traceback(KEY, "[rank2]: "), *ends)})
    assert brief(verdict) == identified(2, "python_exception")


def test_sruns_own_cleaning_up_after_a_task_ended_without_a_word_is_no_cancelling(judge):
    ends = ["srun: error: node-a: task 2: Exited with exit code 1", ABORTED, cancelled(21)]
    verdict = judge({"slurm-7.out": train(*ends)})
    assert verdict.outcome is Outcome.FAILED
    assert verdict.first_failure.ranks == (2,)


def test_a_cancelling_in_the_very_second_of_a_fault_is_the_cleaning_up_after_it(judge):
    fault = say(21.2, 2, "Loss is nan at step 20, stopping training", "ERROR")
    verdict = judge({"slurm-7.out": train(), "slurm-7.err": lines(cancelled(21)), "rank_2.log": lines(fault)})
    assert brief(verdict) == identified(2, "nan_loss")


def test_a_cancelling_that_says_a_task_failed_is_none(judge):
    verdict = judge({"slurm-7.out": train(traceback(KEY, "[rank2]: "), cancelled(21, " DUE TO TASK FAILURE"))})
    assert brief(verdict) == identified(2, "python_exception")


def test_work_that_was_done_before_the_cancelling_but_told_after_it_is_completed(judge):
    verdict = judge({"slurm-7.out": train(cancelled(30, " DUE TO TIME LIMIT"), "srun exited with 0")})
    assert verdict.outcome is Outcome.COMPLETED
    assert verdict.first_failure is None


# Hung


def test_ranks_that_only_wait_and_were_never_stopped_hang(judge):
    assert brief(judge({"train.log": train(*(watchdog(700, rank) for rank in (0, 2, 3)))})) == (
        "hung", "identified", (1,), "collective_timeout",
    )  # fmt: skip


def test_ranks_that_waited_and_were_taken_down_failed(judge):
    text = train(*(watchdog(700, rank) for rank in (0, 2, 3)), closing(702, 4101), failed(703, -6, 0, 4100))
    assert brief(judge({"train.log": text})) == identified(1, "collective_timeout")


def test_ranks_whose_wait_ended_in_an_exception_failed(judge):
    text = train(*(traceback(GLOO_WAIT, f"[rank{rank}]: ") for rank in (0, 2, 3)))
    assert brief(judge({"train.log": text})) == identified(1, "collective_timeout")


# Lost nodes


def two_nodes(*more):
    text = [hello(rank, 4, f"node-{'ab'[rank // 2]}") for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)]
    return lines(*text, *more)


def test_a_node_that_srun_lost_is_the_failure_and_its_peers_errors_follow(judge):
    lost = ["srun: error: Node failure on node-b", ABORTED, *(traceback(RESET, f"[rank{r}]: ") for r in (0, 1))]
    lost += [cancelled(9, " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")]
    verdict = judge({"slurm-7.out": two_nodes(*lost)})
    assert brief(verdict) == identified((2, 3), "node_failure")
    assert verdict.first_failure.hosts == ("node-b",)
    assert {row.rank for row in verdict.collateral} == {0, 1}


def test_all_ranks_that_write_to_a_lost_nodes_file_were_on_it_though_some_said_nothing_of_note(judge):
    files = {
        f"node-{name}.out": "".join(f"{rank}: ready\n" for rank in ranks)
        + "".join(f"{ranks[0]}: {line}\n" for line in steps(ranks[0], 1, 5).splitlines())
        for name, ranks in {"a": (0, 1, 2), "b": (3, 4, 5)}.items()
    }
    verdict = judge({**files, "srun.out": lines("srun: error: Node failure on node-b", ABORTED)})
    assert brief(verdict) == identified((3, 4, 5), "node_failure")


def test_a_node_that_the_controller_declares_down_is_the_failure(judge):
    line = "[2026-12-01T10:00:30.123] error: Nodes node-b not responding, setting DOWN"
    verdict = judge({"slurm-7.out": two_nodes(), "slurmctld.log": lines(line)})
    assert (verdict.first_failure.kind, verdict.first_failure.hosts) == ("node_failure", ("node-b",))


def test_a_line_of_sacct_tells_that_some_node_failed(judge):
    day = START.strftime("%Y-%m-%d")
    acct = lines(
        "JobID           JobName  Partition      State ExitCode               Start                 End    Elapsed",
        "------------ ---------- ---------- ---------- -------- ------------------- ------------------- ----------",
        f"123               train     gpu_p1  NODE_FAIL      1:0 {day}T10:00:00 {day}T11:00:00   01:00:00",
    )
    verdict = judge({"slurm-123.out": two_nodes(), "sacct.txt": acct})
    assert (verdict.outcome, verdict.first_failure.kind) == ("failed", "node_failure")
    assert verdict.first_failure.ranks == ()


def test_a_fault_long_before_a_node_was_lost_is_the_failure(judge):
    fault = say(6, 0, "Loss is nan at step 5, stopping training", "ERROR")
    later = [steps(2, 6, 300, start=6), steps(3, 6, 300, start=6), "srun: error: Node failure on node-b"]
    verdict = judge({"slurm-7.out": two_nodes(fault, *later)})
    assert brief(verdict) == identified(0, "nan_loss")


def test_the_end_of_one_attempt_box_is_not_an_act_from_outside(judge):
    text = train(traceback(KEY, "[rank1]: "), closing(22, 4100, 4102, 4103), failed(23, 1, 1, 4101))
    text += box(23, (1, 1, 1, 4101)) + "srun: error: node-a: task 0: Exited with exit code 1\n" + cancelled(24) + "\n"
    assert brief(judge({"slurm-7.out": text})) == identified(1, "python_exception")


def test_a_job_of_which_no_line_says_anything_is_not_called_failed(judge):
    assert judge({"run.log": "hello\nworld\n"}).outcome in {Outcome.RUNNING, Outcome.UNKNOWN}


def test_ranks_that_waited_long_before_the_time_limit_were_hung_by_one_that_did_not_come(judge):
    text = train(*(watchdog(700, rank) for rank in (0, 2, 3)), cancelled(3600, " DUE TO TIME LIMIT", "JOB 123"))
    verdict = judge({"slurm-123.out": text})
    assert brief(verdict)[1:] == ("identified", (1,), "collective_timeout")


@pytest.mark.parametrize(
    "line",
    [
        "the epilog greps for 'srun: error: *** STEP 1.0 ON a CANCELLED AT 2026-12-01T00:00:00 DUE TO TIME LIMIT ***'",
        "  * slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2026-12-01T00:00:00 *** is what scancel prints",
        'if the log says "Node failure on node-b", ask for another node',
        "hint: `Received Signals.SIGTERM death signal, shutting down workers` means that the agent was stopped",
    ],
)
def test_an_act_from_outside_that_is_only_quoted_did_not_happen(judge, line):
    files = {
        "train.log": lines(line, *(hello(rank, 2) for rank in range(2)), steps(0, 1, 9), traceback(KEY, "[rank1]: "))
    }
    assert brief(judge(files)) == identified(1, "python_exception")
