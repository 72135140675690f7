"""Of what has just been written, the lines that may change a verdict are told at once."""

import pytest

from parsers.urgent import urgent_lines

ORDINARY = b"2025-10-03 18:36:59,123 [rank 2] INFO trainer: step 120 loss 2.31 on cuda:0\n"


@pytest.mark.parametrize(
    "line",
    [
        b"[rank1]: Traceback (most recent call last):\n",
        b"3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
        (b"[rank1]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation "
        b"timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 "
        b"milliseconds before timing out.\r\n"),
        b"slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2025-10-03T18:40:00 DUE TO TIME LIMIT ***\n",
        (b"W1003 18:37:01.832000 77 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 12 closing "
        b"signal SIGTERM\n"),
    ],
)  # fmt: skip
def test_a_fault_an_end_or_the_beginning_of_a_traceback_is_urgent_wherever_it_stands(line):
    data = ORDINARY * 3 + line + ORDINARY
    assert urgent_lines(data) == [3 * len(ORDINARY)]
    assert urgent_lines(line) == [0]
    assert urgent_lines(line.rstrip(b"\r\n")) == [0]


def test_ordinary_lines_are_not():
    init = b"node-1:3157:3301 [2] NCCL INFO comm 0x5591 rank 2 nRanks 8 nNodes 1 localRanks 8 localRank 2 MNNVL 0\n"
    assert urgent_lines(ORDINARY * 50 + init * 20 + b"\xff\x00\n\n") == []
    assert urgent_lines(b"") == []


def test_beyond_so_many_lines_with_a_literal_all_are_urgent_unread():
    harmless = b"INFO the message is about CUDA error: none\n"
    assert urgent_lines(harmless * 5) == []
    assert urgent_lines(harmless * 5, parsed=3) == [3 * len(harmless), 4 * len(harmless)]
