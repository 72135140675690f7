"""What is put in comes back as it was, whenever the store was flushed, sealed, closed or copied."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import contents, fill, meta, noise, stored

from aggregator.errors import InputError, OutputError
from aggregator.store import Store

NUMBERS = st.integers(0, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("begin"), st.just(0), st.just(0)),
    st.tuples(st.just("append"), NUMBERS, st.binary(max_size=200)),
    st.tuples(st.just("append"), NUMBERS, st.integers(0, 2500).map(noise)),
    st.tuples(st.just("skip"), NUMBERS, st.integers(1, 3000)),
    st.tuples(st.just("change"), NUMBERS, st.sampled_from([None, "removed", "truncated"])),
    st.tuples(st.sampled_from(["flush", "flush", "reopen", "kill"]), st.just(0), st.just(0)),
)


class Model:
    """A store beside a dict of what it should hold, and a copy of that as of the last flush."""

    def __init__(self, folder):
        self.folder, self.lives = Path(folder), 0
        self.now, self.kept = {}, {}
        self.open()

    def open(self):
        self.store = Store(self.folder / str(self.lives), segment_bytes=1000)

    def act(self, action, number, value):
        if action in {"append", "skip", "change"} and number not in self.now:
            action = "begin"
        getattr(self, action)(number, value)
        assert contents(self.store) == self.now

    def begin(self, number, value):
        stream = self.store.begin(meta(len(self.now)))
        assert stream.id == len(self.now)
        self.now[stream.id] = (stream.meta, b"")

    def append(self, number, value):
        self.store.append(number, value)
        self.now[number] = (self.now[number][0], self.now[number][1] + value)

    def skip(self, number, value):
        self.store.skip(number, value)
        self.now[number] = (self.now[number][0], self.now[number][1] + bytes(value))

    def change(self, number, value):
        changed = meta(number, path="moved.log", ended=value)
        self.store.change(number, changed)
        self.now[number] = (changed, self.now[number][1])

    def flush(self, number, value):
        self.store.flush()
        assert self.store.backlog == 0
        self.kept = dict(self.now)
        assert stored(self.folder / str(self.lives)) == self.kept

    def reopen(self, number, value):
        self.store.close()
        self.kept = dict(self.now)
        self.open()

    def kill(self, number, value):
        """The files as they are; what was not flushed is gone."""
        shutil.copytree(self.folder / str(self.lives), self.folder / str(self.lives + 1))
        self.store.close()
        self.lives += 1
        self.now = dict(self.kept)
        self.open()


@settings(max_examples=60)
@given(st.lists(ACTIONS, max_size=40))
def test_a_store_holds_what_a_dict_would_hold(actions):
    with tempfile.TemporaryDirectory() as folder:
        model = Model(folder)
        for action in actions:
            model.act(*action)
        model.store.close()
        assert stored(model.folder / str(model.lives)) == model.now


def test_a_store_that_is_copied_at_any_step_of_its_seals_loses_nothing(tmp_path, monkeypatch):
    folder, copies = tmp_path / "store", []

    def copying(original):
        def step(*args, **options):
            if copies is not None:
                shutil.copytree(folder, tmp_path / str(len(copies)))
                copies.append(contents(store))
            return original(*args, **options)

        return step

    store = Store(folder, segment_bytes=1000)
    for number in range(2):
        store.begin(meta(number))
    store.flush()
    monkeypatch.setattr(os, "fsync", copying(os.fsync))
    monkeypatch.setattr(os, "fdatasync", copying(os.fdatasync))
    monkeypatch.setattr(Path, "replace", copying(Path.replace))
    monkeypatch.setattr(Path, "unlink", copying(Path.unlink))
    for turn in range(4):
        store.append(turn % 2, noise(1000, turn))
        store.flush()
    monkeypatch.undo()
    store.close()
    assert len(list(folder.glob("*.parquet"))) == 4
    assert len(copies) > 30
    for number, expected in enumerate(copies):
        assert stored(tmp_path / str(number)) == expected
        with Store(tmp_path / str(number), segment_bytes=1000) as again:
            again.append(0, b"more")
        assert stored(tmp_path / str(number)) == expected | {0: (expected[0][0], expected[0][1] + b"more")}


def test_bytes_come_in_chunks_of_the_size_that_is_asked_for(tmp_path):
    with Store(tmp_path / "store", segment_bytes=1000) as store:
        store.begin(meta(0))
        for turn in range(30):
            store.append(0, noise(100, turn))
            store.flush()
        store.skip(0, 500)
        assert [len(chunk) for chunk in store.read(0, 300)] == [300] * 11 + [200]


def test_a_block_of_many_megabytes_is_taken_in_one_call(tmp_path):
    data = noise(2_500_000) + bytes(3 << 20)
    with Store(tmp_path / "store", segment_bytes=1 << 20) as store:
        store.begin(meta(0))
        store.append(0, data)
    assert stored(tmp_path / "store") == {0: (meta(0), data)}


def test_a_hole_of_a_terabyte_takes_neither_disk_nor_memory(tmp_path):
    with Store(tmp_path / "store") as store:
        store.begin(meta(0))
        store.append(0, b"before")
        store.skip(0, 1 << 40)
        store.append(0, b"after")
    with Store(tmp_path / "store", read_only=True) as store:
        stream = store.streams[0]
        assert (stream.position, stream.head[:8]) == ((1 << 40) + 11, b"before\0\0")
        assert stream.tail == bytes(507) + b"after"
        assert next(store.read(0)) == b"before" + bytes((1 << 20) - 6)
    assert (tmp_path / "store" / "000000.journal").stat().st_size < 1000


def test_reading_goes_on_over_seals_to_where_the_stream_stood(tmp_path):
    with Store(tmp_path / "store", segment_bytes=1000) as store:
        store.begin(meta(0))
        store.append(0, noise(900))
        reading = store.read(0, 100)
        chunks = [next(reading)]
        for turn in range(5):
            store.append(0, noise(1000, turn))
            store.flush()
        assert b"".join(chunks + list(reading)) == noise(900)


def test_names_that_are_not_unicode_come_back(tmp_path):
    odd = meta(0, path=os.fsdecode(b"caf\xe9/\xff.log"))
    with Store(tmp_path / "store") as store:
        store.begin(odd)
    assert stored(tmp_path / "store") == {0: (odd, b"")}


def test_a_change_that_changes_nothing_writes_nothing(tmp_path):
    with Store(tmp_path / "store") as store:
        store.begin(meta(0))
        store.flush()
        store.change(0, meta(0))
        assert store.backlog == 0


def test_only_the_owner_may_read_whatever_the_umask(tmp_path):
    for mask in (0, 0o777):
        folder = tmp_path / str(mask)
        before = os.umask(mask)
        try:
            fill(folder)
        finally:
            os.umask(before)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.suffix or path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert modes == dict.fromkeys([".journal", ".parquet", ".json", "lock"], 0o600)


def test_a_folder_that_others_may_enter_is_closed_to_them(tmp_path):
    tmp_path.chmod(0o755)
    Store(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.parametrize("exists", [False, True])
def test_a_reader_that_finds_no_store_says_so_and_leaves_nothing(tmp_path, exists):
    folder = tmp_path / "store"
    if exists:
        folder.mkdir()
    with pytest.raises(InputError, match="no store"):
        Store(folder, read_only=True)
    assert folder.exists() == exists
    assert not exists or not list(folder.iterdir())


def test_a_store_that_cannot_be_created_is_an_error_of_output(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="Not a directory"):
        Store(tmp_path / "file" / "store")


def test_files_of_others_and_the_needed_ones_stay_and_left_overs_go(tmp_path):
    expected = fill(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    for name in ("000099.parquet", "000099.journal", "000004.parquet.tmp", "manifest.json.tmp"):
        (tmp_path / name).write_bytes(b"left over")
    (tmp_path / "notes.parquet").write_bytes(b"not ours")
    assert stored(tmp_path) == expected
    assert (tmp_path / "000099.parquet").exists()  # a reader removes nothing
    Store(tmp_path).close()
    assert {path.name for path in tmp_path.iterdir()} == before | {"notes.parquet"}
    assert stored(tmp_path) == expected


def test_two_journals_at_most_are_kept_however_many_were_sealed(tmp_path):
    fill(tmp_path, seals=6)
    assert len(list(tmp_path.glob("*.journal"))) == 2


def test_a_small_store_is_opened_without_arrow(tmp_path):
    Store(tmp_path / "store").close()
    program = (
        "import sys; from pathlib import Path; from aggregator.store import Store\n"
        "Store(Path(sys.argv[1])).close(); assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], check=True)
