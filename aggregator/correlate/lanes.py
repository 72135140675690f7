"""Draws up the timeline of a judged job from its ranks' stories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aggregator.correlate.evidence import NS, number
from aggregator.correlate.exits import Ending
from aggregator.correlate.judge import Judged, JudgedAttempt
from aggregator.correlate.stories import Story, in_order
from aggregator.timeline import Bar, Doing, Lane, Mark, MarkKind, Timeline
from aggregator.verdict import Failure
from parsers.clip import clip
from parsers.records import Role, Signal, StampQuality

_TEXT = 300
_MARKS = 12
"""Of one rank and attempt; a rank that repeats itself thousands of times is drawn no better by more."""
_HELD = frozenset({Doing.EVALUATION, Doing.CHECKPOINT})
_GAP = 3
"""So many times the usual distance between two told steps: some in between are missing."""
_NS_PER_MS = 1_000_000
_DOING = {doing.value: doing for doing in Doing if doing is not Doing.UNKNOWN}

_Moment = tuple[int, Doing]


def timeline_of(judged: Judged) -> Timeline:
    """What every rank did when, over all attempts."""
    bars: dict[int, list[Bar]] = defaultdict(list)
    marks: dict[int, list[Mark]] = defaultdict(list)
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    last: dict[int, Story] = {}
    ends = (judged.attempts[0].index, judged.attempts[-1].index)
    for row in judged.attempts:
        for rank, story in row.judgement.stories.items():
            pen = _Pen(story, judged, row, is_first=row.index == ends[0], is_last=row.index == ends[1])
            bars[rank] += pen.bars()
            marks[rank] += pen.marks()
            steps[rank] += pen.steps()
            if story.heard or rank not in last:
                last[rank] = story
    lanes = [
        _lane(story, judged, tuple(bars[rank]), tuple(marks[rank]), tuple(steps[rank]))
        for rank, story in sorted(last.items())
    ]
    moments = [t for lane in lanes for bar in lane.bars for t in (bar.start, bar.end)]
    moments += [mark.time for lane in lanes for mark in lane.marks]
    return Timeline(tuple(lanes), min(moments, default=None), max(moments, default=None))


def _proof(failure: Failure | None) -> frozenset[tuple[str, int]]:
    """The places of the lines that show the first failure."""
    return frozenset() if failure is None else frozenset((item.file, item.line) for item in failure.evidence)


def _lane(
    story: Story, judged: Judged, bars: tuple[Bar, ...], marks: tuple[Mark, ...], steps: tuple[tuple[int, int], ...]
) -> Lane:
    clock = judged.clocks.hosts.get(story.host or "")
    alone = 0.0 if judged.clocks.one_host else None
    place = story.last_place
    return Lane(
        rank=story.rank, host=story.host, uncertainty_s=clock.epsilon_ns / NS if clock is not None else alone,
        bars=bars, marks=marks, steps=steps, lines=story.lines, last_text=clip(story.last_text, _TEXT),
        last_place=(judged.evidence.sources[place[0]].path, place[1]) if place is not None else None,
    )  # fmt: skip


class _Pen:
    """Draws one rank's story of one attempt."""

    def __init__(self, story: Story, judged: Judged, row: JudgedAttempt, *, is_first: bool, is_last: bool) -> None:
        self._story, self._clocks, self._evidence = story, judged.clocks, judged.evidence
        self._attempt, self._failure = row.index, row.judgement.failure
        self._proof = _proof(self._failure)
        # A file's first and last stamps bound all attempts in it; between them an attempt's own signals do.
        own = [] if is_first and is_last else [signal.ns for signal in story.signals if signal.ns is not None]
        self._begin = story.first_ns if is_first else min(own, default=None)
        self._end = story.last_ns if is_last else max(own, default=None)

    def bars(self) -> list[Bar]:
        """From phase to phase; the last one ends with the rank's last line, or its end where that is earlier."""
        moments = self._moments()
        if not moments:
            return []
        end = max(moments[-1][0], self._common(self._end) or 0)
        waits = self._waits()
        bars: list[Bar] = []
        for (start, doing), (until, _) in zip(moments, [*moments[1:], (end, Doing.UNKNOWN)], strict=True):
            if bars and bars[-1].doing is doing and bars[-1].end == start:
                start = bars.pop().start  # noqa: PLW2901 - goes on from there
            bars.append(Bar(start, until, doing, self._attempt))
        return _with_waits(bars, waits, self._attempt)

    def _moments(self) -> list[_Moment]:
        """When the rank began to do something else."""
        found: list[_Moment] = []
        first = self._common(self._begin)
        if first is not None:
            found.append((first, Doing.INIT))
        doing = Doing.INIT if first is not None else None
        course = _Course()
        for signal in in_order([*self._story.phases, *self._story.progress]):
            ns = self._common(signal.ns)
            if ns is None or (found and ns < found[-1][0]):
                continue
            now = course.doing(signal, doing)
            if course.skipped and doing in _HELD:
                found[-1] = (found[-1][0], Doing.UNKNOWN)
            if now is not doing or course.skipped:
                found.append((ns, now))
                doing = now
        if found and found[0][1] is Doing.INIT and doing is Doing.INIT and not self._story.phases:
            found[0] = (found[0][0], Doing.UNKNOWN)  # nothing tells what it did
        return found

    def _waits(self) -> list[tuple[int, int]]:
        """From when to when the rank waited in vain, as a watchdog says that gives the time."""
        waits = []
        for signal in self._story.symptoms:
            waited_ms = number(signal.fields.get("ran_ms"))
            end = self._common(signal.ns)
            if waited_ms is not None and end is not None and signal.quality is StampQuality.OWN:
                waits.append((end - waited_ms * _NS_PER_MS, end))
        return waits[:1]

    def steps(self) -> list[tuple[int, int]]:
        """Moments of steps, in order."""
        told = ((self._common(s.ns), number(s.fields.get("step"))) for s in in_order(self._story.progress))
        return [(ns, step) for ns, step in told if ns is not None and step is not None]

    def marks(self) -> list[Mark]:
        """What happened to the rank, in order of time."""
        story = self._story
        ended = [item.report for item in story.exits if item.ending is not Ending.CLEAN]
        done = [*story.success, *(item.report for item in story.exits if item.ending is Ending.CLEAN)]
        found = [
            *self._marked(MarkKind.FAULT, [*story.roots, *story.eithers]),
            *self._marked(MarkKind.CONSEQUENCE, story.symptoms),
            *self._marked(MarkKind.STOPPED, story.teardown),
            *self._marked(MarkKind.ENDED, ended),
            *self._marked(MarkKind.RECOVERED, story.recovered),
            *self._marked(MarkKind.DONE, done),
        ]
        found.sort(key=lambda mark: mark.time)
        proven = [n for n, mark in enumerate(found) if (mark.file, mark.line) in self._proof]
        own = [n for n in proven if found[n].what is MarkKind.FAULT]
        ends = [n for n in proven if found[n].what is MarkKind.ENDED]
        for n in (own or ends)[:1]:
            # The stamp above a line without one may be of hours before; the verdict knows the time from more.
            known = None if found[n].exact or self._failure is None else self._failure.time
            found[n] = replace(found[n], what=MarkKind.FIRST, time=found[n].time if known is None else known)
        return found

    def _marked(self, what: MarkKind, signals: Iterable[Signal]) -> list[Mark]:
        rows = []
        for signal in in_order(signals)[:_MARKS]:
            ns = self._common(signal.ns)
            if ns is None:
                continue
            text, file = clip(signal.text.strip(), _TEXT), self._evidence.source(signal).path
            exact = signal.quality is StampQuality.OWN
            rows.append(Mark(ns, what, signal.kind or "unknown", text, file, max(1, signal.line), exact, self._attempt))
        return rows

    def _common(self, ns: int | None) -> int | None:
        return None if ns is None else self._clocks.common(ns, self._story.host)


