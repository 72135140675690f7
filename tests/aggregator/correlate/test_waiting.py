"""Who the others waited for: named by them, behind them in the collectives, or silent; and nobody where all came."""

import json

import pytest
from correlate_jobs import (
    KEY,
    RESET,
    brief,
    c10,
    closing,
    hello,
    identified,
    lines,
    say,
    status,
    steps,
    traceback,
    watchdog,
)


def train(*more, world=4, last=5):
    text = [hello(rank, world) for rank in range(world)] + [steps(rank, 1, last) for rank in range(world)]
    return {"train.log": lines(*text, *more)}


HUNG = "collective_timeout"


def waited(rank, kind=HUNG):
    return "identified", (rank,) if isinstance(rank, int) else rank, kind


# Named by others


def test_a_monitored_barrier_names_the_rank_that_did_not_come(judge):
    missed = "RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 30000 ms"
    echo = (
        "RuntimeError: Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank."
    )
    told = [traceback(missed, "[rank0]: "), *(traceback(echo.format(r), f"[rank{r}]: ") for r in (1, 2))]
    verdict = judge(train(*told))
    assert brief(verdict)[1:] == waited(3)
    assert {row.rank for row in verdict.collateral} == {0, 1, 2}


def test_a_desync_report_names_the_lagging_rank(judge):
    report = lines(
        c10(700, 0, "[Rank 0] Collective WorkNCCL(SeqNum=12, OpType=ALLREDUCE) desync report:"),
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [2] finished collective #11, but didn't join collective #12 (count from 1)",
        "\t - Snapshot of ranks' latest states:", "\t   #12 started ranks:", "\t     [0, 1, 3] started ALLREDUCE",
        "\t   #11 finished ranks:", "\t     [2] finished ALLREDUCE",
    )  # fmt: skip
    verdict = judge(train(report, *(watchdog(700, rank, 12) for rank in range(4) if rank != 2)))
    assert brief(verdict)[1:] == waited(2)


@pytest.mark.parametrize(
    "report",
    [
        lines(
            "[2026-12-01 10:02:00.123456: W /build/horovod/common/stall_inspector.cc:107] One or more tensors were "
            "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of "
            "ranks for more than 60 seconds. This may indicate deadlock.",
            "Missing ranks:",
            "3: [grad.layer1, grad.layer2 ...]",
        ),
        lines(
            "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
            "waiting for remainder of ranks for more than 60 seconds.",
            "DistributedOptimizer_Allreduce/layer1 [missing ranks: 3]",
        ),
    ],
)
def test_horovods_stall_report_names_the_missing_rank(judge, report):
    assert brief(judge(train(report)))[1:] == waited(3)


# Odd one out


def fingerprints(*pairs):
    """Errors of the debugging wrapper: each compares the printing rank's collective with a peer's."""
    one = (
        "CollectiveFingerPrint(SequenceNumber=5, OpType={}, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=x)"
    )
    return [
        traceback(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank "
            f"{rank} is running collective: {one.format(*mine)}, but Rank {peer} is running collective: "
            f"{one.format(*theirs)}.",
            f"[rank{rank}]: ",
        )
        for rank, mine, peer, theirs in pairs
    ]


REDUCE, CAST = ("ALLREDUCE", 10), ("BROADCAST", 4)


def test_the_one_rank_whose_collective_differs_is_the_culprit(judge):
    pairs = [(0, REDUCE, 2, CAST), (1, REDUCE, 2, CAST), (2, CAST, 0, REDUCE), (3, REDUCE, 2, CAST)]
    verdict = judge(train(*fingerprints(*pairs)))
    assert brief(verdict)[1:] == waited(2, "collective_mismatch")


def test_one_against_one_is_not_decided(judge):
    pairs = [(0, REDUCE, 1, CAST), (1, CAST, 0, REDUCE)]
    verdict = judge(train(*fingerprints(*pairs), world=2))
    assert brief(verdict)[1] != "identified"
    assert brief(verdict)[3] == "collective_mismatch"


