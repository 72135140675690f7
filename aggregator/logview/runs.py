"""Sorts rows that may not fit in memory: sorted runs in files, merged piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_RUN = 24 << 20
"""Bytes of rows that are sorted in memory. What is less needs no file."""
_FAN_IN = 32
"""Runs that are merged at once; of as many one is made, so that a job of any size needs few open files."""
_PIECE = 1 << 20
"""Bytes of a run that are in memory while it is merged."""


class Sorter:
    """Add frames, which all have the same columns, then iterate once. `order` names columns of whole numbers;
    `folder` is for the runs, and the caller's to empty.
    """

    def __init__(self, order: Sequence[str], folder: Path, run_size: int = _RUN, fan_in: int = _FAN_IN) -> None:
        self._order = list(order)
        self._folder = folder
        self._run_size, self._fan_in = run_size, fan_in
        self._frames: list[pl.DataFrame] = []
        self._size = 0
        self._levels: list[list[Path]] = []
        """Runs, by how many times their rows were merged."""
        self._files = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in any order."""
        self._frames.append(frame)
        self._size += int(frame.estimated_size())
        if self._size >= self._run_size:
            self._store([self._sorted()], 0)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        runs = [self._read(path) for level in self._levels for path in level]
        if self._frames:
            runs.append(iter([self._sorted()]))
        return self._merged(runs)

    def _sorted(self) -> pl.DataFrame:
        frame = pl.concat(self._frames).sort(self._order)
        self._frames, self._size = [], 0
        return frame

    def _store(self, frames: Iterable[pl.DataFrame], level: int) -> None:
        path = self._folder / f"run-{self._files}.arrow"
        self._files += 1
        writer = None
        with pa.OSFile(str(path), "wb") as sink:
            for frame in frames:
                rows = max(1, frame.height * _PIECE // max(int(frame.estimated_size()), 1))
                for piece in frame.iter_slices(rows):
                    table = piece.to_arrow()
                    writer = writer or pa.ipc.new_file(sink, table.schema)
                    writer.write_table(table.combine_chunks())
            if writer is not None:
                writer.close()
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(path)
        if len(runs) >= self._fan_in:
            self._levels[level] = []
            self._store(self._merged([self._read(run) for run in runs]), level + 1)
            for run in runs:
                run.unlink()

    @staticmethod
    def _read(path: Path) -> Iterator[pl.DataFrame]:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield pl.DataFrame(reader.get_batch(number))

    def _merged(self, runs: Iterable[Iterator[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        """The rows of sorted runs, sorted."""
        heads = [(frame, run) for run in runs if (frame := next(run, None)) is not None]
        while heads:
            # What is left of a run comes after the last row of its piece: up to the first of these all rows are here.
            bound = min(frame.select(self._order).row(-1) for frame, _ in heads)
            ready, rest = [], []
            for frame, run in heads:
                count = frame.select(_up_to(self._order, bound).sum()).item()
                ready.append(frame.head(count))
                left = frame.slice(count) if count < frame.height else next(run, None)
                if left is not None:
                    rest.append((left, run))
            yield pl.concat(ready).sort(self._order)
            heads = rest


def _up_to(order: Sequence[str], bound: Sequence[int]) -> pl.Expr:
    """Whether a row comes before a bound, or is it."""
    result = pl.lit(value=True)
    for name, value in zip(reversed(order), reversed(bound), strict=True):
        result = (pl.col(name) < value) | ((pl.col(name) == value) & result)
    return result
