"""The tables of a query: `events`, every line, and `signals`, every typed fact that the verdict was made of.

`events` is read from Parquet, of which Polars reads the columns and row groups that a query needs: a file that `export`
wrote, or one that is made of the job in a folder of the caller's. `signals` is small and made in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from aggregator.case import Case
from aggregator.errors import InputError, UsageError
from aggregator.export import write_events
from aggregator.jobevents import JobEvents, common_ns
from aggregator.masking import mask_texts
from aggregator.pipeline import investigate
from aggregator.safe import mask
from parsers.schema import EVENT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from parsers.records import Signal

_MOMENT = pl.Datetime("ns", "UTC")
_LARGEST = 1 << 63
_MAGIC = b"PAR1"
_TEXT_COLUMNS = [
    item.name for item in EVENT_SCHEMA if pa.types.is_dictionary(item.type) or pa.types.is_string(item.type)
]

EVENTS: Mapping[str, str] = {
    "ts": "when, by the host's own clock",
    "ts_quality": "how ts is known: own, inherited, bounded, none",
    "host": "where it ran",
    "rank": "global rank",
    "local_rank": "rank within the host",
    "attempt": "restart of the job, from 0",
    "stream": "stdout, stderr",
    "severity": "1 trace, 5 debug, 9 info, 10 notice, 13 warn, 17 error, 21 fatal; 0 not told",
    "logger": "Python logger or source file",
    "body": "the line",
    "signature": "id of the message that was recognised",
    "path": "file, relative to the job folder",
    "offset": "byte at which the line begins",
    "line": "number of the line, from 1",
    "message": "the same as body",
    "ts_common": "ts, corrected by the offset of the host's clock",
}
"""The columns of `events`, and what each is (docs/schema.md tells more)."""
SIGNALS: Mapping[str, tuple[type[pl.DataType] | pl.DataType, str]] = {
    "attempt": (pl.Int32, "restart of the job, from 0"),
    "signature": (pl.String, "id of the message, as in docs/formats.md"),
    "role": (pl.String, "root, either, symptom, teardown, exit, external, progress …"),
    "kind": (pl.String, "kind of failure: cuda_oom, segfault …"),
    "layer": (pl.String, "where it arose: user code, framework, driver …"),
    "phase": (pl.String, "what the job was doing"),
    "rank": (pl.Int32, "global rank, as the verdict knows it"),
    "host": (pl.String, "where it ran"),
    "ts": (_MOMENT, "when, by the host's own clock"),
    "ts_common": (_MOMENT, "ts, corrected by the offset of the host's clock"),
    "quality": (pl.String, "how ts is known: own, inherited, bounded, none"),
    "file": (pl.String, "file, relative to the job folder"),
    "line": (pl.Int64, "number of the line, from 1"),
    "text": (pl.String, "the line"),
}
"""The columns of `signals`: type, and what each is."""


class Tables(Protocol):
    """Where the rows come from. What is asked for is made at the first call."""

    def events(self) -> pl.LazyFrame:
        """Every line."""

    def signals(self) -> pl.LazyFrame:
        """Every signal.

        Raises:
            UsageError: there are none here.
        """


def empty_tables() -> dict[str, pl.LazyFrame]:
    """Both tables without a row: to check a query by, before anything is read."""
    signals = pl.LazyFrame(schema={name: kind for name, (kind, _) in SIGNALS.items()})
    events = pl.LazyFrame(pl.DataFrame(EVENT_SCHEMA.empty_table()))
    return {"events": _arranged(events, {}), "signals": signals}


def _arranged(events: pl.LazyFrame, offsets: dict[str, int]) -> pl.LazyFrame:
    words = [pl.col(name).cast(pl.String) for name in _TEXT_COLUMNS if name != "body"]
    common = pl.col("ts") if not offsets else pl.from_epoch(common_ns(offsets), "ns").dt.replace_time_zone("UTC")
    return events.with_columns(words).with_columns(message=pl.col("body"), ts_common=common)


@dataclass
class JobTables:
    """The tables of a job, read when they are asked for; `folder` is for the lines."""

    paths: Sequence[str]
    folder: Path
    redact: bool = True

    @cached_property
    def _case(self) -> Case:
        return investigate(self.paths)

    def events(self) -> pl.LazyFrame:
        judged = self._case.judged
        if judged is None:
            raise RuntimeError("the job was read without its evidence")
        rows = JobEvents(judged)
        file = self.folder / "events.parquet"
        write_events(rows.batches(redact=self.redact, signatures=True), file)
        return _arranged(pl.scan_parquet(file), rows.offsets)

    def signals(self) -> pl.LazyFrame:
        rows = list(self._signal_rows())
        return pl.LazyFrame(rows, schema={name: kind for name, (kind, _) in SIGNALS.items()}, orient="row")

    def _signal_rows(self) -> Iterator[tuple[object, ...]]:
        judged = self._case.judged
        if judged is None:
            raise RuntimeError("the job was read without its evidence")
        hosts, seen = judged.table.host_of_rank, set[int]()
        for attempt, signal in _of_attempts((item.index, item.signals) for item in judged.attempts):
            if id(signal) in seen:
                continue
            seen.add(id(signal))
            source = judged.evidence.source(signal)
            host = (hosts.get(signal.rank) if signal.rank is not None else None) or signal.host or source.host
            common = judged.clocks.common(signal.ns, host) if signal.ns is not None else None
            row = (
                attempt if source.attempt is None else source.attempt, signal.signature, str(signal.role), signal.kind,
                signal.layer, signal.phase, signal.rank, host, signal.ns, common, str(signal.quality),
                source.path, signal.line, mask(signal.text) if self.redact else signal.text,
            )  # fmt: skip
            yield tuple(map(_storable, row))


def _storable(value: str | int | None) -> str | int | None:
    """What a column can hold: no half of a surrogate pair, no moment beyond the year 2262."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if value is None or abs(value) < _LARGEST else None