# Counters of the watchdog


def test_the_rank_that_enqueued_less_than_the_others_lags(judge):
    told = [lines(watchdog(700, r, 81), status(700, r, 81, 82, 80)) for r in (0, 1, 3)]
    told += [lines(watchdog(700, 2, 80), status(700, 2, 80, 80, 79))]
    assert brief(judge(train(*told)))[1:] == waited(2)


def test_where_all_have_entered_the_same_collective_nobody_is_named(judge):
    told = [lines(watchdog(700, rank, 81), status(700, rank, 81, 81, 80)) for rank in range(4)]
    verdict = judge(train(*told))
    assert brief(verdict)[1:] == ("undetermined", (), HUNG)
    assert verdict.first_failure.would_settle


def test_the_first_rank_to_notice_the_time_out_is_not_the_culprit(judge):
    told = [watchdog(700, 1, 81)]
    told += [
        c10(
            701,
            rank,
            f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from "
            " rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 81, last completed NCCL "
            "work: 80.",
        )
        for rank in (0, 2, 3)
    ]
    verdict = judge(train(*told))
    assert brief(verdict)[1:3] != ("identified", (1,))


# Silence


def test_the_only_rank_that_prints_no_error_is_the_one_that_the_others_waited_for(judge):
    verdict = judge(train(*(watchdog(700, rank) for rank in (0, 1, 3))))
    assert brief(verdict)[1:] == waited(2)
    assert verdict.first_failure.evidence[0].rank == 2


def test_a_rank_stopped_by_its_launcher_while_the_others_waited_is_the_silent_one(judge):
    told = [*(watchdog(700, rank) for rank in (0, 1, 3)), closing(702, 4102)]
    assert brief(judge(train(*told))) == identified(2, HUNG)


def test_what_the_one_that_others_waited_for_tells_of_itself_is_what_failed(judge):
    error = traceback("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error", "[rank2]: ")
    assert brief(judge(train(error, *(watchdog(700, rank) for rank in (0, 1, 3))))) == identified(2, "nccl_error")


def test_of_many_silent_ranks_none_is_named(judge):
    verdict = judge(train(*(watchdog(700, rank) for rank in (0, 1)), world=8))
    assert brief(verdict)[1:] == ("undetermined", (), HUNG)


def test_a_fault_of_its_own_outranks_whom_the_others_waited_for(judge):
    told = [*(watchdog(700, rank) for rank in (0, 1, 3)), traceback(KEY, "[rank1]: ")]
    assert brief(judge(train(say(8, 2, "Loss is nan at step 5, stopping training"), *told)))[2] == (2,)


# Lost peers


EFA = (
    "NCCL WARN NET/OFI Request 0x7f80111861af completed with error. RC: 103. Error: 4124 (Unresponsive receiver "
    "(connection previously established) My EFA addr: fi_addr_efa://[fe80::44d]:0:1322109 My host id: "
    "i-0f2e9b7cc41a08d5{0} Peer EFA addr: fi_addr_efa://[fe80::49a]:0:1330028 Peer host id: i-0f2e9b7cc41a08d5{1}). "
    "Completed length: 0"
)


def unanswered(*paths, hosts=4):
    """A job of two ranks a host; of each path the first end tells that the second does not answer."""
    text = [hello(rank, 2 * hosts, f"node-{rank // 2}") for rank in range(2 * hosts)]
    told = [f"node-{a}:{4100 + 2 * a}:900 [0] {EFA.format(a, b)}" for a, b in paths]
    return {"train.log": lines(*text, *(steps(rank, 1, 5) for rank in range(2 * hosts)), *told)}


