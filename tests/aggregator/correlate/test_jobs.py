"""Several jobs that left their logs in one folder."""

from correlate_jobs import brief, identified

OLDER = (
    "Job 88120 starting on node7 at 2026-04-11T20:10:00\n"
    "[rank0] 2026-04-11 20:11:00 step 0\n"
    "[rank1] 2026-04-11 20:11:00 step 0\n"
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.47 GiB. GPU 0 is full.\n"
    "[rank1] 2026-04-11 20:14:00 step 9\n"
    "srun: error: node7: task 0: Exited with exit code 1\n"
)
NEWER = (
    "Job 88193 starting on node9 at 2026-04-12T09:00:00\n"
    "[rank0] 2026-04-12 09:01:00 step 0\n"
    "[rank1] 2026-04-12 09:01:00 step 0\n"
    "[rank1]: KeyError: 'part-0413'\n"
    "[rank0] 2026-04-12 09:04:00 step 9\n"
    "srun: error: node9: task 1: Exited with exit code 1\n"
)


def test_of_jobs_that_ran_one_after_the_other_the_newest_is_judged_whatever_its_name(judge):
    for names in (("slurm-88120.out", "slurm-88193.out"), ("slurm-99.out", "slurm-7.out")):
        verdict = judge(dict(zip(names, (OLDER, NEWER), strict=True)))
        assert brief(verdict) == identified(1, "python_exception")
        assert verdict.first_failure.hosts == ("node9",)
        assert verdict.job.hosts == ("node9",)
        earlier, last = verdict.attempts
        assert (earlier.index, earlier.first_failure.ranks, earlier.first_failure.kind) == (0, (0,), "cuda_oom")
        assert (last.index, last.first_failure) == (1, verdict.first_failure)
        assert verdict.coverage.lines == OLDER.count("\n") + NEWER.count("\n")
        assert any("earlier job" in warning for warning in verdict.warnings)


def test_a_job_that_was_submitted_again_and_is_well_has_not_failed(judge):
    again = "[rank0] 2026-04-12 09:01:00 step 0\n[rank1] 2026-04-12 09:01:00 step 0\n"
    verdict = judge({"slurm-88120.out": OLDER, "slurm-88193.out": again})
    assert (verdict.outcome, verdict.first_failure) == ("running", None)
    assert verdict.attempts[0].outcome == "failed"


def test_jobs_that_ran_at_the_same_time_are_parts_of_one(judge):
    at_once = NEWER.replace("2026-04-12 09:0", "2026-04-11 20:1").replace("2026-04-12T09:0", "2026-04-11T20:1")
    assert len(judge({"slurm-88120.out": OLDER, "slurm-88121.out": at_once}).attempts) == 1


def test_logs_without_a_job_s_id_are_the_newest_job_s(judge):
    own = "2026-04-12 09:03:00 [rank1] host node9\n"
    verdict = judge({"slurm-88120.out": OLDER, "slurm-88193.out": NEWER, "rank1.log": own})
    assert brief(verdict) == identified(1, "python_exception")
    assert verdict.attempts[0].first_failure.ranks == (0,)