def _of_attempts(attempts: Iterator[tuple[int, Sequence[Signal]]]) -> Iterator[tuple[int, Signal]]:
    """The last attempt first: the others share what it told of identities."""
    for index, signals in sorted(attempts, key=lambda item: item[0], reverse=True):
        for signal in signals:
            yield index, signal


@dataclass
class FileTables:
    """A file that `export` wrote: it has the lines only, and knows nothing of clocks."""

    path: Path
    redact: bool = True
    _found: pl.LazyFrame | None = field(default=None, repr=False)

    def events(self) -> pl.LazyFrame:
        """Every line, masked as it is read unless it is not to be.

        Raises:
            InputError: the file is damaged, or was not written by `export`.
        """
        try:
            names = pq.read_schema(self.path).names
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"the table cannot be read: {error}", where=str(self.path)) from None
        missing = [name for name in EVENT_SCHEMA.names if name not in names]
        if missing:
            raise InputError(
                f"not a table of events: no column {missing[0]!r}", where=str(self.path), help="denpex-agg export"
            )
        events = pl.scan_parquet(self.path).select(EVENT_SCHEMA.names)
        if self.redact:
            events = events.with_columns(
                pl.col("body").map_batches(mask_texts, return_dtype=pl.String, is_elementwise=True)
            )
        return _arranged(events, {})

    def signals(self) -> pl.LazyFrame:
        raise UsageError(
            "an exported table has no signals", where=str(self.path), help="query the job's folder, or ask for events"
        )


def tables_of(paths: Sequence[str], folder: Path, *, redact: bool) -> Tables:
    """The tables of a job, or of one exported file."""
    if len(paths) == 1 and _is_parquet(Path(paths[0])):
        return FileTables(Path(paths[0]), redact)
    return JobTables(paths, folder, redact)


def _is_parquet(path: Path) -> bool:
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
