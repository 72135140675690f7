"""The command `logs`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator.diagnostics import start_logging
from aggregator.errors import UsageError
from aggregator.pager import paged
from aggregator.reports.command import ColorChoice
from aggregator.reports.destination import use_color
from aggregator.scratch import scratch_folder
from aggregator.slurm.command import with_logs_of_jobs
from aggregator.streams import complain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import polars as pl

    from aggregator.logview.lines import Look

_AROUND = "first-failure"
_AROUND_S = 30.0
_PIECE = 2000
"""Lines that are written at a time: whoever reads them sees the first ones early, and may go away."""


class LogForm(StrEnum):
    """What `--output` takes."""

    TEXT = "text"
    RAW = "raw"
    JSON = "json"


Words = list[str] | None


def logs(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Job folder, log files, a Slurm job, or -.")],
    rank: Annotated[Words, typer.Option("--rank", metavar="LIST", help="Only these ranks: 0,3-7.")] = None,
    node: Annotated[
        Words, typer.Option("--node", metavar="HOST", help="Only this host, or pattern; repeatable.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From a time on, or so long before the end: 10m.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to a time.")] = None,
    around: Annotated[
        str | None,
        typer.Option("--around", metavar="first-failure[:SECONDS]", help="Only so near the first failure; 30 s."),
    ] = None,
    include: Annotated[
        Words, typer.Option("--grep", "--include", metavar="REGEX", help="Only lines with one of these.")
    ] = None,
    exclude: Annotated[Words, typer.Option("--exclude", metavar="REGEX", help="No lines with one of these.")] = None,
    level: Annotated[
        str | None, typer.Option("--level", metavar="LEVEL", help="Of this level at least, and what continues them.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last N lines of each rank.")
    ] = None,
    form: Annotated[LogForm, typer.Option("-o", "--output", help="Form of the lines.")] = LogForm.TEXT,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="No rank and host in front.")] = False,
    timestamps: Annotated[
        bool, typer.Option("-t", "--timestamps", help="The time in front, of one clock for all hosts.")
    ] = False,
    color: Annotated[
        ColorChoice, typer.Option("--color", help="Colours; auto obeys NO_COLOR, FORCE_COLOR and the terminal.")
    ] = ColorChoice.AUTO,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Not through the pager on a terminal.")] = False,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Mask secrets in the lines.")] = True,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Show the lines of all ranks as one log, in the order in which they were written.

    Hosts' clocks are corrected by the steps that they share. The line of the first failure is marked.

    \b
    Examples:
      denpex-agg logs runs/4242 --around first-failure
      denpex-agg logs runs/4242 --rank 0,3-7 --level warn --timestamps
      denpex-agg logs runs/4242 --tail 20 --grep 'NCCL|CUDA' -o raw
    """
    start_logging(0 if quiet else 1)
    from aggregator.logview import selection  # noqa: PLC0415 - brings Polars

    ranks = selection.ranks_of(rank or [])
    selection.check_patterns([*(include or []), *(exclude or [])])
    if around is not None and (since is not None or until is not None):
        raise UsageError("--around already says from when until when", help="leave --since and --until out")
    window_s = _window_s(around)
    least = _level(level)
    from aggregator.logview.view import LogView  # noqa: PLC0415 - brings the whole parser in
    from aggregator.pipeline import investigate  # noqa: PLC0415

    view = LogView(investigate(with_logs_of_jobs(paths)))
    bounds = (view.case.verdict.job.started, view.case.verdict.job.ended)
    begin, end = (None if text is None else selection.moment(text, *bounds) for text in (since, until))
    if window_s is not None:
        begin, end = view.window(window_s)
    wanted = selection.Wanted(ranks, tuple(node or ()), begin, end, tuple(include or ()), tuple(exclude or ()), least)
    view.check(wanted)
    look = view.look(prefix=not no_prefix, timestamps=timestamps, color=use_color(color, sys.stdout))
    with scratch_folder() as folder:
        shown = _write(view.frames(wanted, tail, folder, redact=redact), form, look, pager=not no_pager)
    if not shown and not quiet:
        complain("no line is like that\n")


def _write(frames: Iterator[pl.DataFrame], form: LogForm, look: Look, *, pager: bool) -> int:
    """Write the lines, and return their number."""
    from aggregator.eventlines import fit_json  # noqa: PLC0415
    from aggregator.logview.lines import TextLines, json_lines, raw_lines  # noqa: PLC0415 - as late as the rest
    from aggregator.query.output import fit  # noqa: PLC0415

    texts: Mapping[LogForm, Callable[[pl.DataFrame], Iterator[str]]] = {
        LogForm.TEXT: TextLines(look), LogForm.RAW: raw_lines, LogForm.JSON: json_lines
    }  # fmt: skip
    count = 0
    with paged(wanted=pager) as out:
        for piece in (piece for frame in frames for piece in frame.iter_slices(_PIECE)):
            text = "".join(texts[form](piece))
            out.write(fit_json(text, out.encoding) if form is LogForm.JSON else fit(text, out))
            count += piece.height
    return count


def _window_s(around: str | None) -> float | None:
    from aggregator.logview.selection import seconds  # noqa: PLC0415 - brings Polars

    if around is None:
        return None
    what, colon, length = around.partition(":")
    if what != _AROUND:
        raise UsageError(f"around what? {around!r}", help=f"--around {_AROUND} or --around {_AROUND}:90")
    return seconds(length) if colon else _AROUND_S


def _level(level: str | None) -> int:
    import difflib  # noqa: PLC0415 - rarely needed

    from aggregator.logview.selection import LEVELS  # noqa: PLC0415 - brings Polars

    if level is None:
        return 0
    if level.lower() not in LEVELS:
        near = difflib.get_close_matches(level.lower(), LEVELS, n=1)
        raise UsageError(f"no level {level!r}", help=f"perhaps {near[0]}" if near else ", ".join(LEVELS))
    return LEVELS[level.lower()]
