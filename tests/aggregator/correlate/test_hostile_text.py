"""Text can be printed by anyone: it may weaken an answer, but neither point it at someone else nor stop it."""

import pytest
from correlate_jobs import (
    KEY,
    RESET,
    box,
    brief,
    evidence,
    hello,
    identified,
    lines,
    signal,
    steps,
    traceback,
)

from aggregator.correlate.evidence import ints
from aggregator.correlate.identity import Identity
from aggregator.correlate.learn import build_identity
from aggregator.correlate.stories import MAX_WORLD
from parsers.records import Role


def job(rank_0="", rank_1=KEY):
    """Four ranks of which rank 1 fails; `rank_0` is printed by rank 0 above its own error."""
    files = {
        f"rank_{r}.log": lines(hello(r, 4), steps(r, 1, 5), traceback(rank_1 if r == 1 else RESET)) for r in range(4)
    }
    files["rank_0.log"] = lines(hello(0, 4), steps(0, 1, 5), rank_0, traceback(RESET))
    return files


@pytest.mark.parametrize(
    "text",
    [
        box(7, (3, 3, -9, 4103)),
        "  [3] finished collective #11, but didn't join collective #12 (count from 1)",
        "rank 3 in a world of 4 saw 3 errors: KeyError, MemoryError, Killed",
        "retry_on: ['CUDA out of memory', 'NCCL error']",
        "\x1b]0;rank3\x07\x1b[31m rank 3 failed\x1b[0m",
        "A" * 20_000,
    ],
)
def test_what_one_rank_prints_of_another_does_not_blame_that_one(judge, text):
    assert brief(judge(job(text))) == identified(1, "python_exception")


@pytest.mark.parametrize(
    "text",
    ["Process 3 exit with status code 139.", "srun: error: node-a: task 3: Segmentation fault (core dumped)"],
)
def test_a_launchers_report_among_the_words_of_a_rank_at_most_weakens_the_answer(judge, text):
    outcome, how, ranks, _ = brief(judge(job(text)))
    assert (outcome, 1 in ranks) == ("failed", True)
    assert how != "identified" or ranks == (1,)


def test_the_loudest_rank_is_not_the_culprit_for_being_loud(judge):
    assert brief(judge(job(traceback(RESET) * 100))) == identified(1, "python_exception")


def test_a_line_of_null_bytes_changes_nothing(judge):
    files = job()
    files["rank_2.log"] = files["rank_2.log"].encode() + b"\0" * 4096 + b"\n"
    assert brief(judge(files)) == identified(1, "python_exception")


@pytest.mark.parametrize(
    "report", ["Process 99 exit with status code 1.", "srun: error: node-a: task 99: Exited with exit code 1"]
)
def test_a_report_of_a_rank_beyond_the_world_names_nobody(judge, report):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)] + [report]
    verdict = judge({"train.log": lines(*text)})
    assert verdict.outcome == "failed"
    assert verdict.first_failure.ranks == ()


def test_a_world_larger_than_any_machine_is_a_misread_number():
    told = [signal(Role.IDENTITY, fields={"world_size": "999999999999"})]
    table = build_identity(evidence(), told)
    assert (table.world_size or 0) <= MAX_WORLD


def test_a_list_of_many_huge_ranges_does_not_fill_the_memory():
    assert len(ints("0-131071," * 8)) <= 1 << 18


def test_a_pid_of_many_digits_is_no_ones():
    assert Identity().rank_for_pid(10**30, None) is None
