"""What the chart draws, as columns of numbers: a page for thousands of ranks must stay small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from aggregator.case import Case
from aggregator.timeline import Bar, Doing, Lane, Mark, MarkKind, Timeline
from aggregator.verdict import Failure, Status

_NS_PER_MS = 1_000_000
_BARS = 100_000
"""More take a browser seconds."""
_FINEST = 4_000
"""Parts of the job's time below which a bar is drawn with its neighbour, where there are too many."""
_MARKS_A_LANE = 6
_MARKS = 40_000
_STEPS = 400
_LEAD_MS = 5_000
_EDGE = 0.015
"""Share of the job's time that is left free at both ends, so that no mark is cut in half."""
_TEXT = 160

_DOING = {doing: number for number, doing in enumerate(Doing)}
_WHAT = {what: number for number, what in enumerate(MarkKind)}
_TOLD = (MarkKind.FIRST, MarkKind.FAULT, MarkKind.CONSEQUENCE, MarkKind.ENDED, MarkKind.STOPPED)
"""Which marks of a rank are kept first."""

Clean = Callable[[str, int], str]


def chart_data(case: Case, clean: Clean) -> dict[str, Any]:
    """The timeline for `page.js`: times are ms from `t0` (ms since the epoch, UTC), words are numbers of lists.

    Names of hosts and texts of lines go through `clean`, which takes a text and the characters that it may have.
    """
    timeline, failure = case.timeline, case.verdict.first_failure
    blamed = failure.ranks if failure is not None and failure.status is not Status.UNDETERMINED else ()
    failed = failure.time if failure is not None and timeline.started is not None else None
    t0 = min(t for t in (timeline.started or 0, failed) if t is not None) // _NS_PER_MS

    def ms(ns: int) -> float:
        value = (ns - t0 * _NS_PER_MS) / _NS_PER_MS
        return int(value) if value == int(value) else round(value, 3)

    hosts: dict[str, int] = {}
    texts: dict[str, int] = {}
    lanes = _with_blamed(timeline.lanes, failure, blamed)
    finest, room = _limits(timeline)
    bars = [(number, bar) for number, lane in enumerate(lanes) for bar in _thinned(lane, finest, room)]
    most = min(_MARKS_A_LANE, max(_MARKS // len(lanes), 1)) if lanes else 0
    marks = [(number, mark) for number, lane in enumerate(lanes) for mark in _kept(lane, most)]
    shown = [mark.time for _, mark in marks if _shows(mark, failure)]
    if failure is not None and failed is not None and not shown:
        # No line of its own shows the failure of a rank that others waited for.
        mark = Mark(failed, MarkKind.FIRST, failure.kind, failure.message, "", 0, exact=False)
        marks += [(number, mark) for number, lane in enumerate(lanes) if lane.rank in blamed]
    first = failed if failed is not None else min(shown, default=None)
    when = None if first is None else ms(first)
    span = max([ms(timeline.ended) if timeline.ended is not None else 0, *(ms(mark.time) for _, mark in marks)])
    edge = round(span * _EDGE, 3)
    return {
        "t0": t0,
        "span": span,
        "range": [-edge, span + edge],
        "hosts": hosts,
        "texts": texts,
        "doing": list(Doing),
        "what": list(MarkKind),
        "lanes": {
            "rank": [lane.rank for lane in lanes],
            "host": [
                -1 if lane.host is None else hosts.setdefault(clean(lane.host, _TEXT), len(hosts)) for lane in lanes
            ],
            "eps": [None if lane.uncertainty_s is None else round(lane.uncertainty_s * 1000, 1) for lane in lanes],
        },
        "bars": {
            "lane": [number for number, _ in bars],
            "start": [ms(bar.start) for _, bar in bars],
            "end": [ms(bar.end) for _, bar in bars],
            "doing": [_DOING[bar.doing] for _, bar in bars],
        },
        "marks": {
            "lane": [number for number, _ in marks],
            "time": [ms(mark.time) for _, mark in marks],
            "what": [_WHAT[mark.what] for _, mark in marks],
            "exact": [int(mark.exact) for _, mark in marks],
            "text": [texts.setdefault(clean(mark.text, _TEXT), len(texts)) for _, mark in marks],
        },
        "steps": [[ms(time), step] for time, step in _steps(lanes)],
        "first": {
            "ranks": list(blamed),
            "time": when,
            "eps": _eps_ms(failure),
            "settled": failure is None or failure.status is Status.IDENTIFIED,
        },
        "decisive": _decisive(when, [ms(mark.time) for _, mark in marks], [ms(bar.end) for _, bar in bars], span),
    } | {"hosts": list(hosts), "texts": list(texts)}


def _with_blamed(lanes: Sequence[Lane], failure: Failure | None, blamed: Iterable[int]) -> Sequence[Lane]:
    """The lanes, with an empty one for a rank that failed without a log: the picture must not leave it out."""
    silent = set(blamed) - {lane.rank for lane in lanes}
    if failure is None or not silent:
        return lanes
    host = failure.hosts[0] if len(failure.hosts) == 1 else None
    return sorted([*lanes, *(Lane(rank, host, None) for rank in silent)], key=lambda lane: lane.rank)


def _shows(mark: Mark, failure: Failure | None) -> bool:
    """Whether a mark is the first failure of the verdict; earlier attempts have first failures of their own."""
    if mark.what is not MarkKind.FIRST or failure is None:
        return False
    return any((item.file, item.line) == (mark.file, mark.line) for item in failure.evidence)


def _eps_ms(failure: Failure | None) -> float | None:
    if failure is None or failure.time is None or failure.time_uncertainty_s is None:
        return None
    return round(failure.time_uncertainty_s * 1000, 1)


def _limits(timeline: Timeline) -> tuple[int, int]:
    """The shortest bar that is drawn by itself, in ns, and how many a rank may have."""
    lanes = timeline.lanes
    if sum(len(lane.bars) for lane in lanes) <= _BARS or timeline.started is None or timeline.ended is None:
        return 0, _BARS
    return (timeline.ended - timeline.started) // _FINEST, max(_BARS // len(lanes), 1)


def _thinned(lane: Lane, finest: int, room: int) -> Sequence[Bar]:
    """A rank's bars, short ones joined to the one before; while they are too many the shortest goes too."""
    kept: list[Bar] = []
    for bar in lane.bars:
        if kept and bar.end - bar.start < finest and bar.attempt == kept[-1].attempt:
            kept[-1] = replace(kept[-1], end=bar.end)
        else:
            kept.append(bar)
    while len(kept) > room:
        shortest = min(range(1, len(kept)), key=lambda n: kept[n].end - kept[n].start)
        kept[shortest - 1] = replace(kept[shortest - 1], end=kept.pop(shortest).end)
    return kept


def _kept(lane: Lane, most: int) -> Iterable[Mark]:
    order = {what: number for number, what in enumerate(_TOLD)}
    weighed = sorted(lane.marks, key=lambda mark: (order.get(mark.what, len(order)), mark.time))
    return sorted(weighed[:most], key=lambda mark: mark.time)


def _steps(lanes: Iterable[Lane]) -> list[tuple[int, int]]:
    """When the job reached which step: the earliest moment that a rank tells, steps in order."""
    reached: dict[int, int] = {}
    for lane in lanes:
        for time, step in lane.steps:
            reached[step] = min(time, reached.get(step, time))
    ordered = sorted((time, step) for step, time in reached.items())
    every = -(-len(ordered) // _STEPS) or 1
    return ordered[::every]


def _decisive(first: float | None, marks: Iterable[float], ends: Sequence[float], span: float) -> list[float]:
    """From a little before the first failure to a little after the last that came of it; else everything.

    Where all had fallen silent before it, from the last that was heard of them: an empty picture says nothing. May
    reach into the free ends of the job's time.
    """
    if first is None:
        return [-span * _EDGE, span * (1 + _EDGE)]
    last = max((time for time in marks if time >= first), default=first)
    room = max((last - first) * 0.15, min(_LEAD_MS, span * 0.02), 1)
    heard = max((end for end in ends if end <= first), default=first)
    since = min(first, heard) if max(ends, default=first) < first - 2 * room else first
    room = max(room, (first - since) * 0.05)
    return [round(since - 2 * room, 3), round(last + room, 3)]
