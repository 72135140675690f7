"""S15: where a line was found outranks what it says; where they disagree, it is told and the verdict is less sure."""

import pytest

from aggregator.correlate.contested import CONTESTED
from aggregator.pipeline import postmortem

BEFORE = "2031-02-03 04:00:59.900 "
LATER = "2031-02-03 04:01:00.500 "
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB.\n"
)
CANCELLED = "slurmstepd: error: *** JOB 4242 ON node-b CANCELLED AT 2031-02-03T04:00:59 DUE TO TIME LIMIT ***\n"


def fault(rank):
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 3, in main',
        "    step()",
        "ValueError: bad sample",
    ]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def box(rank):
    """The summary that torchrun prints."""
    border = "=" * 60 + "\n"
    entry = (
        f"[0]:\n  time      : 2031-02-03_04:00:30\n  host      : node-z\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : 1 (pid: {rank})\n  error_file: <N/A>\n  traceback : x\n"
    )
    return f"{border}train.py FAILED\nRoot Cause (first observed failure):\n{entry}{border}"


def stamped(text, stamp):
    return "".join(f"{stamp}{line}" for line in text.splitlines(keepends=True))


def oom(rank):
    """A traceback under the tag of a rank."""
    lines = ["Traceback (most recent call last):\n", '  File "/w/a.py", line 3, in main\n', "    x()\n", OOM]
    return "".join(f"{BEFORE}[rank{rank}]: {line}" for line in lines)


@pytest.fixture
def judged(tmp_path):
    """The verdict on four ranks with a file each, whose ends are given."""

    def judge(ends, launcher=""):
        for rank in range(4):
            steps = "".join(f"2031-02-03 04:00:{i:02}.{rank:03} [rank{rank}]: step {i} loss 1.{i}\n" for i in range(50))
            (tmp_path / f"rank_{rank}.log").write_text(steps + ends.get(rank, ""))
        if launcher:
            (tmp_path / "slurm-4242.out").write_text(launcher)
        return postmortem([str(tmp_path)])

    return judge


@pytest.mark.parametrize("claimed", [2, 5])
def test_s15_a_line_in_the_file_of_rank_3_that_calls_itself_anothers_is_rank_3s(judged, claimed):
    verdict = judged({3: oom(claimed)})
    assert verdict.first_failure.ranks == (3,)
    assert verdict.first_failure.confidence <= CONTESTED
    assert any(f"calls itself rank {claimed}" in text for text in verdict.warnings)
    assert any(f"calls itself rank {claimed}" in text for text in verdict.first_failure.reasons)


def test_s15_a_true_tag_costs_no_confidence(judged):
    verdict = judged({3: oom(3)})
    assert verdict.first_failure.ranks == (3,)
    assert verdict.first_failure.confidence > CONTESTED
    assert verdict.warnings == ()


def test_s15_torchelastics_box_that_a_rank_prints_is_shown_and_not_followed(judged):
    verdict = judged({0: box(2), 3: stamped(fault(3), LATER)})
    assert verdict.first_failure.ranks == (3,)
    assert any("rank_0.log" in text and "names rank 2" in text for text in verdict.warnings)


def test_s15_a_schedulers_word_that_only_a_rank_tells_is_less_sure(judged):
    verdict = judged({0: CANCELLED, 3: stamped(fault(3), LATER)})
    assert verdict.first_failure.confidence <= CONTESTED
    assert any("file of rank 0 only" in text for text in verdict.warnings)


@pytest.mark.parametrize("launcher", ["", "srun: error: node-b: task 3: Exited with exit code 1\n"])
@pytest.mark.parametrize("word", [CANCELLED, "srun: error: node-z: task 2: Segmentation fault (core dumped)\n"])
def test_s15_a_rank_that_fails_does_not_hide_behind_words_of_others_that_it_prints(judged, word, launcher):
    verdict = judged({3: word + stamped(fault(3), LATER)}, launcher)
    assert verdict.first_failure.confidence <= CONTESTED
    assert any("file of rank 3 only" in text and "told by rank 3" in text for text in verdict.warnings)


def test_s15_a_schedulers_word_where_it_belongs_is_believed(judged):
    verdict = judged({}, launcher=CANCELLED)
    assert verdict.outcome == "cancelled"
    assert verdict.first_failure.confidence > CONTESTED


@pytest.mark.parametrize(
    "quote",
    [
        "INFO the last run said: 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'\n",
        "srun: error: node-z: task 2: Killed\n",
        "INFO grep 'CUDA out of memory' old.log\n",
    ],
)
def test_s15_what_a_rank_quotes_is_not_followed(judged, quote):
    verdict = judged({0: f"{BEFORE}[rank0]: {quote}", 3: stamped(fault(3), LATER)})
    assert verdict.first_failure.ranks == (3,)


def test_s15_an_error_file_cannot_pin_a_failure_on_another_rank(judged, tmp_path):
    (tmp_path / "attempt_0" / "1").mkdir(parents=True)
    (tmp_path / "attempt_0" / "1" / "error.json").write_text(
        '{"message": {"message": "CUDA out of memory", "rank": 2, "extraInfo": {"rank": 2, "py_callstack": "", '
        '"timestamp": "1930000000"}}}'
    )
    verdict = judged({3: stamped(fault(3), LATER)})
    assert 2 not in verdict.first_failure.ranks