class _Course:
    """What a rank does from line to line. Of long logs the middle is read for signs of trouble only: marks may lack."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        """The last step of each kind of line that told of training."""
        self._stride: dict[str, int] = {}
        """The smallest difference between two of them."""
        self._last: Signal | None = None
        self.skipped = False
        """Whether lines are missing above the last one, so that what was done there is not known."""

    def doing(self, signal: Signal, before: Doing | None) -> Doing:
        """What it does from a line on; `before` is what it did until then."""
        named = _DOING.get(signal.phase or "")
        if signal.role is Role.PHASE:
            again = self._last is not None and self._last.role is Role.PHASE and self._last.phase == signal.phase
            self.skipped = again and before in _HELD
            self._last = signal
            return named or Doing.TRAINING
        step, last = number(signal.fields.get("step")), self._steps.get(signal.signature)
        held = before in _HELD and not (step is not None and last is not None and step >= last)
        now = named or (before if held and before is not None else Doing.TRAINING)
        self._last, self.skipped = signal, False
        if now is Doing.TRAINING and step is not None:
            self._steps[signal.signature] = step
            if last is not None and step > last:
                stride = self._stride.setdefault(signal.signature, step - last)
                self.skipped = before in _HELD and step - last > _GAP * stride
                self._stride[signal.signature] = min(stride, step - last)
        return now


def _with_waits(bars: Sequence[Bar], waits: Sequence[tuple[int, int]], attempt: int) -> list[Bar]:
    """Bars with the time spent waiting cut out of them."""
    if not waits:
        return list(bars)
    start, end = waits[0]
    kept = []
    for bar in bars:
        if bar.start < start:
            kept.append(Bar(bar.start, min(bar.end, start), bar.doing, attempt))
        if bar.end > end:
            kept.append(Bar(max(bar.start, end), bar.end, bar.doing, attempt))
    kept.append(Bar(start, end, Doing.WAITING, attempt))
    return sorted(kept, key=lambda bar: bar.start)
