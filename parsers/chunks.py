"""Packs the bytes of many sources into chunks of whole lines, and makes clean text of a chunk's lines.

A chunk holds the end of one large file, a part of it, or many small files one behind the other; its pieces say what
came from where. Lines end with a line feed; the last line of a source gets one if it lacks it. A line longer than
`LINE_CAP` keeps its head and its tail, so that a gigabyte without a line feed needs a few hundred kilobytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from parsers.kernel import Bytes, Ints, Lines
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
SLACK = 64
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
    cut_bytes: int = 0


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
    for back in range(1, min(4, len(head)) + 1):
        lead = head[-back]
        if lead >= 0xC0:  # the lead of a character of 2 to 4 bytes: torn unless all of them are there
            width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            head = head[:-back] if back < width else head
            break
        if lead < 0x80:
            break
    skip = 0
    while skip < min(3, len(tail)) and 0x80 <= tail[skip] < 0xC0:
        skip += 1
    tail = tail[skip:]
    return b"%b [... %d bytes cut ...] %b" % (head, length - len(head) - len(tail), tail)


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
                self._put(memoryview(block)[position:stop], block.count(b"\n", position, stop), stop - position)
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
        self.stats.cut_bytes += pending.length + 1 - len(text)
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


def pack(blocks: Iterable[tuple[Source, Iterable[bytes]]], size: int = CHUNK_SIZE) -> Iterator[Chunk]:
    """Chunks of the lines of each source in turn, as `Packer` makes them."""
    packer = Packer(size)
    for source, parts in blocks:
        packer.begin(source)
        for block in parts:
            yield from packer.feed(block)
        yield from packer.end()
    yield from packer.flush()


@dataclass(frozen=True, slots=True)
class Bodies:
    """The text of a chunk's lines, and what had to be changed to have it."""

    column: pa.StringArray
    undecodable: int
    nuls: int


_ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])?"
"""An escape sequence. A title without its end is no sequence: only its escape character goes."""
_BAR = (
    r"[^\r|]{0,60}?(?:\d{1,3}%\|[^|\r]*\|[^\r\[]*\[[^\[\]\r]*\]"  # tqdm
    r"|\d[\d.]*[kMGT]?[a-z]{0,8} \[\d\d:\d\d[^\[\]\r]*\]"  # tqdm without a total
    r"|\d+/\d+ \[[=>.\- ]+\][^\r]*)[ \t]*"  # Keras
)
"""All of a progress bar: text printed behind or before one on the same line is kept."""
_TROUBLE = r"rror|raceback|xception|WARN|FATAL|ailed"
"""No bar holds these: text that was printed in front of one may."""
_ANSI_RE, _BAR_RE, _TROUBLE_RE = (re.compile(pattern) for pattern in (_ANSI, _BAR, _TROUBLE))
_BOM = b"\xef\xbb\xbf"
_GROUP = 128 << 10


def clean_text(text: str) -> str:
    r"""A line as it is to be read: without NULs and escape sequences; of `\r` segments all but superseded bars.

    The reference for what `body_column` does to whole columns.
    """
    text = _ANSI_RE.sub("", text.replace("\0", ""))
    if "\r" not in text:
        return text
    parts = [part for part in text.rstrip(" \t\r").split("\r") if part.strip(" \t")]
    bars = [_BAR_RE.fullmatch(part) is not None and _TROUBLE_RE.search(part) is None for part in parts]
    last = max((number for number, bar in enumerate(bars) if bar), default=-1)
    return " ".join(part for number, part in enumerate(parts) if not bars[number] or number == last)


def body_column(chunk: Chunk, data: Bytes, lines: Lines) -> Bodies:
    """The clean text of each line. Bytes that are no UTF-8 become U+FFFD; a byte order mark at a source's start goes."""
    starts, ends = lines.starts, lines.ends
    bad = _undecodable(chunk, starts)
    marked = [piece.start for piece in chunk.pieces if piece.begins and chunk.data.startswith(_BOM, piece.start)]
    special = np.union1d(bad, np.searchsorted(starts, np.array(marked, np.int64)))
    odd = np.unique(np.searchsorted(starts, lines.controls, side="right") - 1)
    plain = np.setdiff1d(odd, special, assume_unique=True)
    texts = dict(zip(plain.tolist(), _clean_column(chunk, starts, ends, plain), strict=True))
    for row in special.tolist():
        raw = chunk.data[starts[row] : ends[row]]
        if starts[row] in marked:
            raw = raw.removeprefix(_BOM)
        texts[row] = clean_text(raw.decode(errors="replace")).encode()
    nuls = int(np.count_nonzero(data[lines.controls] == 0))
    return Bodies(_splice(chunk, starts, ends, texts), len(bad), nuls)


