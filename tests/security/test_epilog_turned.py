"""The process that reads belongs to the job's user, who can do to it what he likes: it holds nothing up."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from epilog_runs import COMMAND, FAULT, IS_ROOT, NO_ACCOUNT, Node, as_user

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="attacks on a program that runs as root: needs root")

UID = NO_ACCOUNT + 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""A user of each test process's own: what one does to its readers must not strike another's."""


def readers(uid):
    """The processes of the epilog that have become a user."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == uid and b"slurm-epilog" in (path / "cmdline").read_bytes():
                yield int(path.name)


class TestAReaderThatIsTurned:
    @pytest.mark.parametrize("what", [signal.SIGSTOP, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGALRM])
    def test_the_user_may_stop_or_kill_the_reader(self, what):
        node = Node(UID)
        try:
            node.config("time_limit_s = 4")
            node.write("slurm-123.out", "0: step 1\n" * 3_000_000 + FAULT)
            for _ in range(10):  # on a busy machine the reader may be done before it is seen
                running = subprocess.Popen(
                    [*COMMAND, "--config", str(node.config_file)], env=node.environment(), stderr=subprocess.PIPE
                )
                began = time.monotonic()
                found = []
                while not found and running.poll() is None:
                    found = list(readers(UID))
                    for pid in found:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, what)
                said = running.communicate(timeout=20)[1].decode()
                if found:
                    break
            assert running.returncode == 0
            assert time.monotonic() - began < 8
            assert found
            assert "not judged: " in said
            deadline = time.monotonic() + 5
            while list(readers(UID)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not list(readers(UID))
        finally:
            node.remove()

    def test_the_user_cannot_look_into_the_reader(self):
        node = Node(UID)
        try:
            node.write("slurm-123.out", "0: step 1\n" * 3_000_000 + FAULT)
            running = subprocess.Popen([*COMMAND, "--config", str(node.config_file)], env=node.environment(), stderr=-3)
            found = []
            while not found and running.poll() is None:
                found = list(readers(UID))
            look = as_user(lambda: Path(f"/proc/{found[0]}/environ").read_bytes() and os.kill(os.getpid(), 9), UID)
            assert os.waitpid(look, 0)[1] == 0
            assert running.wait(30) == 0
        finally:
            node.remove()

    def test_no_memory_left_is_said(self, node):
        node.config("memory_mb = 256")
        node.write("123/rank_1.log", FAULT)
        dump = node.write(
            "123/error.json", '{"message": {"message": "x", "extraInfo": {"py_callstack": "' + "x" * 10_000
        )
        os.truncate(dump, 250 << 20)
        ended = node.epilog()
        assert ended.code == 0
        assert "not judged: out of memory; the limit is memory_mb = 256" in ended.said

    def test_too_little_time_is_said(self, node):
        node.config("time_limit_s = 1")
        node.write("slurm-123.out", FAULT * 300_000)
        ended = node.epilog()
        assert ended.code == 0
        assert ended.seconds < 5
        assert "took longer" in ended.said or "gave up" in ended.said
