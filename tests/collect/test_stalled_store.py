"""The disk of the store is full: reading goes on to a bound, then waits, and nothing is lost."""

import errno
import os

import pytest
from followed import append, lines

from aggregator.collect.collector import BACKLOG, GLANCE, TURN
from aggregator.store import StoreStalled


@pytest.fixture
def disk(monkeypatch):
    """Set `full` to fill it."""

    class Disk:
        full = False

    pwrite = os.pwrite

    def write(descriptor, data, offset):
        if Disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", write)
    return Disk


def test_reading_stops_at_the_bound_and_goes_on_when_there_is_room(job, disk, monkeypatch):
    bound = 1 << 20
    monkeypatch.setattr("aggregator.collect.collector.BACKLOG", bound)
    logs = [job.logs / f"rank{number}.log" for number in range(3)]
    data = lines(0, 20_000, size=50)
    for log in logs:
        append(log, data)
    disk.full = True
    job.now += 1
    job.collector.scan(job.now)
    for _ in range(20):
        job.collector.poll(job.now)
        with pytest.raises(StoreStalled):
            job.store.flush()
        job.now += 1
    assert bound <= job.store.backlog <= bound + 3 * (TURN + GLANCE)
    assert not job.collector.busy, "whoever asks again at once would ask for nothing"
    disk.full = False
    job.store.flush()
    assert job.collector.busy
    job.look()
    job.restart()
    assert job.contents() == [data] * 3


def test_files_that_are_renamed_and_removed_while_the_store_stalls_are_kept(job, disk):
    log, other = job.logs / "train.log", job.logs / "other.log"
    append(log, lines(0, 5))
    append(other, lines(0, 5))
    job.look()
    disk.full = True
    append(log, lines(5, 9))
    append(other, lines(5, 9))
    with pytest.raises(StoreStalled):
        job.look()
    log.rename(job.logs / "train.log.1")
    other.unlink()
    append(log, lines(20, 25))
    with pytest.raises(StoreStalled):
        job.look()
    disk.full = False
    job.settle()
    assert job.named() == {"train.log.1": lines(0, 9), "train.log": lines(20, 25)}
    assert job.contents() == sorted([lines(0, 9), lines(0, 9), lines(20, 25)])


def test_what_was_not_written_when_the_watch_was_killed_is_read_again(job, disk):
    append(job.logs / "train.log", lines(0, 5))
    job.look()
    append(job.logs / "train.log", lines(5, 9))
    disk.full = True
    with pytest.raises(StoreStalled):
        job.look()
    with pytest.raises(StoreStalled):
        job.close()
    disk.full = False
    job.start()
    assert job.contents() == [lines(0, 5)]
    job.look()
    assert job.contents() == [lines(0, 9)]


def test_the_bound_is_above_what_one_call_reads():
    assert BACKLOG >= 2 * TURN
