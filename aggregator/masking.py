"""Masks the secrets in whole columns of log lines, as `safe.mask` does in one text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from aggregator.keyblocks import MARK, KeyBlock
from aggregator.safe import CSI, mask, secret_patterns
from parsers.literals import LineFinder, line_finder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from parsers.kernel import Ints


_NAMES = ("host", "logger", "path")
_ESCAPE, _CONTROLS, _SHORT_ESCAPE = b"\x1b", b"\xc2", "\x9b".encode()
"""Colours may begin within a keyword. The short form is one of the characters that begin with a rarer byte."""


@cache
def _keywords() -> list[str]:
    return sorted({keyword for pattern in secret_patterns() for keyword in pattern.keywords})


@cache
def _finder() -> LineFinder:
    return line_finder([keyword.encode() for keyword in _keywords()], caseless=True)


def masked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with each secret in the column `body` replaced by its kind and a keyed hash.

    Lines that hold no keyword are passed over at the speed of a literal scan; of the others, those that a pattern
    matches are masked one by one, and those of a private key's block by the file that they are in.
    """
    blocks: dict[str, KeyBlock] = {}
    for batch in batches:
        near = _suspects(batch.column("body"))
        if not len(near) and not blocks:
            yield batch
            continue
        text = pl.Series(batch.column("body"))
        clean = _masked_at(text, near)
        if blocks or clean.gather(near).str.contains(MARK, literal=True).any():
            clean = _mask_blocks(clean, batch, blocks)
        yield batch if clean is text else _with(batch, "body", clean.to_arrow())


def masked_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with the secrets masked that names of files, hosts and loggers hold."""
    for batch in batches:
        made = batch
        for name in _NAMES:
            column: Any = batch.column(name)  # the stubs do not tell which columns are dictionaries
            words = pl.Series(column.dictionary)
            clean = mask_texts(words)
            if clean is not words:
                values = clean.to_arrow().cast(column.dictionary.type)
                made = _with(made, name, pa.DictionaryArray.from_arrays(column.indices, values))
        yield made


def _with(batch: pa.RecordBatch, name: str, values: pa.Array[Any]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    field = batch.schema.field(index)
    return batch.set_column(index, field, values.cast(field.type))


def _mask_blocks(text: pl.Series, batch: pa.RecordBatch, blocks: dict[str, KeyBlock]) -> pl.Series:
    """The texts without the inner lines of keys; `blocks` holds, by file, the keys that are not at their end."""
    rows, clean_lines = [], []
    paths: list[str] = pl.Series(batch.column("path")).cast(pl.String).to_list()
    for row, (path, line) in enumerate(zip(paths, text, strict=True)):
        if line is None or (path not in blocks and MARK not in line):
            continue
        block = blocks.setdefault(path, KeyBlock())
        clean = block.masked(line)
        if clean is not line:
            rows.append(row)
            clean_lines.append(clean)
        if not block.is_open:
            del blocks[path]
    return text.clone().scatter(rows, clean_lines) if rows else text


def mask_texts(text: pl.Series) -> pl.Series:
    """The texts, masked as `masked` does it; the same object if no pattern matches any."""
    return _masked_at(text, _suspects(text.to_arrow()))


def _suspects(column: pa.Array[Any]) -> Ints:
    """Rows of texts that may hold a keyword: all that do are among them."""
    _, borders, text = column.buffers()
    if borders is None or text is None:
        return np.empty(0, np.int64)
    wide = pa.types.is_large_string(column.type)
    ends = np.frombuffer(memoryview(borders), np.int64 if wide else np.int32)[column.offset :][: len(column) + 1]
    data = text.slice(ends[0], ends[-1] - ends[0]).to_pybytes()
    if _ESCAPE in data or (_CONTROLS in data and _SHORT_ESCAPE in data):
        return np.arange(len(column))
    found = np.array(_finder().positions(data), np.int64) + ends[0]
    return np.unique(np.searchsorted(ends[1:], found, side="right"))


def _masked_at(text: pl.Series, near: Ints) -> pl.Series:
    """The texts, those at some rows masked; the same object if no pattern matches any."""
    if not len(near):
        return text
    suspects = text.gather(near)
    if suspects.str.contains("\x1b", literal=True).any() or suspects.str.contains("\x9b", literal=True).any():
        suspects = suspects.str.replace_all(CSI.pattern, "")
    met = suspects.str.extract_many(_keywords(), ascii_case_insensitive=True, overlapping=True).explode().unique()
    keywords = {keyword.lower() for keyword in met.drop_nulls().to_list()}
    found = pl.Series([False]).new_from_index(0, len(suspects))
    for pattern in secret_patterns():
        if keywords.isdisjoint(pattern.keywords):  # nearly all: words such as `token` are met in any log
            continue
        found |= suspects.str.contains(pattern.regex.pattern).fill_null(value=False)
    rows = near[found.to_numpy()]
    if not len(rows):
        return text
    # `scatter` changes what it is called on.
    return text.clone().scatter(rows, [mask(line) for line in suspects.filter(found)])
