"""The layer of a failure, where other lines than its own tell it."""

import pytest

from aggregator.pipeline import postmortem

STAMP = "[2026-05-04 11:10:0{}] "
TIMEOUT = (
    "[rank{0}]:[E504 11:40:10.123456789 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for "
    "1800037 milliseconds before timing out.\n"
)
HANGING = "[Mon May  4 11:11:00 2026] nfs: server filer1 not responding, still trying\n"
BACK = "[Mon May  4 11:12:00 2026] nfs: server filer1 OK\n"
NCCL = (
    "[rank{}]:[E504 11:18:44.455824009 ProcessGroupNCCL.cpp:552] [Rank {}] Collective WorkNCCL(SeqNum=3001, "
    "OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) raised the following async exception: NCCL error: "
    "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3\n"
)
SOCKET = "{}:71:72 [0] misc/socket.cc:512 NCCL WARN socketProgress: Call to recv from 10.9.0.{}<46001> failed : {}\n"


def failure_of(root, **files):
    for name, text in files.items():
        (root / name).with_suffix(".log").write_text(text)
    return postmortem([str(root)]).first_failure


def steps():
    return "".join(f"{STAMP.format(step)}step {step} loss 2.1\n" for step in range(1, 5))


@pytest.mark.parametrize(
    ("kernel", "doing", "layer"),
    [
        (HANGING, "saving checkpoint to /mnt/n/s4.pt", "storage"),
        (HANGING, "all is well", "unknown"),
        (HANGING + BACK, "saving checkpoint to /mnt/n/s4.pt", "unknown"),
    ],
)
def test_a_rank_that_saves_to_a_server_that_does_not_answer_hangs_for_its_storage(tmp_path, kernel, doing, layer):
    others = {f"rank{rank}": steps() + TIMEOUT.format(rank) for rank in (1, 2, 3)}
    failure = failure_of(tmp_path, dmesg=kernel, rank0=steps() + STAMP.format(5) + doing + "\n", **others)
    assert (failure.ranks, failure.kind, failure.layer) == ((0,), "collective_timeout", layer)
    assert any(item.file == "dmesg.log" for item in failure.evidence) == (layer == "storage")


@pytest.mark.parametrize(
    ("said", "layer"),
    [("Connection timed out", "network"), ("No route to host", "network"), ("Connection reset by peer", "unknown")],
)
def test_sockets_of_both_ends_that_time_out_tell_that_the_network_between_them_is_cut(tmp_path, said, layer):
    ends = {
        f"rank{rank}": steps() + SOCKET.format(host, rank, said) + NCCL.format(rank, rank)
        for rank, host in ((1, "n1"), (2, "n2"))
    }
    failure = failure_of(tmp_path, rank0=steps(), rank3=steps(), **ends)
    assert (set(failure.ranks), failure.layer) == ({1, 2}, layer)


def test_a_rank_whose_own_code_holds_pythons_lock_fails_for_its_software(tmp_path):
    tag = "[rank1]:[E504 11:20:0{}.575398922 ProcessGroupNCCL.cpp:1316] [PG ID 0 PG GUID 0(default_pg) Rank 1] "
    stuck = (
        tag.format(1) + "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring.\n"
    )
    lock = tag.format(2) + "Could not acquire GIL within 300 ms on exit, possible GIL induced hang\n"
    failure = failure_of(tmp_path, rank0=steps(), rank1=steps() + stuck + lock)
    assert (failure.ranks, failure.layer) == ((1,), "software")
