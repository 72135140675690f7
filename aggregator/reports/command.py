"""The commands that judge a finished job, and what they share with those that judge a running one."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator import safe
from aggregator.catalogue.command import CatalogueFolders, SourceFolders, naming_from
from aggregator.diagnostics import start_logging
from aggregator.engines import LOCAL, EngineName, engine_of
from aggregator.errors import EXIT_CODES, UsageError
from aggregator.history import NoHistory
from aggregator.reports import ReportOptions, format_of, reporter, reporter_names
from aggregator.reports.destination import refuse_overwrite, replacing, standard_output, text_width, use_color
from aggregator.sharing import Anonymise
from aggregator.slurm.command import with_logs_of_jobs
from aggregator.streams import complain

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.verdict import Verdict

FAILED, HUNG, UNDETERMINED = 20, 21, 22
"""What `--exit-code` gives beside 0."""
OUTCOME_CODES = (
    EXIT_CODES + " With --exit-code: 0 completed or running, 20 failed or cancelled, 21 hung, 22 undetermined."
)
_FOR_FILES = "html"
"""The form of a report whose file's name tells of none."""


class ColorChoice(StrEnum):
    """What `--color` takes."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def _known_format(word: str) -> str:
    """A name of the registry, which is the one list of forms: Typer's own choices need an enumeration beside it.

    Raises:
        typer.BadParameter: it is none.
    """
    names = reporter_names()
    if word not in names:
        near = difflib.get_close_matches(word, names, n=1)
        raise typer.BadParameter(f"{word!r} is none of {', '.join(names)}" + (f"; perhaps {near[0]}" if near else ""))
    return word


def _formats_from(incomplete: str) -> list[str]:
    return [name for name in reporter_names() if name.startswith(incomplete)]


_NAMES = ", ".join(reporter_names())
_Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Job folder, log files, a Slurm job, or -.")]
_Force = Annotated[bool, typer.Option("--force", help="Let -o replace a file.")]
_Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.")]
_ExitCode = Annotated[bool, typer.Option("--exit-code", help="Let the exit code tell the outcome.")]
_Redact = Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in the report.")]
_Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, show_default=False, help="Say more on stderr; -vv yet more.")
]


def postmortem(
    paths: _Paths,
    report_format: Annotated[
        str,
        typer.Option("-f", "--format", metavar="FORM", parser=_known_format, autocompletion=_formats_from,
                     help=f"Form of the report: {_NAMES}."),
    ] = reporter_names()[0],
    is_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the report there, not to stdout.")
    ] = None,
    force: _Force = False,
    quiet: _Quiet = False,
    color: Annotated[
        ColorChoice, typer.Option("--color", help="Colours; auto obeys NO_COLOR, FORCE_COLOR and the terminal.")
    ] = ColorChoice.AUTO,
    exit_code: _ExitCode = False,
    redact: _Redact = True,
    anonymise: Anonymise = False,
    catalogue: CatalogueFolders = None,
    source: SourceFolders = None,
    no_history: NoHistory = False,
    engine: EngineName = LOCAL,
    verbose: _Verbose = 0,
) -> None:  # fmt: skip
    """Say which rank failed first, with the lines that prove it.

    \b
    Examples:
      denpex-agg postmortem runs/4242
      denpex-agg postmortem rank*.log --json -o verdict.json
      kubectl logs job/train --prefix | denpex-agg postmortem -
    """
    start_logging(0 if quiet else 1 + verbose)
    if output is not None:
        refuse_overwrite(output, force=force)
    case = _investigate(paths, catalogue, source, engine, keep=not no_history)
    with _shareable(case, catalogue, source, anonymise=anonymise, redact=redact) as shown:
        _write(shown, "json" if is_json else report_format, output, color, force=force, redact=redact)
    if exit_code:
        raise typer.Exit(outcome_code(case.verdict))


def report(
    paths: _Paths,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Write the report there.")],
    report_format: Annotated[
        str | None,
        typer.Option("-f", "--format", metavar="FORM", parser=_known_format, autocompletion=_formats_from,
                     help=f"Form of the report, if FILE's ending does not tell: {_NAMES}."),
    ] = None,
    force: _Force = False,
    quiet: _Quiet = False,
    exit_code: _ExitCode = False,
    redact: _Redact = True,
    anonymise: Anonymise = False,
    catalogue: CatalogueFolders = None,
    source: SourceFolders = None,
    no_history: NoHistory = False,
    engine: EngineName = LOCAL,
    verbose: _Verbose = 0,
) -> None:  # fmt: skip
    """Write the verdict to a file for somebody else: a page that opens anywhere, or the form that FILE's ending names.

    \b
    Examples:
      denpex-agg report runs/4242 -o report.html
      denpex-agg report runs/4242 -o ticket.md
      denpex-agg report runs/4242 -o 4242.trace.json
    """
    start_logging(0 if quiet else 1 + verbose)
    refuse_overwrite(output, force=force)
    name = report_format or _format_for(output)
    case = _investigate(paths, catalogue, source, engine, keep=not no_history)
    with _shareable(case, catalogue, source, anonymise=anonymise, redact=redact) as shown:
        _write(shown, name, output, ColorChoice.NEVER, force=force, redact=redact)
    if not quiet and str(output) != "-":
        complain(f"{name} report written to {safe.show(str(output))}\n")
    if exit_code:
        raise typer.Exit(outcome_code(case.verdict))


def _format_for(output: Path) -> str:
    """The form that a file's ending names; a page if it has none."""
    if (found := format_of(output.name)) is not None:
        return found
    if output.suffix:
        raise UsageError(
            f"no form of report is known by the ending {safe.show(output.suffix)}",
            where=str(output),
            help=f"name one with --format: {_NAMES}",
        )
    return _FOR_FILES


