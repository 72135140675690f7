"""Every line of every text log becomes a row of `EVENT_SCHEMA`.

The second of the two stages. Triage runs over the same bytes, so that the signals, and with them the verdict, are
those of triage alone; here they also name the `signature` of their lines. Work is done on columns, a chunk at a
time; memory does not grow with the logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from parsers.chunks import CHUNK_SIZE, HEAD_WINDOW, Chunk, Packer, Piece
from parsers.kernel import COLON, FEED, byte_class, scan
from parsers.linetags import STREAMS, Label, read_loggers, read_severities, read_tags, windows
from parsers.numberlabels import looks_numbered
from parsers.prefixes import first_lines, looks_labelled
from parsers.records import Role, Signal, Source
from parsers.schema import EVENT_SCHEMA, MAX_RANK
from parsers.stampcolumns import read_stamps, with_year
from parsers.text import body_column

if TYPE_CHECKING:
    from parsers.kernel import Bools, Bytes, Ints
    from parsers.stampcolumns import Stamps

OpenChunks: TypeAlias = Callable[[Source], Iterator[bytes]]
"""The decompressed bytes of a source in blocks of any size."""

LAG = 1 << 20
"""Rows wait until triage is so many bytes further, or has finished the source: it files a line's signals once it has
seen what is below it."""
_LABEL_SAMPLE = 32 << 10
_LABEL_LINES = 400
"""What of a source is asked whether a launcher labelled it."""
_LABEL_BYTES = len("    12345:")
_BLANK_OR_DIGIT, _OPEN, _DIGIT = (byte_class(members) for members in (b" 0123456789", b"[(", b"0123456789"))
_OWN, _INHERITED, _BOUNDED, _NONE = range(4)
_QUALITIES = pa.array(["own", "inherited", "bounded", "none"])


class Triage(Protocol):
    """What finds the signals of one source (`parsers.triage.LogTriage`)."""

    @property
    def signals(self) -> list[Signal]:
        """Signals so far; all of them after `finish`."""

    def feed(self, chunk: bytes, /) -> None:
        """Take the next bytes of the source."""

    def finish(self) -> object:
        """The source has ended."""


TriageFactory: TypeAlias = Callable[[Source], Triage]


@dataclass(slots=True)
class RowStats:
    """What was read and what had to be changed to make text of it."""

    files: int = 0
    bytes: int = 0
    lines: int = 0
    rows: int = 0
    cut_lines: int = 0
    undecodable_lines: int = 0
    nul_bytes: int = 0


class Normalisation:
    """Iterate it once for the record batches; `signals` and `stats` are complete afterwards.

    Batches have `EVENT_SCHEMA`; rows are in the order of the sources, then of the lines. The rows depend neither on
    how the reader cuts blocks nor on the chunk size.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        open_chunks: OpenChunks,
        triage_factory: TriageFactory | None = None,
        *,
        reference_ns: int | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        self.stats = RowStats()
        self.signals: list[Signal] = []
        self._sources = sources
        self._open = open_chunks
        self._triage_factory = triage_factory
        self._packer = Packer(chunk_size)
        self._clock = _Clock(reference_ns)
        self._found: dict[int, Sequence[Signal]] = {}
        """Signals of the sources that have rows still to be made."""
        self._label_of: dict[int, Label] = {}

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for source in self._sources:
            self.stats.files += 1
            yield from map(self._batch, self._read(source))
        yield from map(self._batch, self._packer.flush())

    def _read(self, source: Source) -> Iterator[Chunk]:
        """Chunks that are full, once triage has seen enough of what follows."""
        triage = self._triage_factory(source) if self._triage_factory is not None else None
        waiting: deque[tuple[int, Chunk]] = deque()
        position = 0
        self._packer.begin(source)
        for block in self._open(source):
            position += len(block)
            if triage is not None:
                triage.feed(block)
                self._found[source.index] = triage.signals
            for chunk in self._packer.feed(block):
                waiting.append((position + LAG, chunk))
            while waiting and (triage is None or waiting[0][0] <= position):
                yield waiting.popleft()[1]
        if triage is not None:
            triage.finish()
            self.signals.extend(triage.signals)
            self._found[source.index] = triage.signals
        yield from (chunk for _, chunk in waiting)
        yield from self._packer.end()

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        data = np.frombuffer(chunk.data, np.uint8)
        lines = scan(data, chunk.size)
        layout = _Layout.of(chunk.pieces, lines.starts)
        stamps = read_stamps(data, lines)
        ts, quality = self._clock.times(chunk.pieces, layout, stamps)
        text = body_column(chunk, data, lines)
        sources = [piece.source for piece in chunk.pieces]
        tags = read_tags(data, lines.starts, self._labels(chunk, data, layout))
        columns = {
            "ts": ts,
            "ts_quality": pa.DictionaryArray.from_arrays(pa.array(quality, pa.int8()), _QUALITIES),
            "host": layout.words([source.host for source in sources], pa.int32()),
            "rank": layout.numbers([source.rank for source in sources], tags.rows, tags.rank),
            "local_rank": layout.numbers([source.local_rank for source in sources], tags.rows, tags.local_rank),
            "attempt": pa.array(layout.spread([source.attempt or 0 for source in sources]).astype(np.int32)),
            "stream": layout.words([source.stream for source in sources], pa.int8(), tags.rows, tags.stream, STREAMS),
            "severity": pa.array(read_severities(text, stamps)),
            "logger": read_loggers(data, stamps, layout.rows),
            "body": text.column,
            "signature": self._signatures(chunk, layout),
            "path": layout.words([source.path for source in sources], pa.int32()),
            "offset": pa.array(layout.offsets),
            "line": pa.array(layout.lines),
        }
        self._count(layout.rows, text.undecodable, text.nuls)
        return pa.RecordBatch.from_arrays([columns[name] for name in EVENT_SCHEMA.names], schema=EVENT_SCHEMA)

    def _count(self, rows: int, undecodable: int, nuls: int) -> None:
        read = self._packer.stats
        self.stats.bytes, self.stats.lines, self.stats.cut_lines = read.bytes, read.lines, read.cut_lines
        self.stats.rows += rows
        self.stats.undecodable_lines += undecodable
        self.stats.nul_bytes += nuls

    def _labels(self, chunk: Chunk, data: Bytes, layout: _Layout) -> Ints:
        """How a launcher labelled each row's source, as far as its first lines tell."""
        begun = np.flatnonzero([piece.begins for piece in chunk.pieces])
        for number, may_be in zip(begun.tolist(), _may_be_labelled(data, layout, begun), strict=True):
            lines = _first_lines(chunk, layout, number) if may_be else []
            self._label_of[chunk.pieces[number].source.index] = _label(lines)
        return layout.spread([self._label_of[piece.source.index] for piece in chunk.pieces])

    def _signatures(self, chunk: Chunk, layout: _Layout) -> pa.DictionaryArray[Any, Any]:
        """Signatures at the lines of the signals; progress is left out, of which triage keeps the ends alone."""
        marks: dict[int, str] = {}
        for piece, head, count in zip(chunk.pieces, layout.heads.tolist(), layout.counts.tolist(), strict=True):
            for signal in self._found.get(piece.source.index, ()):
                row = signal.line - piece.first_line
                if 0 <= row < count and signal.role is not Role.PROGRESS:
                    marks.setdefault(head + row, signal.signature)
        for piece in chunk.pieces[:-1]:
            if piece.source.index != chunk.pieces[-1].source.index:
                self._found.pop(piece.source.index, None)
        rows = np.fromiter(marks, np.int64, len(marks))
        return layout.words([None] * len(chunk.pieces), pa.int32(), rows, np.arange(len(rows)), list(marks.values()))


