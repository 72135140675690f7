"""The command `query`."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator.diagnostics import start_logging
from aggregator.errors import OutputError, UsageError
from aggregator.pager import paged
from aggregator.reports.destination import refuse_overwrite, replacing, standard_output
from aggregator.scratch import scratch_folder
from aggregator.slurm.command import with_logs_of_jobs
from aggregator.streams import complain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

_ROWS = 1000
"""Rows of a table for people, if nothing else is asked for."""
_PIECE = 8192
"""Rows that are made text at a time."""


class ResultFormat(StrEnum):
    """What `--format` takes."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"
    PARQUET = "parquet"


def query(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Job folder, log file, Slurm job, -, or export's table.")],
    sql: Annotated[str | None, typer.Argument(metavar="[SQL]", help="SELECT … FROM events, signals.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="List the tables and their columns.")] = False,
    form: Annotated[ResultFormat, typer.Option("-f", "--format", help="Form of the rows.")] = ResultFormat.TABLE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the rows there, not to stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let -o replace a file.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, help="Rows at most; 0 is all. A table has 1,000 if not given."),
    ] = None,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in the rows.")] = True,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Not through the pager on a terminal.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Ask the job's lines and signals in SQL.

    \b
    Examples:
      denpex-agg query runs/4242 "select rank, ts, message from events where severity >= 17 order by ts_common"
      denpex-agg query runs/4242 "select kind, count(*) as n from signals group by kind order by n desc"
      denpex-agg query events.parquet "select rank, count(*) as lines from events group by rank" -f csv
    """
    start_logging(0 if quiet else 1)
    if schema:
        with standard_output() as out:
            out.write(_schema())
        return
    if sql is None:
        raise UsageError("no query is given", help='denpex-agg query PATH "select * from events limit 10"')
    is_stdout = output is None or str(output) == "-"
    if is_stdout and form is ResultFormat.PARQUET:
        raise OutputError("Parquet is not written to standard output", help="name a file with -o")
    if output is not None and not is_stdout:
        refuse_overwrite(output, force=force)
    from aggregator.query import sql as language  # noqa: PLC0415 - brings Polars
    from aggregator.query.tables import empty_tables, tables_of  # noqa: PLC0415 - brings the whole parser in

    language.check(sql)
    language.check_plan(sql, empty_tables())
    with scratch_folder() as folder:
        tables = tables_of(with_logs_of_jobs([path]), folder, redact=redact)
        known = empty_tables()
        if language.reads(sql, "signals"):
            known["signals"] = tables.signals()
        if language.reads(sql, "events"):
            known["events"] = tables.events()
        rows = language.run(sql, known)
        most = limit if limit is not None else _ROWS if form is ResultFormat.TABLE else 0
        with language.explained(known):
            if form is ResultFormat.TABLE:
                _write_table(rows, most, None if is_stdout else output, redact=redact, force=force, pager=not no_pager,
                             quiet=quiet)  # fmt: skip
            else:
                _write(rows.head(most) if most else rows, form, output, folder, redact=redact, force=force)


def _write_table(
    rows: pl.LazyFrame, most: int, output: Path | None, *, redact: bool, force: bool, pager: bool, quiet: bool
) -> None:
    from aggregator.query.output import plain, write_table  # noqa: PLC0415 - brings Polars

    found = (rows.head(most + 1) if most else rows).collect(engine="streaming")
    table = plain(found.head(most) if most else found, redact=redact)
    if output is not None:
        with replacing(output, force=force) as out:
            write_table(table, out, None)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        with paged(wanted=pager) as out:
            write_table(table, out, width)
    if most and found.height > most and not quiet:
        complain(f"only the first {most:,} rows are shown; --limit 0 shows all\n")


def _write(
    rows: pl.LazyFrame, form: ResultFormat, output: Path | None, folder: Path, *, redact: bool, force: bool
) -> None:
    """All rows, however many: they are brought to a file first, and read from there piece by piece."""
    if form is ResultFormat.PARQUET and output is not None:
        from aggregator.export import whole_file  # noqa: PLC0415 - brings the whole parser in

        with whole_file(output) as path:
            rows.sink_parquet(path)
        return
    from aggregator.query.output import WRITERS, plain  # noqa: PLC0415 - brings Polars

    result = folder / "result.parquet"
    rows.sink_parquet(result)
    is_stdout = output is None or str(output) == "-"
    with standard_output() if is_stdout or output is None else replacing(output, force=force) as out:
        WRITERS[form]((plain(piece, redact=redact) for piece in _pieces(result)), out)


def _pieces(file: Path) -> Iterator[pl.DataFrame]:
    import polars as pl  # noqa: PLC0415 - so that the program starts fast
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(file) as table:
        yield pl.DataFrame(table.schema_arrow.empty_table())
        for batch in table.iter_batches(_PIECE):
            yield pl.DataFrame(batch)


def _named(kind: pl.DataType) -> str:
    return "timestamp[ns, UTC]" if kind.is_temporal() else str(kind).lower()


def _schema() -> str:
    from aggregator.query.tables import EVENTS, SIGNALS, empty_tables  # noqa: PLC0415 - brings the whole parser in

    about = {"events": dict(EVENTS), "signals": {name: what for name, (_, what) in SIGNALS.items()}}
    lines = []
    for table, frame in empty_tables().items():
        lines.append(table)
        lines += [
            f"  {name:10} {_named(kind):18} {about[table][name]}" for name, kind in frame.collect_schema().items()
        ]
    return "\n".join(lines) + "\n"
