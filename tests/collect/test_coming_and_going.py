"""Files that appear late, vanish, cannot be read, or become something else."""

import errno
import os

import pytest
from followed import append, lines

from aggregator.collect.collector import Collector
from aggregator.collect.files import OsFiles
from aggregator.collect.folder import Folder
from aggregator.store import Store


def test_a_folder_that_does_not_exist_yet_is_followed_once_it_does(tmp_path):
    with Store(tmp_path / "state") as store:
        collector = Collector(Folder([str(tmp_path / "logs" / "job-7")]), store)
        assert not collector.scan(0.0)
        assert collector.poll(0.0) == []
        (tmp_path / "logs" / "job-7").mkdir(parents=True)
        append(tmp_path / "logs" / "job-7" / "rank0.log", lines(0, 1))
        assert collector.scan(1.0)
        assert collector.poll(1.0) == [(0, lines(0, 1))]
        collector.close()


def test_patterns_are_expanded_at_each_listing(tmp_path):
    append(tmp_path / "a-0.log", lines(0, 1))
    append(tmp_path / "b-0.log", lines(0, 1))
    with Store(tmp_path / "state") as store:
        collector = Collector(Folder([str(tmp_path / "a-*.log")]), store)
        collector.scan(0.0)
        assert len(collector.poll(0.0)) == 1
        append(tmp_path / "a-1.log", lines(5, 6))
        collector.scan(1.0)
        assert collector.poll(1.0) == [(1, lines(5, 6))]
        collector.close()


def test_files_that_come_late_and_deep_are_read_from_their_first_byte(job):
    job.look()
    for number in range(5):
        folder = job.logs / f"attempt_{number}" / str(number)
        folder.mkdir(parents=True)
        append(folder / "stderr.log", lines(number, number + 2))
        job.look()
    assert job.contents() == [lines(number, number + 2) for number in range(5)]


def test_a_file_that_comes_back_goes_on_with_its_stream(job, tmp_path):
    log = job.logs / "rank0.log"
    append(log, lines(0, 5))
    job.look()
    log.rename(tmp_path / "elsewhere")
    job.settle()
    assert job.named() == {}
    append(tmp_path / "elsewhere", lines(5, 7))
    (tmp_path / "elsewhere").rename(log)
    job.settle()
    assert job.named() == {"rank0.log": lines(0, 7)}
    assert len(job.contents()) == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_that_may_not_be_read_is_tried_again(start, number):
    class Files(OsFiles):
        locked = True

        def open(self, path):
            if self.locked and path.endswith("rank1.log"):
                raise OSError(number, os.strerror(number))
            return super().open(path)

    files = Files()
    job = start(files=files)
    for name in ("rank0.log", "rank1.log"):
        append(job.logs / name, lines(0, 5))
    job.look()
    assert job.named() == {"rank0.log": lines(0, 5)}
    assert job.skipped() == {"rank1.log": os.strerror(number)}
    files.locked = False
    job.settle()
    job.settle()
    assert job.named() == {"rank0.log": lines(0, 5), "rank1.log": lines(0, 5)}
    assert job.skipped() == {}


def folder(path):
    path.mkdir()
    append(path / "inner.log", lines(50, 55))


def fifo(path):
    os.mkfifo(path)


def link_outwards(path):
    outside = path.parent.parent / "secret.log"
    append(outside, b"nobody asked for this\n")
    path.symlink_to(outside)


def link_to_itself(path):
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [folder, fifo, link_outwards, link_to_itself])
@pytest.mark.parametrize("descriptors", [1, 1024])
@pytest.mark.parametrize("listed", [False, True])
def test_a_log_whose_name_something_else_takes_ends_and_is_not_mistaken_for_it(start, make, descriptors, listed):
    job = start(descriptors=descriptors)
    for name in ("rank0.log", "rank1.log"):
        append(job.logs / name, lines(0, 5))
    job.look()
    (job.logs / "rank0.log").unlink()
    make(job.logs / "rank0.log")
    append(job.logs / "rank1.log", lines(5, 6))
    job.look() if listed else job.tick()
    job.settle()
    inner = {"rank0.log/inner.log": lines(50, 55)} if make is folder else {}
    assert job.named() == {"rank1.log": lines(0, 6)} | inner
    assert len(job.contents()) == 2 + len(inner)
    (job.logs / "rank0.log").rename(job.logs.parent / "away")
    append(job.logs / "rank0.log", lines(7, 9))
    job.settle()
    assert job.named()["rank0.log"] == lines(7, 9)


def test_a_name_that_becomes_a_link_between_listing_and_opening_is_not_followed(job):
    append(job.logs / "rank0.log", lines(0, 5))
    job.collector.scan(job.now)
    (job.logs / "rank0.log").unlink()
    link_outwards(job.logs / "rank0.log")
    job.tick()
    assert job.contents() == []
    assert job.collector.wants_scan


def test_two_names_of_one_file_are_one_content(job):
    log = job.logs / "rank0.log"
    append(log, lines(0, 5))
    os.link(log, job.logs / "hard.log")
    (job.logs / "soft.log").symlink_to("rank0.log")
    job.look()
    append(log, lines(5, 9))
    job.look()
    assert job.contents() == [lines(0, 9)]
    (job.logs / "hard.log").unlink()
    append(log, lines(9, 10))
    job.settle()
    assert job.named() == {"rank0.log": lines(0, 10)}
    assert len(job.contents()) == 1


def test_a_link_within_the_job_is_followed_when_its_target_is_not_listed_by_itself(job):
    (job.logs / ".hidden").mkdir()
    append(job.logs / ".hidden" / "x.log", lines(0, 5))
    (job.logs / "rank0.log").symlink_to(".hidden/x.log")
    job.look()
    assert job.named() == {"rank0.log": lines(0, 5)}


def test_many_files_that_vanish_at_once_are_forgotten(job):
    for number in range(300):
        append(job.logs / f"rank{number}.log", lines(number, number + 1))
    job.look()
    for path in job.logs.iterdir():
        path.unlink()
    job.settle()
    assert (job.collector.open_files, list(job.collector.tails)) == (0, [])
    assert len(job.contents()) == 300
