"""Steps of srun: what it ends by itself, steps that a batch script runs one after the other, heterogeneous jobs."""

from correlate_jobs import brief, cancelled, hello, lines, steps

FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered"


def traceback(rank, label=""):
    front = f"{label}[rank{rank}]: "
    text = (
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 88, in step',
        "    loss.backward()",
        FAULT,
    )
    return lines(*(front + line for line in text))


def ended(job, task, step=0):
    return lines(
        f"srun: error: node-b: task {task}: Exited with exit code 1",
        f"srun: launch/slurm: _step_signal: Terminating StepId={job}.{step}",
        "srun: error: node-a: task 0: Terminated",
        f"srun: Force Terminated StepId={job}.{step}",
    )


def test_a_step_that_srun_ends_after_a_failure_was_not_cancelled_from_outside_whatever_file_says_so(judge):
    """With a file a node, the line of the step's first node and srun's own are apart, and srun's have no time."""
    first = lines(hello(0, 4), steps(0, 1, 9), cancelled(10, "", "STEP 31.0"))
    other = lines(*(hello(rank, 4) for rank in (1, 2, 3)), *(steps(rank, 1, 9) for rank in (1, 2, 3)), traceback(3))
    job = {"log-31-node-a.txt": first, "log-31-node-b.txt": other, "slurm-31.out": ended(31, 3)}
    assert brief(judge(job)) == ("failed", "identified", (3,), "cuda_illegal_access")


def test_a_step_that_is_cancelled_stays_cancelled_if_srun_reports_another_one(judge):
    first = lines(hello(0, 2), hello(1, 2), steps(0, 1, 9), steps(1, 1, 9), cancelled(10, "", "STEP 31.1"))
    assert judge({"log-31.txt": first, "slurm-31.out": ended(31, 1)}).outcome == "cancelled"


def runs(*faults):
    text = []
    for step, fault in enumerate(faults):
        text += [lines(hello(0, 2), hello(1, 2)), steps(0, 1, 9), steps(1, 1, 9)]
        text += [traceback(1), ended(7, 1, step)] if fault else ["[rank0]: training done", "[rank1]: training done"]
    return "".join(part if part.endswith("\n") else part + "\n" for part in text)


def test_a_batch_script_that_runs_its_step_again_made_several_attempts(judge):
    verdict = judge({"slurm-7.out": runs(True, True, False)})
    assert [attempt.outcome for attempt in verdict.attempts] == ["failed", "failed", "completed"]
    assert [attempt.first_failure.ranks for attempt in verdict.attempts[:2]] == [(1,), (1,)]
    assert verdict.outcome == "completed"


def test_of_steps_that_all_failed_the_last_one_is_the_verdict(judge):
    verdict = judge({"slurm-7.out": runs(True, True)})
    assert len(verdict.attempts) == 2
    assert brief(verdict) == ("failed", "identified", (1,), "cuda_illegal_access")


def test_srun_counts_the_tasks_of_a_heterogeneous_job_in_each_component(judge):
    """`task 1` of the second component is rank 2: no rank is blamed by that number."""
    text = lines(
        *(hello(rank, 3) for rank in range(3)), *(steps(rank, 1, 9) for rank in range(3)),
        "srun: error: node-b: task 1: Segmentation fault",
        "srun: launch/slurm: _step_signal: Terminating StepId=20.0",
        "srun: launch/slurm: _step_signal: Terminating StepId=21.0",
        "srun: error: node-a: task 0: Terminated",
        "srun: Force Terminated StepId=20.0",
        "srun: error: node-b: task 0: Terminated",
        "srun: Force Terminated StepId=21.0",
    )  # fmt: skip
    verdict = judge({"slurm-20.out": text})
    assert (verdict.outcome, verdict.first_failure.kind, verdict.first_failure.ranks) == ("failed", "segfault", ())
