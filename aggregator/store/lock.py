"""One writer a store: a lock that the kernel gives up with its process, else the owner that the lock file names."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aggregator.errors import OutputError
from aggregator.store.files import open_private

if TYPE_CHECKING:
    from pathlib import Path

_NO_FLOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_TOUCH_S = 10
_STALE_S = 60
"""An owner on another host that has not touched the file for so long is taken for dead."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who holds the lock. `started` is when it was taken: UTC, ISO 8601."""

    pid: int
    host: str
    started: str


class Lock:
    """The lock of a store's folder, held until `release`.

    Raises:
        OutputError: another process holds it.
        OSError: the lock file cannot be opened or written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._descriptor = open_private(self._path, os.O_RDWR | os.O_CREAT)
        self._touched = time.monotonic()
        try:
            self._take()
        except BaseException:
            os.close(self._descriptor)
            raise

    def touch(self) -> None:
        """Show writers on other hosts, where the kernel cannot, that the owner is alive; at most every 10 s."""
        if time.monotonic() - self._touched >= _TOUCH_S:
            self._touched = time.monotonic()
            with suppress(OSError):  # what matters to the store fails elsewhere too
                os.utime(self._descriptor)

    def release(self) -> None:
        """Let the next writer in."""
        with suppress(OSError):  # only tells the next one sooner
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _take(self) -> None:
        owner = _owner_of(self._descriptor)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(owner) from None
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            if owner is not None and _is_alive(owner, self._descriptor):
                raise self._refusal(owner) from None
        me = _Owner(os.getpid(), os.uname().nodename, datetime.now(UTC).isoformat(timespec="seconds"))
        text = json.dumps(asdict(me)).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))

    def _refusal(self, owner: _Owner | None) -> OutputError:
        who = f"process {owner.pid} on {owner.host}, since {owner.started}" if owner else "it does not say which"
        return OutputError(
            f"another process writes this store: {who}",
            where=str(self._path),
            help="end it first, or use another state folder",
        )


def is_held(folder: Path) -> bool:
    """Whether somebody writes the store of this folder, as far as its lock file tells: the lock is not touched."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        owner = _owner_of(descriptor)
        return owner is not None and _is_alive(owner, descriptor)
    finally:
        os.close(descriptor)


def _owner_of(descriptor: int) -> _Owner | None:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return _Owner(int(found["pid"]), str(found["host"]), str(found["started"]))
    except (ValueError, TypeError, KeyError):  # released, or torn while it was written
        return None


def _is_alive(owner: _Owner, descriptor: int) -> bool:
    if owner.host != os.uname().nodename:
        return time.time() - os.fstat(descriptor).st_mtime <= _STALE_S
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's process
        return True
    return True