def _splice(chunk: Chunk, starts: Ints, ends: Ints, texts: dict[int, bytes]) -> pa.StringArray:
    """The lines one behind the other without their ends, some of them replaced."""
    lengths = ends - starts
    parts: list[bytes | memoryview] = []
    whole = memoryview(chunk.data)
    done = 0
    for row in sorted(texts):
        parts += (whole[done : starts[row]], texts[row])
        lengths[row] = len(texts[row])
        # From the line's end on, so that its line feed is removed with the others.
        done = int(ends[row])
    parts.append(whole[done : chunk.size])
    joined = b"".join(parts)
    if b"\r\n" in joined:
        joined = joined.replace(b"\r\n", b"")
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined.replace(b"\n", b""))]
    return pa.StringArray.from_buffers(len(starts), *buffers[1:])


def _clean_column(chunk: Chunk, starts: Ints, ends: Ints, rows: Ints) -> Sequence[bytes]:
    """`clean_text` of valid lines."""
    if not len(rows):
        return []
    whole = memoryview(chunk.data)
    pairs = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(ends[rows] - starts[rows], out=offsets[1:])
    joined = b"".join([whole[start:end] for start, end in pairs])
    text = polars_series(pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(joined)))
    if b"\0" in joined:
        text = text.str.replace_all("\0", "", literal=True)
    if b"\x1b" in joined:
        text = text.str.replace_all(_ANSI, "")
    if b"\r" in joined:
        text = _visible(text)
    return text.cast(pl.Binary).to_list()


def _visible(text: pl.Series) -> pl.Series:
    r"""The `\r` rule of `clean_text`; the rows for which one pattern cannot say it go through that itself."""
    returned = text.str.contains("\r", literal=True)
    rows = text.filter(returned)
    trimmed = rows.str.strip_chars_end(" \t\r")
    # In multi-line mode with R, ^ matches behind a carriage return.
    short = trimmed.str.replace_all(rf"(?mR)^(?:{_BAR}|[ \t]*)\r+", "")
    dropped = short.str.len_bytes() != trimmed.str.len_bytes()
    hard = (dropped & ~short.str.contains(rf"(?mR)^{_BAR}$")) | trimmed.str.contains(_TROUBLE)
    result = short.str.replace_all("\r", " ", literal=True)
    if hard.any():
        index = hard.arg_true()
        result = result.scatter(index, [clean_text(line) for line in rows.gather(index)])
    return text.scatter(returned.arg_true(), result)


def polars_series(column: pa.Array) -> pl.Series:
    """An Arrow array as a polars series, without a copy where its type allows."""
    series = pl.from_arrow(column)
    if not isinstance(series, pl.Series):
        raise TypeError("an array makes a series")
    return series


def _undecodable(chunk: Chunk, starts: Ints) -> Ints:
    """Rows that are no UTF-8."""
    span = pa.py_buffer(np.array([0, chunk.size], np.int64))
    try:
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, span, pa.py_buffer(chunk.data)]).cast(
            pa.large_string()
        )
    except pa.ArrowInvalid:
        pass
    else:
        return np.empty(0, np.int64)
    rows = []
    bounds = [*np.unique(np.searchsorted(starts, np.arange(0, chunk.size, _GROUP))).tolist(), len(starts)]
    places = [*starts.tolist(), chunk.size]
    for low, high in zip(bounds, bounds[1:], strict=False):
        if not _decodes(chunk.data[places[low] : places[high]]):
            rows += [row for row in range(low, high) if not _decodes(chunk.data[places[row] : places[row + 1]])]
    return np.array(rows, np.int64)


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
