"""Who is missing in a hung collective."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.correlate.collectives import CollectiveState, Pending, analyse_dumps, analyse_states
from parsers.flight_recorder import Entry, EntryState, FlightDump, GroupConfig, GroupStatus, load_dump

DATA = Path(__file__).parents[1] / "data" / "flight_recorder"
DONE, STARTED, SCHEDULED = EntryState.COMPLETED, EntryState.STARTED, EntryState.SCHEDULED


def real(pattern):
    return [load_dump(path.read_bytes(), int(path.stem.rpartition("_")[2])) for path in sorted(DATA.glob(pattern))]


def op(group, seq, state=DONE, name="nccl:all_reduce", sizes=((8,),), **more):
    """One operation of a rank, short of its place among the others; `p2p` gives a point-to-point number."""
    p2p = more.pop("p2p", None)
    return {
        "pg_id": 0, "group": group, "desc": "", "seq": seq, "p2p_seq": p2p or 0, "op_id": seq, "name": name,
        "in_sizes": sizes, "out_sizes": sizes, "dtypes": ("Float",), "state": state, "created_ns": 10**18,
        "started_ns": None, "completed_ns": None, "retired": state is DONE, "timeout_ms": 600_000,
        "is_p2p": p2p is not None, **more,
    }  # fmt: skip


def dump(rank, groups, ops, first=0, status=None):
    entries = tuple(Entry(record_id=first + number, **item) for number, item in enumerate(ops))
    configs = {name: GroupConfig(name, "", tuple(ranks)) for name, ranks in groups.items()}
    return FlightDump(rank, "2.10", configs, status or {}, entries, entries[0].record_id if entries else None)


def brief(findings):
    return [(item.cause, item.group, item.seq, item.suspects) for item in findings]


def best(findings):
    return brief(findings)[0]


WORLD = {"0": range(4)}


@pytest.mark.parametrize(
    ("pattern", "seq"), [("gloo_rank_*.pickle", 31), ("gloo_rank_*.json", 31), ("nccl_rank_*.json", 301442)]
)
def test_real_dumps_name_the_rank_that_lags(pattern, seq):
    (found,) = analyse_dumps(real(pattern), None)
    assert (found.cause, found.seq, found.suspects) == ("laggard", seq, (1,))
    assert set(found.waiting) == {dump.rank for dump in real(pattern)} - {1}
    assert "rank 1 lags at" in found.reason


def test_a_missing_file_names_its_rank_only_when_the_others_all_wait():
    dumps = [dump(rank, WORLD, [op("0", 1), op("0", 2, SCHEDULED)]) for rank in (0, 1, 3)]
    assert brief(analyse_dumps(dumps, 4)) == [("silent", "0", 2, (2,))]
    assert brief(analyse_dumps(dumps[:2], 4)) == [("unknown", "0", 2, ())]
    finished = [dump(rank, WORLD, [op("0", 1)]) for rank in (0, 1, 3)]
    assert analyse_dumps(finished, 4) == []


def test_a_healthy_job_dumped_at_different_moments_is_no_hang():
    dumps = [dump(rank, WORLD, [op("0", seq) for seq in range(1, 5 + rank)]) for rank in range(4)]
    assert analyse_dumps(dumps, 4) == []


def test_ranks_that_run_ahead_of_a_stuck_collective_by_different_counts_have_all_entered_it():
    dumps = [dump(rank, WORLD, [op("0", 1), *(op("0", s, SCHEDULED) for s in range(2, 4 + rank))]) for rank in range(4)]
    assert best(analyse_dumps(dumps, 4)) == ("all_entered", "0", 2, ())


def test_a_rank_that_ran_ahead_does_not_hide_the_laggard():
    dumps = [dump(rank, WORLD, [op("0", 1), *(op("0", s, SCHEDULED) for s in range(2, 4 + rank))]) for rank in range(3)]
    dumps.append(dump(3, WORLD, [op("0", 1)]))
    assert brief(analyse_dumps(dumps, 4)) == [("laggard", "0", 2, (3,))]


def test_an_operation_completed_only_by_the_abort_still_hangs():
    late = {"state": DONE, "completed_ns": 10**18 + 600_000 * 10**6}
    dumps = [dump(rank, WORLD, [op("0", 1), op("0", 2, **late)]) for rank in range(3)]
    dumps.append(dump(3, WORLD, [op("0", 1)]))
    assert brief(analyse_dumps(dumps, 4)) == [("laggard", "0", 2, (3,))]


def test_a_rank_whose_ring_lost_the_group_is_not_blamed():
    dumps = [dump(rank, WORLD, [op("0", 1), op("0", 2, SCHEDULED)]) for rank in range(3)]
    overwritten = dump(3, {**WORLD, "5": (3, 9)}, [op("5", seq) for seq in range(800, 820)], first=5000)
    assert all(not item.suspects for item in analyse_dumps([*dumps, overwritten], 4))


def test_a_rank_that_never_used_the_group_is_a_laggard_when_nothing_was_overwritten():
    dumps = [dump(rank, WORLD, [op("0", 1, SCHEDULED)]) for rank in range(3)]
    dumps.append(dump(3, {**WORLD, "5": (3, 9)}, [op("5", 1)]))
    assert best(analyse_dumps(dumps, 4)) == ("laggard", "0", 1, (3,))


def test_an_odd_operation_names_the_minority():
    dumps = [dump(rank, WORLD, [op("0", 1), op("0", 2, SCHEDULED)]) for rank in range(3)]
    dumps.append(dump(3, WORLD, [op("0", 1), op("0", 2, SCHEDULED, "nccl:broadcast")]))
    (found,) = analyse_dumps(dumps, 4)
    assert (found.cause, found.suspects, found.waiting) == ("mismatch", (3,), (0, 1, 2))
    assert "is broadcast" in found.reason


def test_an_odd_size_or_type_names_the_minority():
    for odd in ({"sizes": ((9,),)}, {"dtypes": ("Half",)}):
        dumps = [dump(rank, WORLD, [op("0", 2, SCHEDULED)]) for rank in range(3)]
        dumps.append(dump(3, WORLD, [op("0", 2, SCHEDULED, **odd)]))
        assert brief(analyse_dumps(dumps, 4)) == [("mismatch", "0", 2, (3,))]


def test_sizes_that_differ_by_right_are_no_mismatch():
    dumps = [dump(rank, WORLD, [op("0", 2, SCHEDULED, "nccl:all_to_all", ((rank,),))]) for rank in range(4)]
    assert brief(analyse_dumps(dumps, 4)) == [("all_entered", "0", 2, ())]


def test_one_against_one_and_two_against_two_are_undetermined():
    for size in (2, 4):
        group = {"0": range(size)}
        names = ("nccl:all_reduce", "nccl:broadcast")
        dumps = [dump(rank, group, [op("0", 2, SCHEDULED, names[rank % 2])]) for rank in range(size)]
        assert brief(analyse_dumps(dumps, size)) == [("mismatch", "0", 2, ())]


def test_an_operation_that_was_swapped_earlier_is_found_where_it_began():
    usual = [op("0", 1), op("0", 2), op("0", 3, name="nccl:broadcast"), op("0", 4, SCHEDULED)]
    odd = [op("0", 1), op("0", 2, name="nccl:broadcast"), op("0", 3), op("0", 4, SCHEDULED)]
    dumps = [dump(rank, WORLD, odd if rank == 2 else usual) for rank in range(4)]
    assert brief(analyse_dumps(dumps, 4)) == [("mismatch", "0", 2, (2,))]


def test_one_member_ahead_of_all_others_issued_an_extra_call():
    dumps = [dump(rank, WORLD, [op("0", 1)]) for rank in range(3)]
    dumps.append(dump(3, WORLD, [op("0", 1), op("0", 2, SCHEDULED)]))
    assert brief(analyse_dumps(dumps, 4)) == [("ahead", "0", 2, (3,))]


def test_a_kernel_that_was_never_started_is_suspect_and_leads_to_the_group_that_holds_it():
    groups = {"0": range(4), "9": (3, 4)}
    dumps = [dump(rank, groups, [op("0", 1, started_ns=1), op("0", 2, STARTED)]) for rank in range(3)]
    held = dump(3, groups, [op("0", 1, started_ns=1), op("9", 7, STARTED), op("0", 2, SCHEDULED)])
    after = dump(3, groups, [op("0", 1, started_ns=1), op("0", 2, SCHEDULED), op("9", 7, STARTED)])
    idle = dump(4, groups, [op("9", 6)])
    assert best(analyse_dumps([*dumps, held, idle], 5)) == ("laggard", "9", 7, (4,))
    assert ("not_started", "0", 2, ()) in brief(analyse_dumps([*dumps, held, idle], 5))
    assert ("not_started", "0", 2, (3,)) in brief(analyse_dumps([*dumps, after, idle], 5))


# Eight ranks, tensor pairs (tp), data-parallel fours (dp) and everybody (0).
NESTED = {
    "0": range(8), "tp0": (0, 1), "tp1": (2, 3), "tp2": (4, 5), "tp3": (6, 7), "dp0": (0, 2, 4, 6), "dp1": (1, 3, 5, 7)
}  # fmt: skip


def nested(culprit):
    """Each step: an all-reduce in the pair, then in the four. The culprit stops before its pair's second."""
    dumps = []
    for rank in range(8):
        pair, four = f"tp{rank // 2}", f"dp{rank % 2}"
        ops = [op("0", 1), op(pair, 1), op(four, 1)]
        if rank == culprit ^ 1:
            ops.append(op(pair, 2, SCHEDULED))
        elif rank != culprit:
            ops.append(op(pair, 2))
            ops.append(op(four, 2, SCHEDULED))
        mine = {name: ranks for name, ranks in NESTED.items() if rank in ranks}
        dumps.append(dump(rank, mine, ops))
    return dumps


