"""Process groups that are used in different orders: who waits where, as watchdogs of several versions tell it."""

import pytest

from aggregator.pipeline import postmortem
from aggregator.verdict import Status

TP, DP = (101, "ALLREDUCE"), (57, "_ALLGATHER_BASE")


HEAD = "[rank{}]:[E211 03:14:22.123456 ProcessGroupNCCL.cpp:629] "
WATCHDOG = """\
[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType={}, NumelIn=64, NumelOut=64, \
Timeout(ms)=600000) ran for 600037 milliseconds before timing out.
"""
STATUS = """\
[PG ID 1 PG GUID {}({}) Rank {}]  failure detected by watchdog at work sequence id: {} PG status: last enqueued \
work: {}, last completed work: {}
"""
SIGNAL = """\
[PG ID 2 PG GUID {}({}) Rank {}] Received a dump signal due to a collective timeout from this local rank and we will \
try our best to dump the debug info. Last enqueued NCCL work: {}, last completed NCCL work: {}.
"""
NAMES = {"tp": 1, "dp": 2}


def watchdog(rank, seq, op):
    return HEAD.format(rank) + WATCHDOG.format(rank, seq, op)


def status(rank, group, seq):
    return HEAD.format(rank) + STATUS.format(NAMES.get(group, group), group, rank, seq, seq, seq - 1)


def dump_signal(rank, group, done):
    return HEAD.format(rank) + SIGNAL.format(NAMES[group], group, rank, done, done)


@pytest.fixture
def failure_of(tmp_path):
    def write(texts):
        for rank, text in enumerate(texts):
            (tmp_path / f"rank{rank}.log").write_text(f"step 10 loss 2.1\nstep 20 loss 2.0\n{text}")
        return postmortem([str(tmp_path)]).first_failure

    return write


def waits_in(rank, group):
    seq, op = TP if group == "tp" else DP
    return watchdog(rank, seq, op) + status(rank, group, seq)


def test_each_group_waits_for_ranks_that_wait_in_the_other(failure_of):
    texts = [
        waits_in(rank, "tp") + dump_signal(rank, "dp", 56)
        if rank in {0, 1}
        else waits_in(rank, "dp") + dump_signal(rank, "tp", 100)
        for rank in range(4)
    ]
    failure = failure_of(texts)
    assert (failure.status, failure.ranks, failure.kind) == (Status.UNDETERMINED, (), "deadlock")
    assert any("in a circle" in reason for reason in failure.reasons)
    assert (failure.diagnosis.entry, failure.layer) == ("nccl-order-deadlock", "software")


def test_groups_are_told_by_another_line_of_the_watchdog(failure_of):
    failure = failure_of([waits_in(rank, "tp" if rank < 2 else "dp") for rank in range(4)])
    assert (failure.ranks, failure.diagnosis.entry) == ((), "nccl-order-deadlock")


def test_numbers_that_no_one_group_can_have_tell_of_two(failure_of):
    failure = failure_of([watchdog(rank, *(TP if rank % 2 else DP)) for rank in range(5)])
    assert (failure.ranks, failure.diagnosis.entry) == ((), "nccl-order-deadlock")


@pytest.mark.parametrize("groups", [["tp", "tp"], ["1", "2"]])
def test_one_call_in_sibling_groups_is_no_deadlock_between_them(failure_of, groups):
    texts = [watchdog(rank, *TP) + status(rank, groups[rank // 2], TP[0]) for rank in range(4)]
    failure = failure_of(texts)
    assert failure.kind == "collective_timeout"
    assert failure.diagnosis.entry != "nccl-order-deadlock"


def test_a_rank_that_is_late_in_both_groups_is_no_deadlock(failure_of):
    texts = [waits_in(0, "tp"), waits_in(1, "dp"), waits_in(2, "tp"), ""]
    failure = failure_of(texts)
    assert failure.ranks in {(), (3,)}
    assert failure.diagnosis.entry != "nccl-order-deadlock"


def test_one_behind_by_one_in_a_group_still_lags(failure_of):
    failure = failure_of([watchdog(rank, 100 if rank == 3 else 101, "ALLREDUCE") for rank in range(5)])
    assert (failure.status, failure.ranks) == (Status.IDENTIFIED, (3,))
