"""A disk that is full, or fails, stalls the store: nothing is lost, nothing is stored twice, and later it goes on."""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import contents, fill, largest_file, meta, noise, stored

from aggregator.errors import OutputError
from aggregator.store import Store, StoreStalled
from aggregator.store.manifest import load_manifest


class Disk:
    """`os.pwrite` and `os.fdatasync` of a disk with so much room; None is no limit."""

    def __init__(self, patch):
        self.room, self.error = None, errno.ENOSPC
        self.pwrite, self.fdatasync = os.pwrite, os.fdatasync
        patch.setattr(os, "pwrite", self.write)
        patch.setattr(os, "fdatasync", self.sync)

    def write(self, descriptor, data, offset):
        if self.room is None:
            return self.pwrite(descriptor, data, offset)
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        written = self.pwrite(descriptor, data[: self.room], offset)
        self.room -= written
        return written

    def sync(self, descriptor):
        if self.room == 0:
            raise OSError(self.error, os.strerror(self.error))
        self.fdatasync(descriptor)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path, segment_bytes=10_000) as store:
        store.begin(meta(0))
        store.append(0, b"first\n")
        store.flush()
        yield store


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_write_that_fails_half_way_leaves_the_file_as_it_was(store, disk, tmp_path, error):
    before, journal = stored(tmp_path), tmp_path / "000000.journal"
    size = journal.stat().st_size
    store.append(0, b"second\n")
    store.append(0, b"third\n")
    waiting, disk.room, disk.error = store.backlog, 40, error
    with pytest.raises(StoreStalled, match=os.strerror(error)) as caught:
        store.flush()
    assert caught.value.errno == error
    assert (journal.stat().st_size, store.backlog) == (size, waiting)
    assert stored(tmp_path) == before
    assert contents(store) == {0: (meta(0), b"first\nsecond\nthird\n")}
    disk.room = None
    store.flush()
    assert store.backlog == 0
    assert stored(tmp_path) == contents(store)


def test_a_sync_that_fails_is_done_again_with_its_bytes(store, disk, tmp_path):
    store.append(0, b"second\n")
    disk.room = store.backlog
    with pytest.raises(StoreStalled):
        store.flush(sync=True)
    assert stored(tmp_path) == {0: (meta(0), b"first\n")}
    disk.room = None
    store.flush(sync=True)
    assert stored(tmp_path) == {0: (meta(0), b"first\nsecond\n")}


def test_no_journal_is_begun_before_the_full_one_is_on_the_disk(store, disk, tmp_path):
    store.append(0, noise(12_000))
    disk.room = store.backlog
    with pytest.raises(StoreStalled):
        store.flush()
    assert [path.name for path in tmp_path.glob("*.journal")] == ["000000.journal"]
    disk.room = None
    store.flush()
    assert stored(tmp_path) == contents(store)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


@pytest.mark.parametrize("room", range(1, 20))
def test_a_new_journal_whose_header_finds_room_for_a_part_only_is_begun_again(store, disk, tmp_path, room):
    store.append(0, noise(12_000))
    disk.room = store.backlog + room
    with suppress(StoreStalled):
        store.flush()
    disk.room = None
    store.append(0, b"second\n")
    store.flush()
    assert stored(tmp_path) == contents(store)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 700), st.one_of(st.none(), st.integers(0, 900)), st.booleans()), max_size=25))
def test_nothing_is_lost_or_doubled_whenever_space_runs_out_and_comes_back(steps):
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        disk, written = Disk(patch), b""
        with Store(Path(folder), segment_bytes=1000) as store:
            store.begin(meta(0))
            for number, (size, disk.room, sync) in enumerate(steps):
                store.append(0, noise(size, number))
                try:
                    store.flush(sync=sync)
                except StoreStalled:
                    assert disk.room == 0
                if not store.backlog:
                    written = contents(store)[0][1]
                    assert stored(Path(folder)) == contents(store)
                assert contents(store)[0][1].startswith(written)
            disk.room = None
            expected = contents(store)
        assert expected[0][1] == b"".join(noise(size, number) for number, (size, _, _) in enumerate(steps))
        assert stored(Path(folder)) == expected


@pytest.mark.parametrize("room", [0, 4, 1000, 8000, 11_000])
def test_a_seal_that_fails_leaves_the_bytes_in_the_journal_and_is_done_later(store, tmp_path, room):
    """Of incompressible bytes: the segment is larger than the room, as are the manifests of many heads."""
    for number in range(1, 10):
        store.begin(meta(number))
        store.append(number, noise(500, number))
    store.flush()
    store.append(0, noise(5000))
    store._journals[-1].write(sync=False)
    with largest_file(room), pytest.raises(StoreStalled, match="File too large"):
        store.flush()
    assert not list(tmp_path.glob("*.tmp"))
    assert stored(tmp_path) == contents(store)
    for turn in range(3):
        store.append(1, noise(10_500, turn))
        store.flush()
        assert stored(tmp_path) == contents(store)
    assert sorted(path.name for path in tmp_path.glob("*.parquet"))[:2] == ["000000.parquet", "000001.parquet"]
    assert len(list(tmp_path.glob("*.journal"))) == 2


def test_after_a_failed_seal_the_next_owner_goes_on(tmp_path):
    store = Store(tmp_path, segment_bytes=10_000)
    store.begin(meta(0))
    store.append(0, noise(12_000))
    store._journals[-1].write(sync=False)
    with largest_file(100), pytest.raises(StoreStalled):
        store.flush()
    expected = contents(store)
    store.close()
    with Store(tmp_path, segment_bytes=10_000) as again:
        assert contents(again) == expected
        again.append(0, noise(12_000))
    assert [path.name for path in sorted(tmp_path.glob("*.parquet"))] == ["000000.parquet", "000001.parquet"]
    assert stored(tmp_path) == {0: (meta(0), noise(12_000) * 2)}


def test_a_folder_sync_that_fails_after_the_rename_loses_nothing(store, tmp_path, monkeypatch):
    """The new manifest is on the disk then, though the seal has failed."""
    store.append(0, noise(12_000))

    def failing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and load_manifest(tmp_path, mend=False)[0].first_journal == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreStalled):
        store.flush()
    store.append(0, b"after the failure")
    store.flush()
    assert stored(tmp_path) == contents(store)
    monkeypatch.undo()
    store.append(0, noise(12_000))
    store.flush()
    assert stored(tmp_path) == contents(store)


def test_a_store_can_be_closed_on_a_full_disk_and_says_what_that_costs(tmp_path, disk):
    store = Store(tmp_path)
    store.begin(meta(0))
    disk.room = 0
    with pytest.raises(StoreStalled):
        store.close()
    disk.room = None
    store.close()
    with Store(tmp_path) as again:  # the lock was released
        assert again.streams == {}


def test_a_store_is_not_begun_on_a_full_disk_but_later(tmp_path):
    with largest_file(100), pytest.raises(OutputError, match="File too large"):
        Store(tmp_path / "store")
    expected = fill(tmp_path / "store")
    assert stored(tmp_path / "store") == expected