@pytest.mark.parametrize("culprit", range(8))
def test_the_chain_over_nested_groups_ends_at_the_rank_that_stopped(culprit):
    findings = analyse_dumps(nested(culprit), 8)
    named = {rank for item in findings for rank in item.suspects}
    assert named == {culprit}
    victim = next(item for item in findings if item.group == f"dp{(culprit ^ 1) % 2}")
    assert victim.suspects == ()
    assert "in turn" in victim.reason


@given(st.permutations(range(8)), st.integers(0, 7), st.sets(st.integers(0, 7), max_size=2))
def test_order_of_the_files_and_lost_files_of_victims_never_name_another_rank(order, culprit, lost):
    dumps = [nested(culprit)[rank] for rank in order]
    assert analyse_dumps(dumps, 8) == analyse_dumps(nested(culprit), 8)
    kept = [item for item in dumps if item.rank not in lost - {culprit}]
    strongest = analyse_dumps(kept, 8)
    sure = [item for item in strongest if item.strength > 0.65 and item.suspects]
    assert all(item.suspects == (culprit,) for item in sure)


def test_groups_that_wait_for_each_other_name_nobody():
    groups = {"a": (0, 1, 2), "b": (0, 1, 2)}
    dumps = [dump(rank, groups, [op("a", 1), op("b", 1), op("a", 2, SCHEDULED)]) for rank in range(2)]
    dumps.append(dump(2, groups, [op("a", 1), op("b", 1), op("b", 2, SCHEDULED)]))
    dumps[0] = dump(0, groups, [op("a", 1), op("b", 1), op("a", 2, SCHEDULED), op("b", 2, SCHEDULED)])
    findings = analyse_dumps(dumps, 3)
    assert all(not item.suspects for item in findings)
    assert "circle" in findings[0].reason


