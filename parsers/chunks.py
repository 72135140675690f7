"""Packs the bytes of many sources into chunks of whole lines, and makes clean text of a chunk's lines.

A chunk holds the end of one large file, a part of it, or many small files one behind the other; its pieces say what
came from where. Lines end with a line feed; the last line of a source gets one if it lacks it. A line longer than
`LINE_CAP` keeps its head and its tail, so that a gigabyte without a line feed needs a few hundred kilobytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.kernel import Bools, Bytes, Ints, Lines
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
    while tail and tail[0] & 0xC0 == _CONTINUATION and len(tail) > KEPT - 4:
        tail = tail[1:]
    return b"%b [... %d bytes cut ...] %b" % (head, length - len(head) - len(tail), tail)


def _count_feeds(block: bytes, start: int, stop: int) -> int:
    return int(np.count_nonzero(np.frombuffer(block, np.uint8, stop - start, start) == _FEED))


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
                self._put(memoryview(block)[position:stop], _count_feeds(block, position, stop), stop - position)
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


@dataclass(frozen=True, slots=True)
class Bodies:
    """The text of a chunk's lines, and what had to be changed to have it."""

    column: pa.StringArray
    undecodable: int
    nuls: int


_ANSI = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r]*(?:\x07|\x1b\\)|[@-Z\\^_])?"
"""An escape sequence. A title without its end is no sequence: only its escape character goes."""
_TROUBLE = "rror|raceback|xception|ailed|WARN|FATAL"
"""No bar holds these: text that was printed in front of one may."""
_ANSI_RE, _TROUBLE_RE = re.compile(_ANSI.encode()), re.compile(_TROUBLE.encode())
_OTHER_BAR = re.compile(
    rb"[^|]{0,60}?(?:[0-9][0-9.]*[kMGT]?[a-z]{0,8} \[[0-9][0-9]:[0-9][0-9][^\[\]]*\]"  # tqdm without a total
    rb"|[0-9]+/[0-9]+ \[[=>.\- ]+\].*)",  # Keras
    re.DOTALL,
)
_BAR_WITHIN = 96
_BLANK = b" \t"
_BOM = b"\xef\xbb\xbf"
_GROUP = 64 << 10
_FEED, _RETURN = 10, 13
_CONTINUATION = 0x80


def _is_bar(part: bytes) -> bool:
    """Whether all of a part is a progress bar: text printed behind or before one is not to be lost."""
    part = part.rstrip(_BLANK)
    if part.endswith(b"]") and part.find(b"%|", 0, _BAR_WITHIN) >= 0:
        return True
    return _OTHER_BAR.fullmatch(part) is not None


def clean_line(line: bytes) -> bytes:
    r"""A line as it is to be read: without NULs and escape sequences; of `\r` parts all but superseded bars.

    `line` is UTF-8. The reference for what `body_column` does to whole columns.
    """
    line = _ANSI_RE.sub(b"", line.replace(b"\0", b""))
    if b"\r" not in line:
        return line
    parts = [part for part in line.rstrip(b" \t\r").split(b"\r") if part.strip(_BLANK)]
    bars = [_is_bar(part) and _TROUBLE_RE.search(part) is None for part in parts]
    last = max((number for number, bar in enumerate(bars) if bar), default=-1)
    return b" ".join(part for number, part in enumerate(parts) if not bars[number] or number == last)


def body_column(chunk: Chunk, data: Bytes, lines: Lines) -> Bodies:
    """The clean text of each line. What is no UTF-8 becomes U+FFFD; a byte order mark at a source's start goes."""
    starts, ends = lines.starts, lines.ends
    bad = _undecodable(chunk, starts)
    marked = [piece.start for piece in chunk.pieces if piece.begins and chunk.data.startswith(_BOM, piece.start)]
    kind = data[lines.controls]
    row_of = np.searchsorted(starts, lines.controls, side="right") - 1
    special, returned, other = (np.zeros(len(starts), np.bool_) for _ in range(3))
    special[bad] = special[np.searchsorted(starts, np.array(marked, np.int64))] = True
    returned[row_of[kind == _RETURN]] = True
    other[row_of[kind != _RETURN]] = True
    texts: list[bytes] = []
    for row in np.flatnonzero(special).tolist():
        raw = chunk.data[starts[row] : ends[row]]
        raw = raw.removeprefix(_BOM) if starts[row] in marked else raw
        texts.append(clean_line(raw.decode(errors="replace").encode()))
    plain, turned = np.flatnonzero(other & ~returned & ~special), np.flatnonzero(returned & ~special)
    texts += _without_escapes(_take(chunk, starts, ends, plain))
    texts += _last_states(chunk, starts, ends, turned, other[turned])
    rows = np.concatenate([np.flatnonzero(special), plain, turned])
    return Bodies(_splice(chunk, starts, ends, rows, texts), len(bad), int(np.count_nonzero(kind == 0)))


