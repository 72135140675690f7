"""Segments: what a full journal held, sorted by stream, in Parquet files that are never changed."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from aggregator.store.files import damaged, replacing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ROW_BYTES = 1 << 20
"""A row has no more, and a row group hardly more: what must be decompressed to read one row of it."""


def write_segment(path: Path, rows: Iterable[tuple[int, int, bytes]]) -> Segment:
    """Write rows (stream, offset, bytes), sorted, to a file that appears whole or not at all.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes longer than to open a store that has no segments
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns: list[tuple[str, pa.DataType]] = [
        ("stream", pa.int64()),
        ("offset", pa.int64()),
        ("data", pa.large_binary()),
    ]
    schema = pa.schema(columns)
    with (
        replacing(path) as file,
        pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=["stream", "offset"],
            write_page_checksum=True,
        ) as writer,
    ):
        for group in _groups(rows):
            arrays = [
                pa.array(values, kind) for values, (_, kind) in zip(zip(*group, strict=True), columns, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    return Segment(path)


class Segment:
    """One file of rows. Opened whenever it is read, and not before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.stem)
        self._spans: array[int] | None = None

    def pieces(self, stream: int) -> Iterator[tuple[int, bytes]]:
        """The bytes of a stream with their offsets, ascending.

        Raises:
            OutputError: the file is damaged or gone.
        """
        import pyarrow as pa  # noqa: PLC0415 - as above
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            groups = [group for group, (first, last) in enumerate(self._read_spans()) if first <= stream <= last]
            if not groups:
                return
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                for group in groups:
                    table = file.read_row_group(group, use_threads=False)
                    for row, number in enumerate(table["stream"].to_pylist()):
                        if number == stream:
                            yield table["offset"][row].as_py(), table["data"][row].as_py()
        except (OSError, pa.ArrowException) as error:
            raise damaged(f"a segment cannot be read ({error})", self.path) from error

    def _read_spans(self) -> Iterator[tuple[int, int]]:
        """The first and the last stream of each row group; all that stays in memory of a file."""
        if self._spans is None:
            import pyarrow.parquet as pq  # noqa: PLC0415 - as above

            footer, spans = pq.read_metadata(self.path), array("q")
            for group in range(footer.num_row_groups):
                streams: Any = footer.row_group(group).column(0).statistics  # never None: all groups have them
                spans.extend((streams.min, streams.max))
            self._spans = spans
        return zip(self._spans[::2], self._spans[1::2], strict=True)


def _groups(rows: Iterable[tuple[int, int, bytes]]) -> Iterator[list[tuple[int, int, bytes]]]:
    """The rows in groups of about `ROW_BYTES`."""
    group: list[tuple[int, int, bytes]] = []
    size = 0
    for row in rows:
        if group and size + len(row[2]) > ROW_BYTES:
            yield group
            group, size = [], 0
        group.append(row)
        size += len(row[2])
    yield group
