"""The timeline in the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open.

A node is a process, a rank its thread, what it did a slice, what happened to it an instant; arrows lead from the first
failure to what followed from it. Times are µs from the first moment that is known, in the job's common time.
Format: "Trace Event Format" (Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from aggregator.reports.summary import Summary
from aggregator.timeline import MarkKind
from aggregator.verdict import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.timeline import Lane, Mark
    from aggregator.verdict import Json

_NS_PER_US = 1000
_FOLLOWS = frozenset({MarkKind.CONSEQUENCE, MarkKind.STOPPED, MarkKind.ENDED})
_ARROW = "first failure"
_ENDPOINT_US = 1.0
"""Length of the slices that arrows begin and end in: an arrow needs one, and an instant is none."""


class TraceReporter:
    """One JSON object; without any known time it names the ranks and the verdict only."""

    name = "trace"
    suffix = ".trace.json"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the object, an event a line, in ASCII."""
        summary = Summary(case.verdict, redact=self._options.redact)
        other = {
            "job": summary.safe(case.verdict.job.id or case.verdict.job.path),
            "outcome": summary.outcome(),
            "verdict": summary.headline(),
            "started": iso_time(case.timeline.started, 1) or "",
        }
        events = ",\n".join(json.dumps(event, allow_nan=False) for event in _Drawing(case, summary).events())
        out.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n{events}\n]}}\n')


class _Drawing:
    """Turns a case into events."""

    def __init__(self, case: Case, summary: Summary) -> None:
        self._case, self._summary = case, summary
        self._lanes = case.timeline.lanes
        self._zero = case.timeline.started or 0
        # From 1: viewers take process 0 for the idle one.
        self._nodes = {host: n for n, host in enumerate(dict.fromkeys(lane.host for lane in self._lanes), start=1)}
        self._offsets = {clock.host: clock.offset_s for clock in case.verdict.clocks}

    def events(self) -> Iterator[dict[str, Json]]:
        for host, node in self._nodes.items():
            name = self._summary.safe(host) if host else "unknown host"
            yield {"ph": "M", "name": "process_name", "pid": node, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": node, "args": {"sort_index": node}}
        for lane in self._lanes:
            yield self._of(lane, ph="M", name="thread_name", args={"name": f"rank {lane.rank}"})
            yield self._of(lane, ph="M", name="thread_sort_index", args={"sort_index": lane.rank})
        for lane in self._lanes:
            for bar in lane.bars:
                args: dict[str, Json] = {"attempt": bar.attempt, **self._clock(lane)}
                yield self._of(
                    lane, ph="X", name=bar.doing.value.replace("_", " "), cat="phase", ts=self._us(bar.start),
                    dur=(bar.end - bar.start) / _NS_PER_US, args=args,
                )  # fmt: skip
            for mark in lane.marks:
                yield self._of(
                    lane, ph="i", s="t", name=mark.what.value, cat="signal", ts=self._us(mark.time),
                    args=self._told(lane, mark),
                )  # fmt: skip
        yield from self._arrows()

    def _arrows(self) -> Iterator[dict[str, Json]]:
        """From the first failure to each rank that followed; where no rank shows it, an instant of the whole job."""
        shown = [(lane, mark) for lane in self._lanes for mark in lane.marks if mark.what is MarkKind.FIRST]
        last = max((attempt.index for attempt in self._case.verdict.attempts), default=0)
        first = next(((lane, mark) for lane, mark in shown if mark.attempt == last), None)
        failure = self._case.verdict.first_failure
        if first is None:
            if failure is not None and failure.time is not None and self._lanes:
                lane = next((lane for lane in self._lanes if lane.rank in failure.ranks), self._lanes[0])
                yield self._of(lane, ph="i", s="g", name=_ARROW, cat="signal", ts=max(self._us(failure.time), 0.0),
                               args={"verdict": self._summary.headline()})  # fmt: skip
            return
        origin, began = first
        ends = [(lane, mark) for lane in self._lanes if lane is not origin and (mark := _followed(lane, began))]
        if not ends:
            return
        yield from self._endpoint(origin, began, "first failure")
        for number, (lane, mark) in enumerate(ends, start=1):
            yield self._of(origin, ph="s", id=number, name=_ARROW, cat="cause", ts=self._us(began.time))
            yield from self._endpoint(lane, mark, "followed")
            yield self._of(lane, ph="f", bp="e", id=number, name=_ARROW, cat="cause", ts=self._us(mark.time))

    def _endpoint(self, lane: Lane, mark: Mark, name: str) -> Iterator[dict[str, Json]]:
        yield self._of(lane, ph="X", name=name, cat="cause", ts=self._us(mark.time), dur=_ENDPOINT_US,
                       args=self._told(lane, mark))  # fmt: skip

    def _of(self, lane: Lane, **event: Json) -> dict[str, Json]:
        return {**event, "pid": self._nodes[lane.host], "tid": lane.rank}

    def _us(self, ns: int) -> float:
        return (ns - self._zero) / _NS_PER_US

    def _told(self, lane: Lane, mark: Mark) -> dict[str, Json]:
        safe = self._summary.safe
        told: dict[str, Json] = {"kind": mark.kind, "text": safe(mark.text), "attempt": mark.attempt}
        return {**told, "at": f"{safe(mark.file)}:{mark.line}", "exact_time": mark.exact, **self._clock(lane)}

    def _clock(self, lane: Lane) -> dict[str, Json]:
        """What was added to the host's stamps, and how sure that is, in seconds."""
        known: dict[str, Json] = {}
        if lane.host in self._offsets:
            known["clock_offset_s"] = round(self._offsets[lane.host], 6)
        if lane.uncertainty_s is not None:
            known["clock_uncertainty_s"] = round(lane.uncertainty_s, 6)
        return known


def _followed(lane: Lane, first: Mark) -> Mark | None:
    """The first thing that happened to a rank as a consequence, as far as its clock shows that it was one."""
    return next(
        (mark for mark in lane.marks
         if mark.what in _FOLLOWS and mark.attempt == first.attempt and mark.time >= first.time),
        None,
    )  # fmt: skip
