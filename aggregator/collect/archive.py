"""A compressed file among logs that are followed: most often a rotated part whose plain form has been read already."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.collect.matching import Candidate, Contents
from aggregator.opening import ReadNotes, SourceStream
from aggregator.store.streams import TAIL_BYTES
from parsers.records import Source, SourceKind

if TYPE_CHECKING:
    from aggregator.collect.tail import Tail

_HEAD = 8 << 10


class Archive:
    """The decompressed bytes of a compressed file, read bit by bit.

    It is read twice: at first to find out whether it continues a known stream, then for what is new in it. One that is
    cut off may be one that is being written: it is read anew when it has changed.
    """

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._notes = ReadNotes()
        self._bytes: SourceStream | None = None
        self._read_at: tuple[int, int] | None = None
        self._window = b""
        self.position = 0
        """Bytes that this reading has given, or the last one gave."""
        self.head = b""
        self.candidates: list[Candidate] = []
        """What it may hold, as the last `search` found."""

    @property
    def reading(self) -> bool:
        """Whether a reading is under way."""
        return self._bytes is not None

    @property
    def changed(self) -> bool:
        """Whether there may be something new in it."""
        return self.reading or self._read_at != (self._tail.size, self._tail.mtime_ns)

    @property
    def stale(self) -> bool:
        """Whether it was read, and is another one now."""
        return not self.reading and self._read_at is not None and self.changed

    def problem(self) -> str | None:
        """Why the last reading ended early, if it did."""
        return self._notes.items[0].reason if self._notes.items and not self.reading else None

    def search(self, size: int, contents: Contents) -> bool:
        """Reads on for at most `size` bytes to find `candidates`; tells whether that is done."""
        data = self.read(size)
        start = self.position - len(data)
        if start == 0:
            self.head, self._window = data[:_HEAD], b""
            self.candidates = [Candidate(stream, stream.position) for stream in contents.alike(self._tail, self.head)]
        seen = self._window + data
        for candidate in self.candidates:
            if start < candidate.position <= self.position:
                stop = candidate.position - self.position + len(seen)
                last = contents.last(candidate.stream, candidate.position)
                candidate.fits = seen[max(stop - len(last), 0) : stop] == last
        self._window = seen[-TAIL_BYTES:]
        if data:
            return False
        for candidate in self.candidates:
            if candidate.position > self.position:
                candidate.fits = contents.last(candidate.stream, self.position) == self._window
        return True

    def again(self) -> None:
        """Whatever was read, begin anew."""
        self.close()
        self._read_at = None

    def fresh(self, size: int, position: int) -> bytes:
        """The next bytes beyond `position`, of at most `size` that are read."""
        data = self.read(size)
        return data[max(position - (self.position - len(data)), 0) :]

    def read(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        if self._bytes is None:
            self._notes, self.position = ReadNotes(), 0
            self._read_at = (self._tail.size, self._tail.mtime_ns)
            source = Source(0, self._tail.shown, Path(self._tail.real), SourceKind.LOG)
            self._bytes = SourceStream(source, self._notes)
            if self._bytes.key != self._tail.key:
                self.again()  # parts were moved on since they were listed
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        data = self._bytes.read(size)
        self.position += len(data)
        if not data:
            self.close()
        return data

    def close(self) -> None:
        """Ends a reading."""
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None
