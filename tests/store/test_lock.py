"""One writer at a time; one that has died keeps nobody out."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time

import pytest
from store_samples import meta, stored

from aggregator.errors import OutputError
from aggregator.store import Store, lock

HERE = os.uname().nodename


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP])
def without_flock(monkeypatch, request):
    def refuse(descriptor, operation):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def dead_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def owned_by(folder, pid, host, age_s=0.0):
    path = folder / "lock"
    path.write_text(json.dumps({"pid": pid, "host": host, "started": "2026-03-01T08:00:00+00:00"}))
    os.utime(path, (time.time() - age_s,) * 2)


def check_refused(folder, *words):
    with pytest.raises(OutputError) as caught:
        Store(folder)
    for word in words:
        assert str(word) in caught.value.what


def test_a_second_writer_is_refused_and_told_of_the_first(tmp_path):
    with Store(tmp_path) as store:
        store.begin(meta(0))
        check_refused(tmp_path, f"process {os.getpid()} on {HERE}, since 20")
        store.flush()
        assert stored(tmp_path) == {0: (meta(0), b"")}
    Store(tmp_path).close()


def test_a_writer_in_another_process_is_refused_and_takes_over_when_the_first_is_killed(tmp_path):
    program = "import sys; from pathlib import Path; from aggregator.store import Store\n"
    program += "store = Store(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"open\n"
        check_refused(tmp_path, child.pid, HERE)
        child.kill()
    Store(tmp_path).close()


def test_what_the_lock_file_says_is_nothing_where_the_kernel_knows(tmp_path):
    owned_by(tmp_path, os.getpid(), HERE)
    Store(tmp_path).close()


def test_without_flock_a_living_owner_on_this_host_is_respected(tmp_path, without_flock):
    with Store(tmp_path):
        check_refused(tmp_path, os.getpid(), HERE)
    Store(tmp_path).close()


def test_without_flock_a_dead_owner_on_this_host_is_not(tmp_path, without_flock, dead_pid):
    owned_by(tmp_path, dead_pid, HERE)
    Store(tmp_path).close()


def test_without_flock_an_owner_elsewhere_is_dead_after_a_minute_of_silence(tmp_path, without_flock, dead_pid):
    owned_by(tmp_path, dead_pid, "gpu-17", age_s=50)
    check_refused(tmp_path, dead_pid, "gpu-17")
    owned_by(tmp_path, dead_pid, "gpu-17", age_s=70)
    Store(tmp_path).close()


def test_without_flock_a_lock_file_that_says_nothing_keeps_nobody_out(tmp_path, without_flock):
    for text in (b"", b'{"pid": 1', b"[]", b'{"pid": null, "host": "a", "started": ""}'):
        (tmp_path / "lock").write_bytes(text)
        Store(tmp_path).close()


def test_an_owner_that_belongs_to_somebody_else_is_alive(tmp_path, without_flock, monkeypatch):
    def refuse(pid, signal):
        raise PermissionError

    owned_by(tmp_path, 1, HERE)
    monkeypatch.setattr(os, "kill", refuse)
    check_refused(tmp_path, "process 1 on")


def test_other_failures_to_lock_are_errors_of_output(tmp_path, monkeypatch):
    def fail(descriptor, operation):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    check_refused(tmp_path, os.strerror(errno.EIO))


def test_the_lock_file_is_touched_by_flushes_every_ten_seconds(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(lock.time, "monotonic", lambda: now)
    with Store(tmp_path) as store:
        touched = []
        for now in (1001.0, 1009.9, 1010.0, 1015.0, 1020.1):  # noqa: B007 - the clock
            os.utime(tmp_path / "lock", (0, 0))
            store.flush()
            touched.append((tmp_path / "lock").stat().st_mtime > 0)
    assert touched == [False, False, True, False, True]