def test_a_group_is_joined_by_name_and_members_not_by_its_local_number():
    groups = {"7": (0, 1, 2)}
    dumps = [dump(rank, groups, [op("7", 3, SCHEDULED, pg_id=rank)]) for rank in range(2)]
    dumps.append(dump(2, groups, [op("7", 2, pg_id=9)]))
    assert brief(analyse_dumps(dumps, None)) == [("laggard", "7", 3, (2,))]
    stranger = dump(5, {"7": (5, 6)}, [op("7", 1)])
    assert [item[3] for item in brief(analyse_dumps([*dumps, stranger], None))] == [(2,)]


def test_status_alone_tells_who_lags_when_no_entry_was_kept():
    statuses = [GroupStatus(31, -1, 31 - rank % 2) for rank in range(3)] + [GroupStatus(30, -1, 30)]
    dumps = [FlightDump(rank, "2.10", {}, {0: status}, (), None) for rank, status in enumerate(statuses)]
    assert brief(analyse_dumps(dumps, 4)) == [("laggard", "0", 31, (3,))]


PIPE = {"pp": (10, 20, 30)}


def p2p(number, name, state=SCHEDULED):
    return op("pp", 0, state, f"nccl:{name}", p2p=number)


def test_a_pipeline_ends_at_the_stage_that_stopped():
    dumps = [
        dump(10, PIPE, [p2p(1, "send 0->1", DONE), p2p(2, "recv 0<-1")]),
        dump(20, PIPE, [p2p(1, "recv 1<-0", DONE), p2p(1, "send 1->2", DONE), p2p(2, "recv 1<-2")]),
        dump(30, PIPE, [p2p(1, "recv 2<-1", DONE)]),
    ]
    findings = analyse_dumps(dumps, None)
    assert best(findings) == ("laggard", "pp", 2, (30,))
    assert {rank for item in findings for rank in item.suspects} == {30}
    assert best(analyse_dumps(dumps[:2], None)) == ("silent", "pp", 2, (30,))


