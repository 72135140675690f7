"""Files that are cut: what is in them afterwards is another content, from its first byte on."""

import os
import shutil

import pytest
from followed import APPENDING, append, lines

FIRST_LINE = b"torch 2.9.0 | world size 4\n"
BANNER = FIRST_LINE * 60
"""Longer than the beginning by which contents are told apart."""


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("banner", [b"", FIRST_LINE, BANNER])
@pytest.mark.parametrize("size", [0, 1, 20, 40, 41, 400])
def test_what_is_written_after_a_cut_is_stored_from_the_first_byte(job, down, banner, size):
    """Less than before, as much, more; with the same first lines."""
    log = job.logs / "train.log"
    append(log, banner + lines(0, 40))
    job.look()
    if down:
        job.close()
    os.truncate(log, 0)
    after = banner + lines(1000, 1000 + size)
    append(log, after)
    if down:
        job.start()
    job.settle()
    append(log, b"the end\n")
    job.settle()
    assert sorted([banner + lines(0, 40), after + b"the end\n"]) == job.contents()
    assert job.collector.tally.truncations == 1 or down


def test_a_file_that_is_cut_again_and_again_gives_a_stream_each_time(job):
    log = job.logs / "train.log"
    for part in range(20):
        append(log, lines(part * 100, part * 100 + 1 + part % 5))
        job.look()
        os.truncate(log, 0)
    job.settle()
    assert job.contents() == sorted(lines(part * 100, part * 100 + 1 + part % 5) for part in range(20))
    assert job.collector.tally.truncations == 20


def test_what_was_cut_before_it_was_read_is_counted(job):
    log = job.logs / "train.log"
    append(log, lines(0, 5))
    job.look()
    append(log, lines(5, 9))
    job.collector.scan(job.now)
    os.truncate(log, 0)
    job.look()
    assert job.contents() == [lines(0, 5)]
    assert job.collector.tally.unread_bytes == len(lines(5, 9))


def test_a_file_that_is_cut_to_a_part_goes_on_as_another_content(job):
    log = job.logs / "train.log"
    append(log, lines(0, 200))
    job.look()
    os.truncate(log, len(lines(0, 100)))
    job.settle()
    assert job.contents() == [lines(0, 200)], "there is nothing in it that is not stored"
    append(log, lines(500, 510))
    job.look()
    assert job.contents() == sorted([lines(0, 200), lines(0, 100) + lines(500, 510)])


def test_a_file_that_is_copied_over_itself_by_a_newer_version_goes_on(job):
    """As `cp` and `scp` do it in a loop: cut, then written anew; looked at in the middle."""
    log = job.logs / "train.log"
    append(log, lines(0, 200))
    job.look()
    writer = os.open(log, os.O_WRONLY | os.O_TRUNC)
    os.write(writer, lines(0, 90))
    job.look()
    os.write(writer, lines(90, 250))
    os.close(writer)
    job.look()
    job.settle()
    assert job.contents() == [lines(0, 250)]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("looked", [False, True])
def test_a_copy_made_before_the_cut_is_the_same_content(job, down, looked):
    log, part = job.logs / "train.log", job.logs / "train.log.1"
    append(log, lines(0, 10))
    job.look()
    append(log, lines(10, 20))
    if down:
        job.close()
    shutil.copyfile(log, part)
    if looked and not down:
        job.look()
    os.truncate(log, 0)
    append(log, lines(20, 25))
    if down:
        job.start()
    job.settle()
    assert job.named() == {"train.log.1": lines(0, 20), "train.log": lines(20, 25)}


def test_lines_between_copy_and_cut_that_were_seen_do_not_make_the_copy_another_content(job):
    log, part = job.logs / "train.log", job.logs / "train.log.1"
    append(log, lines(0, 100))
    job.look()
    shutil.copyfile(log, part)
    append(log, lines(100, 110))
    job.look()
    os.truncate(log, 0)
    append(log, lines(200, 210))
    job.settle()
    assert job.contents() == sorted([lines(0, 110), lines(200, 210)])
    job.restart()
    job.settle()
    assert job.contents() == sorted([lines(0, 110), lines(200, 210)])


def test_a_writer_that_does_not_append_leaves_a_hole_in_front_of_its_next_line(job):
    """After `copytruncate` it goes on at its old place; the hole costs no room in the store."""
    log = job.logs / "train.log"
    writer = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.write(writer, lines(0, 10))
    os.lseek(writer, 5 << 20, os.SEEK_SET)
    os.write(writer, lines(10, 11))
    job.look()
    before = sum(path.stat().st_size for path in job.state.iterdir())
    os.truncate(log, 0)
    os.write(writer, lines(11, 12))
    os.close(writer)
    job.settle()
    hole = bytes((5 << 20) + len(lines(10, 11)))
    assert hole + lines(11, 12) in job.contents()
    assert sum(path.stat().st_size for path in job.state.iterdir()) < before + (300 << 10)


def test_appending_goes_on_after_the_cut_of_a_file_that_is_kept_open(job):
    log = job.logs / "train.log"
    writer = os.open(log, APPENDING)
    os.write(writer, lines(0, 10))
    job.look()
    os.ftruncate(writer, 0)
    os.write(writer, lines(10, 12))
    job.tick()
    os.write(writer, lines(12, 14))
    os.close(writer)
    job.tick()
    assert job.contents() == sorted([lines(0, 10), lines(10, 14)])


@pytest.mark.parametrize("descriptors", [1, 1024])
def test_a_copy_is_that_of_the_log_with_which_it_has_most_in_common(start, descriptors):
    """Not of an earlier log that was replaced after the first words of the same banner."""
    job = start(descriptors=descriptors)
    log, fresh = job.logs / "train.log", job.logs.parent / "fresh"
    append(log, FIRST_LINE)
    job.settle()
    fresh.write_bytes(FIRST_LINE + lines(0, 3))
    fresh.rename(log)
    shutil.copy(log, job.logs / "train.log.1")
    job.look()
    os.truncate(log, 0)
    job.settle()
    assert job.contents() == [FIRST_LINE, FIRST_LINE + lines(0, 3)]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("descriptors", [1, 1024])
def test_a_quiet_log_that_is_rewritten_to_the_same_size_is_another_content(start, descriptors, listed):
    job = start(descriptors=descriptors)
    log = job.logs / "train.log"
    append(log, lines(10, 13))
    append(job.logs / "other.log", b"another\n")
    for _ in range(3):
        job.settle()
    log.write_bytes(lines(20, 23))
    if listed:
        job.collector.scan(job.now)
    job.settle()
    assert job.contents() == [lines(10, 13), lines(20, 23), b"another\n"]
