"""The verdict as Markdown, for a ticket or a chat that renders it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from aggregator import safe
from aggregator.reports import words
from aggregator.reports.markup import code, fenced, prose
from aggregator.reports.summary import Summary
from aggregator.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Diagnosis, Evidence, Failure, Verdict

LINE_LIMIT = 480
"""Characters of one log line that are shown."""
MAX_EVIDENCE = 8
MAX_BLOCK_LINES = 20
"""Of a quoted block; of a longer one (a traceback) the last lines, where the error is."""
MAX_ITEMS = 10


class MarkdownReporter:
    """Sections under headings of the second and third level, to be put into any document."""

    name = "markdown"
    suffix = ".md"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the sections, an empty line between them."""
        out.write(words.fit("\n\n".join(self.blocks(case.verdict)) + "\n", out.encoding))

    def blocks(self, verdict: Verdict) -> Iterator[str]:
        """The parts of the report, each sound Markdown by itself, the most important first."""
        summary = Summary(verdict, redact=self._options.redact)
        failure = verdict.first_failure
        yield f"## {prose(summary.outcome())}"
        yield "\n".join(self._card(summary, verdict))
        if failure is not None:
            yield from self._proof(summary, failure)
            if failure.diagnosis is not None:
                yield from self._diagnosis(summary, failure.diagnosis)
        yield from _section("Not readable or missing", summary.missing())
        yield from _section("Clocks corrected", summary.clocks())

    def _card(self, summary: Summary, verdict: Verdict) -> Iterator[str]:
        """The answer in a few lines."""
        failure = verdict.first_failure
        yield f"**{prose(summary.headline())}**" if failure is None else f"**First failure:** {_answer(summary)}"
        yield ""
        if failure is not None:
            if failure.location:
                exception = f"{code(summary.safe(failure.exception))} " if failure.exception else ""
                yield f"- Raised: {exception}at {code(summary.safe(failure.location))}"
            basis = f"; it rests on {prose(summary.safe(failure.basis))}" if failure.basis else ""
            yield f"- Confidence: {words.confidence_words(failure.confidence)}{basis}"
        yield f"- Job: {code(summary.safe(verdict.job.path))}, {summary.read()}"
        for attempt in summary.attempts():
            yield f"- {prose(attempt)}"

    def _proof(self, summary: Summary, failure: Failure) -> Iterator[str]:
        is_settled = failure.status is Status.IDENTIFIED
        if not is_settled:
            yield from _section("Candidates", summary.candidates())
        if failure.evidence:
            yield "### Evidence"
            for item in failure.evidence[:MAX_EVIDENCE]:
                yield self._evidence(summary, item)
            if len(failure.evidence) > MAX_EVIDENCE:
                yield f"… and {words.counted(len(failure.evidence) - MAX_EVIDENCE, 'more piece')}"
        reasons = map(summary.safe, failure.reasons)
        yield from _section("Why we think so" if is_settled else "What is known", reasons)
        yield from _section("Only a consequence", (text for text, _ in summary.consequences()))
        if is_settled:
            yield from _section("Also considered", summary.candidates())
        title = "To be surer" if is_settled else "What would settle it"
        yield from _section(title, map(summary.safe, failure.would_settle))

    def _evidence(self, summary: Summary, item: Evidence) -> str:
        facts = [f"rank {item.rank}"] if item.rank is not None else []
        facts += [summary.safe(item.host)] if item.host else []
        facts += [moment] if (moment := words.moment(item.time, item.time_resolution_ns)) else []
        origin = f" ({', '.join(map(prose, facts))})" if facts else ""
        place = code(f"{summary.safe(item.file)}:{item.line}")
        return "\n".join([f"{place}: {prose(summary.safe(item.why))}{origin}", "", *self._quoted(item.text)])

    def _quoted(self, text: str) -> list[str]:
        masked = safe.mask(text) if self._options.redact else text
        lines = safe.show_block(masked, LINE_LIMIT).rstrip("\n").split("\n")
        return fenced(["…", *lines[-MAX_BLOCK_LINES:]] if len(lines) > MAX_BLOCK_LINES else lines)

    def _diagnosis(self, summary: Summary, diagnosis: Diagnosis) -> Iterator[str]:
        yield f"### Diagnosis: {prose(summary.safe(diagnosis.title))}"
        told = (
            ("Because", "; ".join(diagnosis.matched)), ("Against", "; ".join(diagnosis.against)),
            ("Cause", diagnosis.root_cause), ("Fix", diagnosis.fix),
        )  # fmt: skip
        lines = [f"Entry {code(summary.safe(diagnosis.entry))} of the catalogue, {diagnosis.status}."]
        lines += [f"- {label}: {prose(summary.safe(text, LINE_LIMIT * 4))}" for label, text in told if text]
        yield "\n".join([lines[0], "", *lines[1:]])
        if diagnosis.code:
            lines = safe.show_block(diagnosis.code, LINE_LIMIT).strip("\n").split("\n")
            yield "\n".join(fenced(lines, ""))
        node = f"{diagnosis.node} it" if diagnosis.node not in {None, "keep"} else ""
        what_next = (("Verify", diagnosis.verify), ("Node", node), ("Check", "; ".join(diagnosis.check_next[:1])))
        lines = [f"- {label}: {prose(summary.safe(text, LINE_LIMIT * 4))}" for label, text in what_next if text]
        yield "\n".join([*lines, f"- More: {code(summary.safe(f'denpex-agg explain {diagnosis.entry}'))}"])


def _answer(summary: Summary) -> str:
    return prose(summary.headline().removeprefix("First failure: "))


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    listed = list(items)
    if not listed:
        return
    yield f"### {title}"
    lines = [f"- {prose(item)}" for item in listed[:MAX_ITEMS]]
    if len(listed) > MAX_ITEMS:
        lines.append(f"- … and {len(listed) - MAX_ITEMS:,} more: see `--format json`")
    yield "\n".join(lines)
