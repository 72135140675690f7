"""Flight-recorder dumps, as PyTorch and tools write them."""

import contextlib
import json
import pickle
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers import flight_recorder
from parsers.flight_recorder import EntryState, GroupConfig, GroupStatus, load_dump
from parsers.records import Frame
from parsers.safe_pickle import DamagedDump, UnsafePickle

DATA = Path(__file__).parents[1] / "data" / "flight_recorder"


def load(name, rank=0):
    return load_dump((DATA / name).read_bytes(), rank)


def dump_of(*entries, **top):
    return load_dump(json.dumps({"version": "2.4", "entries": list(entries), **top}).encode(), 3)


ENTRY = {"record_id": 5, "pg_id": 1, "process_group": ["7", "tp"], "collective_seq_id": 82, "state": "scheduled"}


def test_a_pickle_written_by_pytorch_is_read_with_its_stack():
    dump = load("written_by_torch.pickle", 1)
    last = dump.entries[-1]
    assert (dump.rank, dump.version, dump.first_record_id, len(dump.entries)) == (1, "2.10", 0, 30)
    assert (last.group, last.desc, last.seq, last.name) == ("0", "default_pg", 30, "gloo:all_reduce")
    assert (last.in_sizes, last.dtypes, last.state, last.retired) == (((4096,),), ("Float",), "scheduled", True)
    assert last.frames[-1] == Frame("/home/mira/llm/sharded_sum.py", 45, "<module>")
    assert (last.started_ns, last.completed_ns, last.timeout_ms) == (None, None, 15000)


def test_json_and_pickle_of_one_process_agree_where_they_tell_the_same():
    one, two = load("gloo_rank_0.pickle"), load("gloo_rank_0.json")
    assert [(e.seq, e.created_ns, e.started_ns) for e in one.entries] == [
        (e.seq, e.created_ns, e.started_ns) for e in two.entries
    ]
    assert one.groups == two.groups
    # Written microseconds apart, soon after the time-out: the failed one is counted as completed in the second.
    assert one.status == {0: GroupStatus(31, -1, 30)}
    assert two.status == {0: GroupStatus(31, -1, 31)}


def test_the_only_nameless_group_is_the_default_group():
    dump = load("gloo_rank_0.pickle")
    assert dump.config_of("0", "default_pg") == GroupConfig("", "", (0, 1, 2, 3))
    assert dump.config_of("7", "tp") is None
    assert dump.status_of("0") == GroupStatus(31, -1, 30)


def test_an_overwritten_ring_shows_in_the_first_record():
    assert load("nccl_rank_0.json").first_record_id == 301440


def test_version_1_4_has_one_sequence_and_no_group_name():
    entry = {"record_id": 2, "pg_id": 3, "seq_id": 9, "profiling_name": "nccl:send 0->1", "state": "started"}
    (got,) = dump_of(entry).entries
    assert (got.group, got.seq, got.p2p_seq, got.is_p2p, got.state) == ("3", 9, 0, True, EntryState.STARTED)


def test_entries_are_in_the_order_of_their_records():
    entries = [{**ENTRY, "record_id": number} for number in (9, 3, 6)]
    assert [entry.record_id for entry in dump_of(*entries).entries] == [3, 6, 9]


def test_a_dump_without_entries_still_has_its_counters():
    data = {"pg_status": {"2": {"last_enqueued_collective": "5"}}, "pg_config": {"7": {"ranks": [4, 5]}}}
    dump = load_dump(json.dumps(data).encode(), None)
    assert dump.status == {2: GroupStatus(5, None, None)}
    assert dump.groups == {"7": GroupConfig("7", "", (4, 5))}
    assert (dump.entries, dump.first_record_id, dump.rank) == ((), None, None)


def test_only_the_newest_entries_of_an_endless_list_are_kept(monkeypatch):
    monkeypatch.setattr(flight_recorder, "MAX_ENTRIES", 10)
    dump = dump_of(*({**ENTRY, "record_id": number} for number in range(100)))
    assert [entry.record_id for entry in dump.entries] == list(range(90, 100))


def test_equal_stacks_and_sizes_are_kept_once():
    one, two = dump_of(
        *({**ENTRY, "input_sizes": [[3, 4]], "frames": [{"name": "f", "filename": "a.py", "line": 3}]} for _ in "ab")
    ).entries
    assert one.frames is two.frames
    assert one.in_sizes is two.in_sizes


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"entries": 3}', b'{"entries": [1, {}]}', b"\x80\x02}.", b"\x1f\x8b"]
)
def test_what_is_no_dump_is_damaged(data):
    with pytest.raises(DamagedDump):
        load_dump(data, 0)


def test_a_dump_that_runs_code_is_refused():
    with pytest.raises(UnsafePickle):
        load_dump(pickle.dumps({"entries": [print]}), 0)


@pytest.mark.parametrize("key", [*ENTRY, "input_sizes", "frames", "timeout_ms", "is_p2p", "time_created_ns"])
@pytest.mark.parametrize("value", ["NaN", "1e999", "-1", "[[[[]]]]", "{}", '"x"', "true", "null", "9" * 30])
def test_a_field_of_the_wrong_kind_loses_at_most_its_entry(key, value):
    bad = json.dumps(ENTRY)[:-1] + f', "{key}": {value}}}'
    dump = load_dump(f'{{"entries": [{bad}, {json.dumps(ENTRY)}]}}'.encode(), 0)
    assert 1 <= len(dump.entries) <= 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*ENTRY, "input_sizes", "input_dtypes", "frames", "timeout_ms", "is_p2p", "profiling_name"])


@given(st.lists(JSON | st.dictionaries(KEYS, JSON), max_size=3), JSON, JSON, JSON)
def test_any_values_load_or_are_damaged(entries, config, status, version):
    top = {"entries": entries, "pg_config": config, "pg_status": status, "version": version}
    with contextlib.suppress(DamagedDump):
        load_dump(json.dumps(top).encode(), 0)


def test_a_flipped_byte_never_raises_anything_else():
    data = bytearray((DATA / "written_by_torch.pickle").read_bytes())
    dice = random.Random(7)
    for _ in range(300):
        broken = bytearray(data)
        broken[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        with contextlib.suppress(DamagedDump):
            load_dump(bytes(broken), 1)
