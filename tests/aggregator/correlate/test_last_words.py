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
