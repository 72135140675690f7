"""How far the writers of a log have come is read from its last lines alone."""

import pytest

from parsers.records import Source, SourceKind
from parsers.triage import LogTriage


def latest(data, size=4_000):
    triage = LogTriage(Source(0, "job.log", None, SourceKind.LOG), files=1_000)
    triage.feed(data)
    return [(mark.key.rank, mark.step, mark.text) for mark in triage.latest(size)]


def step(rank, number):
    return b"[rank%d]: step %d/900 loss 5.3\n" % (rank, number)


@pytest.mark.parametrize("lead", [b"", b"[rank0]: step 3/900 loss 5.3\n" * 3_000])
def test_each_writer_s_newest_step_and_line_are_told_the_newest_writer_first(lead):
    data = lead + step(0, 7) + step(1, 8) + b"[rank1]: saving\n" + step(0, 9) + step(2, 9)
    told = [(2, 9, "step 9/900 loss 5.3"), (0, 9, "step 9/900 loss 5.3"), (1, 8, "saving")]
    assert latest(data)[: len(told)] == told[: len(latest(data))]


def test_a_writer_that_tells_no_step_is_known_by_its_last_line():
    assert latest(b"[rank0]: one\n[rank0]: two\n") == [(0, None, "two")]


def test_a_line_that_is_not_complete_does_not_count():
    assert latest(step(0, 1) + b"[rank0]: step 2") == [(0, 1, "step 1/900 loss 5.3")]


def test_a_line_that_begins_before_the_last_bytes_does_not_count():
    assert latest(step(0, 1) + step(0, 2), size=len(step(0, 2)) + 5) == [(0, 2, "step 2/900 loss 5.3")]
    assert latest(step(0, 1), size=len(step(0, 1))) == [(0, 1, "step 1/900 loss 5.3")]


def test_of_a_progress_bar_the_last_state_counts():
    bars = b"".join(b"\rTraining:  %d%%|#    | %d/100 [00:10<01:30,  1.00it/s]" % (n, n) for n in range(10, 13))
    assert latest(b"[rank0]: go\n" + bars + b"\r\n")[0][1] == 12


def test_a_number_that_is_no_step_of_anything_is_none():
    assert latest(b"step 99999999999999999999999999 loss 1.0\n")[0][1] is None
    assert latest(b"") == []
