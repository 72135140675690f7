"""What the page says, in the order of the page. Every text here is safe to show: masked, without control characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby

from aggregator import __version__, safe
from aggregator.case import Case
from aggregator.correlate.phases import user_frames
from aggregator.excerpts import Excerpt
from aggregator.reports import words
from aggregator.reports.summary import Summary
from aggregator.timeline import Doing, Lane, MarkKind
from aggregator.verdict import NS_PER_S, Diagnosis, Evidence, Failure, Status
from parsers.records import ExceptionInfo

_TEXT = 2_000
_CELL = 300
_ROWS = 2_048
"""Rows of the table of ranks; of more, those that are worth a look come first and the rest is counted."""
_HOSTS = 8
"""Hosts that are named where more have the same to tell."""
_AROUND, _LAST = 3, 20
"""Lines above and below a piece of evidence, and the last ones of the rank that failed."""
_LINK = re.compile(r"https?://\S+")

SIGNS = {
    MarkKind.FIRST: "◆", MarkKind.FAULT: "▲", MarkKind.CONSEQUENCE: "●", MarkKind.STOPPED: "■", MarkKind.ENDED: "✕",
    MarkKind.RECOVERED: "○", MarkKind.DONE: "▼",
}  # fmt: skip


_STATES = {
    "first": "first failure", "candidate": "candidate", "missing": "no log", "consequence": "consequence",
    "none": "no trouble seen",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file."""

    number: int
    text: str
    is_cited: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """One piece of evidence, with the lines around it."""

    file: str
    line: int
    why: str
    origin: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """Frames of a traceback that stand together: the user's own, or a library's, which are folded."""

    is_own: bool
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One rank. `state` is a key of `_STATES`, `label` its words; `later_s` is counted from the first failure."""

    rank: int
    host: str
    state: str
    label: str
    what: str
    later_s: str
    step: str
    lines: str
    last: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    clean: Callable[[str, int], str]
    title: str
    outcome: str
    job: str
    headline: str
    confidence: str
    basis: str
    message: str
    facts: tuple[tuple[str, str], ...]
    is_settled: bool
    reasons: tuple[str, ...]
    settle: tuple[str, ...]
    candidates: tuple[str, ...]
    attempts: tuple[str, ...]
    proofs: tuple[Proof, ...]
    stacks: tuple[Stack, ...]
    exception: str
    last_file: str
    last: tuple[Line, ...]
    consequences: tuple[str, ...]
    diagnosis: dict[str, object] | None
    rows: tuple[Row, ...]
    rows_left: int
    states: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    clocks: tuple[str, ...]
    made: tuple[tuple[str, str], ...]
    doing: tuple[str, ...]
    what: tuple[tuple[str, str, str], ...]
    """Words of marks, their classes and their signs."""


def page_of(case: Case, *, redact: bool) -> Page:
    """All that the page says of a case; secrets are masked with `redact`."""
    return _Writer(case, redact=redact).page()


class _Writer:
    def __init__(self, case: Case, *, redact: bool) -> None:
        self._case, self._verdict = case, case.verdict
        self._redact = redact
        self._summary = Summary(case.verdict, redact=redact)

    def page(self) -> Page:
        verdict, failure, summary = self._verdict, self._verdict.first_failure, self._summary
        rows = self._rows()
        exception = self._case.exception
        last_file, last = self._last()
        return Page(
            clean=self._summary.safe,
            title=f"{verdict.outcome}: {self._summary.safe(verdict.job.id or verdict.job.path)}",
            outcome=verdict.outcome,
            job=summary.outcome(),
            headline=summary.headline(),
            confidence=words.confidence_words(failure.confidence) if failure is not None else "",
            basis=self._safe(failure.basis) if failure is not None else "",
            message=self._block(failure.message) if failure is not None else "",
            facts=tuple(self._facts(failure)) if failure is not None else (),
            is_settled=failure is None or failure.status is Status.IDENTIFIED,
            reasons=tuple(map(self._safe, failure.reasons)) if failure is not None else (),
            settle=tuple(map(self._safe, failure.would_settle)) if failure is not None else (),
            candidates=tuple(summary.candidates()),
            attempts=tuple(summary.attempts()),
            proofs=tuple(self._proof(item) for item in (failure.evidence if failure is not None else ())),
            exception=self._safe(f"{exception.root_type}: {exception.root_message}") if exception is not None else "",
            stacks=tuple(self._stacks(exception)) if exception is not None else (),
            last_file=last_file,
            last=last,
            consequences=tuple(text for text, _ in summary.consequences()),
            diagnosis=self._diagnosis(failure.diagnosis) if failure is not None and failure.diagnosis else None,
            rows=tuple(rows[:_ROWS]),
            rows_left=max(len(rows) - _ROWS, 0),
            states=tuple(dict.fromkeys((row.state, row.label) for row in rows)),
            missing=tuple(summary.missing()),
            clocks=tuple(self._clocks()) if len(verdict.clocks) > 1 else (),
            made=tuple(self._made()),
            doing=tuple(Doing),
            what=tuple((self._mark_words(word), word.value.replace(" ", "-"), sign) for word, sign in SIGNS.items()),
        )

    def _safe(self, text: str) -> str:
        return self._summary.safe(text, _TEXT)

    def _block(self, text: str) -> str:
        return safe.show_block(safe.mask(text) if self._redact else text, _TEXT)

    def _facts(self, failure: Failure) -> Iterator[tuple[str, str]]:
        """Names and values of the verdict card."""
        moment = words.moment(failure.time, failure.time_resolution_ns)
        sure = f" ±{words.span_words(failure.time_uncertainty_s)}" if failure.time_uncertainty_s else ""
        layer = f"{failure.layer} layer" if failure.layer != "unknown" else ""
        node = failure.diagnosis.node if failure.diagnosis is not None else None
        told = {
            "Ranks": words.rank_ranges(failure.ranks),
            "Hosts": ", ".join(failure.hosts),
            "GPU": failure.gpu or "",
            "Time": f"{moment}{sure}" if moment else "not told by the logs",
            "Step": "" if failure.step is None else f"{failure.step:,}",
            "What": ", ".join(part for part in (words.kind_words(failure.kind), layer) if part),
            "Exception": failure.exception or "",
            "At": failure.location or "",
            "Node": f"{node} it" if node else "",
        }
        return ((name, self._safe(value)) for name, value in told.items() if value)

    def _proof(self, item: Evidence) -> Proof:
        facts = [f"rank {item.rank}"] if item.rank is not None else []
        facts += [self._safe(item.host)] if item.host else []
        facts += [moment] if (moment := words.moment(item.time, item.time_resolution_ns)) else []
        found = self._case.around(item, _AROUND, _AROUND)
        if found is None:
            lines = tuple(Line(item.line + n, text, is_cited=True) for n, text in enumerate(self._lines(item.text)))
        else:
            lines = tuple(
                Line(number, text, is_cited=number == item.line)
                for number, text in enumerate(self._quoted(found), found.first)
            )
        return Proof(self._safe(item.file), item.line, self._safe(item.why), ", ".join(facts), lines)

    def _quoted(self, found: Excerpt) -> list[str]:
        lines = safe.mask_lines(found.lines) if self._redact else found.lines
        return [safe.show(text, _TEXT) for text in lines]

    def _lines(self, text: str) -> list[str]:
        return self._block(text).rstrip("\n").split("\n")

    def _stacks(self, exception: ExceptionInfo) -> Iterator[Stack]:
        """The frames, outermost first, the user's own and libraries' apart."""
        frames = exception.frames or exception.outer_frames
        own = set(map(id, user_frames(frames)))
        for is_own, group in groupby(frames, key=lambda frame: id(frame) in own):
            yield Stack(is_own, tuple(self._safe(f"{f.file}:{f.line} in {f.function}") for f in group))

    def _last(self) -> tuple[str, tuple[Line, ...]]:
        """The last lines of the rank that failed: what leads up to the line that shows it."""
        failure = self._verdict.first_failure
        own = [item for item in failure.evidence if item.rank in failure.ranks] if failure is not None else []
        for item in own:
            found = self._case.around(item, _LAST, 0)
            if found is not None:
                rows = enumerate(self._quoted(found), found.first)
                return self._safe(item.file), tuple(Line(number, text) for number, text in rows)
        return "", ()

    def _diagnosis(self, diagnosis: Diagnosis) -> dict[str, object]:
        """All of a diagnosis, safe to show, and those references that are links."""
        told: dict[str, object] = {
            name: self._block(value or "").strip("\n")
            for name, value in asdict(diagnosis).items()
            if value is None or isinstance(value, str)
        }
        for name in ("matched", "against", "check_next"):
            told[name] = [self._safe(text) for text in getattr(diagnosis, name)]
        told["references"] = [
            (self._safe(text), text if _LINK.fullmatch(text) else "") for text in diagnosis.references
        ]
        return told

    def _mark_words(self, what: MarkKind) -> str:
        failure = self._verdict.first_failure
        is_open = failure is not None and failure.status is Status.AMBIGUOUS
        return "may be the first failure" if is_open and what is MarkKind.FIRST else what.value

    def _clocks(self) -> Iterator[str]:
        """One line for all hosts whose clocks were treated alike: of thousands they would fill pages."""
        alike: dict[str, list[str]] = {}
        for clock, told in zip(self._verdict.clocks, self._summary.clocks(0.0), strict=True):
            host = self._summary.safe(clock.host or "unnamed host")
            alike.setdefault(told.removeprefix(f"{host}: "), []).append(host)
        for told, hosts in alike.items():
            more = f" and {len(hosts) - _HOSTS:,} more" if len(hosts) > _HOSTS else ""
            yield f"{', '.join(hosts[:_HOSTS])}{more}: {told}"

    def _made(self) -> Iterator[tuple[str, str]]:
        coverage, job = self._verdict.coverage, self._verdict.job
        yield "Program", f"denpex-agg {__version__}, verdict schema {self._verdict.schema_version}"
        yield "Input", self._safe(job.path)
        stamped = f", {coverage.lines_timestamped:,} of them with a time" if coverage.lines else ""
        yield "Read", f"{self._summary.read()}{stamped}, {coverage.bytes:,} bytes"
        yield "Secrets", "masked" if self._redact else "not masked"
        yield "Times", "UTC, corrected by what the logs tell of each host's clock"

    def _rows(self) -> list[Row]:
        """Every rank that is known of, those that are worth a look first."""
        verdict, failure = self._verdict, self._verdict.first_failure
        lanes = {lane.rank: lane for lane in self._case.timeline.lanes}
        followed = {item.rank: item for item in verdict.collateral if item.rank is not None}
        blamed = set(failure.ranks) if failure is not None else set()
        ranks = {*lanes, *followed, *verdict.job.ranks_seen, *verdict.job.ranks_missing, *blamed}
        missing = set(verdict.job.ranks_missing)
        settled = failure is not None and failure.status is Status.IDENTIFIED
        rows = []
        for rank in ranks:
            item, what, when = followed.get(rank), "", None
            if failure is not None and rank in blamed:
                state, what, when = ("first" if settled else "candidate"), words.kind_words(failure.kind), failure.time
            elif item is not None:
                state, what, when = "consequence", f"{words.kind_words(item.kind)}: {item.because}", item.time
            else:
                state = "missing" if rank in missing else "none"
            start = failure.time if failure is not None else None
            later = f"{(when - start) / NS_PER_S:.3f}" if when is not None and start is not None else ""
            rows.append(self._row(rank, state, what, later, lanes.get(rank)))
        return sorted(rows, key=lambda row: (row.state == "none", row.state == "consequence", row.rank))

    def _row(self, rank: int, state: str, what: str, later_s: str, lane: Lane | None) -> Row:
        step = max((step for _, step in lane.steps), default=None) if lane is not None else None
        return Row(
            rank=rank, host=self._summary.safe(lane.host) if lane is not None and lane.host else "", state=state,
            label=_STATES[state], what=self._summary.safe(what, _CELL), later_s=later_s,
            step="" if step is None else str(step), lines="" if lane is None else str(lane.lines),
            last="" if lane is None else self._summary.safe(lane.last_text, _CELL),
        )  # fmt: skip
