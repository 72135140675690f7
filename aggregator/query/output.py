"""The rows of a query, as a table for people or in a form for programs."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TextIO, TypeAlias

import polars as pl
from rich.cells import cell_len, set_cell_size

from aggregator import safe
from aggregator.eventlines import ISO, as_json, fit_json
from aggregator.masking import mask_texts

Frames: TypeAlias = Iterable[pl.DataFrame]
"""The rows in pieces, at least one of them, which may be empty."""

_NARROWEST = 12
"""Characters that a column keeps where the terminal is too narrow for all."""
_GAP = "  "
_LAST_BITS = 4 * sys.float_info.epsilon


def plain(frame: pl.DataFrame, *, redact: bool) -> pl.DataFrame:
    """The same rows of texts, numbers and truth values only: moments in ISO 8601, durations in seconds."""
    columns = [_plain_column(column) for column in frame]
    return pl.DataFrame([mask_texts(each) if redact and each.dtype == pl.String else each for each in columns])


def _plain_column(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if isinstance(kind, pl.Datetime):
        return column.dt.strftime(ISO if kind.time_zone == "UTC" else ISO.removesuffix("Z"))
    if isinstance(kind, pl.Duration):
        return column.dt.total_nanoseconds() / 1e9
    if kind.is_float():  # JSON has neither infinity nor what is no number
        finite = column.set(~column.is_finite().fill_null(value=True), None)
        return pl.Series(column.name, [None if value is None else _short(value) for value in finite.to_list()], kind)
    if kind.is_integer() or kind in (pl.String, pl.Boolean):
        return column
    if kind.is_nested() or kind == pl.Binary:
        texts = [None if value is None else json.dumps(value, default=str) for value in column.to_list()]
        return pl.Series(column.name, texts, pl.String)
    return column.cast(pl.Float64) if kind.is_decimal() else column.cast(pl.String)


def _short(value: float) -> float:
    """The number of 15 digits that sums and differences missed by their last bits: 17.354 for 17.354000000000003."""
    near = float(f"{value:.15g}")
    return near if abs(near - value) <= _LAST_BITS * abs(value) else value


def write_ndjson(frames: Frames, out: TextIO) -> None:
    """An object a row."""
    out.writelines(fit_json(row, out.encoding) + "\n" for row in _objects(frames))


def write_json(frames: Frames, out: TextIO) -> None:
    """One array of objects, a row each line."""
    before = "[\n"
    for row in _objects(frames):
        out.write(before + fit_json(row, out.encoding))
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def _objects(frames: Frames) -> Iterator[str]:
    for frame in frames:
        yield from map(as_json, frame.iter_rows(named=True))


_FORMULA = frozenset("=+-@\t")
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")


def write_csv(frames: Frames, out: TextIO) -> None:
    """Comma separated, with a line of names; what is null is empty, control characters are symbols.

    A text that a spreadsheet would calculate has an apostrophe in front.
    """
    first = True
    for frame in frames:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if first:
            rows.writerow(map(safe.show, frame.columns))
            first = False
        rows.writerows(
            [f"'{cell}" if cell[:1] in _FORMULA and not _NUMBER.fullmatch(cell) else cell for cell in row]
            for row in map(_shown, frame.iter_rows())
        )
        out.write(fit(text.getvalue(), out))


WRITERS: dict[str, Callable[[Frames, TextIO], None]] = {
    "csv": write_csv, "json": write_json, "ndjson": write_ndjson
}  # fmt: skip


def write_table(frame: pl.DataFrame, out: TextIO, width: int | None) -> None:
    """Aligned columns, numbers to the right; cut to `width` characters a line where that is given."""
    names = [safe.show(name) for name in frame.columns]
    rows = [_shown(row) for row in frame.iter_rows()]
    widths = [max(map(cell_len, cells), default=0) for cells in zip(names, *rows, strict=True)]
    numeric = [kind.is_numeric() for kind in frame.dtypes]
    if width is not None:
        widths = _narrowed(widths, numeric, width - len(_GAP) * (len(widths) - 1))
    for cells in chain([names, ["-" * each for each in widths]], rows):
        padded = (_padded(*each) for each in zip(cells, widths, numeric, strict=True))
        out.write(fit(_GAP.join(padded).rstrip() + "\n", out))


def _narrowed(widths: Sequence[int], numeric: Sequence[bool], room: int) -> list[int]:
    """The widest texts give way first; none to nothing."""
    result = list(widths)
    texts = [index for index, is_number in enumerate(numeric) if not is_number]
    while texts and sum(result) > room:
        widest = max(texts, key=result.__getitem__)
        others = sorted({result[index] for index in texts if result[index] < result[widest]}, reverse=True)
        least = max(_NARROWEST, others[0] if others else 0, result[widest] - (sum(result) - room))
        if least >= result[widest]:
            least = result[widest] - 1
        if least < _NARROWEST:
            break
        result[widest] = least
    return result


def _padded(text: str, width: int, is_number: bool) -> str:
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - size) + text if is_number else text + " " * (width - size)


def _shown(row: Iterable[object]) -> list[str]:
    return [_cell(value) for value in row]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return safe.show(value) if isinstance(value, str) else str(value)


def fit(text: str, out: TextIO) -> str:
    """The text in characters that a stream has."""
    encoding = out.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