def test_the_host_that_is_one_end_of_all_paths_on_which_nothing_was_answered_is_named(judge):
    verdict = judge(unanswered((0, 2), (1, 2), (2, 3), (2, 0), (3, 2)))
    assert brief(verdict) == identified((4, 5), "network_error")
    assert verdict.first_failure.hosts == ("node-2",)


@pytest.mark.parametrize("paths", [[(0, 2), (2, 0)], [(0, 2), (2, 0), (1, 3), (3, 1)]], ids=["one path", "two paths"])
def test_where_no_host_is_in_all_paths_nobody_is_named(judge, paths):
    assert brief(judge(unanswered(*paths)))[1] != "identified"


def test_ranks_of_the_one_host_that_all_others_lost_are_named(judge):
    hosts = {"node-a": "10.4.0.3", "node-b": "10.4.0.7", "node-c": "10.4.0.9"}
    text = []
    for index, (host, ip) in enumerate(hosts.items()):
        text += [f"{host}:420{index}:5000 [0] NCCL INFO Bootstrap: Using eth0:{ip}<0>", hello(index, 3, host)]
    text += [steps(rank, 1, 5) for rank in range(3)]
    text += [traceback(RESET, f"[rank{rank}]: ") for rank in (0, 2)]
    verdict = judge({"train.log": lines(*text)})
    assert brief(verdict)[2] == (1,)
    assert verdict.first_failure.hosts == ("node-b",)


# Flight recorder


def dump(rank, last, world=4):
    """A dump in which all collectives but the last are completed."""
    entries = [
        {
            "frames": [], "record_id": number - 1, "pg_id": 0, "process_group": ["0", "default_pg"],
            "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1_796_119_200_000_000_000 + number, "input_sizes": [[8]], "input_dtypes": ["Float"],
            "output_sizes": [[8]], "output_dtypes": ["Float"], "timeout_ms": 600_000, "is_p2p": False,
            "state": "completed" if number < last else "scheduled", "retired": number < last,
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        }
        for number in range(1, last + 1)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    where = {
        "0": {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": last - 1}
    }
    return json.dumps({"version": "2.10", "pg_config": config, "pg_status": where, "rank": rank, "entries": entries})


def test_dumps_of_the_flight_recorder_name_the_rank_that_is_behind(judge):
    files = {f"fr/nccl_trace_rank_{rank}.json": dump(rank, 8 if rank == 2 else 9) for rank in range(4)}
    verdict = judge({**files, **train(*(watchdog(700, rank, 9) for rank in (0, 1, 3)))})
    assert brief(verdict)[1:] == waited(2)
    assert any(item.file.startswith("fr/") for item in verdict.first_failure.evidence)


def test_dumps_alone_tell_who_is_behind(judge):
    files = {f"nccl_trace_rank_{rank}.json": dump(rank, 8 if rank == 1 else 9) for rank in range(4)}
    assert brief(judge(files))[1:] == waited(1)


def test_dumps_in_which_all_wait_for_the_same_collective_name_nobody(judge):
    files = {f"fr/nccl_trace_rank_{rank}.json": dump(rank, 9) for rank in range(4)}
    verdict = judge({**files, **train(*(watchdog(700, rank, 9) for rank in range(4)))})
    assert brief(verdict)[1:] == ("undetermined", (), HUNG)


def straggler(seconds, slowest, ms):
    return say(seconds, None, f"| MnRtt/Rnk: 310.10ms/1 | MxRtt/Rnk: {ms:.2f}ms/{slowest} | MnPwr/Rnk: 640.10W/0 |")


def test_megatrons_straggler_reports_name_the_slow_rank_and_nobody_where_all_are_equally_fast(judge):
    healthy, slow = straggler(10, 2, 318.4), straggler(300, 3, 5980.7)
    late = [watchdog(900, rank, 12) for rank in range(4) if rank != 3]
    assert brief(judge(train(healthy, slow, *late)))[1:] == waited(3)
    assert brief(judge(train(slow, straggler(600, 2, 318.4), *late)))[2] != (2,)
