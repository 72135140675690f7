"""Faults that the program caught, and noise after the work was done, are no failures."""

import pytest
from correlate_jobs import (
    KEY,
    OOM,
    RESET,
    at,
    box,
    brief,
    closing,
    failed,
    hello,
    identified,
    lines,
    say,
    steps,
    traceback,
)


def test_a_fault_with_progress_after_it_on_the_same_rank_was_caught(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 2), steps(rank, 1, 9)) for rank in range(2)}
    files["rank_1.log"] = lines(hello(1, 2), steps(1, 1, 5), traceback(KEY), steps(1, 6, 9, start=8))
    assert brief(judge(files)) == ("running", None, (), None)


def test_a_fault_with_progress_of_other_ranks_only_was_not_caught(judge):
    files = {"rank_0.log": lines(hello(0, 2), steps(0, 1, 9))}
    files["rank_1.log"] = lines(hello(1, 2), steps(1, 1, 5), traceback(KEY))
    assert brief(judge(files))[1:] == identified(1, "python_exception")[1:]


PORT = "node-a:4101:900 [1] transport/net_ib.cc:120 NCCL WARN NET/IB : mlx5_1:1 Got async error event: port error"


@pytest.mark.parametrize(("later", "went_on"), [(9, True), (4, False)])
def test_a_port_that_complained_some_steps_before_the_last_did_not_stop_the_job_whoever_told_of_them(
    judge, later, went_on
):
    text = lines(hello(0, 2), hello(1, 2), steps(0, 1, 5), PORT, steps(0, 6, 5 + later, start=8))
    assert brief(judge({"train.log": text}))[:3] == (
        ("running", None, ()) if went_on else ("failed", "identified", (1,))
    )


def test_steps_that_were_written_out_late_do_not_outlive_a_port(judge):
    text = lines(hello(0, 2), hello(1, 2), f"[{at(80)[:19]}] {PORT}", steps(0, 1, 9, 2))
    assert brief(judge({"train.log": text}))[:3] == ("failed", "identified", (1,))


@pytest.mark.parametrize(("seconds", "went_on"), [(3600, True), (60, False)])
def test_in_another_file_only_steps_count_that_are_later_by_any_clock(judge, seconds, went_on):
    port = f"[{at(8)[:19]}] {PORT}"
    files = {"rank_0.log": lines(hello(0, 2), steps(0, 1, 5), steps(0, 6, 14, start=seconds))}
    files["rank_1.log"] = lines(hello(1, 2), port)
    assert brief(judge(files))[1] == (None if went_on else "identified")


def test_a_fault_after_which_one_last_line_of_progress_came_is_still_one(judge):
    text = lines(hello(1, 2), steps(1, 1, 5), traceback(KEY), steps(1, 6, 6, start=7))
    files = {"rank_0.log": lines(hello(0, 2), traceback(RESET)), "rank_1.log": text}
    assert brief(judge(files)) == identified(1, "python_exception")


def test_the_later_fault_is_the_failure_where_the_first_was_caught(judge):
    text = lines(hello(1, 2), steps(1, 1, 3), traceback(KEY), steps(1, 4, 8, start=5), traceback(OOM))
    files = {"rank_0.log": lines(hello(0, 2), steps(0, 1, 8), traceback(RESET)), "rank_1.log": text}
    assert brief(judge(files)) == identified(1, "cuda_oom")


@pytest.mark.parametrize(
    "note",
    [
        "attempting to recover from OOM in forward/backward pass",
        f"WARNING caught {OOM.split(': ', 1)[1]} batch skipped",
        "| WARNING | trainer | OOM: Ran out of memory with exception: " + OOM.split(": ", 1)[1],
    ],
)
def test_an_out_of_memory_that_the_trainer_says_it_caught_is_no_failure(judge, note):
    text = lines(hello(0, 2), steps(0, 1, 3), say(4, 0, note, "WARNING"), steps(0, 4, 5, start=5))
    files = {"rank_0.log": text, "rank_1.log": lines(hello(1, 2), steps(1, 1, 5))}
    assert brief(judge(files)) == ("running", None, (), None)


def test_a_caught_out_of_memory_does_not_hide_another_ranks_fault(judge):
    text = lines(hello(0, 2), steps(0, 1, 3), say(4, 0, "attempting to recover from OOM in forward/backward pass"))
    files = {"rank_0.log": lines(text, steps(0, 4, 5, start=5), traceback(RESET))}
    files["rank_1.log"] = lines(hello(1, 2), steps(1, 1, 5), traceback(KEY))
    assert brief(judge(files)) == identified(1, "python_exception")


