"""Damaged files: a prefix of what was written, or an error that says what is wrong; never something else."""

import errno
import json
import os
import shutil
import zlib

import pytest
from store_samples import contents, fill, meta, noise, rewrite, stored

from aggregator.errors import OutputError
from aggregator.store import Store, StoreStalled
from aggregator.store.manifest import load_manifest


def no_space(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def journal(tmp_path):
    """A journal with all kinds of records, and what a store holds after each of them."""
    states = [{}]
    with Store(tmp_path / "store") as store:
        for act in (
            lambda: store.begin(meta(0)),
            lambda: store.append(0, b"first line\n"),
            lambda: store.begin(meta(1)),
            lambda: store.skip(0, 40),
            lambda: store.append(1, noise(30)),
            lambda: store.change(0, meta(0, ended="removed")),
            lambda: store.append(0, b"last line\n"),
        ):
            act()
            states.append(contents(store))
    return tmp_path / "store" / "000000.journal", states


def check_prefix_and_go_on(folder, states):
    """The store holds one of the states, and can be written on; returns which state."""
    found = stored(folder)
    with Store(folder) as store:
        assert contents(store) == found
        new = store.begin(meta(9)).id
        store.append(new, b"more")
    assert stored(folder) == found | {new: (meta(9), b"more")}
    return states.index(found)


def test_a_journal_cut_at_any_byte_gives_what_was_whole(journal):
    path, states = journal
    data, reached = path.read_bytes(), []
    for size in range(len(data) + 1):
        rewrite(path, data[:size])
        reached.append(check_prefix_and_go_on(path.parent, states))
    assert reached == sorted(reached)
    assert set(reached) == set(range(len(states)))


def test_a_journal_with_any_byte_changed_gives_what_was_before_it(journal):
    path, states = journal
    data = path.read_bytes()
    for place in range(len(data)):
        for change in (0xFF, 1 << place % 8):
            rewrite(path, data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            assert check_prefix_and_go_on(path.parent, states) < len(states) - 1


@pytest.mark.parametrize("tail", [bytes(4096), b"\xff" * 4096, noise(4096)])
def test_what_a_power_loss_leaves_behind_a_journal_is_cut_off(journal, tail):
    path, states = journal
    path.write_bytes(path.read_bytes() + tail)
    assert check_prefix_and_go_on(path.parent, states) == len(states) - 1


def test_bytes_that_are_repeated_are_not_taken_twice(journal):
    path, states = journal
    data = path.read_bytes()
    path.write_bytes(data + data[-35:])
    assert check_prefix_and_go_on(path.parent, states) == len(states) - 1


def test_records_of_a_stream_that_never_began_are_damage(tmp_path):
    with Store(tmp_path / "other") as store:
        for number in range(3):
            store.begin(meta(number))
        store.flush()
        store.append(2, b"bytes")
    Store(tmp_path / "store").close()
    path, data = tmp_path / "store" / "000000.journal", (tmp_path / "other" / "000000.journal").read_bytes()
    for first in (data.index(b'{"path":"logs/rank_1') - 25, len(data) - 30):
        path.write_bytes(data[:16] + data[first:])
        assert stored(tmp_path / "store") == {}


def test_what_follows_a_damaged_journal_is_ignored_and_removed(tmp_path, monkeypatch):
    with Store(tmp_path, segment_bytes=1000) as store:
        store.begin(meta(0))
        store.append(0, noise(1500))
        monkeypatch.setattr("aggregator.store.store.write_segment", no_space)
        with pytest.raises(StoreStalled):
            store.flush()
        store.append(0, b"in the second journal")
    path = tmp_path / "000000.journal"
    path.write_bytes(path.read_bytes()[:-1])
    assert stored(tmp_path) == {0: (meta(0), b"")}
    Store(tmp_path).close()
    assert not (tmp_path / "000001.journal").exists()


@pytest.mark.parametrize("damage", ["empty", "garbage", "gone"])
def test_without_its_manifest_the_one_before_loses_nothing(tmp_path, damage):
    expected, path = fill(tmp_path), tmp_path / "manifest.json"
    path.write_bytes({"empty": b"", "garbage": noise(500), "gone": b""}[damage])
    if damage == "gone":
        path.unlink()
    assert stored(tmp_path) == expected
    with Store(tmp_path, segment_bytes=2000) as store:
        store.append(0, noise(3000))
    after = expected | {0: (meta(0), expected[0][1] + noise(3000))}
    assert stored(tmp_path) == after
    path.write_bytes(b"")
    assert stored(tmp_path) == after


def test_a_manifest_cut_or_changed_at_any_byte_is_not_used(tmp_path):
    with Store(tmp_path, segment_bytes=100) as store:
        store.begin(meta(0))
        store.append(0, b"a line\n" * 20)
    path = tmp_path / "manifest.json"
    data = path.read_bytes()
    newest, rewritten = load_manifest(tmp_path, mend=False), []
    for place in range(len(data)):
        for changed in (data[:place], data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]):
            rewrite(path, changed)
            rewritten.append(load_manifest(tmp_path, mend=False))
    assert newest[0].first_journal == 1
    assert {found[0].first_journal for found in rewritten} == {0}


def test_a_new_store_survives_the_loss_of_either_manifest(journal):
    path, states = journal
    for name in ("manifest.json", "manifest.prev.json"):
        copy = path.parent.with_name(name)
        shutil.copytree(path.parent, copy)
        (copy / name).write_bytes(b"\0")
        assert stored(copy) == states[-1]


@pytest.mark.parametrize("read_only", [False, True])
def test_when_both_manifests_are_lost_nothing_is_begun_anew(tmp_path, read_only):
    fill(tmp_path)
    for name in ("manifest.json", "manifest.prev.json"):
        (tmp_path / name).write_bytes(b"{}")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError, match="neither its manifest nor the one before"):
        Store(tmp_path, read_only=read_only)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_manifest_is_refused_and_not_passed_over(tmp_path, read_only):
    fill(tmp_path)
    path = tmp_path / "manifest.json"
    body = json.dumps(json.loads(path.read_bytes())["manifest"] | {"version": 2, "streams": "other"}).encode()
    path.write_bytes(b'{"crc32": "%08x", "manifest": %b}\n' % (zlib.crc32(body), body))
    with pytest.raises(OutputError, match="newer version"):
        Store(tmp_path, read_only=read_only)


def test_a_newer_journal_is_refused(journal):
    path, _ = journal
    header = b"denpexjl" + (2).to_bytes(4, "little")
    path.write_bytes(header + zlib.crc32(header).to_bytes(4, "little") + b"unknown")
    with pytest.raises(OutputError, match="newer version"):
        Store(path.parent)
    with pytest.raises(OutputError, match="newer version"):
        Store(path.parent, read_only=True)


def test_a_missing_segment_is_an_error(tmp_path):
    fill(tmp_path)
    (tmp_path / "000001.parquet").unlink()
    with pytest.raises(OutputError, match="segment is missing"):
        Store(tmp_path)


def test_a_damaged_segment_is_an_error_whenever_it_is_read(tmp_path):
    fill(tmp_path)
    path = tmp_path / "000001.parquet"
    data = path.read_bytes()
    for damaged in (b"", data[:500], data[: len(data) // 3] + b"\0\0\0\0" + data[len(data) // 3 + 4 :]):
        path.write_bytes(damaged)
        with Store(tmp_path, read_only=True) as store:
            for _ in range(2):
                with pytest.raises(OutputError, match="damaged"):
                    list(store.read(0))
