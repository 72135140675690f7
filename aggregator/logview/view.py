"""The lines of a judged job in the order in which they were written, as far as they are asked for."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from aggregator.errors import InputError, UsageError
from aggregator.jobevents import JobEvents
from aggregator.logview.lines import COLUMNS, Look
from aggregator.logview.ordered import ORDER, Mark, Places
from aggregator.logview.runs import Sorter
from aggregator.logview.selection import NS, Wanted
from aggregator.masking import mask_texts
from aggregator.reports.words import rank_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator.case import Case
    from aggregator.correlate.judge import Judged


@dataclass(frozen=True)
class LogView:
    """The merged log of a job."""

    case: Case

    @cached_property
    def judged(self) -> Judged:
        if self.case.judged is None:
            raise RuntimeError("the job was read without its evidence")
        return self.case.judged

    @cached_property
    def mark(self) -> Mark | None:
        """The line of the first failure: the first of its evidence that is in a log, and not told by another rank."""
        failure = self.case.verdict.first_failure
        if failure is None:
            return None
        logs = {source.path for source in self._events.sources}
        told = (item for item in failure.evidence if item.file in logs)
        own = (item for item in told if item.rank is None or not failure.ranks or item.rank in failure.ranks)
        return next((Mark(item.file, item.line, failure.time) for item in own), None)

    def window(self, reach_s: float) -> tuple[int, int]:
        """From when until when is near the first failure, in ns.

        Raises:
            InputError: there is none, or its time is not known.
        """
        failure = self.case.verdict.first_failure
        if failure is None:
            raise InputError("no first failure was found", help="leave --around out")
        if failure.time is None:
            where = f"{self.mark.path}:{self.mark.line}" if self.mark is not None else None
            raise InputError("nothing tells when the first failure was", where=where, help="try --tail 50 instead")
        return failure.time - round(reach_s * NS), failure.time + round(reach_s * NS)

    def check(self, wanted: Wanted) -> None:
        """Refuse ranks and hosts that the job does not have.

        Raises:
            UsageError: none of those that are asked for is there.
        """
        if wanted.ranks is not None and not wanted.ranks & self._ranks:
            has = f"its ranks are {rank_ranges(self._ranks)}" if self._ranks else "no line tells a rank"
            raise UsageError(f"the job has no rank {rank_ranges(wanted.ranks)}", help=has)
        if wanted.nodes and not any(map(wanted.has_node, self._hosts)):
            near = difflib.get_close_matches(wanted.nodes[0], self._hosts, n=3)
            names = ", ".join(near or sorted(self._hosts)[:5])
            raise UsageError(
                f"the job has no host {wanted.nodes[0]!r}", help=f"perhaps {names}" if names else "no line tells a host"
            )

    def look(self, *, prefix: bool, timestamps: bool, color: bool) -> Look:
        """How its lines look, as wide as its names need."""
        files = tuple(source.path for source in self._events.sources if source.rank is None)
        return Look(prefix, timestamps, color, tuple(sorted(self._ranks)), files, tuple(sorted(self._hosts)))

    def frames(self, wanted: Wanted, tail: int | None, folder: Path, *, redact: bool) -> Iterator[pl.DataFrame]:
        """The rows, in order, with `lines.COLUMNS`; of each rank (or file, where no rank is known) the last `tail`.

        What does not fit in memory is kept in `folder`.
        """
        places = Places(self._events, self.mark)
        sorter = Sorter(ORDER, folder)
        totals: Counter[str] = Counter()
        for placed in places.placed(self._events.batches(redact=redact, signatures=False)):
            rows = wanted.select(placed).select(*ORDER, "writer", *COLUMNS)
            if redact:  # lines are masked already
                rows = rows.with_columns(mask_texts(rows[name]) for name in ("host", "path", "logger"))
            if rows.height:
                sorter.add(rows)
                totals.update(dict(rows.group_by("writer").len().iter_rows()))
        return iter(sorter) if tail is None else _last_of_each(sorter, tail, totals)

    @cached_property
    def _events(self) -> JobEvents:
        return JobEvents(self.judged)

    @cached_property
    def _ranks(self) -> frozenset[int]:
        table = self.judged.table
        return frozenset({*table.ranks, *table.rank_of_source.values(), *table.host_of_rank})

    @cached_property
    def _hosts(self) -> frozenset[str]:
        table = self.judged.table
        told = (source.host for source in self._events.sources)
        return frozenset({*table.host_of_rank.values(), *(host for host in told if host is not None)})


def _last_of_each(frames: Sorter, tail: int, totals: Counter[str]) -> Iterator[pl.DataFrame]:
    left = {writer: max(total - tail, 0) for writer, total in totals.items()}
    """Rows of each writer that are still to be left out."""
    for frame in frames:
        skipped = pl.col("writer").replace_strict(left, default=0, return_dtype=pl.Int64)
        yield frame.filter(pl.int_range(pl.len()).over("writer") >= skipped)
        for writer, count in frame.group_by("writer").len().iter_rows():
            left[writer] = max(left[writer] - count, 0)
