"""A reader sees a state that the store was in, whatever the writer does meanwhile."""

from itertools import count

import pytest
from store_samples import contents, fill, meta, noise, stored

from aggregator.store import Store
from aggregator.store import store as module


@pytest.fixture
def writer(tmp_path):
    with Store(tmp_path, segment_bytes=1000) as writer:
        writer.begin(meta(0))
        writer.flush()
        yield writer


def seal(writer, times):
    """Fill so many journals, each with a change and bytes; returns what the store held after each."""
    states = []
    for _ in range(times):
        turn = writer.streams[0].position
        writer.change(0, meta(0, path=f"{turn}.log"))
        writer.append(0, noise(1200, turn))
        writer.flush()
        states.append(contents(writer))
    return states


def before_each(monkeypatch, owner, name, act):
    original = getattr(owner, name)

    def step(*args, **options):
        act()
        return original(*args, **options)

    monkeypatch.setattr(owner, name, step)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("when", [{1}, {2}, {1, 2, 3}])
@pytest.mark.parametrize("step", ["load_manifest", "Segment", "Journal", "replay"])
def test_seals_between_the_steps_of_a_reader_leave_it_a_state_that_was(
    tmp_path, monkeypatch, writer, times, when, step
):
    seal(writer, 2)
    writer.append(0, b"in the journal")
    writer.flush()
    states, steps, busy = [contents(writer)], count(1), []

    def go_on():
        if not busy and next(steps) in when:
            busy.append(True)  # the writer takes such steps too
            states.extend(seal(writer, times))
            busy.clear()

    owner = module.Journal if step == "replay" else module
    if step in {"Segment", "Journal"}:
        before_each(monkeypatch, getattr(module, step), "__init__", go_on)
    else:
        before_each(monkeypatch, owner, step, go_on)
    with Store(tmp_path, read_only=True) as reader:
        found = contents(reader)
    monkeypatch.undo()
    assert found in states


def test_a_reader_that_meets_a_half_written_record_sees_what_was_before(tmp_path, writer):
    journal = tmp_path / "000000.journal"
    writer.append(0, b"whole")
    writer.flush()
    whole = journal.read_bytes()
    writer.append(0, b"half")
    writer.flush()
    data = journal.read_bytes()
    for size in range(len(whole), len(data)):
        journal.write_bytes(data[:size])
        assert stored(tmp_path) == {0: (meta(0), b"whole")}
    journal.write_bytes(data)
    assert stored(tmp_path) == {0: (meta(0), b"wholehalf")}


def test_a_reader_keeps_what_it_opened_when_all_its_journals_are_gone(tmp_path, writer):
    seal(writer, 1)
    writer.append(0, b"in the journal")
    writer.flush()
    expected = contents(writer)
    with Store(tmp_path, read_only=True) as reader:
        chunks = reader.read(0, 100)
        first = next(chunks)
        seal(writer, 4)
        assert first + b"".join(chunks) == expected[0][1]
        assert contents(reader) == expected


def test_a_reader_takes_no_lock_and_changes_no_file(tmp_path):
    fill(tmp_path)
    for path in tmp_path.iterdir():
        path.chmod(0o400)
    tmp_path.chmod(0o500)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    with Store(tmp_path, read_only=True) as first, Store(tmp_path, read_only=True, segment_bytes=1) as second:
        assert contents(first) == contents(second)
        second.flush(sync=True)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    tmp_path.chmod(0o700)
