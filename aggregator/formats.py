"""The commands that list and check message formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator import safe
from aggregator.errors import EXIT_CODES, InputError
from aggregator.limits import processor_time
from aggregator.named import require_folder
from aggregator.reports.destination import standard_output

if TYPE_CHECKING:
    from parsers.lineformats import Message, Prefix

_PATIENCE_S = 2
_SHOWN = 500
"""Characters of a problem: a sample may be as long as its file."""

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
    from parsers.lineformats import FORMATS_DIR, FormatError, load_formats  # noqa: PLC0415 - reads all format files

    where = folder or FORMATS_DIR
    require_folder(where)
    try:
        formats = load_formats(where)
    except FormatError as error:
        line = f":{error.line}" if error.line is not None else ""
        raise InputError(
            str(error), where=f"{error.path or where}{line}", help="docs/formats.md tells what a format file may hold"
        ) from None
    if not formats:
        raise InputError("no format file (*.toml) here", where=str(where))
    found = [
        problem
        for fmt in formats
        for items in (fmt.prefixes, fmt.messages)
        for item in items
        for problem in _problems(item)
    ]
    with standard_output() as out:
        out.writelines(f"{safe.show(problem, _SHOWN)}\n" for problem in found)
        out.write(f"{len(formats)} formats checked, {len(found)} problems\n")
    if found:
        raise InputError(f"{len(found)} problems in the format files", where=str(where), help="they are listed above")


def _problems(item: Prefix | Message) -> list[str]:
    from aggregator.linear import refusal  # noqa: PLC0415 - brings PyArrow
    from parsers.lineformats import Message, check_item  # noqa: PLC0415 - as above

    patterns = (item.pattern, *item.unless) if isinstance(item, Message) else (item.pattern,)
    refused = [f"{item.origin}: {why}" for pattern in patterns if (why := refusal(pattern)) is not None]
    try:
        with processor_time(_PATIENCE_S):
            return refused or check_item(item)
    except TimeoutError:
        return [f"{item.origin}: takes more than {_PATIENCE_S} s for its own samples: bound the repetitions"]
