"""The screens to read: the verdict, and the keys."""

from __future__ import annotations

from rich.text import Text

from aggregator.live.view import LiveView
from aggregator.reports import ReportOptions
from aggregator.reports.text import TextReporter
from aggregator.tui import display
from aggregator.tui.screens import PageScreen, Place
from aggregator.verdict import Verdict

_WIDTH = 120
_HELP = """\
up down PgUp PgDn   move            g G     first, last
enter               into a rank's events, into an event
esc                 out again; takes a filter off first
/                   filter (in the grid: mark what n finds)
n N                 next, previous match
e E                 next, previous failure
f                   events; there: follow the newest, or stop
t                   timeline; there: over time, or over steps
r                   table of ranks, the worst first
p                   post-mortem now
y                   copy path:line of what the cursor is on
? q                 this page, quit           ctrl+p  themes and more
"""


class VerdictScreen(PageScreen):
    """The newest verdict, as the post-mortem prints it, and what the watch could not read."""

    _made: tuple[Verdict, int, Text] | None = None

    def text(self, view: LiveView) -> Text:
        """The report."""
        text = Text("No verdict yet: one has been asked for.") if view.verdict is None else self._report(view.verdict)
        notes = [Text(f"  - {note}") for note in display.watch_notes(view, self.clean)]
        return Text("\n").join([text, *([Text(), Text("Seen by the watch", "bold"), *notes] if notes else [])])

    def _report(self, verdict: Verdict) -> Text:
        width = min(self.size.width - 2, _WIDTH)
        if self._made is None or self._made[0] is not verdict or self._made[1] != width:
            lines = TextReporter(ReportOptions(redact=self.clean.redact, width=width)).lines(verdict)
            shown = [Text(self.clean(line.text, display.BLOCK_LIMIT), line.style) for line in lines]
            self._made = (verdict, width, Text("\n").join(shown))
        return self._made[2]

    def place(self) -> Place | None:
        """The first piece of evidence."""
        verdict = self.view.verdict if self.view is not None else None
        failure = verdict.first_failure if verdict is not None else None
        return (
            (failure.evidence[0].file, failure.evidence[0].line) if failure is not None and failure.evidence else None
        )


class HelpScreen(PageScreen):
    """The keys and the signs."""

    def text(self, _view: LiveView) -> Text:
        """All of them."""
        signs = [Text.assemble((mark.sign, mark.style), f" {state}") for state, mark in display.RANK_MARKS.items()]
        return Text("\n").join([Text(_HELP), Text("  ").join(signs)])
