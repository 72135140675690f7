"""A file may have the name, the inode and the first line of one that was removed, and yet be another."""

from dataclasses import replace

import pytest
from followed import append, lines

BANNER = b"torch 2.9.0 | world size 4 | starting ...\n"


def recreate(path, data):
    """Removes a file and makes another one, with the same inode if the file system does that at all."""
    inode = path.stat().st_ino
    path.unlink()
    append(path, data)
    if path.stat().st_ino != inode:
        pytest.skip("this file system does not use an inode again at once")


@pytest.mark.parametrize("descriptors", [1, 1024])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("first", [b"", BANNER, BANNER * 50])
@pytest.mark.parametrize("more", [1, 5, 50])
def test_a_file_that_is_removed_and_made_anew_is_stored_from_its_first_byte(start, descriptors, down, first, more):
    """Shorter than what was known, as long, longer; with the same first lines."""
    job = start(descriptors=descriptors)
    log, other = job.logs / "train.log", job.logs / "other.log"
    append(log, first + lines(0, 5))
    append(other, lines(0, 1))
    job.look()
    if descriptors == 1:
        append(other, lines(1, 2))
        job.tick()
    job.close()
    if not down:
        job.start()
        job.collector.scan(job.now)
    recreate(log, first + lines(100, 100 + more))
    if down:
        job.start()
    job.settle()
    assert [data for data in job.contents() if data.startswith((first + b"[rank0] step 0", first + b"[rank0] step 1"))]
    expected = {first + lines(0, 5), first + lines(100, 100 + more)}
    assert expected <= set(job.contents())
    assert len(job.contents()) == 3


def test_the_inode_of_a_removed_log_may_come_back_under_another_name(start):
    job = start(descriptors=1)
    for name in ("a.log", "b.log"):
        append(job.logs / name, BANNER + lines(0, 5) + name.encode())
    job.look()
    inode = (job.logs / "a.log").stat().st_ino
    (job.logs / "a.log").unlink()
    append(job.logs / "c.log", BANNER + lines(7, 30))
    if (job.logs / "c.log").stat().st_ino != inode:
        pytest.skip("this file system does not use an inode again at once")
    job.settle()
    assert job.named() == {"b.log": BANNER + lines(0, 5) + b"b.log", "c.log": BANNER + lines(7, 30)}
    assert len(job.contents()) == 3


def test_of_two_contents_that_had_one_inode_the_one_that_was_there_goes_on_after_a_restart(job):
    """The older one has the higher number: it was met later, in another file."""
    append(job.logs / "train.log", lines(0, 9))
    job.look()
    append(job.logs / "gone.log", lines(50, 59))
    job.look()
    meta = job.store.streams[0].meta
    job.store.change(1, replace(job.store.streams[1].meta, device=meta.device, inode=meta.inode, ended="removed"))
    (job.logs / "gone.log").unlink()
    job.restart()
    append(job.logs / "train.log", lines(9, 12))
    job.settle()
    assert job.contents() == [lines(0, 12), lines(50, 59)]
