"""Every line of every text log becomes a row of `EVENT_SCHEMA`.

The second of the two stages. Triage runs over the same bytes, so that the signals, and with them the verdict, are
those of triage alone; here they also name the `signature` of their lines. Work is done on columns, a chunk at a
time; memory does not grow with the logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from parsers.chunks import CHUNK_SIZE, HEAD_WINDOW, SLACK, Chunk, Packer, Piece
from parsers.kernel import scan
from parsers.linetags import STREAMS, read_loggers, read_severities, read_tags
from parsers.records import Signal, Source
from parsers.schema import EVENT_SCHEMA
from parsers.stampcolumns import read_stamps, with_year
from parsers.text import body_column

if TYPE_CHECKING:
    from parsers.kernel import Bools, Ints
    from parsers.stampcolumns import Stamps

OpenChunks: TypeAlias = Callable[[Source], Iterator[bytes]]
"""The decompressed bytes of a source in blocks of any size. Called again where they are needed a second time."""

SRUN_LABEL = "srun-label"
"""Layout of sources each of whose lines begins with the task number that `srun -l` prints."""

_PROBED_SOURCES = 64
_PROBED_BYTES = 64 << 10
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
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        self.stats = RowStats()
        self.signals: list[Signal] = []
        self._sources = sources
        self._open = open_chunks
        self._triage_factory = triage_factory
        self._packer = Packer(chunk_size)
        self._clock = _Clock(sources, open_chunks)
        self._marks: dict[int, dict[int, str]] = {}

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for source in self._sources:
            self.stats.files += 1
            self._packer.begin(source)
            for block in self._blocks(source):
                yield from map(self._batch, self._packer.feed(block))
            yield from map(self._batch, self._packer.end())
        yield from map(self._batch, self._packer.flush())

    def _blocks(self, source: Source) -> Iterator[bytes]:
        """The source's blocks, after triage has seen all of them: what it learns at the end may mark an early line."""
        blocks = self._open(source)
        if self._triage_factory is None:
            return blocks
        triage = self._triage_factory(source)
        first = list(islice(blocks, 2))
        for block in chain(first, blocks):
            triage.feed(block)
        triage.finish()
        self.signals.extend(triage.signals)
        marks = self._marks[source.index] = {}
        for signal in triage.signals:
            marks.setdefault(signal.line, signal.signature)
        return iter(first) if len(first) < 2 else self._open(source)  # noqa: PLR2004 - one block is all of it

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        data = np.frombuffer(chunk.data, np.uint8)
        lines = scan(data, chunk.size)
        layout = _Layout.of(chunk.pieces, lines.starts)
        stamps = read_stamps(data, lines)
        ts, quality = self._clock.times(chunk.pieces, layout, stamps)
        text = body_column(chunk, data, lines)
        sources = [piece.source for piece in chunk.pieces]
        labelled = layout.spread([source.layout == SRUN_LABEL for source in sources]).astype(np.bool_)
        tags = read_tags(data, lines.starts, labelled)
        columns = {
            "ts": ts,
            "ts_quality": pa.DictionaryArray.from_arrays(pa.array(quality, pa.int8()), _QUALITIES),
            "host": layout.words([source.host for source in sources], pa.int32()),
            "rank": layout.numbers([source.rank for source in sources], tags.rows, tags.rank),
            "local_rank": layout.numbers([source.local_rank for source in sources], tags.rows, tags.local_rank),
            "attempt": pa.array(layout.spread([source.attempt or 0 for source in sources]).astype(np.int32)),
            "stream": layout.words([source.stream for source in sources], pa.int8(), tags.rows, tags.stream, STREAMS),
            "severity": pa.array(read_severities(text.column, stamps)),
            "logger": read_loggers(data, stamps, layout.rows),
            "body": text.column,
            "signature": self._signatures(chunk.pieces, layout),
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

    def _signatures(self, pieces: Sequence[Piece], layout: _Layout) -> pa.DictionaryArray[Any, Any]:
        rows: list[int] = []
        words: list[str] = []
        bounds = [*layout.heads.tolist(), layout.rows]
        for piece, head, end in zip(pieces, bounds, bounds[1:], strict=False):
            last = piece.first_line + end - head
            found = [line for line in self._marks.get(piece.source.index, ()) if piece.first_line <= line < last]
            rows += [head + line - piece.first_line for line in found]
            words += [self._marks[piece.source.index][line] for line in found]
        return layout.words([None] * len(pieces), pa.int32(), np.array(rows, np.int64), np.arange(len(rows)), words)


def normalise(
    sources: Sequence[Source],
    open_chunks: OpenChunks,
    triage_factory: TriageFactory | None = None,
    *,
    chunk_size: int = CHUNK_SIZE,
) -> Normalisation:
    """Rows of all lines of `sources`, and the signals that `triage_factory`'s readers find in them.

    `open_chunks` is called twice for a source of more than one block if there is a triage. Its errors are not caught.
    """
    return Normalisation(sources, open_chunks, triage_factory, chunk_size=chunk_size)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which rows are of which piece, and where each row is in its source."""

    rows: int
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
        return cls(rows, heads, counts, starts + np.repeat(shift, counts), np.arange(rows) + np.repeat(first, counts))

    def spread(self, values: Sequence[int]) -> Ints:
        """A value a piece as a value a row."""
        return np.repeat(np.array(values, np.int64), self.counts)

    def numbers(self, values: Sequence[int | None], rows: Ints, own: Ints) -> pa.Array[Any]:
        """A number a piece, those of some rows replaced where `own` is not -1; int32."""
        column = self.spread([-1 if value is None else value for value in values]).astype(np.int32)
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
        indices: Any = pa.array(column.astype(np.int32), mask=column < 0).cast(index)
        return pa.DictionaryArray.from_arrays(indices, dictionary)


class _Clock:
    """Gives each row a time; remembers what the next chunk needs of the source that goes on in it."""

    def __init__(self, sources: Sequence[Source], open_chunks: OpenChunks) -> None:
        self._sources = sources
        self._open = open_chunks
        self._stamp: int | None = None
        self._reference: int | None = None
        self._job_reference: int | None = None
        self._probed = False

    def times(
        self, pieces: Sequence[Piece], layout: _Layout, stamps: Stamps
    ) -> tuple[pa.Array[Any], npt.NDArray[np.int8]]:
        """Times and how they are known: forward within a source, backward only from a stamp in its head window."""
        firsts = [number for number, piece in enumerate(pieces) if piece.begins or number == 0]
        heads = layout.heads[firsts]
        fresh = np.array([pieces[number].begins for number in firsts])
        run = np.searchsorted(heads, stamps.row, side="right") - 1
        early = fresh[run] & (layout.offsets[stamps.row] < HEAD_WINDOW)
        rows, ns, kept = self._complete(stamps, run, early, [pieces[number].source for number in firsts], fresh)
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
        return pa.array(values, mask=quality == _NONE).cast(pa.timestamp("ns", "UTC")), quality

    def _complete(
        self, stamps: Stamps, run: Ints, early: Bools, sources: Sequence[Source], fresh: Bools
    ) -> tuple[Ints, Ints, Bools]:
        """Rows and ns of the stamps, completed with the year; and which of `stamps` could be."""
        reference: list[int | None] = [None] * len(sources)
        dated, first = np.unique(run[stamps.dated & early], return_index=True)
        for number, ns in zip(dated.tolist(), stamps.ns[stamps.dated & early][first].tolist(), strict=True):
            reference[number] = ns
        if not fresh[0]:
            reference[0] = self._reference
        for number in np.unique(run[~stamps.dated]).tolist():
            if reference[number] is None:
                reference[number] = self._fallback(sources[number])
        self._reference = reference[-1]
        if stamps.dated.all():
            return stamps.row, stamps.ns, np.ones(len(stamps.row), np.bool_)
        has = np.array([ns is not None for ns in reference])
        values = np.array([ns or 0 for ns in reference], np.int64)
        ns = stamps.ns.copy()
        short = ~stamps.dated
        ns[short] = with_year(ns[short], values[run[short]])
        kept = stamps.dated | has[run]
        return stamps.row[kept], ns[kept], kept

    def _fallback(self, source: Source) -> int | None:
        """Tells the year of a source without a dated line in its head: the job's first one, else the file's time."""
        if not self._probed:
            self._probed = True
            self._job_reference = next(filter(None, map(self._first_dated, self._sources[:_PROBED_SOURCES])), None)
        return self._job_reference if self._job_reference is not None else source.mtime_ns

    def _first_dated(self, source: Source) -> int | None:
        head = b""
        for block in self._open(source):
            head += block[:_PROBED_BYTES]
            if len(head) >= _PROBED_BYTES:
                break
        head = head[:_PROBED_BYTES] + b"\n"
        data = np.frombuffer(head + bytes(SLACK), np.uint8)
        stamps = read_stamps(data, scan(data, len(head)))
        dated = stamps.ns[stamps.dated]
        return int(dated[0]) if len(dated) else None