def test_a_send_whose_receive_is_open_blames_nobody():
    dumps = [dump(10, PIPE, [p2p(1, "send 0->1")]), dump(20, PIPE, [p2p(1, "recv 1<-0")]), dump(30, PIPE, [])]
    assert analyse_dumps(dumps, None) == []


def test_parts_of_a_coalesced_batch_are_done_when_the_batch_is():
    batch = [p2p(1, "send 0->1"), p2p(1, "coalesced", DONE)]
    assert analyse_dumps([dump(10, PIPE, batch), dump(20, PIPE, []), dump(30, PIPE, [])], None) == []


def test_dumps_without_a_rank_are_left_out_and_no_dumps_give_nothing():
    assert analyse_dumps([], 4) == []
    assert analyse_dumps([dump(None, WORLD, [op("0", 1, SCHEDULED)])], 4) == []


def state(rank, enqueued=None, completed=None, pending=None, group="0"):
    return CollectiveState(rank, group, enqueued, None, completed, pending, None, "watchdog")


def waits(seq, op="ALLREDUCE", numel="4096"):
    return Pending(op, seq, numel)


def test_the_counters_of_log_lines_name_the_rank_that_lags():
    states = [state(rank, 82, 80, waits(81)) for rank in range(3)] + [state(3, 80, 80)]
    (found,) = analyse_states(states, {}, 4)
    assert (found.cause, found.seq, found.suspects, found.waiting) == ("laggard", 81, (3,), (0, 1, 2))
    assert found.reason == "ranks 0, 1, 2 wait in allreduce 81 of group 0; rank 3 lags at 80"


def test_a_member_without_any_line_is_silent_where_membership_is_known():
    states = [state(rank, pending=waits(81)) for rank in range(3)]
    assert brief(analyse_states(states, {}, 4)) == [("silent", "0", 81, (3,))]
    assert brief(analyse_states(states, {}, None)) == [("unknown", "0", 81, ())]
    assert brief(analyse_states(states, {}, 8)) == [("unknown", "0", 81, ())]


def test_a_laggard_and_a_silent_member_are_both_told():
    states = [state(rank, 82, 80, waits(81)) for rank in range(6)] + [state(6, 80, 80)]
    assert {item[3] for item in brief(analyse_states(states, {}, 8))} == {(6,), (7,)}


def test_all_in_the_same_collective_blames_nobody():
    states = [state(rank, pending=waits(81)) for rank in range(4)]
    assert brief(analyse_states(states, {}, 4)) == [("all_entered", "0", 81, ())]


def test_another_operation_or_size_in_log_lines_names_the_minority():
    for odd in (waits(81, "BROADCAST"), waits(81, numel="1")):
        states = [state(rank, pending=waits(81)) for rank in range(3)] + [state(3, pending=odd)]
        assert brief(analyse_states(states, {}, 4)) == [("mismatch", "0", 81, (3,))]
    unsized = [state(rank, pending=waits(81)) for rank in range(3)] + [state(3, pending=Pending("ALLREDUCE", 81))]
    assert brief(analyse_states(unsized, {}, 4)) == [("all_entered", "0", 81, ())]


