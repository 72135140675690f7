"""Pickles of unknown origin: only plain data comes through, within limits."""

import contextlib
import io
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parsers import safe_pickle
from parsers.safe_pickle import DamagedDump, UnsafePickle, load_json, load_pickle

DATA = Path(__file__).parents[1] / "data" / "flight_recorder"
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.tuples(inner),
    max_leaves=20,
)


class Shell:
    def __reduce__(self):
        return os.system, ("exit 1",)


class Persistent(pickle.Pickler):
    def persistent_id(self, obj):
        return "id" if obj == "x" else None


def persistent():
    out = io.BytesIO()
    Persistent(out, 2).dump(["x"])
    return out.getvalue()


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_comes_back_as_it_was(value, protocol):
    assume(len(repr(value)) < 200)  # longer numbers are written by an opcode that dumps do not need
    assert load_pickle(pickle.dumps(value, protocol)) == value


def test_a_dump_written_by_pytorch_itself_is_loaded():
    dump = load_pickle((DATA / "written_by_torch.pickle").read_bytes())
    assert len(dump["entries"]) == 30


HOSTILE = {
    "a function to call": pickle.dumps(Shell(), 2),
    "a name to look up": pickle.dumps(os.system),
    "a name by the old opcode": b"\x80\x02cos\nsystem\n.",
    "an instance by the old opcode": b"\x80\x02(S'true'\nios\nsystem\n.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent object": persistent(),
    "a persistent object by name": b"\x80\x02Px\n.",
    "a set": pickle.dumps({1, 2}),
    "bytes": pickle.dumps(b"x", 3),
    "a length of 2**62": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"x.",
    "a text length of 2**62": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
    "a memo index of 2**32": b"\x80\x02]r\xff\xff\xff\xff.",
    "a memo index that jumps": b"\x80\x02]q\x02.",
    "an out-of-band buffer": b"\x80\x05\x97.",
    "a decimal of any length": b"\x80\x02I" + b"9" * 100_000 + b"\n.",
    "lists nested 200,000 deep": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "tuples nested 200,000 deep as a key": b"\x80\x02})" + b"\x85" * 200_000 + b"Ns.",
    "a number as a key": pickle.dumps({1: 2}),
    "a build of a state": b"\x80\x02]}b.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_whatever_is_not_plain_data_is_refused(data):
    with pytest.raises(UnsafePickle):
        load_pickle(data)


def test_302_bytes_that_unfold_to_2_to_the_30_are_refused():
    value = []
    for _ in range(30):
        value = [value, value]
    data = pickle.dumps(value, 2)
    assert len(data) < 303
    with pytest.raises(UnsafePickle, match="unfolds"):
        load_pickle(data)


def test_a_list_that_contains_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(DamagedDump):
        load_pickle(pickle.dumps(value, 2))


def test_a_list_that_contains_itself_by_a_detour_is_refused():
    value = [[]]
    value[0].append(value)
    with pytest.raises(DamagedDump):
        load_pickle(pickle.dumps(value, 2))


def test_many_small_values_are_refused_before_they_are_built(monkeypatch):
    monkeypatch.setattr(safe_pickle, "MAX_VALUES", 1000)
    with pytest.raises(UnsafePickle, match="1,000 values"):
        load_pickle(b"\x80\x02(" + b"]" * 2000 + b"l.")


def test_a_tall_stack_of_repeated_values_is_refused(monkeypatch):
    monkeypatch.setattr(safe_pickle, "MAX_VALUES", 1000)
    with pytest.raises(UnsafePickle, match="on the stack"):
        load_pickle(b"\x80\x02]q\x00" + b"h\x00" * 2000 + b".")


def test_too_many_opcodes_and_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr(safe_pickle, "MAX_OPCODES", 10)
    with pytest.raises(UnsafePickle, match="opcodes"):
        load_pickle(pickle.dumps(list(range(100)), 2))
    monkeypatch.setattr(safe_pickle, "MAX_BYTES", 10)
    with pytest.raises(UnsafePickle, match="limit"):
        load_pickle(b"x" * 11)


def test_a_refused_memo_index_costs_no_memory():
    tracemalloc.start()
    with pytest.raises(UnsafePickle):
        load_pickle(HOSTILE["a memo index of 2**32"])
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_dump_cut_off_anywhere_is_damaged(protocol):
    data = pickle.dumps({"version": "2.10", "entries": [("a", 1.5, None, 70_000, 1 << 40), [True]]}, protocol)
    for length in range(len(data)):
        with pytest.raises(DamagedDump):
            load_pickle(data[:length])


MALFORMED = [
    b"\x80\x02.",
    b"\x80\x02(.",
    b"\x80\x02a.",
    b"\x80\x02NNa.",
    b"\x80\x02h\x00.",
    b"\x80\x02Nl.",
    b"\x80\x02]].",
    b"\x80\x02X\x01\x00\x00\x00\xff.",
    b"\x80\x02}(X\x01\x00\x00\x00au.",
    b"\x80\x63N.",
    b"\x80\x02q\x00.",
]


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_pickle_is_damaged(data):
    with pytest.raises(DamagedDump):
        load_pickle(data)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(tail):
    for load in (load_pickle, load_json):
        with contextlib.suppress(DamagedDump):
            load(b"\x80\x02" + tail)


OPCODES = [b"(", b"]", b"}", b")", b"l", b"d", b"t", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"N", b"\x88"]
OPCODES += [b"K\x01", b"X\x01\x00\x00\x00k", b"q\x00", b"q\x01", b"h\x00", b"h\x01", b"\x94"]


@given(st.lists(st.sampled_from(OPCODES), max_size=40))
def test_what_the_check_lets_through_is_what_the_unpickler_builds(opcodes):
    data = b"\x80\x04" + b"".join(opcodes) + b"."
    try:
        value = load_pickle(data)
    except DamagedDump:
        return
    assert repr(value) == repr(pickle.loads(data))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_json_numbers_that_are_none_become_none(value):
    assert load_json(f'[{value}, "a"]'.encode()) == [None, "a"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 1_000_000, b"9" * 100_000, b'{"a":' * 100_000, b"nul", b"\xff\xfe\x00"]
)
def test_damaged_json_is_damaged(data):
    with pytest.raises(DamagedDump):
        load_json(data)


def test_json_with_too_many_parts_is_refused(monkeypatch):
    monkeypatch.setattr(safe_pickle, "MAX_JSON_ITEMS", 10)
    with pytest.raises(DamagedDump, match="more values"):
        load_json(b"[" + b"1," * 20 + b"1]")
    with pytest.raises(DamagedDump, match="limit"):
        load_json(b"[1]", max_bytes=2)
