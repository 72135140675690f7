"""A file that is in memory only: nothing of it is ever on a disk."""

from __future__ import annotations


class HeldFile:
    """Bytes behind the interface of an open file."""

    key = None

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, size: int, place: int) -> bytes:
        """At most `size` bytes from `place` on; none at the end."""
        return self._data[place : place + size]

    def close(self) -> None:
        """There is nothing to give back: the bytes are their source's."""