def _may_be_labelled(data: Bytes, layout: _Layout, numbers: Ints) -> Bools:
    """Whether so many lines of some pieces begin like a label that they are worth to be asked one by one."""
    if not len(numbers):
        return np.empty(0, np.bool_)
    counts = np.minimum(layout.counts[numbers], _LABEL_LINES)
    firsts = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) + np.repeat(layout.heads[numbers] - firsts, counts)
    front = windows(data, layout.starts[rows], _LABEL_BYTES)
    first, second = front[:, 0], front[:, 1]
    task = (_BLANK_OR_DIGIT[first] & (front == COLON).any(axis=1)) | (first == ord("P"))
    number = _OPEN[first] & _DIGIT[second] & (front[:, 5] != ord("-"))  # [2026- is a stamp
    tasks, numbered, filled = (np.add.reduceat(each.astype(int), firsts) for each in (task, number, first != FEED))
    likely: Bools = (tasks * 4 > filled) | (numbered * 2 > filled)
    return likely


def _first_lines(chunk: Chunk, layout: _Layout, number: int) -> list[str]:
    """The first lines of a piece that are not empty."""
    start, end = chunk.pieces[number].start, layout.heads[number] + layout.counts[number]
    stop = int(layout.starts[end]) if end < layout.rows else chunk.size
    head = chunk.data[start : min(stop, start + _LABEL_SAMPLE)]
    return first_lines(head.decode(errors="replace").splitlines())


def _label(lines: Sequence[str]) -> Label:
    if looks_numbered(lines):
        return Label.NUMBER
    return Label.TASK if looks_labelled(lines) else Label.NONE


