"""The few calls by which files are followed, in one place: tests put a faulty file system under the collector here."""

from __future__ import annotations

import fcntl
import os
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from aggregator.opening import open_regular

_FS_IOC_GETVERSION = 0x8008_7601
"""Asks for an inode's generation number (linux/fs.h), which is a new one each time that the inode is used again."""


class Files(Protocol):
    """What the collector asks of the operating system; each raises OSError as the system does."""

    def open(self, path: str) -> int:
        """Descriptor of a regular file, never through a link and never blocking."""

    def look(self, path: str) -> os.stat_result:
        """What has this name, links not followed."""

    def close(self, descriptor: int) -> None:
        """Gives a descriptor back."""

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end, none beyond it."""

    def status(self, descriptor: int) -> os.stat_result:
        """What an open file is."""

    def generation(self, descriptor: int) -> int | None:
        """The generation of the file's inode; None where the file system does not tell it."""


class OsFiles:
    """The real ones."""

    open = staticmethod(open_regular)
    look = staticmethod(os.lstat)
    close = staticmethod(os.close)
    read = staticmethod(os.pread)
    status = staticmethod(os.fstat)

    @staticmethod
    def generation(descriptor: int) -> int | None:
        """See `Files`."""
        try:
            answer = fcntl.ioctl(descriptor, _FS_IOC_GETVERSION, bytes(8))
        except OSError:
            return None
        return int(struct.unpack("q", answer)[0])


class Descriptors:
    """Open files, at most `limit` at once: the one that has been used least recently is closed for another."""

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = max(limit, 1)
        self._open: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: int) -> int | None:
        """The descriptor kept under `key`, if it is still open."""
        return self._open.get(key)

    def used(self, key: int) -> None:
        """Says that the file gave bytes: where there is no room left, it is to be closed after those that give none."""
        if len(self._open) >= self._limit and key in self._open:
            self._open.move_to_end(key)

    def open(self, key: int, path: str) -> int:
        """Opens `path` and keeps its descriptor under `key`, closing others if there are too many.

        Raises:
            OSError: it cannot be opened, or is no regular file.
        """
        while len(self._open) >= self._limit:
            self.close(next(iter(self._open)))
        descriptor = self._with_room(lambda: self._files.open(path))
        self._open[key] = descriptor
        return descriptor

    def close(self, key: int) -> None:
        """Gives the descriptor of `key` back, if it is open."""
        descriptor = self._open.pop(key, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def close_all(self) -> None:
        """Gives all descriptors back."""
        for key in list(self._open):
            self.close(key)

    def _with_room(self, attempt: Callable[[], int]) -> int:
        """Where the system has fewer descriptors to give than the limit says, it is lowered for good."""
        while True:
            try:
                return attempt()
            except OSError as error:
                if error.errno not in _NO_ROOM or not self._open:
                    raise
                self._limit = max(len(self._open) * 3 // 4, 1)
                while len(self._open) > self._limit:
                    self.close(next(iter(self._open)))
                if self._limit == 1:
                    self.close_all()


_NO_ROOM = frozenset({23, 24})  # ENFILE, EMFILE
