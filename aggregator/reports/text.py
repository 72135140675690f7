"""The verdict for a terminal: who failed first, the proof, who only followed, what to do.

Plain lines of at most `width` characters, broken between words only, so that a path is never cut. Colour adds to words
and never replaces one. Where the output is not UTF-8, only ASCII is written.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from aggregator import safe
from aggregator.reports import words
from aggregator.verdict import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Collateral, Diagnosis, Evidence, Failure, Verdict

LINE_LIMIT = 480
"""Characters of one log line that are shown."""
MAX_EVIDENCE = 8
MATCHED_SHOWN = 4
MAX_BLOCK_LINES = 6
MAX_GROUPS = 8
MAX_NOTES = 10
CLOCK_WORTH_TELLING_S = 0.5

_OUTCOME_STYLES = {
    Outcome.COMPLETED: "bold green",
    Outcome.RUNNING: "bold cyan",
    Outcome.CANCELLED: "bold yellow",
    Outcome.UNKNOWN: "bold yellow",
    Outcome.FAILED: "bold red",
    Outcome.HUNG: "bold red",
}
_NO_FAILURE = {
    Outcome.COMPLETED: "No rank failed.",
    Outcome.RUNNING: "No rank has failed: the job was still at work where the logs end.",
    Outcome.CANCELLED: "No rank failed: the job was stopped from outside.",
    Outcome.UNKNOWN: "The logs show neither a failure nor the end of the job.",
    Outcome.FAILED: "The job failed, but no line tells of a first failure.",
    Outcome.HUNG: "The job hung, but no line tells which rank stopped first.",
}
_ASCII = str.maketrans({"…": "...", "±": "+/-"})


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
        encoding = out.encoding or "utf-8"
        lines = [Line(_fit(line.text.rstrip(), encoding), line.style) for line in self.lines(case.verdict)]
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
        yield from self._outcome(verdict)
        yield Line()
        if failure is None:
            earlier = " Earlier attempts did, see above." if any(a.first_failure for a in verdict.attempts) else ""
            yield from self._wrapped(_NO_FAILURE[verdict.outcome] + earlier, style="bold")
        else:
            yield from self._headline(failure)
            yield from self._proof(verdict, failure)
        yield from self._missing(verdict)
        if failure is not None:
            if failure.diagnosis is not None:
                yield from self._diagnosis(failure.diagnosis)
            yield Line()
            basis = f"; it rests on {failure.basis}" if failure.basis else ""
            yield from self._wrapped(f"Confidence: {words.confidence_words(failure.confidence)}{basis}", style="bold")

    def _proof(self, verdict: Verdict, failure: Failure) -> Iterator[Line]:
        is_settled = failure.status is Status.IDENTIFIED
        if not is_settled:
            yield from self._candidates("Candidates", failure)
        if failure.evidence:
            yield from _heading("Evidence")
            for item in failure.evidence[:MAX_EVIDENCE]:
                yield from self._evidence(item)
            yield from _more(len(failure.evidence) - MAX_EVIDENCE, "piece")
        yield from self._section("Why we think so" if is_settled else "What is known", failure.reasons)
        if verdict.collateral:
            yield from self._collateral(verdict.collateral, failure)
        if is_settled:
            yield from self._candidates("Also considered", failure)
        yield from self._section("What would settle it" if not is_settled else "To be surer", failure.would_settle)

    def _outcome(self, verdict: Verdict) -> Iterator[Line]:
        job = verdict.job
        facts = [f"job {self._safe(job.id)}"] if job.id else []
        size = job.world_size if job.world_size is not None else len(job.ranks_seen)
        if size:
            facts.append(
                words.counted(size, "rank") + (f" on {words.counted(len(job.hosts), 'host')}" if job.hosts else "")
            )
        if period := words.period(job.started, job.ended, job.time_resolution_ns):
            facts.append(period)
        text = ": ".join(part for part in (verdict.outcome.upper(), ", ".join(facts)) if part)
        yield from self._wrapped(text, style=_OUTCOME_STYLES[verdict.outcome])
        coverage = verdict.coverage
        read = f"{words.counted(coverage.lines, 'line')} of {words.counted(coverage.files, 'file')} read"
        yield Line(f"  {safe.show(job.path)}: {read}", "dim")
        if len(verdict.attempts) > 1:
            for attempt in verdict.attempts:
                first = attempt.first_failure
                what = f": {_who(first)}, {words.kind_words(first.kind)}" if first else ""
                yield from self._wrapped(f"attempt {attempt.index}: {attempt.outcome}{what}", "  ", "    ")

    def _headline(self, failure: Failure) -> Iterator[Line]:
        place = [*map(self._safe, failure.hosts[:4])]
        if len(failure.hosts) > len(place):
            place.append(f"{len(failure.hosts) - len(place)} more hosts")
        if failure.gpu is not None:
            place.append(f"GPU {self._safe(failure.gpu)}")
        text = f"First failure: {_who(failure)}" + (f" ({', '.join(place)})" if place else "")
        if moment := words.moment(failure.time, failure.time_resolution_ns):
            text += f" at {moment}"
            if failure.time_uncertainty_s:
                text += f" ±{words.span_words(failure.time_uncertainty_s)}"
        what = words.kind_words(failure.kind)
        if failure.phase in words.PHASES:
            what += f" {words.PHASES[failure.phase]}"
        if failure.step is not None:
            what += f", step {failure.step}"
        yield from self._wrapped(f"{text}: {what}", "", "  ", style="bold red")
        cited = " ".join(item.text for item in failure.evidence)
        if failure.message and failure.message not in cited:
            yield from self._quoted(failure.message, "  ")
        if failure.location:
            yield Line(
                f"  {self._safe(failure.exception) + ' ' if failure.exception else ''}at {self._safe(failure.location)}"
            )

    def _evidence(self, item: Evidence) -> Iterator[Line]:
        yield Line(f"  {safe.show(item.file)}:{item.line}", "cyan")
        yield from self._quoted(item.text, "    | ")
        facts = [f"rank {item.rank}"] if item.rank is not None else []
        facts += [self._safe(item.host)] if item.host else []
        facts += [moment] if (moment := words.moment(item.time, item.time_resolution_ns)) else []
        origin = f" ({', '.join(facts)})" if facts else ""
        yield from self._wrapped(self._safe(item.why) + origin, "    ", "    ", style="dim")

    def _collateral(self, collateral: Iterable[Collateral], failure: Failure) -> Iterator[Line]:
        groups: defaultdict[tuple[str, str], list[Collateral]] = defaultdict(list)
        for item in collateral:
            groups[item.kind, words.without_lateness(item.because)].append(item)
        yield from _heading("Only a consequence")
        for (kind, because), items in list(groups.items())[:MAX_GROUPS]:
            when = words.lateness((item.time for item in items), failure.time)
            text = f"{self._sufferers(items)}: {words.kind_words(kind)}{' ' + when if when else ''}"
            yield from self._bullet(f"{text}: {self._safe(because)}" if because else text)
        rest = [item for items in list(groups.values())[MAX_GROUPS:] for item in items]
        yield from _more(len(rest), "rank")

    def _sufferers(self, items: list[Collateral]) -> str:
        ranks = {item.rank for item in items if item.rank is not None}
        hosts = sorted({item.host for item in items if item.rank is None and item.host})
        parts = [words.ranks_words(ranks)] if ranks else []
        parts += [f"{'host' if len(hosts) == 1 else 'hosts'} {', '.join(map(self._safe, hosts))}"] if hosts else []
        unknown = sum(item.rank is None and not item.host for item in items)
        parts += [words.counted(unknown, "process", "processes") + " of unknown rank"] if unknown else []
        return " and ".join(parts)

    def _candidates(self, title: str, failure: Failure) -> Iterator[Line]:
        groups: defaultdict[tuple[str, str], list[int | None]] = defaultdict(list)
        for item in failure.candidates:
            groups[item.kind, item.why_not].append(item.rank)
        if not groups:
            return
        yield from _heading(title)
        for (kind, why_not), ranks in list(groups.items())[:MAX_GROUPS]:
            known = [rank for rank in ranks if rank is not None]
            who = words.ranks_words(known) if known else "a process of unknown rank"
            yield from self._bullet(f"{who}, {words.kind_words(kind)}: {self._safe(why_not)}")
        yield from _more(len(groups) - MAX_GROUPS, "candidate")

    def _missing(self, verdict: Verdict) -> Iterator[Line]:
        notes = []
        if verdict.job.ranks_missing:
            notes.append(f"no log of {words.ranks_words(verdict.job.ranks_missing)}")
        skipped: defaultdict[str, list[str]] = defaultdict(list)
        for item in verdict.coverage.files_skipped:
            skipped[item.reason].append(item.file)
        for reason, files in skipped.items():
            more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""  # noqa: PLR2004 - three names make the point
            notes.append(f"{', '.join(map(safe.show, files[:3]))}{more}: {self._safe(reason)}")
        notes.extend(map(self._safe, verdict.warnings))
        yield from self._section("Not readable or missing", notes, is_safe=True)
        clocks = [
            f"{self._safe(clock.host or 'unnamed host')}: {clock.offset_s:+.1f} s"
            + (f" ±{words.span_words(clock.uncertainty_s)}" if clock.uncertainty_s is not None else "")
            + f" ({self._safe(clock.method)})"
            for clock in verdict.clocks
            if abs(clock.offset_s) >= CLOCK_WORTH_TELLING_S
        ]
        yield from self._section("Clocks corrected", clocks, is_safe=True)

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

    def _section(self, title: str, items: Iterable[str], *, is_safe: bool = False) -> Iterator[Line]:
        listed = list(items)
        if not listed:
            return
        yield from _heading(title)
        for item in listed[:MAX_NOTES]:
            yield from self._bullet(item if is_safe else self._safe(item))
        yield from _more(len(listed) - MAX_NOTES, "note")

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


def _who(failure: Failure) -> str:
    if failure.status is Status.UNDETERMINED:
        return "rank not told by these logs"
    if not failure.ranks:
        return "the job as a whole"
    if failure.status is Status.AMBIGUOUS:
        return f"one of {words.ranks_words(failure.ranks)}, which one the logs do not settle"
    return words.ranks_words(failure.ranks)


def _fit(text: str, encoding: str) -> str:
    """The text as `encoding` can carry it: ASCII where that is not UTF-8, with escapes for what ASCII lacks."""
    if encoding.lower().replace("-", "").replace("_", "") == "utf8":
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")
