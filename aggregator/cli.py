"""The command line: arguments, exit codes and nothing else. Whatever is slow to import is imported inside a command."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from copy import copy
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from aggregator import __version__, safe
from aggregator.case import Case
from aggregator.catalogue.command import (
    catalogue_app,
    diagnose,
    explain,
)
from aggregator.diagnostics import start_logging
from aggregator.errors import EXIT_CODES, DenpexError, UsageError
from aggregator.formats import formats_app
from aggregator.history import NoHistory
from aggregator.history.command import history
from aggregator.logview.command import logs
from aggregator.query.command import query
from aggregator.reports import ReportOptions, reporter
from aggregator.reports.command import OUTCOME_CODES, ColorChoice, outcome_code, postmortem, report
from aggregator.reports.destination import (
    ClosedPipeError,
    has_screen,
    refuse_overwrite,
    standard_output,
    text_width,
    unwritable,
    use_color,
)
from aggregator.serve.command import serve
from aggregator.sharing import Anonymise
from aggregator.sharing.command import bundle
from aggregator.slurm.command import is_epilog, slurm_epilog, without_failing
from aggregator.streams import complain, give_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


PROGRAM = "denpex-agg"
BUG, USAGE, CLOSED_PIPE, INTERRUPTED, TERMINATED = 1, 2, 141, 130, 143
app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
app.add_typer(formats_app, name="formats", help="List the log formats that are known, or check your own.")
app.add_typer(
    catalogue_app,
    name="catalogue",
    epilog=EXIT_CODES,
    help="List the failures that are known by name, or check your own.",
)


class EventFormat(StrEnum):
    """What `export --format` takes."""

    PARQUET = "parquet"
    NDJSON = "ndjson"
    OTLP = "otlp"


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version_asked: Annotated[
        bool, typer.Option("-V", "--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when the program itself fails (anywhere on the line).")
    ] = False,
) -> None:
    """Find the rank that failed first in the logs of a multi-GPU training job, and prove it.

    \b
    Examples:
      denpex-agg postmortem runs/4242
      denpex-agg watch runs/4242
      denpex-agg export runs/4242 -o events.parquet
    """


app.command(epilog=OUTCOME_CODES)(postmortem)
app.command(epilog=OUTCOME_CODES)(report)


@app.command(epilog=OUTCOME_CODES)
def watch(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Job folder or log files; may not exist yet.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines instead of the screen, as where there is no TTY.")
    ] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="The verdict at the end as JSON on stdout, plain lines on stderr.")
    ] = False,
    exit_on_end: Annotated[bool, typer.Option("--exit-on-end", help="End when the job has ended.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="End after this time.")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Where to keep what was read (XDG state folder).")
    ] = None,
    on_failure: Annotated[
        str | None,
        typer.Option("--on-failure", metavar="CMD", help="Run this on a failure, the verdict on stdin."),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option("--webhook", metavar="URL", envvar="DENPEX_WEBHOOK", help="Post a failure there (Slack's form)."),
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option("--prometheus", metavar="FILE", help="Keep a .prom textfile for node_exporter.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only changes of the state.")] = False,
    color: Annotated[
        ColorChoice, typer.Option("--color", help="Colours; auto obeys NO_COLOR, FORCE_COLOR and the terminal.")
    ] = ColorChoice.AUTO,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Let the exit code tell the outcome.")] = False,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in all that is shown.")] = True,
    no_history: NoHistory = False,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, show_default=False, help="Say more on stderr; -vv yet more.")
    ] = 0,
) -> None:
    """Follow a running job, and say who failed while it is still hot. Ctrl-C gives the verdict so far.

    What was read is kept in a state folder: after a restart the watch goes on where it ended.

    \b
    Examples:
      denpex-agg watch runs/4242
      denpex-agg watch runs/4242 --plain --exit-on-end --on-failure 'mail -s failed me'
      denpex-agg watch runs/4242 --json --timeout 3600 > verdict.json
    """
    start_logging(0 if quiet else 1 + verbose)
    from aggregator.live.command import WatchOptions, watch_job  # noqa: PLC0415 - brings the whole parser in
    from aggregator.live.run import Until  # noqa: PLC0415

    options = WatchOptions(
        Until(job_ends=exit_on_end, timeout_s=timeout), state_dir, has_screen(plain=plain or is_json), is_json, quiet,
        redact, on_failure, webhook, prometheus,
    )  # fmt: skip
    ending = watch_job(paths, options)
    if not no_history:
        from aggregator.history.journal import remember  # noqa: PLC0415 - help does without it

        remember(paths, ending.verdict)
    shown = ReportOptions(redact=redact, color=use_color(color, sys.stdout), width=text_width(sys.stdout))
    with standard_output() as out:
        reporter("json" if is_json else "text", shown).render(Case(ending.verdict), out)
    if ending.signal is not None:
        raise typer.Exit(128 + ending.signal)
    if exit_code:
        raise typer.Exit(outcome_code(ending.verdict))


@app.command(epilog=EXIT_CODES)
def export(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Job folder or log files.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File to write; - is stdout (not for Parquet).")
    ],
    form: Annotated[
        EventFormat, typer.Option("-f", "--format", help="Parquet, an event a line, or OpenTelemetry's logs.")
    ] = EventFormat.PARQUET,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in the lines.")] = True,
    anonymise: Anonymise = False,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="Take what `watch --state-dir DIR` has stored.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.")] = False,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, show_default=False, help="Say more on stderr; -vv yet more.")
    ] = 0,
) -> None:
    """Write every log line as a row of a Parquet table, with rank, time and stream.

    Secrets are masked; control characters stay as they were logged.

    \b
    Examples:
      denpex-agg export runs/4242 -o events.parquet
      denpex-agg export rank*.log -o events.parquet --force
      denpex-agg export runs/4242 --format ndjson -o - | jq .body
      denpex-agg export runs/4242 --state-dir ~/watches -o events.parquet
    """
    start_logging(0 if quiet else 1 + verbose)
    if str(output) != "-":
        refuse_overwrite(output, force=force)
    from aggregator.export import export_events  # noqa: PLC0415 - brings Polars and PyArrow

    with contextlib.ExitStack() as stack:
        if anonymise:
            if state_dir is not None:
                raise UsageError("--anonymise takes files, not what a watch has stored", help="leave --state-dir out")
            from aggregator.pipeline import investigate  # noqa: PLC0415 - as above
            from aggregator.sharing.bundle import anonymised  # noqa: PLC0415 - as above

            paths = [str(stack.enter_context(anonymised(investigate(paths), redact=redact)))]
        summary = export_events(paths, output, force=force, redact=redact, state_dir=state_dir, form=form)
    if not quiet:
        lines = [f"{summary.rows:,} rows of {summary.files:,} files written to {output}"]
        lines += [f"not read: {item.path}: {item.reason}" for item in summary.skipped]
        lines += [f"no rank: {path}: the number in its name is too large to be one" for path in summary.unranked]
        complain("".join(f"{safe.show(safe.mask(line))}\n" for line in lines))


app.command(epilog=EXIT_CODES)(bundle)
app.command(epilog=EXIT_CODES)(diagnose)
app.command(epilog=EXIT_CODES)(explain)
app.command(epilog=EXIT_CODES)(history)
app.command(epilog=EXIT_CODES)(logs)
app.command(epilog=EXIT_CODES)(query)
app.command(epilog=EXIT_CODES)(serve)
app.command(epilog=EXIT_CODES)(slurm_epilog)


def _complain(what: str, where: str | None = None, help_text: str | None = None) -> None:
    lines = [f"error: {safe.show(safe.mask(what))}"]
    lines += [f"  --> {safe.show(safe.mask(where))}"] if where else []
    lines += [f"  = help: {safe.show(safe.mask(help_text))}"] if help_text else []
    complain("\n".join(lines) + "\n")


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)  # an exception, so that temporary files are removed on the way out


def _is_raised_by_typer(error: Exception) -> bool:
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("typer.")


def _is_usage_error(error: Exception) -> bool:
    # Typer carries Click inside from some version on, so there is no one class to name.
    return getattr(error, "exit_code", None) == USAGE and hasattr(error, "format_message")


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return the exit code. All errors end here."""
    if is_epilog(arguments):
        return without_failing(lambda: _code_of(list(arguments)))
    return _code_of(list(arguments))


