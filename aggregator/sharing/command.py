"""The command that makes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggregator import safe
from aggregator.diagnostics import start_logging
from aggregator.reports.destination import refuse_overwrite
from aggregator.slurm.command import with_logs_of_jobs
from aggregator.streams import complain


def bundle(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Job folder, log files, or a Slurm job.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File to write: case.tar.zst.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Make a small copy of a job for a bug report: masked, without names, and with the same verdict.

    Only lines that the verdict rests on, and some around them, are in it. Look at it before you give it away.

    \b
    Examples:
      denpex-agg bundle runs/4242 -o case.tar.zst
      denpex-agg bundle 4242 -o case.tar.zst
      denpex-agg bundle rank*.log -o case.tar.zst --force
    """
    start_logging(0 if quiet else 1)
    refuse_overwrite(output, force=force)
    from aggregator.sharing.bundle import make_bundle  # noqa: PLC0415 - brings the whole parser in

    made = make_bundle(with_logs_of_jobs(paths), output)
    if quiet:
        return
    lines = [f"{made.kept:,} of {made.lines:,} lines of {made.files:,} files written to {output}"]
    if made.level:
        lines.append("with fewer lines the verdict was another: more were kept")
    if not made.same:
        lines.append("warning: without names the verdict is another; please say so in your report")
    complain("".join(f"{safe.show(line)}\n" for line in lines))
