"""The verdict for a terminal: who failed first, the proof, who only followed, what to do.

Plain lines of at most `width` characters, broken between words only, so that a path is never cut. Colour adds to words
and never replaces one. Where the output is not UTF-8, only ASCII is written.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from aggregator import safe
from aggregator.reports import words
from aggregator.reports.summary import Summary
from aggregator.verdict import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Diagnosis, Evidence, Failure, Verdict

LINE_LIMIT = 480
"""Characters of one log line that are shown."""
MAX_EVIDENCE = 8
MATCHED_SHOWN = 4
MAX_BLOCK_LINES = 6
MAX_GROUPS = 8
MAX_NOTES = 10

_OUTCOME_STYLES = {
    Outcome.COMPLETED: "bold green",
    Outcome.RUNNING: "bold cyan",
    Outcome.CANCELLED: "bold yellow",
    Outcome.UNKNOWN: "bold yellow",
    Outcome.FAILED: "bold red",
    Outcome.HUNG: "bold red",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report and its Rich style."""

    text: str = ""
    style: str = ""


class TextReporter:
    """The report for people."""

    name = "text"
    suffix = ".txt"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the report; colours only if the options say so."""
        lines = [Line(words.fit(line.text.rstrip(), out.encoding), line.style) for line in self.lines(case.verdict)]
        if not self._options.color:
            out.writelines(line.text + "\n" for line in lines)
            return
        from rich.console import Console  # noqa: PLC0415 - a tenth of a second, for colour only
        from rich.text import Text  # noqa: PLC0415

        console = Console(file=out, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False)
        for line in lines:
            # A Text object: markup in a log line stays text.
            console.print(Text(line.text, style=line.style), soft_wrap=True, highlight=False)

    def lines(self, verdict: Verdict) -> Iterator[Line]:
        """The report line by line, without trailing newlines."""
        failure = verdict.first_failure
        summary = Summary(verdict, redact=self._options.redact)
        yield from self._wrapped(summary.outcome(), style=_OUTCOME_STYLES[verdict.outcome])
        yield Line(f"  {self._safe(verdict.job.path)}: {summary.read()}", "dim")
        for attempt in summary.attempts():
            yield from self._wrapped(attempt, "  ", "    ")
        yield Line()
        if failure is None:
            yield from self._wrapped(summary.headline(), style="bold")
        else:
            yield from self._headline(summary, failure)
            yield from self._proof(summary, failure)
        yield from self._section("Not readable or missing", summary.missing())
        yield from self._section("Clocks corrected", summary.clocks())
        if failure is not None:
            if failure.diagnosis is not None:
                yield from self._diagnosis(failure.diagnosis)
            yield Line()
            basis = f"; it rests on {failure.basis}" if failure.basis else ""
            yield from self._wrapped(f"Confidence: {words.confidence_words(failure.confidence)}{basis}", style="bold")

    def _headline(self, summary: Summary, failure: Failure) -> Iterator[Line]:
        yield from self._wrapped(summary.headline(), "", "  ", style="bold red")
        cited = " ".join(item.text for item in failure.evidence)
        if failure.message and failure.message not in cited:
            yield from self._quoted(failure.message, "  ")
        if failure.location:
            exception = f"{summary.safe(failure.exception)} " if failure.exception else ""
            yield Line(f"  {exception}at {summary.safe(failure.location)}")

    def _proof(self, summary: Summary, failure: Failure) -> Iterator[Line]:
        is_settled = failure.status is Status.IDENTIFIED
        candidates = summary.candidates()
        if not is_settled:
            yield from self._section("Candidates", candidates, "candidate", MAX_GROUPS)
        if failure.evidence:
            yield from _heading("Evidence")
            for item in failure.evidence[:MAX_EVIDENCE]:
                yield from self._evidence(item)
            yield from _more(len(failure.evidence) - MAX_EVIDENCE, "piece")
        yield from self._section(
            "Why we think so" if is_settled else "What is known", map(summary.safe, failure.reasons)
        )
        followed = summary.consequences()
        if followed:
            yield from _heading("Only a consequence")
            for text, _ in followed[:MAX_GROUPS]:
                yield from self._bullet(text)
            yield from _more(sum(number for _, number in followed[MAX_GROUPS:]), "rank")
        if is_settled:
            yield from self._section("Also considered", candidates, "candidate", MAX_GROUPS)
        yield from self._section(
            "What would settle it" if not is_settled else "To be surer", map(summary.safe, failure.would_settle)
        )

    def _evidence(self, item: Evidence) -> Iterator[Line]:
        yield Line(f"  {self._safe(item.file)}:{item.line}", "cyan")
        yield from self._quoted(item.text, "    | ")
        facts = [f"rank {item.rank}"] if item.rank is not None else []
        facts += [self._safe(item.host)] if item.host else []
        facts += [moment] if (moment := words.moment(item.time, item.time_resolution_ns)) else []
        origin = f" ({', '.join(facts)})" if facts else ""
        yield from self._wrapped(self._safe(item.why) + origin, "    ", "    ", style="dim")

    def _diagnosis(self, diagnosis: Diagnosis) -> Iterator[Line]:
        yield from _heading("Try next")
        how = f"[{diagnosis.entry}, {diagnosis.status}]"
        yield from self._wrapped(f"{self._safe(diagnosis.title)} {how}", "  ", "  ")
        yield from self._labelled("Because", "; ".join(diagnosis.matched[-MATCHED_SHOWN:]))
        yield from self._labelled("Against", "; ".join(diagnosis.against))
        yield from self._labelled("Cause", diagnosis.root_cause)
        yield from self._labelled("Fix", diagnosis.fix)
        for line in (diagnosis.code or "").strip("\n").split("\n"):
            if line:
                yield Line(f"            {safe.show(line)}", "dim")
        yield from self._labelled("Verify", diagnosis.verify)
        if diagnosis.node is not None and diagnosis.node != "keep":
            yield from self._labelled("Node", diagnosis.node)
        if diagnosis.nearest is not None and diagnosis.why_not_nearest is not None:
            yield from self._labelled("Not", f"{diagnosis.nearest}: {diagnosis.why_not_nearest}")
        for step in diagnosis.check_next[:1]:
            yield from self._labelled("Check", step)
        yield from self._labelled("See", f"denpex-agg explain {diagnosis.entry}")

    def _labelled(self, label: str, text: str) -> Iterator[Line]:
        if text:
            yield from self._wrapped(f"{label + ':':9}{self._safe(' '.join(text.split()))}", "  ", " " * 11)

    def _section(self, title: str, items: Iterable[str], noun: str = "note", most: int = MAX_NOTES) -> Iterator[Line]:
        listed = list(items)
        if not listed:
            return
        yield from _heading(title)
        for item in listed[:most]:
            yield from self._bullet(item)
        yield from _more(len(listed) - most, noun)

    def _bullet(self, text: str) -> Iterator[Line]:
        return self._wrapped(text, "  - ", "    ")

    def _quoted(self, text: str, indent: str) -> Iterator[Line]:
        """Foreign text, each line behind `indent`; of a long block (a traceback) the last lines, where the error is."""
        block = safe.show_block(self._mask(text), LINE_LIMIT).rstrip("\n").split("\n")
        if len(block) > MAX_BLOCK_LINES:
            yield Line(f"{indent}…", "dim")
        for line in block[-MAX_BLOCK_LINES:]:
            margin = line[: len(line) - len(line.lstrip())].expandtabs(4)[:8]
            yield from self._wrapped(line.strip(), indent + margin, indent + margin + "  ")

    def _wrapped(self, text: str, first: str = "", rest: str = "", style: str = "") -> Iterator[Line]:
        broken = textwrap.wrap(
            text,
            self._options.width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return (Line(part, style) for part in broken or [first.rstrip()])

    def _mask(self, text: str) -> str:
        return safe.mask(text) if self._options.redact else text

    def _safe(self, text: str) -> str:
        return safe.show(self._mask(text), LINE_LIMIT)


def _heading(title: str) -> Iterator[Line]:
    yield Line()
    yield Line(title, "bold")


def _more(number: int, noun: str) -> Iterator[Line]:
    if number > 0:
        yield Line(f"  … and {words.counted(number, f'more {noun}')}: see --format json", "dim")
