"""Makes clean text of a chunk's lines: UTF-8, without escape sequences, of progress bars the last state only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from parsers.kernel import RETURN

if TYPE_CHECKING:
    from parsers.chunks import Chunk
    from parsers.kernel import Bools, Bytes, Ints, Lines


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
_PADDING = 8
"""A bar that is shorter than the one before is padded with blanks; of so many at most it is freed on columns."""
_BLANK = b" \t"
_BOM = b"\xef\xbb\xbf"
_GROUP = 64 << 10
_UPPER_BITS = 0x8080808080808080
_PERCENT, _BAR, _BRACKET, _SPACE, _TAB = (np.uint8(ord(c)) for c in "%|] \t")


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
    special, returned, other = (np.zeros(len(starts), np.bool_) for _ in range(3))
    special[bad] = special[np.searchsorted(starts, np.array(marked, np.int64))] = True
    returned[lines.control_rows[kind == RETURN]] = True
    other[lines.control_rows[kind != RETURN]] = True
    # What is kept of each line, where that is one run of its bytes.
    begins, stops = starts.copy(), ends.copy()
    hard = _last_states(chunk, data, lines, returned & ~special & ~other, (begins, stops))
    hard |= special | (returned & other)
    texts: dict[int, bytes] = {}
    for row in np.flatnonzero(hard).tolist():
        raw = chunk.data[starts[row] : ends[row]]
        if special[row]:
            raw = raw.removeprefix(_BOM) if starts[row] in marked else raw
            raw = raw.decode(errors="replace").encode()
        texts[row] = clean_line(raw)
    plain = np.flatnonzero(other & ~returned & ~special)
    texts.update(zip(plain.tolist(), _without_escapes(_take(chunk, starts, ends, plain)), strict=True))
    column = _splice(chunk, lines, begins, stops, texts)
    return Bodies(column, len(bad), int(np.count_nonzero(kind == 0)))


def _splice(chunk: Chunk, lines: Lines, begins: Ints, stops: Ints, texts: dict[int, bytes]) -> pa.StringArray:
    """The lines one behind the other without their ends: of each the bytes that are kept, or another text."""
    changed = (begins != lines.starts) | (stops != lines.ends)
    lengths = stops - begins
    rows = np.fromiter(texts, np.int64, len(texts))
    lengths[rows] = np.fromiter(map(len, texts.values()), np.int64, len(texts))
    changed[rows] = True
    where = np.flatnonzero(changed)
    # In turn what lies before a changed line, and what is kept of it; its line feed is removed with the others.
    spans = np.zeros((len(where) + 1, 4), np.int64)
    spans[1:, 0], spans[:-1, 1] = lines.ends[where], lines.starts[where]
    spans[:-1, 2], spans[:-1, 3] = begins[where], stops[where]
    spans[-1, 1] = chunk.size
    whole = chunk.data  # slices of bytes are joined faster than views are
    parts = [whole[start:end] for start, end in spans.reshape(-1, 2).tolist()]
    for place, text in zip((2 * np.searchsorted(where, rows) + 1).tolist(), texts.values(), strict=True):
        parts[place] = text
    joined = b"".join(parts)
    if lines.returns_end_lines:
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


def _last_states(chunk: Chunk, data: Bytes, lines: Lines, turned: Bools, kept: tuple[Ints, Ints]) -> Bools:
    """Of lines that are progress bars and nothing else keep the last state; tells which of `turned` are not.

    `turned` are lines with carriage returns and no other controls.
    """
    rows = np.flatnonzero(turned)
    if not len(rows):
        return turned
    line, begin, stop = _parts(data, lines, turned, rows)
    bar = (data[stop - 1] == _BRACKET) & _marked(data, line, begin, stop)
    easy = ~_take(chunk, lines.starts, lines.ends, rows).str.contains(_TROUBLE).to_numpy()
    easy &= np.bincount(line, minlength=len(rows)) > 0
    easy[line[~bar]] = False
    begins, stops = kept
    final = np.ones(len(line), np.bool_)
    final[:-1] = line[1:] != line[:-1]
    last = np.flatnonzero(final & easy[line])
    begins[rows[line[last]]], stops[rows[line[last]]] = begin[last], stop[last]
    hard = turned.copy()
    hard[rows[easy]] = False
    return hard


def _parts(data: Bytes, lines: Lines, turned: Bools, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """What stands between carriage returns: the number of its line among `rows`, begin and end without blanks."""
    within = turned[lines.control_rows]
    returns = lines.controls[within]
    counts = np.bincount((np.cumsum(turned) - 1)[lines.control_rows[within]], minlength=len(rows)) + 1
    line = np.repeat(np.arange(len(rows)), counts)
    final = np.zeros(len(line), np.bool_)
    final[np.cumsum(counts) - 1] = True
    stop = np.empty(len(line), np.int64)
    stop[final], stop[~final] = lines.ends[rows], returns
    begin = np.empty_like(stop)
    begin[1:] = stop[:-1] + 1
    begin[np.cumsum(counts) - counts] = lines.starts[rows]
    for _ in range(_PADDING):
        ended = data[stop - 1]
        blank = ((ended == _SPACE) | (ended == _TAB)) & (stop > begin)
        if not blank.any():
            break
        stop -= blank
    full = stop > begin
    return line[full], begin[full], stop[full]


def _marked(data: Bytes, line: Ints, begin: Ints, stop: Ints) -> Bools:
    """Whether `%|` stands in the first bytes of each part: tried first where the line's first part has it."""
    fresh = np.ones(len(line), np.bool_)
    fresh[1:] = line[1:] != line[:-1]
    shift = np.maximum(_mark_within(data, begin[fresh], stop[fresh]), 0)
    at = begin + shift[np.cumsum(fresh) - 1]
    found: Bools = (data[at] == _PERCENT) & (data[at + 1] == _BAR) & (at + 1 < stop)
    rest = np.flatnonzero(~found)
    found[rest] = _mark_within(data, begin[rest], stop[rest]) >= 0
    return found


