"""Makes clean text of a chunk's lines: UTF-8, without escape sequences, of progress bars the last state only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from parsers.chunks import SLACK
from parsers.kernel import FIRST_BYTES, RETURN, read_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from parsers.chunks import Chunk
    from parsers.kernel import Bools, Bytes, Ints, Lines


@dataclass(frozen=True, slots=True)
class Bodies:
    """The text of a chunk's lines, and what had to be changed to have it."""

    column: pa.StringArray
    text: pl.Series
    """The same, as Polars has it: without a copy."""
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
_INLINE = 12
"""Bytes of a string that Arrow's views hold themselves."""
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
    hard = _last_states(data, lines, returned & ~special & ~other, (begins, stops))
    hard |= special | (returned & other)
    texts: dict[int, bytes] = {}
    for row in np.flatnonzero(hard).tolist():
        raw = chunk.data[starts[row] : ends[row]]
        if special[row]:
            raw = raw.removeprefix(_BOM) if starts[row] in marked else raw
            raw = raw.decode(errors="replace").encode()
        texts[row] = clean_line(raw)
    plain = np.flatnonzero(other & ~returned & ~special)
    texts.update(zip(plain.tolist(), _without_escapes(string_views(data, starts[plain], ends[plain])), strict=True))
    text = polars_series(string_views(data, begins, stops, texts))
    return Bodies(narrow(text), text, len(bad), int(np.count_nonzero(kind == 0)))


def _without_escapes(views: pa.Array[Any]) -> list[bytes]:
    """`clean_line` of lines without carriage returns."""
    clean = polars_series(views).str.replace_all("\0", "", literal=True).str.replace_all(_ANSI, "")
    return clean.cast(pl.Binary).to_list()


def string_views(
    data: Bytes, begins: Ints, stops: Ints, texts: Mapping[int, bytes] = MappingProxyType({})
) -> pa.Array[Any]:
    """Strings where they lie in a chunk, but for those at the rows of `texts`; nothing is copied."""
    views = np.empty((len(begins), 4), np.uint32)
    _point(views, slice(None), data, begins, stops - begins)
    other = b"".join([*texts.values(), bytes(SLACK)])
    if texts:
        rows = np.fromiter(texts, np.int64, len(texts))
        lengths = np.fromiter(map(len, texts.values()), np.int64, len(texts))
        _point(views, rows, np.frombuffer(other, np.uint8), np.cumsum(lengths) - lengths, lengths, buffer=1)
    buffers = [None, pa.py_buffer(views.data), pa.py_buffer(data.data), pa.py_buffer(other)]
    return pa.Array.from_buffers(pa.string_view(), len(views), buffers)


def _point(
    views: npt.NDArray[np.uint32], rows: Ints | slice, data: Bytes, at: Ints, lengths: Ints, *, buffer: int = 0
) -> None:
    """Make views of Arrow's layout: length; first four bytes, number of the buffer, place; or all of up to 12 bytes."""
    first = read_words(data, at)
    made = np.empty((len(at), 4), np.uint32)
    made[:, 0], made[:, 1], made[:, 2], made[:, 3] = lengths, first, buffer, at
    short = np.flatnonzero(lengths <= _INLINE)
    whole = first[short] & FIRST_BYTES[np.minimum(lengths[short], 8)]
    made[short, 1], made[short, 2] = whole, whole >> np.uint64(32)
    made[short, 3] = read_words(data, at[short] + 8) & FIRST_BYTES[np.maximum(lengths[short] - 8, 0)]
    views[rows] = made


def _last_states(data: Bytes, lines: Lines, turned: Bools, kept: tuple[Ints, Ints]) -> Bools:
    """Of lines that are progress bars and nothing else keep the last state; tells which of `turned` are not.

    `turned` are lines with carriage returns and no other controls.
    """
    rows = np.flatnonzero(turned)
    if not len(rows):
        return turned
    line, begin, stop = _parts(data, lines, turned, rows)
    bar = (data[stop - 1] == _BRACKET) & _marked(data, line, begin, stop)
    easy = ~polars_series(string_views(data, lines.starts[rows], lines.ends[rows])).str.contains(_TROUBLE).to_numpy()
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


def narrow(text: pl.Series) -> pa.StringArray:
    """Text as Arrow's strings of 32-bit offsets, one behind the other."""
    _, borders, letters = text.to_arrow().buffers()
    offsets = np.frombuffer(memoryview(borders or b""), np.int64).astype(np.int32)
    return pa.StringArray.from_buffers(len(text), pa.py_buffer(offsets.data), letters or pa.py_buffer(b""))


def polars_series(column: pa.Array[Any]) -> pl.Series:
    """An Arrow array as a polars series, without a copy where its type allows."""
    series = pl.from_arrow(column)
    if not isinstance(series, pl.Series):
        raise TypeError("an array makes a series")
    return series


def _undecodable(chunk: Chunk, starts: Ints) -> Ints:
    """Rows that are no UTF-8: looked for by groups of lines first."""
    places = np.append(starts, chunk.size)
    borders = np.unique(np.append(np.searchsorted(places, np.arange(0, chunk.size, _GROUP)), len(starts)))
    spans = [None, pa.py_buffer(places[borders].data), pa.py_buffer(chunk.data)]
    groups = pa.Array.from_buffers(pa.large_string(), len(borders) - 1, spans)
    if _valid(groups):
        return np.empty(0, np.int64)
    rows: list[int] = []
    for number, (low, high) in enumerate(pairwise(borders.tolist())):
        start, end = int(places[low]), int(places[high])
        if _valid(groups[number : number + 1]):
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


def _valid(texts: pa.Array[Any]) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
