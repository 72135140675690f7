"""Masks the secrets in whole columns of log lines, as `safe.mask` does in one text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from aggregator.keyblocks import MARK, KeyBlock
from aggregator.safe import CSI, mask, secret_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_NAMES = ("host", "logger", "path")


@cache
def _keywords() -> list[str]:
    return sorted({keyword for pattern in secret_patterns() for keyword in pattern.keywords})


def masked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with each secret in the column `body` replaced by its kind and a keyed hash.

    Lines that hold no keyword are passed over at the speed of a literal scan; of the others, those that a pattern
    matches are masked one by one, and those of a private key's block by the file that they are in.
    """
    blocks: dict[str, KeyBlock] = {}
    for batch in batches:
        text = pl.Series(batch.column("body"))
        clean = _mask_blocks(mask_texts(text), batch, blocks)
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
    if not blocks and not text.str.contains(MARK, literal=True).any():
        return text
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
    bare = text
    if text.str.contains("\x1b", literal=True).any():
        bare = text.str.replace_all(CSI.pattern, "")
    near = bare.str.contains_any(_keywords(), ascii_case_insensitive=True).arg_true()
    if len(near) == 0:
        return text
    suspects = bare.gather(near)
    met = suspects.str.extract_many(_keywords(), ascii_case_insensitive=True, overlapping=True).explode().unique()
    keywords = {keyword.lower() for keyword in met.to_list()}
    found = pl.Series([False]).new_from_index(0, len(suspects))
    for pattern in secret_patterns():
        if keywords.isdisjoint(pattern.keywords):  # nearly all: words such as `token` are met in any log
            continue
        found |= suspects.str.contains(pattern.regex.pattern).fill_null(value=False)
    rows = near.filter(found)
    if len(rows) == 0:
        return text
    return text.clone().scatter(
        rows, [mask(line) for line in suspects.filter(found)]
    )  # it changes what it is called on