def _investigate(
    paths: list[str], catalogue: CatalogueFolders, source: SourceFolders, engine: str, *, keep: bool
) -> Case:
    from aggregator.history.journal import remember  # noqa: PLC0415 - help does without it
    from aggregator.pipeline import investigate  # noqa: PLC0415 - brings the whole parser in

    files = with_logs_of_jobs(paths)
    case = investigate(files, naming=naming_from(catalogue, source), engine=engine_of(engine))
    if keep:
        remember(files, case.verdict)
    return case


@contextmanager
def _shareable(
    case: Case, catalogue: CatalogueFolders, source: SourceFolders, *, anonymise: bool, redact: bool
) -> Iterator[Case]:
    """The case as it is to be shown, while its files are there."""
    if not anonymise:
        yield case
        return
    from aggregator.sharing.bundle import without_names  # noqa: PLC0415 - rarely asked for

    with without_names(case, naming_from(catalogue, source), redact=redact) as shown:
        yield shown


def _write(case: Case, name: str, output: Path | None, color: ColorChoice, *, force: bool, redact: bool) -> None:
    """Write a report to a file, or to standard output if that is None or `-`."""
    if output is None or str(output) == "-":
        options = ReportOptions(redact, use_color(color, sys.stdout), text_width(sys.stdout))
        with standard_output() as out:
            reporter(name, options).render(case, out)
    else:
        with replacing(output, force=force) as out:
            reporter(name, ReportOptions(redact, color is ColorChoice.ALWAYS)).render(case, out)


def outcome_code(verdict: Verdict) -> int:
    """The exit code that `--exit-code` asks for.

    An outcome that is known but whose first failure cannot be placed counts as undetermined, except for a hang.
    """
    from aggregator.verdict import Outcome, Status  # noqa: PLC0415 - help does without it

    if verdict.outcome in {Outcome.COMPLETED, Outcome.RUNNING}:
        return 0
    if verdict.outcome is Outcome.HUNG:
        return HUNG
    failure = verdict.first_failure
    is_placed = failure is None or failure.status is not Status.UNDETERMINED
    return FAILED if verdict.outcome is not Outcome.UNKNOWN and is_placed else UNDETERMINED
