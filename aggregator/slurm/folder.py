"""A folder that is written to with root's rights, or a user's: held by its descriptor, so that nobody can swap it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from aggregator.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KEPT = 9
_LOCK_S = 2.0
_LOCK_STEP_S = 0.02


class Folder:
    """Close it, or use it in a `with`. All names are of files right in it, and no link is ever followed."""

    def __init__(self, path: str, *, trusted: bool) -> None:
        """Open the folder `path`; a `trusted` one must be such that only root or this user can change what is in it.

        Raises:
            OutputError: it is missing, is no folder, or must not be trusted.
        """
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if trusted else 0))
            if trusted:
                self._refuse_if_others_write(path)
        except OSError as error:
            raise OutputError(f"cannot write there: {error.strerror or error}", where=path) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    def _refuse_if_others_write(self, path: str) -> None:
        reason = _distrust(os.fstat(self._fd), sticky_will_do=False)
        for above in Path(os.path.realpath(path)).parents:
            reason = reason or _distrust(above.stat(), sticky_will_do=True)
        if reason is not None:
            self.close()
            raise OutputError(f"the folder is not used: {reason}", where=path, help="it must be root's, chmod go-w")

    def keep(self, stem: str, suffix: str) -> None:
        """Makes room for `stem + suffix`: what has that name (of an earlier run) is called `stem.1` and so on.

        Of more than nine, the last is replaced.
        """
        name = stem + suffix
        with contextlib.suppress(OSError):
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            taken = set(self.names())
            number = next((n for n in range(1, _KEPT) if f"{stem}.{n}{suffix}" not in taken), _KEPT)
            os.rename(name, f"{stem}.{number}{suffix}", src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def names(self) -> list[str]:
        """What is in the folder; nothing if it cannot be read."""
        try:
            with os.scandir(self._fd) as entries:
                return [entry.name for entry in entries]
        except OSError:
            return []

    def write(self, name: str, text: str, mode: int, *, group_of_folder: bool = False) -> None:
        """A file of this content takes the place of whatever has the name; it appears whole or not at all.

        Raises:
            OutputError: the disk is full, read-only, not ours, or the name is a folder's.
        """
        temporary = f".{name[:100]}.{os.urandom(8).hex()}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=self._fd)
            try:
                with open(fd, "w", encoding="utf-8", errors="replace") as out:  # noqa: PTH123 - a descriptor
                    if group_of_folder:
                        os.fchown(fd, -1, os.fstat(self._fd).st_gid)
                    os.fchmod(fd, mode)
                    out.write(text)
                    out.flush()
                    os.fsync(fd)
                os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except BaseException:
                self._remove(temporary)
                raise
        except OSError as error:
            raise OutputError(f"cannot write {name}: {error.strerror}", where=self._path) from None

    def read(self, name: str, limit: int, *, not_before: float = 0.0) -> str | None:
        """The text of a file of ours; None if there is none, or it is older (seconds since the epoch), or not ours."""
        try:
            fd = os.open(name, os.O_RDONLY | _OPEN, dir_fd=self._fd)
        except OSError:
            return None
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            status = os.fstat(fd)
            ours = stat.S_ISREG(status.st_mode) and status.st_uid in {0, os.geteuid()}
            return file.read(limit).decode("utf-8", "replace") if ours and status.st_mtime >= not_before else None

    def has(self, name: str, not_before: float) -> bool:
        """Whether a file of the name is there that was written since (seconds since the epoch)."""
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime >= not_before
        except OSError:
            return False

    def take(self, name: str, not_before: float) -> bool:
        """Make an empty file, unless there is one that was written since (seconds since the epoch).

        Of several machines that do this at once, one succeeds: what a file server's clients remember does not count.
        """
        for _ in range(2):
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=self._fd))
            except OSError:
                if self.has(name, not_before):
                    return False
                self._remove(name)
            else:
                return True
        return False

    def sweep(self, suffix: str, before: float) -> None:
        """Remove files whose names end so and that are older (seconds since the epoch)."""
        for name in self.names():
            if name.endswith(suffix) and not self.has(name, before):
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)

    def append(self, name: str, line: str, mode: int, known: str) -> None:
        """Add a line to a file, made if missing, unless one begins with the word `known`. Several may do so at once.

        Raises:
            OutputError: it cannot be written or locked, or is no file of ours.
        """
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | _OPEN, mode, dir_fd=self._fd)
            with open(fd, "r+b") as file:  # noqa: PTH123 - a descriptor, not a path
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_uid not in {0, os.geteuid()} or status.st_nlink != 1:
                    raise OutputError(f"{name} is no file of ours", where=self._path)
                _lock(fd)
                words = {
                    told.split()[0] for told in file.read().decode("utf-8", "replace").splitlines() if told.split()
                }
                if known not in words:
                    os.fchmod(fd, mode)
                    file.write(line.encode() + b"\n")
        except OSError as error:
            raise OutputError(f"cannot write {name}: {error.strerror}", where=self._path) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else is in this block for this folder. A folder of this machine only.

        Raises:
            OutputError: somebody holds it for too long.
        """
        try:
            _lock(self._fd)
        except OSError as error:
            raise OutputError(f"cannot lock: {error.strerror}", where=self._path) from None
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def _distrust(status: os.stat_result, *, sticky_will_do: bool) -> str | None:
    if status.st_uid not in {0, os.geteuid()}:
        return "it, or a folder above it, belongs to another user"
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return (
        "others can write it, or a folder above it"
        if others and not (sticky_will_do and status.st_mode & stat.S_ISVTX)
        else None
    )


def _lock(fd: int) -> None:
    """Raises OSError if somebody else does not let go in time: a lock that is waited for would have no end."""
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_STEP_S)
        else:
            return
