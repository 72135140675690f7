"""Rotation by renaming: every line once, whichever name it had when it was written or read."""

import os

import pytest
from followed import APPENDING, append, lines


def rotate(log, generations):
    """As logrotate's `create` and Python's `RotatingFileHandler`."""
    for number in range(generations, 0, -1):
        part = log.with_name(f"{log.name}.{number}")
        if part.exists():
            part.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))
    log.touch()


@pytest.mark.parametrize("every", [1, 7, 40, 1000])
@pytest.mark.parametrize("looks_every", [1, 3, 25])
def test_lines_are_stored_once_at_any_rate_of_rotation(job, every, looks_every):
    """As long as no part is removed: up to a rotation a line, many between two looks."""
    log, written = job.logs / "train.log", 100
    for number in range(written):
        append(log, lines(number, number + 1))
        if number % every == every - 1:
            rotate(log, number // every)
        if number % looks_every == 0:
            job.look(0.25)
    job.settle()
    assert b"".join(sorted(job.contents(), key=lambda data: int(data.split()[2]))) == lines(0, written)


@pytest.mark.parametrize("descriptors", [1, 1024])
def test_a_writer_that_has_not_reopened_is_followed_under_the_new_name(start, descriptors):
    job = start(descriptors=descriptors)
    log = job.logs / "train.log"
    writer = os.open(log, APPENDING)
    os.write(writer, lines(0, 5))
    job.look()
    rotate(log, 1)
    os.write(writer, lines(5, 9))
    append(log, lines(100, 104))
    job.tick()
    job.look()
    os.write(writer, lines(9, 12))
    os.close(writer)
    job.look()
    assert job.named() == {"train.log.1": lines(0, 12), "train.log": lines(100, 104)}
    assert job.collector.tally.rotations == 1


def test_generations_that_move_while_nobody_looks_keep_their_streams(job):
    log = job.logs / "train.log"
    for part in range(4):
        append(log, lines(part * 10, part * 10 + 10))
        job.look()
        rotate(log, 3)
    append(log, lines(40, 50))
    job.close()
    append(job.logs / "train.log.1", b"a last word\n")
    rotate(log, 5)
    job.start()
    job.settle()
    expected = {f"train.log.{5 - part}": lines(part * 10, part * 10 + 10) for part in range(5)}
    expected["train.log.2"] += b"a last word\n"
    assert job.named() == expected


def test_a_file_that_is_removed_is_read_to_its_end_while_its_writer_goes_on(job):
    log = job.logs / "train.log"
    writer = os.open(log, APPENDING)
    os.write(writer, lines(0, 5))
    job.look()
    log.unlink()
    os.write(writer, lines(5, 9))
    job.look()
    os.write(writer, lines(9, 10))
    job.look(5)
    assert job.contents() == [lines(0, 10)]
    os.close(writer)
    job.settle()
    assert (job.contents(), job.collector.open_files, list(job.collector.tails)) == ([lines(0, 10)], 0, [])
    assert job.collector.tally.unread_bytes == 0


def test_what_was_removed_before_it_was_read_is_counted(start):
    job = start(descriptors=1)
    for number in range(2):
        append(job.logs / f"{number}.log", lines(0, 1))
    job.look()
    append(job.logs / "0.log", lines(1, 5))
    append(job.logs / "1.log", lines(1, 5))
    job.collector.scan(job.now)
    for number in range(2):
        (job.logs / f"{number}.log").unlink()
    job.look()
    stored = sum(map(len, job.contents()))
    assert stored + job.collector.tally.unread_bytes == 2 * len(lines(0, 5))
    assert job.collector.tally.unread_bytes > 0