def _splice(chunk: Chunk, starts: Ints, ends: Ints, rows: Ints, texts: list[bytes]) -> pa.StringArray:
    """The lines one behind the other without their ends, some of them replaced."""
    lengths = ends - starts
    lengths[rows] = [len(text) for text in texts]
    parts: list[bytes] = []
    done = 0
    order = np.argsort(rows)
    for start, end, number in zip(*(a.tolist() for a in (starts[rows[order]], ends[rows[order]], order)), strict=True):
        parts += (chunk.data[done:start], texts[number])
        # From the line's end on, so that its line feed is removed with the others.
        done = end
    parts.append(chunk.data[done : chunk.size])
    joined = b"".join(parts)
    if b"\r\n" in joined:
        joined = joined.replace(b"\r\n", b"")
    return strings(joined.replace(b"\n", b""), lengths)


def _take(chunk: Chunk, starts: Ints, ends: Ints, rows: Ints) -> pl.Series:
    """Some of the lines, which are UTF-8, as they are."""
    whole = memoryview(chunk.data)
    pairs = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    return polars_series(strings(b"".join([whole[start:end] for start, end in pairs]), ends[rows] - starts[rows]))


def _without_escapes(text: pl.Series) -> list[bytes]:
    """`clean_line` of lines without carriage returns."""
    clean = text.str.replace_all("\0", "", literal=True).str.replace_all(_ANSI, "")
    return clean.cast(pl.Binary).to_list()


def _last_states(chunk: Chunk, starts: Ints, ends: Ints, rows: Ints, other: Bools) -> list[bytes]:
    """`clean_line` of lines with carriage returns; nearly all of them are progress bars and nothing else."""
    text = _take(chunk, starts, ends, rows)
    lines: list[bytes] = text.cast(pl.Binary).to_list()
    joined = b"\r".join([*lines, b""])
    data = np.frombuffer(joined, np.uint8)
    # The parts between carriage returns, over all lines.
    end = np.flatnonzero(data == _RETURN)
    begin = np.append(0, end[:-1] + 1)[: len(end)]
    begin, end = begin[end > begin], end[end > begin]
    line_of = np.searchsorted(np.cumsum(ends[rows] - starts[rows] + 1) - 1, end)
    marks = np.append(np.flatnonzero((data[:-1] == ord("%")) & (data[1:] == ord("|"))), 2 * len(data))
    mark = marks[np.searchsorted(marks, begin)]
    bar = (data[end - 1] == ord("]")) & (mark - begin <= _BAR_WITHIN - len("%|")) & (mark < end)
    easy = ~(text.str.contains(_TROUBLE).to_numpy() | other)
    easy &= np.bincount(line_of, minlength=len(rows)) > 0
    easy[line_of[~bar]] = False
    span = np.zeros((len(rows), 2), np.int64)
    span[line_of, 0], span[line_of, 1] = begin, end  # the last part of each line stays
    return [
        joined[first:stop] if simple else clean_line(line)
        for line, simple, (first, stop) in zip(lines, easy.tolist(), span.tolist(), strict=True)
    ]


def strings(data: bytes, lengths: Ints) -> pa.StringArray:
    """Strings that lie one behind the other."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets.data), pa.py_buffer(data))


def polars_series(column: pa.StringArray) -> pl.Series:
    """An Arrow array as a polars series, without a copy where its type allows."""
    series = pl.from_arrow(column)
    if not isinstance(series, pl.Series):
        raise TypeError("an array makes a series")
    return series


def _undecodable(chunk: Chunk, starts: Ints) -> Ints:
    """Rows that are no UTF-8, found by halving."""
    buffer = pa.py_buffer(chunk.data)

    def valid(start: int, end: int) -> bool:
        span = pa.py_buffer(np.array([start, end], np.int64).data)
        try:
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, span, buffer]).cast(pa.large_string())
        except pa.ArrowInvalid:
            return False
        return True

    rows: list[int] = []
    places = np.append(starts, chunk.size)
    open_spans = [(0, len(starts))]
    while open_spans:
        low, high = open_spans.pop()
        start, end = int(places[low]), int(places[high])
        if start == end or valid(start, end):
            continue
        if end - start > _GROUP and high - low > 1:
            middle = min(max(int(np.searchsorted(places, (start + end) // 2)), low + 1), high - 1)
            open_spans += ((low, middle), (middle, high))
        else:
            bounds = places[low : high + 1].tolist()
            rows += [low + n for n, span in enumerate(pairwise(bounds)) if not _decodes(chunk.data[slice(*span)])]
    return np.array(sorted(rows), np.int64)


def _decodes(data: bytes) -> bool:
    try:
        return data.decode() is not None
    except UnicodeDecodeError:
        return False
