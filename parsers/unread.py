"""Bytes of one file that were fed and are not dealt with yet."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from parsers.skim import MAX_LINE

_BATCH = 8 << 10
"""Bytes that are waited for before they are dealt with: a program that writes line by line is fed in tiny pieces."""
_STRIDE = 509
"""Bytes between the first batch of one file and that of the next."""


@dataclass(slots=True)
class Unread:
    """The end of what was fed.

    The first `scanned` bytes of `data` have been searched and not parsed: they are the context of what follows.
    `data` is all there is once it has been gathered.
    """

    data: bytes = b""
    scanned: int = 0
    _fresh: list[bytes] = field(default_factory=list)
    _waiting: int = 0
    _offset: int = 0
    _dropped: int = 0

    @classmethod
    def of(cls, file: int) -> Unread:
        """Of a file by its number: those that grow alike take turns, as the first batch of each is of another size."""
        return cls(_waiting=-(file * _STRIDE % _BATCH))

    def copy(self) -> Unread:
        """The same bytes, to be dealt with apart."""
        return replace(self, _fresh=self._fresh[:])

    def add(self, chunk: bytes) -> bool:
        """Take bytes; tells whether there are enough new ones to be worth dealing with."""
        self._fresh.append(chunk)
        self._waiting += len(chunk)
        return self._waiting >= _BATCH

    def gather(self) -> bytes:
        """All of them in one piece."""
        if self._fresh:
            self.data = b"".join((self.data, *self._fresh))
            self._fresh = []
        return self.data

    def bound(self, tail: int) -> None:
        """Of a line that does not end keep the head and what may become the tail of the file; drop the middle."""
        self._waiting = 0
        half = 2 * max(tail, MAX_LINE)
        dropped = len(self.data) - self.scanned - 2 * half
        if dropped > 0:
            self._dropped += dropped
            self.data = self.data[: self.scanned + half] + self.data[-half:]

    def at(self, position: int) -> int:
        """The offset in the file of a line that begins at a position of the data."""
        return self._offset + position + (self._dropped if position > self.scanned else 0)

    def go_on(self, kept: int, end: int) -> None:
        """What stands before `end` has been dealt with; from `kept` on it is the context of what follows."""
        self._waiting = 0
        self._offset = self.at(kept)
        if kept > self.scanned:
            self._dropped = 0
        self.data = self.data[kept:]
        self.scanned = end - kept