def test_point_to_point_operations_in_log_lines_prove_nothing():
    for name in ("SEND", "RECV", "COALESCED"):
        states = [state(rank, pending=waits(81 + rank, name)) for rank in range(4)]
        assert analyse_states(states, {}, 4) == []


def test_garbage_and_minus_one_in_counters_are_understood():
    states = [state(rank, 1, 10**18, waits(1)) for rank in range(3)] + [state(3, -1, -1)]
    assert brief(analyse_states(states, {}, 4)) == [("laggard", "0", 1, (3,))]


def test_a_rank_that_waits_in_another_group_passes_the_blame_on():
    members = {"a": frozenset({0, 1, 2}), "b": frozenset({2, 3, 4})}
    states = [state(rank, 9, 7, waits(8), "a") for rank in (0, 1)] + [state(2, 7, 7, group="a")]
    states += [state(rank, 5, 4, waits(5), "b") for rank in (2, 3)] + [state(4, 4, 4, group="b")]
    findings = analyse_states(states, members, None)
    assert best(findings) == ("laggard", "b", 5, (4,))
    assert ("laggard", "a", 8, ()) in brief(findings)


def test_completed_counts_spoilt_by_the_time_out_do_not_blame_the_waiting_ranks():
    states = [state(0, 31, 30, waits(31)), state(1, 31, 31), state(2, 31, 31), state(3, 30, 30)]
    assert brief(analyse_states(states, {}, 4)) == [("laggard", "0", 31, (3,))]


def test_a_member_stuck_in_what_the_others_finished_lags():
    states = [state(rank, 82, 81, waits(82)) for rank in range(3)] + [state(3, 81, 80, waits(81))]
    assert brief(analyse_states(states, {}, 4)) == [("laggard", "0", 82, (3,))]
    root_went_on = [state(0, 82, 81, waits(82))] + [state(r, 81, 80, waits(81, "BROADCAST")) for r in (1, 2, 3)]
    assert brief(analyse_states(root_went_on, {}, 4)) == [("unknown", "0", 82, ())]


def test_a_majority_that_lags_is_too_many_to_name():
    states = [state(rank, 82, 80, waits(81)) for rank in range(3)] + [state(rank, 80, 80) for rank in range(3, 8)]
    assert brief(analyse_states(states, {}, 8)) == [("unknown", "0", 81, ())]


STATES = st.lists(
    st.builds(
        CollectiveState,
        rank=st.integers(0, 5),
        group=st.sampled_from(["0", "a", "b"]),
        enqueued=st.none() | st.integers(-1, 6),
        started=st.none() | st.integers(-1, 6),
        completed=st.none() | st.integers(-1, 6),
        pending=st.none() | st.builds(Pending, st.sampled_from(["ALLREDUCE", "BROADCAST"]), st.integers(1, 6)),
        entered_ns=st.none(),
        source=st.sampled_from(["dump", "watchdog"]),
    ),
    max_size=12,
)


@given(STATES, st.none() | st.just(6), st.randoms(use_true_random=False))
def test_any_states_give_findings_that_hold_together_in_any_order(states, world, dice):
    members = {"a": frozenset({0, 1, 2}), "b": frozenset({2, 3, 4, 5})}
    findings = analyse_states(states, members, world)
    for item in findings:
        assert 0 <= item.strength <= 1
        assert not set(item.suspects) & set(item.waiting)
        assert item.reason
        assert item.cause not in ("unknown", "all_entered") or not item.suspects
    one_each = list({(item.rank, item.group): item for item in states}.values())
    shuffled = random.Random(dice.random()).sample(one_each, len(one_each))
    assert analyse_states(shuffled, members, world) == analyse_states(one_each, members, world)


def test_the_ranks_can_be_renumbered():
    swap = {rank: (rank * 3 + 1) % 8 for rank in range(8)}
    states = [state(rank, 82, 80, waits(81)) for rank in range(7)] + [state(7, 80, 80)]
    renamed = [state(swap[item.rank], item.enqueued, item.completed, item.pending) for item in states]
    assert best(analyse_states(renamed, {}, 8)) == ("laggard", "0", 81, (swap[7],))
