"""The commands of the catalogue."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator import safe
from aggregator.errors import EXIT_CODES, InputError
from aggregator.named import require_file, require_folder
from aggregator.reports import ReportOptions, reporter
from aggregator.reports.destination import standard_output, text_width, use_color

if TYPE_CHECKING:
    from aggregator.catalogue.naming import Naming

CatalogueFolders = Annotated[
    list[Path] | None,
    typer.Option("--catalogue", metavar="DIR", help="Entries of your own beside the shipped ones; may be repeated."),
]
SourceFolders = Annotated[
    list[Path] | None,
    typer.Option("--source", metavar="DIR", help="Where the program's source is, if not where its tracebacks say."),
]

catalogue_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)


@catalogue_app.command("list", epilog=EXIT_CODES)
def catalogue_list(folders: CatalogueFolders = None) -> None:
    """List the failures that are known.

    \b
    Examples:
      denpex-agg catalogue list
      denpex-agg catalogue list | grep oom
      denpex-agg catalogue list --catalogue site-entries/
    """
    from aggregator.catalogue.entries import Catalogue  # noqa: PLC0415 - so that the program starts fast

    entries = Catalogue(_checked(folders)).all()
    _write(f"{entry.id:34} {', '.join(entry.kinds)[:34]:34} {entry.title}" for entry in entries)


@catalogue_app.command("show", epilog=EXIT_CODES)
def catalogue_show(
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help="Id of an entry.")], folders: CatalogueFolders = None
) -> None:
    """Show one entry whole, as `explain` does.

    \b
    Examples:
      denpex-agg catalogue show eval-oom-missing-no-grad
      denpex-agg catalogue show my-entry --catalogue site-entries/
      denpex-agg catalogue show oom-fragmentation > ticket.md
    """
    explain(entry, folders)


@catalogue_app.command("check", epilog=EXIT_CODES)
def catalogue_check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder of entries; the shipped ones if none.")
    ] = None,
) -> None:
    """Check entries: each against its samples, both ways.

    \b
    Examples:
      denpex-agg catalogue check
      denpex-agg catalogue check site-entries/
      denpex-agg catalogue check . && echo sound
    """
    from aggregator.catalogue.check import problems  # noqa: PLC0415 - brings the whole parser in
    from aggregator.catalogue.entries import ENTRIES_DIR, Catalogue  # noqa: PLC0415

    where = folder or ENTRIES_DIR
    catalogue = Catalogue(_checked([folder] if folder else None))
    found = list(problems(catalogue, where))
    _write([*found, f"{len(catalogue.of_folder(where))} entries checked, {len(found)} problems"])
    if found:
        raise InputError(f"{len(found)} problems in the entries", where=str(where), help="they are listed above")


@catalogue_app.command("facts", epilog=EXIT_CODES)
def catalogue_facts() -> None:
    """List what the conditions of an entry may ask.

    \b
    Examples:
      denpex-agg catalogue facts
      denpex-agg catalogue facts | grep oom
      denpex-agg catalogue facts | sort
    """
    from aggregator.catalogue.facts import FACTS  # noqa: PLC0415 - so that the program starts fast

    _write(f"{name:18} {what}" for name, what in FACTS.items())


def explain(
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help="Id of an entry, as verdicts name it, or its title.")],
    folders: CatalogueFolders = None,
) -> None:
    """Say all that is known of one failure: cause, mechanism, fix, how to confirm and verify it.

    \b
    Examples:
      denpex-agg explain eval-oom-missing-no-grad
      denpex-agg explain nccl-timeout-straggler | less
      denpex-agg explain my-entry --catalogue site-entries/
    """
    from aggregator.catalogue.entries import Catalogue  # noqa: PLC0415 - so that the program starts fast
    from aggregator.catalogue.lookup import entry_of  # noqa: PLC0415
    from aggregator.catalogue.page import page  # noqa: PLC0415

    _write([page(entry_of(entry, Catalogue(_checked(folders)).all())).rstrip("\n")])


def diagnose(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="A log, or a traceback; standard input if -.")] = "-",
    is_json: Annotated[bool, typer.Option("--json", help="The whole verdict as JSON.")] = False,
    folders: CatalogueFolders = None,
    sources: SourceFolders = None,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in the report.")] = True,
) -> None:
    """Name the failure in one log or pasted traceback: cause, fix, how to verify it.

    \b
    Examples:
      denpex-agg diagnose rank3.log
      pbpaste | denpex-agg diagnose -
      denpex-agg diagnose - --source ~/project < traceback.txt
    """
    from aggregator.pipeline import investigate  # noqa: PLC0415 - brings the whole parser in

    if file != "-":
        require_file(Path(file), "`denpex-agg postmortem` reads folders")
    case = investigate([file], naming=naming_from(folders, sources))
    if not case.verdict.coverage.bytes:
        raise InputError(
            "there is nothing to diagnose: the input is empty", where=file, help="give a log, or paste a traceback"
        )
    options = ReportOptions(redact=redact, color=use_color("auto", sys.stdout), width=text_width(sys.stdout))
    with standard_output() as out:
        reporter("json" if is_json else "text", options).render(case, out)


def naming_from(folders: list[Path] | None, sources: list[Path] | None) -> Naming:
    """What `--catalogue` and `--source` ask for.

    Raises:
        InputError: there is no such folder, or a file of entries is wrong.
    """
    from aggregator.catalogue.naming import naming_of  # noqa: PLC0415 - so that the program starts fast

    return naming_of(_checked(folders), _checked(sources))


def _checked(folders: list[Path] | None) -> list[Path]:
    for folder in folders or []:
        require_folder(folder)
    return folders or []


def _write(lines: Iterable[str]) -> None:
    with standard_output() as out:
        out.writelines(f"{safe.show_block(line)}\n" for line in lines)