def _mark_within(data: Bytes, begin: Ints, stop: Ints) -> Ints:
    """How far from the begin of each part its `%|` is, -1 if it is not within the first bytes."""
    places = begin[:, None] + np.arange(_BAR_WITHIN)
    window = data[np.minimum(places, len(data) - 1)]
    hit = (window[:, :-1] == _PERCENT) & (window[:, 1:] == _BAR) & (places[:, 1:] < stop[:, None])
    return np.where(hit.any(axis=1), hit.argmax(axis=1), -1)


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
    """Rows that are no UTF-8: looked for by groups of lines first."""
    words = np.frombuffer(chunk.data, np.uint64, len(chunk.data) // 8)
    places = np.append(starts, chunk.size)
    borders = np.unique(np.append(np.searchsorted(places, np.arange(0, chunk.size, _GROUP)), len(starts)))
    rows: list[int] = []
    for low, high in pairwise(borders.tolist()):
        start, end = int(places[low]), int(places[high])
        # Bytes of neighbours in the first and last word do no harm; nearly all logs are ASCII.
        if not np.bitwise_or.reduce(words[start // 8 : end // 8 + 1]) & _UPPER_BITS or _valid(chunk, start, end):
            continue
        while start < end:
            try:
                chunk.data[start:end].decode()
            except UnicodeDecodeError as error:
                row = int(np.searchsorted(starts, start + error.start, side="right")) - 1
                rows.append(row)
                start = int(places[row + 1])
            else:
                break
    return np.array(rows, np.int64)


def _valid(chunk: Chunk, start: int, end: int) -> bool:
    span = pa.py_buffer(np.array([start, end], np.int64).data)
    whole = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, span, pa.py_buffer(chunk.data)])
    try:
        whole.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True
