"""The commands that list and check message formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggregator import safe
from aggregator.errors import EXIT_CODES, InputError
from aggregator.reports.destination import standard_output

formats_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)


@formats_app.command("list", epilog=EXIT_CODES)
def formats_list() -> None:
    """List the log formats that are known.

    \b
    Examples:
      denpex-agg formats list
      denpex-agg formats list | grep -i slurm
      denpex-agg formats list | wc -l
    """
    from parsers.lineformats import load_formats  # noqa: PLC0415 - reads all format files

    with standard_output() as out:
        for fmt in load_formats():
            counts = f"{len(fmt.prefixes):3} prefixes {len(fmt.messages):3} messages"
            out.write(f"{fmt.id:24} {counts}  {fmt.title}\n")


@formats_app.command("check", epilog=EXIT_CODES)
def formats_check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder of *.toml; the shipped ones if none.")
    ] = None,
) -> None:
    """Check format files: every pattern against its samples, both ways.

    \b
    Examples:
      denpex-agg formats check
      denpex-agg formats check my-formats/
      denpex-agg formats check . && echo sound
    """
    from parsers.lineformats import FORMATS_DIR, FormatError, check_format, load_formats  # noqa: PLC0415

    where = folder or FORMATS_DIR
    if not where.is_dir():
        raise InputError("no such folder", where=str(where))
    try:
        formats = load_formats(where)
    except FormatError as error:
        raise InputError(
            str(error), where=str(where), help="docs/formats.md tells what a format file may hold"
        ) from None
    if not formats:
        raise InputError("no format file (*.toml) here", where=str(where))
    problems = [problem for fmt in formats for problem in check_format(fmt)]
    with standard_output() as out:
        out.writelines(f"{safe.show(problem)}\n" for problem in problems)
        out.write(f"{len(formats)} formats checked, {len(problems)} problems\n")
    if problems:
        raise InputError(
            f"{len(problems)} problems in the format files", where=str(where), help="they are listed above"
        )
