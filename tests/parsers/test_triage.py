"""From bytes to signals: the result depends on the text, not on how it arrives, how large it is or who is loudest."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from triage_scans import FAULT, MANY_FILES, SOURCE, at, line_at, one, ordinary, said, scanned, tagged

from parsers.lexicon import Lexicon
from parsers.lineformats import load_formats
from parsers.literals import line_finder
from parsers.records import Role, StampQuality
from parsers.skim import close_sizes
from parsers.triage import StreamKey

PIECES = (
    (b'[rank3]: Traceback (most recent call last):\n[rank3]:   File "/w/t.py", line 9, in <module>\n[rank3]:     f()\n'
    b'[rank3]:   File "/w/t.py", line 4, in f\n[rank3]:     return x["k"]\n[rank3]: KeyError: \'k\'\n'),
    (b'[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n'
    b'[rank0]:   File "a.py", line 1, in f\n[rank1]:   File "b.py", line 2, in g\n[rank1]:     g()\n'
    b"[rank0]: ValueError: of rank 0\n[rank1]: TypeError: of rank 1\n"),
    (b'Traceback (most recent call last):\n  File "t.py", line 2, in <module>\n    import apex\n'
    b"ModuleNotFoundError: No module named 'apex'\n"),
    (b'Traceback (most recent call last):\n  File "db.py", line 5, in read\nIndexError: list index out of range\n\n'
    b"During handling of the above exception, another exception occurred:\n\n"
    b'Traceback (most recent call last):\n  File "t.py", line 9, in main\nRuntimeError: gave up\n'),
    (b'Traceback (most recent call last):\n  File "t.py", line 3, in main\n    for x in loader:\n'
    b"KeyError: Caught KeyError in DataLoader worker process 2.\nOriginal Traceback (most recent call last):\n"
    b'  File "/o/torch/utils/data/_utils/worker.py", line 5, in _worker_loop\n    data = fetch()\n'
    b'  File "/w/data.py", line 48, in __getitem__\n    y\nKeyError: \'caption\'\n\n'),
    (b'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n    ray.get(x)\n'
    b"ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=331, ip=10.1.9.20, actor_id=c07d)\n"
    b'  File "r.py", line 7, in run\n    step()\nValueError: bad step\n'),
    (b"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007ff5691feb80 (most recent call first):\n"
    b'  File "/w/data.py", line 48 in __getitem__\n  File "/w/train.py", line 123 in main\n\n'
    b"Extension modules: numpy, torch._C (total: 2)\n"),
    (b"============================================================\ntrain.py FAILED\n"
    b"------------------------------------------------------------\nFailures:\n[1]:\n"
    b"  time      : 2025-10-03_18:37:05\n  host      : gpu-a1\n  rank      : 5 (local_rank: 5)\n"
    b"  exitcode  : -6 (pid: 4242)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 4242\n"
    b"------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
    b"  time      : 2025-10-03_18:37:01\n  host      : gpu-a1\n  rank      : 2 (local_rank: 2)\n"
    b"  exitcode  : 1 (pid: 4239)\n  error_file: /tmp/e.json\n  traceback : Traceback (most recent call last):\n"
    b'    File "/w/t.py", line 4, in f\n      return x["k"]\n  KeyError: \'k\'\n  \n'
    b"============================================================\n"),
    (b"[rank1]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation "
    b"timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 "
    b"milliseconds before timing out.\n"),
    b"node-1:3157:3301 [2] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n",
    (b"Training:  10%|#         | 10/100 [00:10<01:30,  1.00it/s]\rTraining:  11%|#         | 11/100 [00:11<01:30,  "
    b"1.00it/s]\rTraining:  12%|#         | 12/100 [00:12<01:30,  1.00it/s]\n"),
    b"\x1b[36m(Worker pid=812, ip=10.0.0.3)\x1b[0m \x1b[31mERROR\x1b[0m cuda out\n",
    (b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB "
    b"of which 1.20 GiB is free.\n"),
    b"2025-10-03 18:36:59,123 [rank 2] INFO trainer: step 120 loss 2.31\r\n",
    b"2025-10-03 18:37:00,500 INFO trainer: step 121 loss 2.30\n",
    b"0: 2025-10-03 18:36:58 INFO start\n1: 2025-10-03 18:36:58 INFO start\n",
    b"slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2025-10-03T18:40:00 DUE TO TIME LIMIT ***\n",
    b"Exception ignored in: <function F.__del__ at 0x7f>\n",
    b"Exception in thread Thread-7 (loop):\n",
    b"\n", b"\r\n", b"  \n", b"\r", b"a\x00b\x00\n", b"\xff\xfe\xe2\x82 bad\n", b"\xe2\x82\xac fine\n",
    b"Traceback (most recent call last):", b'{"level": "error", "msg": "CUDA error: an illegal memory access"}\n',
    b"x" * 5_000 + b"\n",
    b"INFO ordinary line of a program that says nothing\n" * 400,
)  # fmt: skip

texts = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
cuts = st.lists(st.floats(0, 1), max_size=25)


def cut(data, places):
    edges = sorted({0, len(data), *(int(place * len(data)) for place in places)})
    return [data[start:stop] for start, stop in pairwise(edges)]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=texts, places=cuts, files=st.sampled_from([1, MANY_FILES]))
def test_the_result_does_not_depend_on_how_the_bytes_are_cut_into_chunks(data, places, files):
    assert said(scanned(data, cut(data, places), files=files)) == said(scanned(data, files=files))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=8, max_size=20),
    steps=st.lists(st.integers(1, 40_000), min_size=1, max_size=8),
)
def test_a_text_with_a_long_middle_gives_the_same_in_any_chunks_and_with_either_engine(pieces, steps):
    data = b"".join(piece + b"INFO ordinary line\n" * (len(piece) * 7 % 400) for piece in pieces) * 3
    chunks, position, number = [], 0, 0
    while position < len(data):
        chunks.append(data[position : position + steps[number % len(steps)] + 500])
        position, number = position + len(chunks[-1]), number + 1
    whole = said(scanned(data, files=MANY_FILES))
    assert said(scanned(data, chunks, files=MANY_FILES)) == whole
    assert said(scanned(data, chunks, files=MANY_FILES, lexicon=SWIFT)) == whole


class SwiftLexicon(Lexicon):
    finder = None


SWIFT = SwiftLexicon(load_formats())
SWIFT.finder = line_finder([literal.encode() for literal in SWIFT.literals])


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=3_000), places=cuts)
@example(data=b"\r\n\r\r\n\x00\n\xff", places=[0.5])
@example(data=b"Traceback (most recent call last):", places=[])
@example(data=b"[0]:\n[", places=[])
def test_random_bytes_never_raise_and_give_the_same_in_any_chunks(data, places):
    assert said(scanned(data, cut(data, places))) == said(scanned(data))


@settings(max_examples=100, deadline=None)
@given(data=texts)
def test_every_signal_cites_the_line_at_its_offset(data):
    scan = scanned(data, files=MANY_FILES)
    lines = data.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for signal in scan.signals:
        assert signal.offset == starts[signal.line - 1]
    assert scan.counts.lines == len(lines) - (lines[-1] == b"")
    assert scan.counts.bytes == len(data)


def test_an_empty_file_gives_nothing():
    scan = scanned(b"")
    assert (scan.signals, scan.activity, scan.counts.lines) == ([], {}, 0)


@pytest.fixture(scope="module")
def large():
    """20 MB with one fault in the middle, and the offset of its last line."""
    before = ordinary(10 << 20)
    return before + b"2025-10-03 23:59:58,000 INFO the line above\n" + FAULT + ordinary(10 << 20, 90_000), len(before)


def test_a_fault_in_the_middle_of_a_large_file_is_found_at_its_line_with_the_stamp_above_it(large):
    data, before = large
    scan = scanned(data, [data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)])
    signal = one(scan, "ZeroDivisionError")
    assert line_at(data, signal.offset) == b"ZeroDivisionError: division by zero"
    assert signal.line == data[:before].count(b"\n") + 5
    assert (signal.ns, signal.quality) == (at("2025-10-03 23:59:58,000"), StampQuality.INHERITED)
    assert scan.counts.lines == data.count(b"\n")


def test_the_next_stamp_below_bounds_a_fault_in_the_middle_of_a_large_file(large):
    data, before = large
    below = data[before:].split(b"by zero\n", 1)[1][:23].decode()
    assert one(scanned(data), "ZeroDivisionError").until_ns == at(below)


def test_both_engines_find_the_same_in_a_large_file(large):
    data, _ = large
    assert said(scanned(data, lexicon=SWIFT)) == said(scanned(data))


@pytest.mark.parametrize("shift", [0, 1, 34, 35, 70, 150, 3_000])
def test_a_block_that_begins_at_the_very_end_of_what_was_read_is_still_whole(shift):
    before = ordinary(300_000)
    tail = close_sizes(MANY_FILES).tail
    data = before + FAULT + ordinary(300_000)
    # The first feed ends so that the lines up to a place inside the fault are dealt with, and no more.
    edge = len(before) + shift + tail
    scan = scanned(data, [data[:edge], data[edge:]], files=MANY_FILES)
    assert one(scan, "ZeroDivisionError").exception.frames
    assert one(scan, "ZeroDivisionError").quality is StampQuality.INHERITED


def test_the_lines_above_a_fault_are_its_context_wherever_the_chunks_end():
    data = (
        ordinary(200_000) + b"2025-10-04 01:00:00 INFO last words\n" + b"- no stamp\n" * 50 + FAULT + ordinary(60_000)
    )
    for step in (997, 8_192, 65_536, len(data)):
        scan = scanned(data, [data[s : s + step] for s in range(0, len(data), step)], files=MANY_FILES)
        assert one(scan, "ZeroDivisionError").ns == at("2025-10-04 01:00:00")


# Times.

OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB "
    b"of which 1.20 GiB is free.\n"
)


def oom(text, **source):
    scan = scanned(text, source=dataclasses.replace(SOURCE, **source))
    return next(signal for signal in scan.signals if signal.kind == "cuda_oom")


def test_a_stamp_on_the_line_itself_is_its_own():
    signal = oom(b"2025-10-03 10:00:00 INFO a\n2025-10-03 10:00:05 ERROR " + OOM + b"2025-10-03 10:00:09 INFO b\n")
    assert (signal.quality, signal.ns, signal.until_ns) == (StampQuality.OWN, at("2025-10-03 10:00:05"), None)


def test_without_one_the_stamp_above_is_inherited_and_the_stamp_below_bounds_it():
    signal = oom(b"2025-10-03 10:00:00 INFO a\n" + OOM + b"-\n2025-10-03 10:00:09 INFO b\n2025-10-03 10:01:00 INFO c\n")
    assert (signal.quality, signal.ns) == (StampQuality.INHERITED, at("2025-10-03 10:00:00"))
    assert signal.until_ns == at("2025-10-03 10:00:09")


def test_with_stamps_below_only_the_time_is_bounded():
    signal = oom(OOM + b"2025-10-03 10:00:09 INFO b\n")
    assert (signal.quality, signal.until_ns) == (StampQuality.BOUNDED, at("2025-10-03 10:00:09"))


def test_the_last_signal_of_a_file_has_no_upper_bound():
    assert oom(b"2025-10-03 10:00:00 INFO a\n" + OOM).until_ns is None


def test_without_any_stamp_no_time_is_claimed():
    signal = oom(b"a\n" + OOM + b"b\n")
    assert (signal.stamp, signal.quality, signal.ns, signal.until_ns) == (None, StampQuality.NONE, None, None)


def test_a_stamp_of_another_rank_bounds_but_is_not_inherited():
    signal = oom(b"[rank0]: 2025-10-03 10:00:00 INFO a\n[rank1]: " + OOM + b"[rank0]: 2025-10-03 10:00:07 INFO b\n")
    assert signal.rank == 1
    assert (signal.quality, signal.until_ns) == (StampQuality.BOUNDED, at("2025-10-03 10:00:07"))


def test_a_block_that_stays_open_long_has_the_time_of_its_own_place():
    later = b"".join(b"[rank0]: 2025-10-03 10:%02d:00 INFO step\n" % minute for minute in range(1, 50))
    start = b"[rank1]: 2025-10-03 10:00:00 INFO a\n" + tagged(1, FAULT)
    for end in (b"", b"[rank1]: bye\n[rank0]: 2025-10-03 11:00:00 INFO step\n"):
        signal = one(scanned(start + later + end), "ZeroDivisionError")
        assert (signal.ns, signal.quality) == (at("2025-10-03 10:00:00"), StampQuality.INHERITED)
        assert signal.until_ns == at("2025-10-03 10:01:00")


def test_a_block_above_all_stamps_is_bounded_by_the_first_below_it():
    later = b"".join(b"[rank0]: 2025-10-03 10:%02d:00 INFO step\n" % minute for minute in range(1, 50))
    signal = one(scanned(tagged(1, FAULT) + later + b"[rank1]: bye\n"), "ZeroDivisionError")
    assert (signal.ns, signal.quality) == (at("2025-10-03 10:01:00"), StampQuality.BOUNDED)
    assert signal.until_ns == at("2025-10-03 10:01:00")


def test_the_time_told_in_the_text_wins_over_the_stamp_of_the_line():
    line = b"[2025-10-03T18:40:07.000] error: *** JOB 77 ON n1 CANCELLED AT 2025-10-03T18:40:00 DUE TO TIME LIMIT ***\n"
    (signal,) = [s for s in scanned(line).signals if s.fields.get("time")]
    assert (signal.ns, signal.quality) == (at("2025-10-03T18:40:00"), StampQuality.OWN)


def test_seconds_since_boot_are_no_wall_time():
    signals = scanned(b"[ 1234.567890] NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.\n").signals
    assert signals
    assert all(signal.ns is None for signal in signals)


# Who and what.


def test_the_tags_of_a_line_outrank_what_the_file_name_tells_and_fill_what_it_lacks():
    signal = oom(b"(Worker pid=812, ip=10.0.0.3) " + OOM, host="n7", pid=5, attempt=2, stream="stderr")
    assert (signal.pid, signal.host, signal.attempt, signal.stream) == (812, "n7", 2, "stderr")
    assert signal.fields["tag_ip"] == "10.0.0.3"


def test_a_log_of_windows_lines_nuls_and_broken_utf8_is_read():
    data = OOM.rstrip() + b"\r\n" + b"\x00\x00" + OOM.replace(b" ", b" \x00", 1) + b"\xff " + OOM
    scan = scanned(data)
    assert sum(signal.kind == "cuda_oom" for signal in scan.signals) == 3
    assert scan.counts.undecodable == 1


def test_of_a_redrawn_bar_the_last_state_counts_and_an_error_behind_it_is_seen():
    bar = b"".join(b"Training: %3d%%|###   | %d/100 [00:10<01:30,  1.00it/s]\r" % (n, n) for n in range(50))
    scan = scanned(bar + OOM + bar + b"Training:  77%|###   | 77/100 [00:10<01:30,  1.00it/s]\n")
    assert any(signal.kind == "cuda_oom" for signal in scan.signals)
    steps = [signal.fields["step"] for signal in scan.signals if signal.role is Role.PROGRESS]
    assert steps[-1] == "77"
    assert len(steps) <= 3


def test_of_many_marks_of_progress_the_first_and_the_last_of_each_stream_are_kept():
    data = b"".join(b"[rank%d]: step %d loss 2.0\n" % (n % 2, n) for n in range(2_000))
    marks = [signal for signal in scanned(data).signals if signal.role is Role.PROGRESS]
    for rank in (0, 1):
        steps = [int(mark.fields["step"]) for mark in marks if mark.rank == rank]
        assert (steps[0], steps[-1]) == (rank, 1998 + rank)
        assert len(steps) < 20


def test_activity_tells_when_and_where_each_stream_was_last_heard():
    data = (
        b"[rank0]: 2025-10-03 10:00:00 INFO a\n[rank1]: 2025-10-03 10:00:05 INFO b\n"
        b"[rank0]: 2025-10-03 10:00:09 INFO c\n\n"
    )
    scan = scanned(data)
    zero, one_ = scan.activity[StreamKey(0)], scan.activity[StreamKey(1)]
    assert (zero.lines, zero.first.line, zero.last.line, zero.last_body) == (2, 1, 3, "c")
    assert (one_.last_stamp.ns, one_.first_stamp.ns) == (at("2025-10-03 10:00:05"), at("2025-10-03 10:00:05"))
    assert scan.counts.stamped == 3


def test_signals_come_in_the_order_of_the_file():
    data = tagged(1, FAULT).replace(b"ZeroDivisionError: division by zero\n", b"", 1)
    data = b"[rank1]: " + FAULT.splitlines()[0] + b"\n" + OOM + tagged(1, FAULT) + b"step 3\n" + OOM
    offsets = [signal.offset for signal in scanned(data).signals]
    assert offsets == sorted(offsets)
