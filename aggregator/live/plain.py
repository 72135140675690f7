"""The watch as plain lines: what changed, when it changed. For pipes, logs and terminals without a screen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from aggregator import safe
from aggregator.case import Case
from aggregator.live.view import LiveEvent, LiveState, LiveView
from aggregator.reports.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.reports import Reporter

HEARTBEAT_S = 60.0
"""Seconds without anything to tell after which that is told."""
SETTLED_S = 3.0
"""Seconds for which the last line on a job that is over must stand before the whole verdict is told."""
MOST_LINES = 5
"""Lines of logs that are shown of each picture."""
_LIMIT = 240
_OVER = frozenset({LiveState.FAILED, LiveState.FINISHED})
_NS = 1_000_000_000


class PlainLines:
    """Writes a line for each change. Foreign text is masked and escaped."""

    def __init__(
        self, out: TextIO, report: Reporter | None = None, *, redact: bool = True, quiet: bool = False
    ) -> None:  # fmt: skip
        """Write to `out`; `quiet` leaves out everything but changes of the state.

        Once a job has been over for some seconds, `report` writes the verdict.
        """
        self._out = out
        self._report = report
        self._reported: object = None
        self._redact = redact
        self._quiet = quiet
        self._told: tuple[LiveState, object] | None = None
        self._told_at = 0
        self._seen: LiveEvent | None = None

    def show(self, view: LiveView) -> None:
        """Tell what is new in a picture."""
        # Once it has failed, the errors of its peers would only bury the name.
        is_over = self._told is not None and self._told[0] is view.state is LiveState.FAILED
        fresh = list(self._events(view))
        lines = [] if self._quiet or is_over else fresh
        told = (view.state, view.suspicion.ranks if view.suspicion is not None else view.headline)
        if told != self._told:
            lines.append(f"{view.state.value}: {self._clean(view.headline)}{self._amount(view)}")
        elif view.now - self._told_at >= HEARTBEAT_S * _NS and not self._quiet and view.state not in _OVER:
            lines.append(f"{view.state.value}{self._amount(view)}")
        if lines:
            self._told, self._told_at = told, view.now
            clock = datetime.fromtimestamp(view.now // _NS, UTC).strftime("%H:%M:%SZ")
            self._out.writelines(f"{clock} {line}\n" for line in lines)
            self._out.flush()
        elif view.state in _OVER and view.now - self._told_at >= SETTLED_S * _NS and told != self._reported:
            self._reported = told
            if self._report is not None and view.verdict is not None:
                self._report.render(Case(view.verdict), self._out)
                self._out.flush()

    def _events(self, view: LiveView) -> Iterator[str]:
        fresh: list[LiveEvent] = []
        for event in reversed(view.events):
            if event is self._seen:
                break
            if event.level != "info":
                fresh.append(event)
        if view.events:
            self._seen = view.events[-1]
        for event in reversed(fresh[-MOST_LINES:]):
            where = f"{self._clean(event.path)}:{event.line or '?'}: " if event.path else ""
            who = f"rank {event.rank}: " if event.rank is not None else ""
            yield f"  {where}{who}{self._clean(event.text.strip())}"
        if len(fresh) > MOST_LINES:
            yield f"  … and {counted(len(fresh) - MOST_LINES, 'more line')} like these"

    def _amount(self, view: LiveView) -> str:
        steps = [rank.step for rank in view.ranks if rank.step is not None]
        facts = [counted(len(view.ranks), "rank")] if view.ranks else []
        facts += [f"step {max(steps)}"] if steps else []
        facts += [counted(view.counters.files, "file"), f"{view.counters.lines_per_s:,.0f} lines/s"]
        return f" ({', '.join(facts)})"

    def _clean(self, text: str) -> str:
        return safe.show(safe.mask(text) if self._redact else text, _LIMIT)
