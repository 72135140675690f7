"""Gives jobs to children that read them: so many at once, and none for longer than it may take."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict

from aggregator.serve.task import BUG, BUSY, TIME_OUT, Answer, Task

AT_ONCE = 4
TIME_S = 60.0
"""Seconds that one job may take."""
_LAST_WORD_S = 1.0


class Judges:
    """At most `most` children at once; each gets `time_s` seconds."""

    def __init__(self, most: int = AT_ONCE, time_s: float = TIME_S) -> None:
        self._time_s = time_s
        self._free = threading.BoundedSemaphore(most)
        self._children = set[subprocess.Popen[bytes]]()

    def folder(self, path: str) -> Answer:
        """What a job's folder shows."""
        return self._judge(Task(self._time_s, path=path))

    def upload(self, name: str, data: bytes, changed_s: float | None) -> Answer:
        """What an upload shows; see `discover_upload`."""
        return self._judge(Task(self._time_s, name=name, changed_s=changed_s), data)

    def close(self) -> None:
        """Ends all children."""
        for child in tuple(self._children):
            _end(child)

    def _judge(self, task: Task, data: bytes = b"") -> Answer:
        if not self._free.acquire(timeout=self._time_s):
            return Answer(BUSY, "other jobs are being read", "try again")
        try:
            return self._asked(task, data)
        finally:
            self._free.release()

    def _asked(self, task: Task, data: bytes) -> Answer:
        # What lies in the working folder is not imported (-P), what is imported leaves no file (-B). In a session of
        # its own: Ctrl-C is for us.
        command = [sys.executable, "-P", "-B", "-m", "aggregator.serve.reader"]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._children.add(child)
        try:
            told, _ = child.communicate(json.dumps(asdict(task)).encode() + b"\n" + data, timeout=self._time_s)
            return Answer(**json.loads(told))
        except subprocess.TimeoutExpired:
            help_text = "run denpex-agg postmortem on it, which takes the time that it needs"
            return Answer(TIME_OUT, f"reading it took longer than {self._time_s:g} s", help_text)
        except ValueError:  # it was killed
            return Answer(BUG, f"the process that read it ended early (code {child.returncode})", "try again")
        finally:
            self._children.discard(child)
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """What the kernel holds in a call that hangs is left behind."""
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WORD_S)
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(OSError):  # what it did not read
                stream.close()