def normalise(
    sources: Sequence[Source],
    open_chunks: OpenChunks,
    triage_factory: TriageFactory | None = None,
    *,
    reference_ns: int | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> Normalisation:
    """Rows of all lines of `sources`, and the signals that `triage_factory`'s readers find in them.

    Each source is read once, front to back; errors of `open_chunks` are not caught. `reference_ns` (else the time at
    which a file was last written) tells the year of stamps without one, as it does in triage's `StampContext`.
    """
    return Normalisation(sources, open_chunks, triage_factory, reference_ns=reference_ns, chunk_size=chunk_size)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which rows are of which piece, and where each row is in its source."""

    rows: int
    starts: Ints
    heads: Ints
    counts: Ints
    offsets: Ints
    lines: Ints

    @classmethod
    def of(cls, pieces: Sequence[Piece], starts: Ints) -> _Layout:
        rows = len(starts)
        heads = np.searchsorted(starts, np.array([piece.start for piece in pieces], np.int64)).astype(np.int64)
        counts = np.diff(np.append(heads, rows))
        shift = np.array([piece.offset - piece.start for piece in pieces], np.int64)
        first = np.array([piece.first_line for piece in pieces], np.int64) - heads
        offsets, lines = starts + np.repeat(shift, counts), np.arange(rows) + np.repeat(first, counts)
        return cls(rows, starts, heads, counts, offsets, lines)

    def spread(self, values: Sequence[int]) -> Ints:
        """A value a piece as a value a row."""
        return np.repeat(np.array(values, np.int64), self.counts)

    def numbers(self, values: Sequence[int | None], rows: Ints, own: Ints) -> pa.Array[Any]:
        """A number a piece, none where it does not fit; those of some rows replaced where `own` is not -1; int32."""
        column = self.spread([-1 if value is None or value > MAX_RANK else value for value in values]).astype(np.int32)
        column[rows[own >= 0]] = own[own >= 0]
        return pa.array(column, mask=column < 0)

    def words(
        self,
        values: Sequence[str | None],
        index: pa.DataType,
        rows: Ints | None = None,
        own: Ints | None = None,
        words: Sequence[str] = (),
    ) -> pa.DictionaryArray[Any, Any]:
        """A word a piece, those of some rows replaced: `own` are their places in `words`, -1 for none."""
        codes: dict[str | None, int] = {None: -1}
        column = self.spread([codes.setdefault(value, len(codes) - 1) for value in values])
        if rows is not None and own is not None and len(rows):
            replaced = np.array([*(codes.setdefault(word, len(codes) - 1) for word in words), -1], np.int64)[own]
            column[rows[replaced >= 0]] = replaced[replaced >= 0]
        dictionary = pa.array([word for word in codes if word is not None], pa.string())
        indices: Any = pa.array(column.astype(index.to_pandas_dtype()), mask=column < 0)
        return pa.DictionaryArray.from_arrays(indices, dictionary)


class _Clock:
    """Gives each row a time; remembers what the next chunk needs of the source that goes on in it."""

    def __init__(self, reference_ns: int | None) -> None:
        self._reference = reference_ns
        self._stamp: int | None = None

    def times(
        self, pieces: Sequence[Piece], layout: _Layout, stamps: Stamps
    ) -> tuple[pa.Array[Any], npt.NDArray[np.int8]]:
        """Times and how they are known: forward within a source, backward only from a stamp in its head window."""
        firsts = [number for number, piece in enumerate(pieces) if piece.begins or number == 0]
        heads = layout.heads[firsts]
        fresh = np.array([pieces[number].begins for number in firsts])
        run = np.searchsorted(heads, stamps.row, side="right") - 1
        early = fresh[run] & (layout.offsets[stamps.row] < HEAD_WINDOW)
        rows, ns, kept = self._complete(stamps, run, [pieces[number].source for number in firsts])
        own = np.zeros(layout.rows, np.bool_)
        own[rows] = True
        values = np.zeros(layout.rows, np.int64)
        values[rows] = ns
        # The row whose stamp a row has: the last stamped one above it, if that is of the same source.
        origin = np.maximum.accumulate(np.where(own, np.arange(layout.rows), -1))
        counts = np.diff(np.append(heads, layout.rows))
        known = origin >= np.repeat(heads, counts)
        quality = np.where(own, _OWN, np.where(known, _INHERITED, _NONE)).astype(np.int8)
        front = np.zeros(len(heads), np.int64)
        front_quality = np.full(len(heads), _NONE, np.int8)
        bound, first = np.unique(run[kept][early[kept]], return_index=True)
        front[bound] = ns[early[kept]][first]
        front_quality[bound] = _BOUNDED
        if not fresh[0] and self._stamp is not None:
            front[0], front_quality[0] = self._stamp, _INHERITED
        values = np.where(known, values[origin], np.repeat(front, counts))
        quality = np.where(known, quality, np.repeat(front_quality, counts))
        self._stamp = int(values[-1]) if quality[-1] in (_OWN, _INHERITED) else None
        return pa.array(values, mask=quality == _NONE).view(pa.timestamp("ns", "UTC")), quality

    def _complete(self, stamps: Stamps, run: Ints, sources: Sequence[Source]) -> tuple[Ints, Ints, Bools]:
        """Rows and ns of the stamps, completed with the year; and which of `stamps` could be."""
        if stamps.dated.all():
            return stamps.row, stamps.ns, stamps.dated
        references = [self._reference or source.reference_ns for source in sources]
        has = np.array([reference is not None for reference in references])
        ns = stamps.ns.copy()
        short = ~stamps.dated
        ns[short] = with_year(ns[short], np.array([reference or 0 for reference in references], np.int64)[run[short]])
        kept = stamps.dated | has[run]
        return stamps.row[kept], ns[kept], kept
