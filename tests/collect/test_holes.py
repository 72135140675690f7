"""Bytes that are no text: they are stored as they are, and do not end a file."""

import pytest
from followed import append, lines


@pytest.mark.parametrize("hole", [1, 64, 5000, 300_000, 2_000_000])
def test_a_hole_is_stored_by_its_length(job, hole):
    log = job.logs / "train.log"
    append(log, lines(0, 100))
    job.look()
    with log.open("r+b") as file:
        file.truncate(len(lines(0, 100)) + hole)
    job.look()
    stored = sum(path.stat().st_size for path in job.state.iterdir())
    append(log, lines(100, 110))
    job.look()
    assert job.contents() == [lines(0, 100) + bytes(hole) + lines(100, 110)]
    assert stored < 16_000
    job.restart()
    append(log, lines(110, 111))
    job.look()
    assert job.contents() == [lines(0, 100) + bytes(hole) + lines(100, 111)]


def test_a_file_that_begins_with_a_hole_is_a_log(job):
    log = job.logs / "train.log"
    with log.open("wb") as file:
        file.truncate(1 << 20)
    append(log, lines(0, 5))
    job.look()
    assert job.contents() == [bytes(1 << 20) + lines(0, 5)]


@pytest.mark.parametrize(
    "data", [b"caf\xe9\n" * 9, b"\xff\xfe", b"\xe6\x97", b"\x00", b"ok \xf0\x9f\n", b"a\rb\rc\r\n"]
)
def test_bytes_of_any_kind_in_a_log_are_stored_as_they_are(job, data):
    append(job.logs / "train.log", lines(0, 99))
    job.look()
    append(job.logs / "train.log", data)
    job.look()
    assert job.contents() == [lines(0, 99) + data]


def test_a_binary_file_is_named_and_looked_at_again_when_it_has_changed(job):
    data = job.logs / "train.log"
    data.write_bytes(bytes(range(256)) * 10)
    job.look()
    assert (job.contents(), job.skipped()) == ([], {"train.log": "binary file"})
    assert job.collector.open_files == 0
    data.write_bytes(lines(0, 5))
    job.look()
    assert (job.contents(), job.skipped()) == ([lines(0, 5)], {})
    data.write_bytes(bytes(range(256)) * 10)
    job.look()
    assert job.contents() == [lines(0, 5)]


def test_a_binary_file_that_is_removed_is_forgotten(job):
    (job.logs / "train.log").write_bytes(bytes(range(256)) * 10)
    job.look()
    (job.logs / "train.log").unlink()
    job.look()
    assert (job.skipped(), list(job.collector.tails)) == ({}, [])
