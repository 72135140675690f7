"""NCCL's RAS report names the rank that has launched less, within the communicator that it counts."""

import pytest
from correlate_jobs import brief, hello, lines, say, steps, watchdog

HUNG = ("hung", "identified", (5,), "collective_timeout")


def ras(*counts, many=None):
    """A report; counts are rank and operation, `many` is how many ranks are told of together, and their operation."""
    told = [
        f"  Rank {rank} has launched up to operation {count} -- GPU 5 managed by process {9000 + rank} on node 10.4.0.3"
        for rank, count in counts
    ]  # fmt: skip
    rest = [f"  {many[0]} ranks have launched up to operation {many[1]}"] if many else []
    return lines(
        "Warnings", "========", "", "#0-0 (5b1c0aa23fe81d07) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts", *rest, *told,
    )  # fmt: skip


def job(report, waiting=(0, 1, 2, 3), world=8):
    """One of two nodes has left a log: four of eight ranks waited."""
    text = [*(hello(r, world) for r in waiting), *(steps(r, 1, 5) for r in waiting)]
    return {"node-a.log": lines(*text, *(watchdog(700, r) for r in waiting)), "ncclras.txt": report}


def test_the_rank_that_has_launched_less_is_the_one_that_others_waited_for(judge):
    verdict = judge(job(ras((5, 1183), many=(7, 1184))))
    assert brief(verdict) == HUNG
    assert any("RAS counts 1183" in reason for reason in verdict.first_failure.reasons)
    assert verdict.first_failure.evidence[0].file == "ncclras.txt"


def test_ranks_may_be_told_of_one_by_one(judge):
    assert brief(judge(job(ras(*((r, 1183 if r == 5 else 1184) for r in range(8)))))) == HUNG


@pytest.mark.parametrize(
    "report",
    [
        ras((5, 1183), many=(3, 1184)),  # a communicator of four: its rank 5 is another
        ras((5, 1183), (6, 1183), (7, 1183), (4, 1183), many=(4, 1184)),
        ras((1, 1183), many=(7, 1184)),  # which says itself that it waited
        ras(many=(8, 1184)),
    ],
    ids=["smaller", "half", "waiting", "alike"],
)
def test_a_report_that_does_not_tell_of_a_few_ranks_of_the_job_names_none(judge, report):
    assert not any("RAS" in reason for reason in judge(job(report)).first_failure.reasons)


def test_a_report_on_a_job_that_went_on_is_no_failure(judge):
    files = {
        "train.log": lines(*(hello(r, 8) for r in range(8)), *(steps(r, 1, 5) for r in range(8)), say(9, 0, "bye"))
    }
    assert brief(judge({**files, "ncclras.txt": ras((5, 1183), many=(7, 1184))}))[0] == "running"
