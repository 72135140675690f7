"""What is read of logs whose writers say too much: the same again and again, or lines that do not end."""

import subprocess
import sys

import pytest
from triage_scans import FAULT, MANY_FILES, at, line_at, one, ordinary, said, scanned

from parsers.records import StampQuality

# One loud writer.


def loud(line, count=100_000):
    return b"".join(line % (n // 3600 % 24, n // 60 % 60, n % 60, n) for n in range(count))


LOUD = {
    "tagged": b"[rank0]: %02d:%02d:%02d RuntimeError: CUDA error: an illegal memory access was encountered %d\n",
    "stamped": b"2025-10-03 %02d:%02d:%02d,%03d ERROR rank=0 RuntimeError: CUDA error: device-side assert triggered\n",
    "untagged": b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (%d:%d:%d, attempt %d)\n",
}


@pytest.mark.parametrize("form", LOUD)
def test_a_loud_rank_neither_fills_memory_nor_hides_the_first_fault_of_another(form):
    count = 100_000 if form == "tagged" else 30_000
    noise = loud(LOUD[form], count)
    fault = b"".join(b"[rank1]: " + text + b"\n" for text in FAULT.splitlines())
    data = noise + b"2025-10-03 23:59:58,000 [rank1] INFO alive\n" + fault + noise[: 1 << 20]
    scan = scanned(data)
    signal = one(scan, "ZeroDivisionError")
    assert signal.rank == 1
    assert len(scan.signals) < 12_000
    assert scan.counts.repeats > 0.8 * count
    assert scan.counts.lines == len(data.splitlines())


def test_thousands_of_tracebacks_without_a_tag_do_not_hide_another_one():
    caught = b'Traceback (most recent call last):\n  File "r.py", line 1, in get\n    get()\nTimeoutError: try %d\n'
    noise = b"".join(caught % n for n in range(20_000)) + (b"-" * 99 + b"\n") * 4_000
    data = noise + FAULT + noise[: 1 << 20]
    scan = scanned(data)
    signal = one(scan, "ZeroDivisionError")
    assert line_at(data, signal.offset).startswith(b"ZeroDivisionError")
    assert len(scan.signals) < 10_000


def test_one_process_that_says_much_that_is_harmless_does_not_hide_its_own_fault():
    info = b"node-1:3157:3301 [2] NCCL INFO comm 0x5591 rank 2 nRanks 8 nNodes 1 localRanks 8 localRank 2 MNNVL 0\n"
    fault = b"node-1:3157:3301 [2] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n"
    data = info * 5_000 + fault + info * 5_000
    found = [signal for signal in scanned(data).signals if line_at(data, signal.offset) + b"\n" == fault]
    assert found


def test_the_time_of_a_late_fault_is_that_of_the_line_above_it_though_another_rank_had_many():
    noise = b"".join(
        b"[rank0]: 2025-10-03 10:%02d:%02d INFO retry\n"
        b"[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 1 GiB\n-\n" % (n // 60 % 60, n % 60)
        for n in range(2_000)
    )
    last = b"[rank1]: 2025-10-03 12:00:00 INFO alive\n"
    fault = b"".join(b"[rank1]: " + text + b"\n" for text in FAULT.splitlines())
    data = noise * 3 + b"[rank1]: 2025-10-03 09:00:00 INFO start\n" + noise * 3 + last + fault + noise * 8
    signal = one(scanned(data), "ZeroDivisionError")
    assert (signal.ns, signal.quality) == (at("2025-10-03 12:00:00"), StampQuality.INHERITED)


# Lines that do not end.

LONG_LINE = """
import resource, sys
from parsers.records import Source, SourceKind
from parsers.triage import LogTriage
triage = LogTriage(Source(0, "x", None, SourceKind.LOG))
chunk = b"\\xc3\\xa9x " * (1 << 18)
before = b"first\\nsecond\\n"
triage.feed(before)
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(300):
    triage.feed(chunk)
triage.feed(b"\\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\\n" + b"later\\n" * 100_000)
scan = triage.finish()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
(found,) = [s for s in scan.signals if s.kind == "cuda_oom"]
print(peak >> 10, scan.counts.long_lines, scan.counts.lines, found.line, found.offset - len(before) - 300 * len(chunk))
"""


def test_a_line_of_300_mb_needs_little_memory_and_the_lines_after_it_keep_their_numbers():
    done = subprocess.run([sys.executable, "-c", LONG_LINE], capture_output=True, text=True, check=True)
    peak, long_lines, lines, line, offset = map(int, done.stdout.split())
    assert peak < 100
    assert (long_lines, lines, line, offset) == (1, 100_004, 4, 1)


@pytest.mark.parametrize("files", [1, MANY_FILES])
@pytest.mark.parametrize("lead", [0, 10_000])
def test_a_long_line_gives_the_same_in_any_chunks_and_its_signals_cite_its_start(lead, files):
    before = b"ordinary\n" * lead
    long = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB " + b"CUDA out of memory y" * 200_000
    data = (
        before
        + long
        + b"\n"
        + long
        + b"\n"
        + ordinary(400_000)
        + FAULT
        + b"-" * 99
        + b"\n"
        + ordinary(400_000)
        + b"z" * 3_000_000
    )
    whole = scanned(data, files=files)
    for step in (1 << 20, 300_001):
        assert said(scanned(data, [data[s : s + step] for s in range(0, len(data), step)], files=files)) == said(whole)
    assert {signal.offset for signal in whole.signals if signal.kind == "cuda_oom"} >= {
        len(before), len(before) + len(long) + 1,
    }  # fmt: skip
    assert whole.counts.long_lines == 3
    assert one(whole, "ZeroDivisionError").line == data[: data.index(b"ZeroDiv")].count(b"\n") + 1


def test_an_error_at_the_end_of_a_long_line_is_seen():
    data = b"config: " + b"a=1 " * 100_000 + b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert any(signal.kind == "cuda_oom" for signal in scanned(data).signals)
