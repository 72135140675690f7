"""Writes every line of the job's logs to one Parquet file with `parsers.schema.EVENT_SCHEMA`."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from aggregator.errors import OutputError
from aggregator.opening import ReadNotes, read_chunks
from parsers.normalise import Normalisation, normalise
from parsers.records import SourceKind
from parsers.schema import EVENT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parsers.normalise import TriageFactory
    from parsers.records import Skipped, Source

_DICTIONARY = [field.name for field in EVENT_SCHEMA if pa.types.is_dictionary(field.type)]
_PACKED = ("ts", "offset", "line")
"""Columns that grow by small steps: their differences take a fraction of the space."""
_PLAIN = ("rank", "local_rank", "attempt", "severity")
_STATISTICS = ["ts", "rank", "severity", "path", "line", "offset", "signature"]
_ROW_BYTES = 1 << 20
"""A page holds about so many bytes of messages."""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What went into the table. `lines` equals `rows`; `skipped` says what was not, or not wholly, read."""

    files: int
    lines: int
    bytes: int
    rows: int
    skipped: tuple[Skipped, ...]
