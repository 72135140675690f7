"""Packs the bytes of many sources into chunks of whole lines.

A chunk holds the end of one large file, a part of it, or many small files one behind the other; its pieces say what
came from where. Lines end with a line feed; the last line of a source gets one if it lacks it. A line longer than
`LINE_CAP` keeps its head and its tail, so that a gigabyte without a line feed needs a few hundred kilobytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parsers.feeds import count_feeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.records import Source

CHUNK_SIZE = 8 << 20
"""Bytes after which a chunk is closed."""
LINE_CAP = 256 << 10
"""Bytes of the longest line that is kept whole, without its line feed."""
KEPT = 64 << 10
"""Bytes kept of the head, and of the tail, of a longer line."""
HEAD_WINDOW = 256 << 10
"""A chunk that holds the start of a source holds at least so many bytes of it (or all of it), whatever the chunk size:
what is decided from the head of a source then does not depend on where chunks end."""
SLACK = 96
"""Zero bytes behind the lines: the kernel may look that far past the end, and (by negative index) before the start."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of one source, from `start` in the chunk to the next piece.

    `offset` is where they begin in the source, `first_line` the number of the first of them. `begins` marks the first
    piece of its source.
    """

    start: int
    source: Source
    offset: int
    first_line: int
    begins: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """`data[:size]` is whole lines, each ended by a line feed; `SLACK` zero bytes follow. Pieces are in order."""

    data: bytes
    size: int
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class ReadStats:
    """What the packer saw so far; lines include the unterminated last ones."""

    bytes: int = 0
    lines: int = 0
    cut_lines: int = 0


@dataclass(slots=True)
class _Pending:
    """The unfinished line of the source that is being read.

    While it is short, `parts` are its bytes. Past the cap, `head` and `tail` are what is kept of it.
    """

    parts: list[bytes] = field(default_factory=list)
    length: int = 0
    head: bytes | None = None
    tail: bytes = b""

    def add(self, part: bytes) -> None:
        self.length += len(part)
        if self.head is not None:
            self.tail = (self.tail + part[-KEPT:])[-KEPT:]
            return
        self.parts.append(part)
        if self.length > LINE_CAP:
            whole = b"".join(self.parts)
            self.head, self.tail = whole[:KEPT], whole[-KEPT:]
            self.parts.clear()


def cut_text(head: bytes, tail: bytes, length: int) -> bytes:
    """What stands for a line of `length` bytes of which only head and tail are kept; no character is torn."""
    cut = next((back for back in range(1, 4) if head[-back:][:1] >= b"\xc0"), 0)
    if cut and not _decodes(head[-cut:]):
        head = head[:-cut]
    while tail and tail[0] & 0xC0 == 0x80 and len(tail) > KEPT - 4:  # noqa: PLR2004 - continuation bytes
        tail = tail[1:]
    return b"%b [... %d bytes cut ...] %b" % (head, length - len(head) - len(tail), tail)


def _decodes(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        return data.decode() is not None
    except UnicodeDecodeError:
        return False


class Packer:
    """Turns blocks of bytes into chunks. Feed one source after the other: `begin`, `feed` …, `end`; then `flush`.

    The table that comes of the chunks does not depend on how the bytes were cut into blocks.
    """

    def __init__(self, size: int = CHUNK_SIZE) -> None:
        self.stats = ReadStats()
        self._size = size
        self._parts: list[bytes | memoryview] = []
        self._filled = 0
        self._pieces: list[Piece] = []
        self._source: Source | None = None
        self._pending = _Pending()
        self._offset = 0
        """Where the pending line begins in the source."""
        self._line = 1
        """Its number."""
        self._broken = True
        """Whether the next line needs a piece of its own: offsets do not go on from the one before."""

    def begin(self, source: Source) -> None:
        """Start a source."""
        self._source, self._pending = source, _Pending()
        self._offset, self._line, self._broken = 0, 1, True

    def feed(self, block: bytes) -> Iterator[Chunk]:
        """Take the next bytes of the source; yields the chunks that are full."""
        self.stats.bytes += len(block)
        position = 0
        if self._pending.length:
            end = block.find(b"\n")
            if end < 0:
                self._pending.add(block)
                return
            if end:
                self._pending.add(block[:end])
            self._put_pending()
            position = end + 1
        last = block.rfind(b"\n") + 1
        while position < last:
            stop = self._short_run(block, position, last)
            if stop > position:
                self._put(memoryview(block)[position:stop], count_feeds(block, position, stop), stop - position)
                position = stop
            else:
                end = block.index(b"\n", position + LINE_CAP)
                self._pending.add(block[position:end])
                self._put_pending()
                position = end + 1
            if self._full:
                yield self._close()
        if position < len(block):
            self._pending.add(block[position:])
        if self._full:
            yield self._close()

    def end(self) -> Iterator[Chunk]:
        """The source is read to its end."""
        if self._pending.length:
            self._put_pending()
        self._source = None
        if self._filled >= self._size:
            yield self._close()

    def flush(self) -> Iterator[Chunk]:
        """All sources are read: yields what is left."""
        if self._filled:
            yield self._close()

    def _short_run(self, block: bytes, position: int, last: int) -> int:
        """End of the longest run of lines from `position` that holds no line above the cap and fits the chunk."""
        room = max(self._size - self._filled, LINE_CAP + 1)
        limit = min(last, position + room)
        reached = position
        while reached < limit:
            newline = block.rfind(b"\n", reached, min(reached + LINE_CAP + 1, limit))
            if newline < 0:
                break
            reached = newline + 1
        return reached

    def _put_pending(self) -> None:
        pending, self._pending = self._pending, _Pending()
        if pending.head is None:
            self._put(b"".join([*pending.parts, b"\n"]), 1, pending.length + 1)
            return
        text = cut_text(pending.head, pending.tail, pending.length) + b"\n"
        self.stats.cut_lines += 1
        self._put(text, 1, pending.length + 1)
        self._broken = True

    def _put(self, lines: bytes | memoryview, count: int, length: int) -> None:
        """Add whole lines that take `length` bytes of the source."""
        if self._broken or not self._filled:
            if self._source is None:
                raise RuntimeError("lines without a source: call begin first")
            self._pieces.append(Piece(self._filled, self._source, self._offset, self._line, self._line == 1))
            self._broken = False
        self._parts.append(lines)
        self._filled += len(lines)
        self._offset += length
        self._line += count
        self.stats.lines += count

    @property
    def _full(self) -> bool:
        return self._filled >= self._size and self._offset >= HEAD_WINDOW

    def _close(self) -> Chunk:
        chunk = Chunk(b"".join([*self._parts, bytes(SLACK)]), self._filled, tuple(self._pieces))
        self._parts, self._filled, self._pieces = [], 0, []
        return chunk
