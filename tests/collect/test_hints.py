"""What tells of new files, and that nothing depends on it."""

import errno
import logging
import os
import queue

import pytest
from followed import append, lines

from aggregator.collect.folder import Hints, is_remote

observers = pytest.importorskip("watchdog.observers")


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def hints(warnings):
    made = Hints(warnings.append)
    yield made
    made.stop()


def wait_for(hints):
    """Waits for the kernel, not for a clock: at most some seconds, and normally none."""
    told = hints._changed.wait(10)
    hints.taken()
    return told


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_without_room_for_watches_one_warning_says_that_regular_looks_must_do(
    job, hints, warnings, monkeypatch, number
):
    def refuse(self):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(observers.Observer, "start", refuse)
    assert not hints.start(job.logs)
    assert not hints.taken()
    assert len(warnings) == 1
    assert os.strerror(number) in warnings[0]
    append(job.logs / "rank0.log", lines(0, 1))
    job.look()
    assert job.contents() == [lines(0, 1)]


def test_a_new_file_or_folder_is_hinted_at_and_a_written_one_is_not(job, hints, warnings):
    assert hints.start(job.logs)
    assert not hints.taken()
    log = job.logs / "rank0.log"
    append(log, lines(0, 1))
    assert wait_for(hints)
    job.look()
    for change in (
        lambda: log.rename(job.logs / "rank0.log.1"),
        (job.logs / "node-b").mkdir,
        (job.logs / "node-b" / "rank1.log").touch,
        (job.logs / "rank0.log.1").unlink,
    ):
        change()
        assert wait_for(hints)
    assert warnings == []


def test_events_that_the_kernel_dropped_are_a_hint_as_well(job, hints):
    assert hints.start(job.logs)
    assert not hints.taken()
    logging.getLogger("watchdog.observers.inotify_c").warning("inotify queue overflow")
    assert hints.taken()
    assert not hints.taken()


def test_the_watch_ends_its_threads(job, hints):
    assert hints.start(job.logs)
    observer = hints._observer
    hints.stop()
    assert not observer.is_alive()
    with pytest.raises(queue.Empty):
        observer.event_queue.get_nowait()


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /scratch rw,noatime shared:9 - lustre 10.0.0.1@o2ib:/scratch rw,flock
31 22 0:41 / /home rw - nfs4 server:/home rw,vers=4.2
32 31 0:42 / /home/local rw - xfs /dev/sdb1 rw
33 22 0:43 / /with\\040space rw - cifs //server/share rw
34 22 0:44 / /sshfs rw - fuse.sshfs user@host: rw
35 22 0:45 / /home2 rw - tmpfs tmpfs rw
36 22 0:46 / /over rw - ext4 /dev/sdc rw
37 22 0:47 / /over rw - beegfs beegfs_nodev rw
a line that is no mount
"""


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/var/log", False), ("/scratch", True), ("/scratch/job/logs", True), ("/scratch2/job", False),
        ("/home/user/job", True), ("/home/local/job", False), ("/with space/job", True), ("/sshfs/job", True),
        ("/home2/user", False), ("/over/job", True),
    ],
)  # fmt: skip
def test_the_innermost_mount_tells_whether_other_machines_write(tmp_path, path, remote):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert is_remote(path, mounts) == remote


def test_where_mounts_cannot_be_told_the_folder_counts_as_local(tmp_path):
    assert not is_remote(tmp_path, tmp_path / "missing")
