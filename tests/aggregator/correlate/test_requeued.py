"""Jobs that Slurm or a batch script ran again into the same file, after it had cancelled a step."""

from correlate_jobs import at, brief, cancelled, failed, hello, lines, steps, traceback

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def run(start, rank=None, *, hosts=("node-a", "node-b"), end=True, job="77.0"):
    """Two ranks, from the second `start` on; `rank` runs out of memory, and the step is cancelled."""
    text = lines(
        *(hello(number, 2, host, seconds=start) for number, host in enumerate(hosts)),
        *(steps(number, 1, 9, start + 1) for number in range(2)),
    )
    if rank is not None:
        text += traceback(OOM, f"[rank{rank}]: ")
        text += f"srun: error: {hosts[rank]}: task {rank}: Exited with exit code 1\n"
    return text + lines(cancelled(start + 20, "", f"STEP {job}"), "srun: error: other tasks: Killed") if end else text


def test_what_is_written_long_after_a_step_was_cancelled_is_another_attempt(judge):
    verdict = judge({"slurm-77.out": run(0, 0) + run(300, 1, job="77.1")})
    assert [attempt.first_failure.ranks for attempt in verdict.attempts] == [(0,), (1,)]
    assert brief(verdict) == ("failed", "identified", (1,), "cuda_oom")


def test_each_attempt_s_ranks_are_on_its_own_hosts(judge):
    text = run(0, 0, hosts=("node-a", "node-b")) + run(300, 0, hosts=("node-b", "node-c"), job="77.1")
    assert [a.first_failure.hosts for a in judge({"slurm-77.out": text}).attempts] == [("node-a",), ("node-b",)]


def test_a_job_that_was_resumed_and_goes_on_runs(judge):
    verdict = judge({"slurm-77.out": run(0, 0) + run(300, end=False)})
    first, last = verdict.attempts
    assert (str(first.outcome), first.first_failure.ranks, last.first_failure) == ("failed", (0,), None)


def test_what_is_written_while_a_step_is_being_killed_is_no_attempt(judge):
    text = run(0, 0) + steps(1, 10, 30, 21)
    assert len(judge({"slurm-77.out": text}).attempts) == 1


def test_that_a_process_of_the_step_cannot_be_killed_is_told_late_and_is_no_attempt(judge):
    stuck = (
        f"slurmstepd: error: *** STEP 77.0 STEPD TERMINATED ON node-a AT {at(100, 'T')[:19]} DUE TO JOB NOT ENDING WITH"
    )
    verdict = judge({"slurm-77.out": run(0, 0) + lines(f"{stuck} SIGNALS ***")})
    assert [attempt.first_failure.ranks for attempt in verdict.attempts] == [(0,)]


def test_where_the_clocks_differ_by_a_zone_late_lines_tell_of_no_attempt(judge):
    """The ranks write another zone's time, all of them later than the line of slurmstepd."""
    text = steps(0, 1, 9, 7200) + steps(1, 1, 9, 7200) + cancelled(20, "", "STEP 77.0") + "\n" + steps(1, 10, 12, 7209)
    assert len(judge({"slurm-77.out": text}).attempts) == 1


def ray(second, text, actor="TrainController pid=611"):
    return f"{at(second)} ({actor}) {text}"


def ray_run(start, rank=None):
    workers = [f"RayTrainWorker pid={1100 + number}, ip=10.0.0.4" for number in range(2)]
    begun = ray(start, "Attempting to start training worker group of size 2 with the following resources: []")
    told = [
        ray(start + 1 + step, f"[rank {number}] step {step} loss 2.1", workers[number])
        for step in range(9) for number in range(2)
    ]  # fmt: skip
    fault = traceback(OOM, f"{at(start + 10)} ({workers[rank]}) [rank{rank}]: ") if rank is not None else ""
    retry = ray(start + 12, "[FailurePolicy] Decision: FailureDecision.RETRY, Error source: worker group")
    shown = ray(start + 13, f"[Rank {rank} Error Snippet]: CUDA out of memory. Tried to allocate 2.00 GiB")
    return lines(begun, *told) + fault + (lines(retry, shown) if rank is not None else "")


def test_workers_that_ray_train_starts_again_are_another_attempt(judge):
    verdict = judge({"driver.log": ray_run(0, 1) + ray_run(60)})
    first, last = verdict.attempts
    assert (first.first_failure.ranks, first.first_failure.kind, last.first_failure) == ((1,), "cuda_oom", None)


def test_a_trial_that_ray_restarts_is_another_attempt(judge):
    text = (
        ray_run(0, 1).replace("Attempting", "Trying")
        + "Trial T_00000 will be restarted (failure 1 of max_failures=3)\n"
    )
    verdict = judge({"driver.log": text + ray_run(60, 0).replace("Attempting", "Trying")})
    assert [attempt.first_failure.ranks for attempt in verdict.attempts] == [(1,), (0,)]


def test_agents_of_pods_whose_logs_were_joined_restart_each_their_own(judge):
    """`kubectl logs --prefix` of several pods gives one after the other: each begins below the end of another."""

    def pod(name, first, rank=None):
        own = [
            *(hello(number, 4, name, seconds=0) for number in (first, first + 1)),
            *(steps(n, 1, 5) for n in (first, first + 1)),
        ]
        if rank is not None:
            own.append(traceback(OOM, f"[rank{rank}]: "))
        own.append(failed(10, 1, 0, 4100 + first))
        return "".join(f"[pod/{name}/trainer] {line}\n" for line in lines(*own).splitlines())

    verdict = judge({"pods.log": pod("ft-worker-0", 0, 1) + pod("ft-worker-1", 2)})
    assert len(verdict.attempts) == 1
    assert brief(verdict) == ("failed", "identified", (1,), "cuda_oom")


def test_a_job_may_be_run_again_more_than_once(judge):
    text = run(0, 0) + run(300, 1, job="77.1") + run(600, 0, job="77.2")
    assert [attempt.first_failure.ranks for attempt in judge({"slurm-77.out": text}).attempts] == [(0,), (1,), (0,)]
