"""What a log says so far is what it would say if it ended there, and asking leaves no trace."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.records import Role, Source, SourceKind
from parsers.timestamps import StampContext
from parsers.triage import LogTriage

SOURCE = Source(0, "job.log", None, SourceKind.LOG)
CONTEXT = StampContext(1_760_000_000 * 10**9)
RUNS = Path(__file__).parents[2] / "sample_runs"
LOGS = sorted(path for path in RUNS.glob("*/job/**/*") if path.is_file() and "trace_rank" not in path.name)
MANY_FILES = 10_000
"""So many files have the shortest ends, so that a small text has a middle."""

FAULT = (
    b'Traceback (most recent call last):\n  File "/w/t.py", line 9, in <module>\n    f()\n'
    b"ZeroDivisionError: division by zero\n"
)
PIECES = (
    FAULT,
    b'[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n[rank1]:   File "a.py"',
    b", line 1, in f\n[rank1]: ValueError: of rank 1\n",
    b"NCCL WARN Cuda failure 'an illegal memory access was encountered'\n",
    b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    b"2025-10-03 18:36:59,123 [rank 2] INFO trainer: step 120 loss 2.31\r\n",
    b"I1003 18:37:01.832146 912 main.cc:7] iteration 7\n",
    b"0: step 5/20 loss 5.3\n",
    b"2025-10-03T18:37:02Z stdout P a piece of a ",
    b"2025-10-03T18:37:02Z stdout P half of\n2025-10-03T18:37:02Z stdout F a line\n",
    b"x" * 150_000,
    b"no stamp\n" * 300,
    b"2025-10-03 18:37:%02d,500 INFO trainer: nothing new\n" * 40,
    b"\r\xff\x00\n",
)  # fmt: skip


def triage(data=b"", *, files=1, context=CONTEXT):
    made = LogTriage(SOURCE, context=context, files=files)
    made.feed(data)
    return made


def ended(data, **how):
    return triage(data, **how).finish()


def check(data, draw, files):
    """Cut a text at random and ask at random places, some of them twice."""
    live, position = triage(files=files), 0
    while position < len(data):
        step = draw.choice([1, 80, 700, 5_000, 60_000])
        live.feed(data[position : position + step])
        position = min(position + step, len(data))
        if draw.random() < max(0.02, 8 * step / len(data)):
            if draw.random() < 0.5:
                live.so_far(draw.choice([None, 0, 1_000]))
                live.latest(500)
            if draw.random() < 0.5:
                assert live.so_far() == ended(data[:position], files=files)
    assert live.so_far() == ended(data, files=files)
    assert live.finish() == ended(data, files=files)


@pytest.mark.parametrize("files", [1, MANY_FILES])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=25), seed=st.integers(0, 2**32))
def test_what_was_said_so_far_is_what_a_file_that_ends_there_says(files, pieces, seed):
    check(b"".join(pieces), Random(seed), files)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(LOGS), seed=st.integers(0, 2**32), files=st.sampled_from([1, 20, MANY_FILES]))
def test_the_same_holds_for_the_sample_runs(path, seed, files):
    check(path.read_bytes()[:200_000], Random(seed), files)


def test_the_scan_so_far_is_the_caller_s_own():
    live = triage(b"2025-10-03 10:00:00 INFO a\n" + FAULT)
    scan = live.so_far()
    for signal in scan.signals:
        signal.rank, signal.fields["rank"] = 7, "7"
    scan.signals.clear()
    scan.activity.clear()
    assert live.so_far() == ended(b"2025-10-03 10:00:00 INFO a\n" + FAULT)


def test_bytes_that_would_follow_are_counted_and_forgotten():
    live = triage(FAULT[:-10])
    assert live.so_far(then=FAULT[-10:]) == ended(FAULT)
    assert live.so_far() == ended(FAULT[:-10])


@pytest.mark.parametrize("lead", [0, 30, 3_000])
@pytest.mark.parametrize("below", [0, 5, 200])
def test_a_fault_is_found_with_a_short_tail_too(lead, below):
    line = b"2025-10-03 18:36:59,123 [rank 2] INFO trainer: nothing to tell, all is as it was\n"
    data = line * lead + FAULT + line * below
    quick, exact = triage(data, files=MANY_FILES).so_far(512), ended(data, files=MANY_FILES)
    assert [s for s in quick.signals if s.role is not Role.PROGRESS] == exact.signals
    assert (quick.counts.lines, quick.counts.bytes) == (exact.counts.lines, exact.counts.bytes)


def test_lines_before_a_short_tail_are_not_parsed():
    line = b"2025-10-03 18:36:59,123 [rank 2] INFO trainer: nothing to tell, all is as it was\n"
    live = triage(line * 3_000, files=MANY_FILES)
    assert live.so_far(512).counts.stamped < live.so_far().counts.stamped - 20


ORDINARY = b"2025-10-03 18:37:02,500 INFO trainer: nothing new\n"


@pytest.mark.parametrize(
    ("data", "before", "after"),
    [
        (ORDINARY * 100, 1, 50),
        (ORDINARY * 100, MANY_FILES, 1),
        (ORDINARY * 20_000, 5_000, MANY_FILES),
        (ORDINARY * 20_000, 1, 2),
    ],
    ids=["small", "small, fewer", "shorter tail", "same ends"],
)
def test_reading_goes_on_as_if_begun_with_another_number_of_files(data, before, after):
    live = triage(data, files=before)
    assert live.refit(CONTEXT, after)
    assert live.finish() == ended(data, files=after)


@pytest.mark.parametrize(("before", "after"), [(1, MANY_FILES), (MANY_FILES, 1), (MANY_FILES, 70), (70, MANY_FILES)])
def test_it_does_not_where_the_ends_that_were_read_are_others(before, after):
    live = triage(ORDINARY * 20_000, files=before)
    assert not live.refit(CONTEXT, after)
    assert live.finish() == ended(ORDINARY * 20_000, files=before)


def test_another_time_of_reference_counts_for_stamps_without_a_year_that_are_still_to_come():
    later = StampContext(CONTEXT.reference_ns + 4 * 365 * 86400 * 10**9)
    yearless = b"I1003 18:37:01.832146 912 main.cc:7] hello\n"
    live = triage(ORDINARY * 1_000)
    assert live.refit(later, 1)
    live.feed(yearless * 10_000)
    assert not live.refit(CONTEXT, 1)
    assert live.finish() == ended(ORDINARY * 1_000 + yearless * 10_000, context=later)
