"""Whose last words all others have told too, and gone on from, is waited for; nobody where that is not sure."""

import pytest
from correlate_jobs import at, brief, kernel, lines, steps

BLOCKED = kernel(200, "INFO: task python3:4402 blocked for more than 120 seconds.")


def hello(rank):
    return f"{at(0)} [rank {rank}] INFO tinylm: rank {rank} of 4"


def job(last_of, beats=3, beat=600, *, more=()):
    """Files of four ranks that write a shard each; those of `last_of` do not come back from it."""
    files = {}
    for rank in range(4):
        text = [hello(rank), steps(rank, 1, 5), f"{at(10)} [rank {rank}] writing part {rank} of export-40"]
        if rank not in last_of:
            text += [f"{at(18 + rank)} [rank {rank}] part written in 8.{rank} s, going to meet the others"]
            text += [f"{at(20 + n * beat)} [rank {rank}] still here after {n * beat} s" for n in range(1, beats + 1)]
        files[f"out/rank_{rank}.log"] = lines(*text, *more)
    return files


def named(verdict):
    failure = verdict.first_failure
    return () if failure is None else (failure.status, failure.ranks)


def test_a_rank_that_does_not_come_back_from_what_all_others_finished_is_waited_for(judge):
    verdict = judge(job({2}))
    assert brief(verdict) == ("hung", "identified", (2,), "collective_timeout")
    assert verdict.first_failure.evidence[0].text.startswith("writing part 2")


def test_a_kernel_that_keeps_a_process_waiting_proves_the_standstill(judge):
    verdict = judge({**job({2}, beats=0), "dmesg-gp3.txt": lines(BLOCKED)})
    assert brief(verdict)[:3] == ("hung", "identified", (2,))
    assert verdict.first_failure.hosts == ("gp3",)


@pytest.mark.parametrize("seconds", [-90000, -200])
def test_a_process_that_a_kernel_kept_waiting_before_tells_nothing_of_it(judge, seconds):
    old = kernel(seconds, "INFO: task python3:4402 blocked for more than 120 seconds.")
    assert named(judge({**job({2}, beats=0), "dmesg-gp3.txt": lines(old)})) != ("identified", (2,))


@pytest.mark.parametrize(
    "files",
    [
        job({2}, beats=1, beat=60),  # it may just be slow
        job({2}, beats=0),
        job({1, 2}),  # half of them
        job(set()),
    ],
    ids=["slow", "nothing since", "two of four", "nobody"],
)
def test_nobody_is_named_where_the_job_may_go_on_or_no_few_are_behind(judge, files):
    assert brief(judge(files))[0] == "running"


def test_words_that_the_others_have_not_told_are_no_place_that_they_went_on_from(judge):
    files = job({2})
    files["out/rank_2.log"] = files["out/rank_2.log"].replace("export-40", "export-41")
    assert named(judge(files)) == ()


def test_a_rank_that_ended_is_not_one_that_stands(judge):
    files = job({2})
    files["out/rank_2.log"] += f"{at(11)} [rank 2] INFO tinylm: Training finished\n"
    assert named(judge(files)) != ("identified", (2,))


STOPPED = "slurmstepd: error: *** JOB 88 ON node-a CANCELLED AT 2026-12-01T{} DUE TO TIME LIMIT ***"


def test_a_job_that_nobody_told_of_until_its_time_limit_stood_still(judge):
    files = {**job({2}, beats=0), "slurm-88.out": lines(STOPPED.format("13:47:12"))}
    assert brief(judge(files))[1:3] == ("identified", (2,))


@pytest.mark.parametrize("when", ["10:00:40", "18:00:40"], ids=["at once", "by a clock of another zone"])
def test_a_job_that_may_have_been_at_work_until_its_time_limit_did_not_stand(judge, when):
    files = {**job({2}, beats=0), "slurm-88.out": lines(STOPPED.format(when))}
    assert brief(judge(files))[3] == "time_limit"


def test_a_number_that_happens_to_be_the_ranks_is_the_same_number_to_all(judge):
    files = {name: text.replace("export-40", "s3://export/v1") for name, text in job({2}).items()}
    assert named(judge(files)) == ("identified", (2,))
