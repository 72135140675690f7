"""The command that shows what is kept."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator import safe
from aggregator.errors import OutputError, UsageError
from aggregator.reports.destination import standard_output
from aggregator.streams import complain

if TYPE_CHECKING:
    from aggregator.history.record import Record

_NS_PER_S = 1_000_000_000
_UNITS_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,6})([mhdw])")


def history(
    is_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what ended later: 7d, 12h, 2026-03-01.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Only jobs in which this host failed first.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget all verdicts.")] = False,
) -> None:
    """Show which causes, hosts and GPUs came again in the verdicts of your jobs.

    \b
    Examples:
      denpex-agg history
      denpex-agg history --since 7d --host node-b
      denpex-agg history --json | jq '.recurring.hosts'
    """
    from aggregator.history import journal, shown  # noqa: PLC0415 - so that the program starts fast
    from aggregator.history.recurring import latest_runs  # noqa: PLC0415
    from aggregator.reports import words  # noqa: PLC0415

    folder = journal.home()
    if clear:
        if is_json or since or host:
            raise UsageError("--clear forgets everything and goes with no other option")
        try:
            journal.clear(folder)
        except OSError as error:
            raise OutputError(f"the history cannot be removed: {error.strerror}", where=str(folder)) from error
        return
    least = None if since is None else _moment(since, time.time_ns())
    contents = journal.read(folder)
    for problem in contents.problems:
        complain(f"warning: {safe.show(problem)}\n")
    runs = [record for record in latest_runs(contents.records) if _is_asked_for(record, least, host)]
    with standard_output() as out:
        if is_json:
            out.write(json.dumps(shown.document(runs), indent=2) + "\n")
        else:
            out.writelines(
                f"{words.fit(safe.show(line), out.encoding)}\n" for line in shown.lines(runs, len(contents.records))
            )


def _is_asked_for(record: Record, least: int | None, host: str | None) -> bool:
    is_new = least is None or record.time >= least
    return is_new and (host is None or any(host in ending.hosts for ending in record.attempts))


def _moment(text: str, now_ns: int) -> int:
    """What `--since` names, in ns: so long ago, or an ISO date or time (UTC if it names no zone).

    Raises:
        UsageError: it names nothing.
    """
    if span := _SPAN.fullmatch(text):
        return now_ns - int(span[1]) * _UNITS_S[span[2]] * _NS_PER_S
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        help_text = "a length of time (30m, 12h, 7d, 2w), a date (2026-03-01) or a time (2026-03-01T12:00)"
        raise UsageError(f"--since {text!r} is no time", help=help_text) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp()) * _NS_PER_S
