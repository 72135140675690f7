"""File systems that fail for a while, give less than there is, or tell old sizes: nothing is lost or doubled."""

import errno
import os
import random
from pathlib import Path

import pytest
from followed import append, lines

from aggregator.collect.collector import DOUBT
from aggregator.collect.files import OsFiles


class FaultyFiles(OsFiles):
    """Fails in `rate` of all calls, with one of `errors` or with a short read; nobody tells generations."""

    def __init__(self, seed=0, errors=(errno.EIO,), rate=0.0, short=0.0):
        self.random, self.errors, self.rate, self.short = random.Random(seed), errors, rate, short
        self.stale = {}
        """By name, the size that is told at most, as by an attribute cache."""
        self.names = {}

    def open(self, path):
        self._fail()
        descriptor = super().open(path)
        self.names[descriptor] = Path(path).name
        return descriptor

    def read(self, descriptor, size, offset):
        self._fail()
        size = min(size, max(self.stale.get(self.names[descriptor], 1 << 60) - offset, 0))
        data = super().read(descriptor, size, offset)
        return data[: self.random.randint(0, len(data))] if self.random.random() < self.short else data

    def status(self, descriptor):
        self._fail()
        found = super().status(descriptor)
        size = min(found.st_size, self.stale.get(self.names[descriptor], 1 << 60))
        return os.stat_result((*found[:6], size, *found[7:]))

    def generation(self, descriptor):
        return None

    def _fail(self):
        if self.random.random() < self.rate:
            number = self.random.choice(self.errors)
            raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("descriptors", [1, 1024])
@pytest.mark.parametrize(
    ("errors", "rate", "short"),
    [((errno.EIO, errno.ESTALE), 0.3, 0.0), ((errno.EIO,), 0.0, 0.5), ((errno.ESTALE, errno.EINTR), 0.2, 0.3)],
)
def test_faults_and_short_reads_lose_and_double_nothing(start, seed, descriptors, errors, rate, short):
    files = FaultyFiles(seed, errors, rate, short)
    job = start(files=files, descriptors=descriptors, remote=True)
    logs = [job.logs / f"rank{number}.log" for number in range(3)]
    for turn in range(12):
        for log in logs:
            append(log, lines(turn * 5, turn * 5 + 5, size=90))
        if turn == 6:
            logs[0].rename(job.logs / "rank0.log.1")
        job.look()
        job.tick(3)
    files.rate = files.short = 0.0
    for _ in range(4):
        job.settle()
    whole = lines(0, 60, size=90)
    assert job.named() == {
        "rank0.log.1": lines(0, 35, size=90),
        "rank0.log": lines(35, 60, size=90),
        "rank1.log": whole,
        "rank2.log": whole,
    }
    assert len(job.contents()) == 4
    assert job.collector.tally.truncations == 0
    assert job.collector.tally.faults > 0 or not rate


def test_a_fault_is_tried_again_after_ever_longer_waits(start):
    files = FaultyFiles(errors=(errno.EIO,), rate=1.0)
    job = start(files=files)
    append(job.logs / "rank0.log", lines(0, 1))
    job.look()
    for _ in range(400):
        job.tick(0.25)
    assert 8 <= job.collector.tally.faults <= 14
    assert not job.collector.busy
    files.rate = 0.0
    job.settle()
    job.settle()
    assert job.contents() == [lines(0, 1)]


@pytest.mark.parametrize("descriptors", [1, 1024])
def test_an_old_size_is_not_taken_for_a_cut(start, descriptors):
    files = FaultyFiles()
    job = start(files=files, descriptors=descriptors, remote=True)
    for name in ("rank0.log", "rank1.log"):
        append(job.logs / name, lines(0, 50))
    job.look()
    for _ in range(5):
        append(job.logs / "rank0.log", lines(50, 60))
        files.stale["rank0.log"] = len(lines(0, 40))
        job.tick(0.5)
        job.tick(DOUBT - 0.6)
        files.stale.clear()
        job.tick(3.0)
    assert job.named()["rank0.log"] == lines(0, 50) + lines(50, 60) * 5
    assert job.collector.tally.truncations == 0


def test_a_cut_on_a_remote_file_system_is_believed_when_it_lasts(start):
    job = start(files=FaultyFiles(), remote=True)
    append(job.logs / "rank0.log", lines(0, 50))
    job.look()
    os.truncate(job.logs / "rank0.log", 0)
    append(job.logs / "rank0.log", lines(90, 95))
    job.settle()
    assert job.contents() == [lines(0, 50), lines(90, 95)]
    assert job.collector.tally.truncations == 1


def test_a_file_that_went_stale_is_opened_anew_at_its_position(start):
    """As NFS answers for a descriptor whose file was replaced on the server."""
    files = FaultyFiles(errors=(errno.ESTALE,))
    job = start(files=files, remote=True)
    append(job.logs / "rank0.log", lines(0, 50))
    job.look()
    append(job.logs / "rank0.log", lines(50, 60))
    files.rate = 1.0
    job.tick()
    assert job.collector.wants_scan
    files.rate = 0.0
    job.settle()
    assert job.contents() == [lines(0, 60)]


def test_logs_of_a_file_system_that_was_mounted_anew_go_on(start, monkeypatch):
    """Its number is another one, those of its files are not."""
    job = start()
    append(job.logs / "rank0.log", lines(0, 3))
    job.look()
    job.close()
    lstat, fstat = os.lstat, os.fstat

    def moved(found):
        return os.stat_result((*found[:2], found.st_dev + 7, *found[3:]))

    job.start()
    monkeypatch.setattr("aggregator.collect.folder.os.lstat", lambda path: moved(lstat(path)))
    monkeypatch.setattr(job.collector._files, "status", lambda descriptor: moved(fstat(descriptor)), raising=False)
    append(job.logs / "rank0.log", lines(3, 5))
    job.settle()
    assert job.contents() == [lines(0, 5)]
