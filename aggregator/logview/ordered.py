"""Gives every line its place in the merged order.

Rows come in the order of their files. The place of a row is its key, the latest time that its file has reached there,
and then its number: so no line comes before one that stands above it in its file, and lines without a stamp stay behind
the line above them, which has the same key and the number before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from aggregator.jobevents import common_ns
from aggregator.logview.selection import FIRST, LAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from aggregator.jobevents import JobEvents

ORDER = ["key", "number"]
_NEAR = 100
"""Lines around the marked one that belong to it if they have no stamp of their own: a traceback, a box."""
_ERROR = 17
_TEXTS = ["host", "stream", "logger", "path"]
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Mark:
    """The line to be marked; `time` is when it happened, in ns on the common clock, for lines without a stamp."""

    path: str
    line: int
    time: int | None


class Places:
    """Iterate `placed` once. What a file has reached is carried from batch to batch."""

    def __init__(self, job: JobEvents, mark: Mark | None = None) -> None:
        self._offsets = job.offsets
        self._mark = mark or Mark("", 0, None)
        self._unstamped = [path for path, is_stamped in _stamped(job) if not is_stamped]
        self._carried: pl.DataFrame | None = None
        self._rows = 0

    def placed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
        """The rows with `key` and `number`, their `time` on the common clock (ns), the `level` of themselves or of
        what they continue, whether they are the marked line (`first`) or belong to it (`near`), and their `writer`.
        """
        for batch in (batch for batch in batches if batch.num_rows):
            yield self._placed(pl.DataFrame(batch).with_columns(pl.col(_TEXTS).cast(pl.String)))

    def _placed(self, frame: pl.DataFrame) -> pl.DataFrame:
        mark = self._mark
        own = pl.col("ts_quality").cast(pl.String) == "own"
        here = pl.col("path") == mark.path
        first = here & (pl.col("line") == mark.line)
        near = here & ~own & ((pl.col("line") - mark.line).abs() <= _NEAR)
        rank = pl.col("rank").cast(pl.String)
        frame = frame.with_row_index("number", self._rows).with_columns(
            pl.col("number").cast(pl.Int64), own=own, time=common_ns(self._offsets), first=first, near=near | first,
            writer=pl.coalesce("rank " + rank, "path"),
        )  # fmt: skip
        self._rows += frame.height
        if mark.time is not None:
            frame = frame.with_columns(time=pl.when("near").then(pl.col("time").fill_null(mark.time)).otherwise("time"))
        return self._keyed(frame)

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        before = self._carried.height if self._carried is not None else 0
        known = frame if self._carried is None else pl.concat([self._carried, frame], how="diagonal_relaxed")
        # First what stands above the first stamp of its file; last files without any, which mostly are what a program
        # prints as it dies.
        unknown = pl.when(pl.col("path").is_in(self._unstamped)).then(LAST).otherwise(FIRST)
        level = (
            pl.when(pl.col("severity") > 0).then("severity")
            .when(pl.col("body").str.contains(_TRACEBACK, literal=True)).then(_ERROR)
            .when("own").then(0)
        )  # fmt: skip
        known = known.with_columns(
            key=pl.col("time").cum_max().forward_fill().over("path").fill_null(unknown),
            level=level.forward_fill().over("path", "rank").fill_null(0).cast(pl.Int8),
        )
        # A row of each writer of the file that may go on: as if it were the first of the next batch.
        last = known.filter(pl.col("path") == known["path"].last())
        last = last.group_by("rank", maintain_order=True).last()
        self._carried = last.select(
            "rank", "path", time=pl.lit(known["key"].last()), severity="level", own=True, body=pl.lit("")
        )
        return known.slice(before).select(*frame.columns, "key", "level")


def _stamped(job: JobEvents) -> Iterator[tuple[str, bool]]:
    """Each log, and whether any line in it is known to have a stamp."""
    for scan in job.judged.evidence.scans:
        stamps = (activity.first_stamp for activity in scan.activity.values())
        yield scan.source.path, any(stamp is not None and not stamp.boot for stamp in stamps)
