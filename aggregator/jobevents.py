"""The EVENTS of a judged job: with the ranks and hosts that the verdict knows, and times that all hosts share.

What a file's name and its lines' tags tell is not all: the whole job tells who is who. Rows of a file whose
rank was learnt have it, node-local ranks become global ones, and the host is the one of the rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from aggregator.correlate.identity import scope_of
from aggregator.discover import Discovery
from aggregator.export import events_of
from aggregator.masking import masked
from aggregator.opening import ReadNotes, read_chunks
from aggregator.reference import newest_date
from parsers.normalise import normalise
from parsers.schema import EVENT_SCHEMA, MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.correlate.judge import Judged
    from parsers.records import Source


@dataclass(frozen=True)
class JobEvents:
    """The lines of a job that was judged."""

    judged: Judged

    @cached_property
    def sources(self) -> list[Source]:
        """The logs, with the ranks that the table of identities gives them."""
        evidence, table = self.judged.evidence, self.judged.table
        found = Discovery(None, evidence.path, evidence.sources, evidence.skipped)
        return [replace(source, rank=table.rank_of_source.get(source.index)) for source in found.logs]

    @cached_property
    def offsets(self) -> dict[str, int]:
        """What each host's clock shows too much, in ns."""
        return {host: clock.offset_ns for host, clock in self.judged.clocks.hosts.items() if clock.offset_ns}

    def batches(self, *, redact: bool, signatures: bool) -> Iterator[pa.RecordBatch]:
        """All rows, in the order of the files, in bounded memory; without `signatures`, that column is null."""
        reference = newest_date(self.sources)
        read = partial(read_chunks, notes=ReadNotes())  # the verdict has told of what cannot be read
        if signatures:
            rows = events_of(self.sources, read, reference)
        else:
            rows = normalise(self.sources, read, reference_ns=reference)
        return map(self._completed, masked(rows) if redact else rows)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = self.judged.table
        columns = pl.DataFrame(batch.select(["rank", "local_rank", "host", "path"]))
        bases = {
            source.path: base
            for source in self.sources
            if (base := table.base_of_scope.get(scope_of(source))) is not None
        }
        hosts = {rank: name for rank, name in table.host_of_rank.items() if rank <= MAX_RANK}
        rank, host, path = pl.col("rank"), pl.col("host").cast(pl.String), pl.col("path").cast(pl.String)
        known = columns.with_columns(
            rank=pl.coalesce(rank, pl.col("local_rank") + _looked_up(path, bases, pl.Int32))
        ).select("rank", host=pl.coalesce(_looked_up(rank, hosts, pl.String), host))
        for name in known.columns:
            at = EVENT_SCHEMA.get_field_index(name)
            kind = EVENT_SCHEMA.field(at)
            values = known[name].to_arrow()
            if pa.types.is_dictionary(kind.type):
                values = values.cast(pa.string()).dictionary_encode()
            batch = batch.set_column(at, kind, values.cast(kind.type))
        return batch


def common_ns(offsets: dict[str, int]) -> pl.Expr:
    """The time of a row, which has columns `ts` and `host`, in ns on the clock that the job's hosts share."""
    behind = pl.col("host").cast(pl.String).replace_strict(offsets, default=0, return_dtype=pl.Int64)
    return pl.col("ts").dt.epoch("ns") - behind


def _looked_up(key: pl.Expr, values: dict[str, int] | dict[int, str], kind: type[pl.DataType]) -> pl.Expr:
    return key.replace_strict(values, default=None, return_dtype=kind) if values else pl.lit(None, kind)