def _asked_of(words: Sequence[str]) -> typer.Typer:
    """The program with only the command that a line begins with: to make them all takes as long as a small job."""
    names = {
        info.name or getattr(info.callback, "__name__", "").replace("_", "-"): info for info in app.registered_commands
    }
    if not words or words[0] not in names:
        return app
    one = copy(app)
    one.registered_commands, one.registered_groups = [names[words[0]]], []
    return one


def _code_of(words: list[str]) -> int:
    options_end = words.index("--") if "--" in words else len(words)
    is_debug = "--debug" in words[:options_end]
    words = [word for word in words[:options_end] if word != "--debug"] + words[options_end:]
    signal.signal(signal.SIGTERM, _terminate)
    try:
        result = typer.main.get_command(_asked_of(words)).main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # Typer's way to end when nobody reads its help
            return CLOSED_PIPE
        return error.code if isinstance(error.code, int) else BUG
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the app's border
        return _explain(error, is_debug=is_debug)
    return result if isinstance(result, int) else 0


def _explain(error: Exception, *, is_debug: bool) -> int:
    """Tell the user what went wrong, and return the exit code that goes with it."""
    if isinstance(error, OSError) and _is_raised_by_typer(error):  # all that it writes is help, to standard output
        give_up(sys.stdout)
        error = unwritable(error)
    if isinstance(error, ClosedPipeError):
        return CLOSED_PIPE
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if isinstance(error, DenpexError):
        _complain(error.what, error.where, error.help)
        return error.exit_code
    if _is_usage_error(error):
        return _explain_usage(error)
    if is_debug:
        complain(safe.show_block(safe.mask("".join(traceback.format_exception(error)))))
    _complain(
        f"this is a bug: {type(error).__name__}: {error}",
        help_text=None if is_debug else "please report it, with what the same command prints with --debug",
    )
    return BUG


def _explain_usage(error: Exception) -> int:
    message = str(error.format_message())  # type: ignore[attr-defined]  # `_is_usage_error` asked for it
    if "\n" in message:  # no arguments at all: the message is the help
        complain(message + "\n")
        return USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    _complain(message.rstrip("."), help_text=f"{path} --help")
    return USAGE
