"""Child processes that are given up in time: one that hangs never holds its parent up."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import syslog
import time
from typing import TYPE_CHECKING

from aggregator.errors import DenpexError
from aggregator.slurm.log import say, warn

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_S = 0.05
_LAST_WORD_S = 1.0


def ends_in_time(work: Callable[[], object], seconds: float) -> bool:
    """Does something in a process of its own; False if that did not end in time and was killed."""
    deadline = time.monotonic() + seconds
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except DenpexError as error:
            warn(f"{error.where}: {error.what}")
        except BaseException as error:  # noqa: BLE001 - the process's border
            say(f"this is a bug: {type(error).__name__}: {error}", syslog.LOG_ERR)
        finally:
            os._exit(0)
    has_ended = False
    try:
        has_ended = _wait(pid, deadline)
    finally:
        if not has_ended:
            kill(pid)
    return has_ended


def kill(pid: int) -> None:
    """Ends a child that was not waited for, and its group, if it has one.

    What the kernel holds in a call that hangs is left behind.
    """
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        _wait(pid, time.monotonic() + _LAST_WORD_S)


def _wait(pid: int, deadline: float) -> bool:
    pause_s = 0.001
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _POLL_S)
    return True


def next_line(channel: socket.socket, data: bytearray, deadline: float, limit: int) -> bytes:
    """The next line that a child sends, without its end; `data` keeps what came after it.

    Raises:
        TimeoutError: it does not come in time.
        EOFError: the child has ended.
        ValueError: it is longer than `limit`.
    """
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if len(data) > limit:
            raise ValueError("too long")
        channel.settimeout(left)
        piece = channel.recv(1 << 16)
        if not piece:
            raise EOFError
        data += piece
    line, _, rest = bytes(data).partition(b"\n")
    data[:] = rest
    return line
