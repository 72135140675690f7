"""Masks the secrets in whole columns of log lines, as `safe.mask` does in one text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from aggregator.safe import mask, secret_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@cache
def _keywords() -> list[str]:
    return sorted({keyword for pattern in secret_patterns() for keyword in pattern.keywords})


def masked(batches: Iterable[pa.RecordBatch], column: str = "body") -> Iterator[pa.RecordBatch]:
    """The batches, with each secret in a text column replaced by its kind and a keyed hash.

    Lines that hold no keyword are passed over at the speed of a literal scan; of the others, those that a pattern
    matches are masked one by one.
    """
    for batch in batches:
        index = batch.schema.get_field_index(column)
        text = pl.Series(batch.column(index))
        clean = mask_texts(text)
        if clean is text:
            yield batch
            continue
        values = clean.to_arrow().cast(batch.schema.field(index).type)
        yield batch.set_column(index, batch.schema.field(index), values)


def mask_texts(text: pl.Series) -> pl.Series:
    """The texts, masked as `masked` does it; the same object if no pattern matches any."""
    near = text.str.contains_any(_keywords(), ascii_case_insensitive=True).arg_true()
    suspects = text.gather(near)
    found = pl.Series([False]).new_from_index(0, len(suspects))
    for pattern in secret_patterns():
        found |= suspects.str.contains(pattern.regex.pattern).fill_null(value=False)
    rows = near.filter(found)
    if len(rows) == 0:
        return text
    return text.clone().scatter(
        rows, [mask(line) for line in suspects.filter(found)]
    )  # it changes what it is called on