def test_a_later_fault_far_below_a_caught_one_is_the_failure(judge):
    text = lines(hello(1, 2), steps(1, 1, 3), traceback(KEY), steps(1, 4, 80, start=5), traceback(OOM))
    files = {"rank_0.log": lines(hello(0, 2), steps(0, 1, 80), traceback(RESET)), "rank_1.log": text}
    assert brief(judge(files)) == identified(1, "cuda_oom")


# Noise when everything is done


SHUTDOWN = (
    "[rank0]:[W1201 10:00:20.123456789 ProcessGroupNCCL.cpp:1250] Warning: process group has NOT been destroyed",
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3a>",
    "Exception in thread Thread-4 (_pin_memory_loop):",
)


@pytest.mark.parametrize("lead", SHUTDOWN)
def test_noise_after_the_training_is_done_is_no_failure(judge, lead):
    text = [hello(r, 2) for r in range(2)] + [steps(r, 1, 9) for r in range(2)]
    text += ["training done, best epoch 12, error 0.081", lead]
    text += [traceback("ConnectionResetError: [Errno 104] Connection reset by peer")]
    text += ["torchrun exit code: 0"]
    assert brief(judge({"train.log": lines(*text)})) == ("completed", None, (), None)


def test_a_job_whose_end_is_told_is_completed(judge):
    text = [steps(None, 1, 9), "{'train_runtime': 812.1, 'train_samples_per_second': 12.1, 'epoch': 3.0}"]
    assert brief(judge({"train.log": lines(*text)})) == ("completed", None, (), None)


def test_clean_exits_of_all_tell_a_completed_job(judge):
    text = [steps(None, 1, 9), *(f"Process 410{n} exits successfully." for n in range(4))]
    assert brief(judge({"train.log": lines(*text)})) == ("completed", None, (), None)


def test_a_bad_end_after_the_work_was_done_is_a_failure(judge):
    text = [hello(r, 2) for r in range(2)] + [steps(r, 1, 9) for r in range(2)]
    text += ["training done, best epoch 12, error 0.081", traceback(KEY, "[rank1]: "), closing(9, 4100)]
    text += [failed(10, 1, 1, 4101), box(10, (1, 1, 1, 4101))]
    assert brief(judge({"train.log": lines(*text)})) == identified(1, "python_exception")


def test_success_told_before_a_fault_does_not_forgive_it(judge):
    text = [hello(r, 2) for r in range(2)] + ["training done, best epoch 12, error 0.081"]
    text += [steps(r, 1, 3) for r in range(2)] + [traceback(KEY, "[rank1]: "), traceback(RESET, "[rank0]: ")]
    assert brief(judge({"train.log": lines(*text)})) == identified(1, "python_exception")


def test_a_job_that_was_still_at_work_is_running(judge):
    assert brief(judge({"train.log": lines(hello(0, 2), steps(0, 1, 50))})) == ("running", None, (), None)


def test_a_quoted_error_in_a_configuration_is_no_failure(judge):
    files = {"train.log": lines(hello(0, 2), steps(0, 1, 20)), "config.yaml": f"retry_on: '{OOM}'\n"}
    files["train.log"] = f"retry_on: '{OOM}'\n" + files["train.log"]
    assert brief(judge(files)) == ("running", None, (), None)


def test_an_end_that_the_agent_told_before_it_restarted_is_not_that_of_the_attempt_that_followed(judge):
    # The workers write to files of their own, so that the agent's log does not show where they began anew.
    files = {"torchrun.log": lines(closing(7, 1720), failed(8, 1, 1, 1719))}
    for rank in range(2):
        files[f"logs/none_ab12/attempt_0/{rank}/stdout.log"] = lines(steps(rank, 1, 5))
        files[f"logs/none_ab12/attempt_1/{rank}/stdout.log"] = lines(steps(rank, 1, 9), "training finished")
    files["logs/none_ab12/attempt_0/1/stderr.log"] = lines(traceback(KEY))
    verdict = judge(files)
    assert [attempt.outcome for attempt in verdict.attempts] == ["failed", "completed"]
    assert verdict.first_failure is None


TIMED_OUT = "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL, retrying"


@pytest.mark.parametrize(
    ("level", "verdict"),
    [("WARNING", ("running", None, (), None)), ("ERROR", identified(0, "network_error"))],
)
def test_an_exception_that_is_only_named_in_a_warning_ended_nothing(judge, level, verdict):
    files = {"rank_0.log": lines(hello(0, 2), steps(0, 1, 5), say(6, 0, TIMED_OUT, level))}
    files["rank_1.log"] = lines(hello(1, 2), steps(1, 1, 5))
    assert brief(judge(files)) == verdict
