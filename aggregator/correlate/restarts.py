"""Where one incarnation of a job ends and the next begins."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from aggregator.correlate.evidence import NS, number, precise
from parsers.records import Role, Signal, Source, Stamp, StampQuality

if TYPE_CHECKING:
    from aggregator.correlate.evidence import JobEvidence

_RESTARTS = frozenset({"te.restart", "ray.trial.restart"})
_STARTS = frozenset({"ray.train.start"})
"""Told whenever workers are started: the first time, too."""
_TELL_RESTARTS = _RESTARTS | _STARTS | {"te.failed", "slurm.srun_abort"}
"""Without one of these a file tells of no restart by itself."""
_AGENT = re.compile(r"\b[EWI]\d{4} [\d:.]{8,15} (?P<pid>\d{1,9}) torch/distributed/elastic/")
_POD = "k8s-pod"
_CANCELLED = "slurm.cancelled."
_KILLED_NS = 60 * NS
"""How long after its end a step may still write."""
_Part: TypeAlias = tuple[int, str]
_LAST_WORDS = frozenset({Role.EXIT, Role.EXTERNAL, Role.TEARDOWN, Role.SYMPTOM})


def split_attempts(evidence: JobEvidence, signals: list[Signal]) -> list[tuple[int, list[Signal]]]:
    """Signals by incarnation: folders tell it, and restart lines inside a file."""
    folders = {source.attempt for source in evidence.sources if source.attempt is not None}
    newest = _of_most_pods(evidence.sources, max(folders, default=0))
    of_steps = outlived(signals)
    ends = {mark.source: mark for mark in of_steps}
    restarts = _restarts(signals, newest, of_steps)
    if not folders and not restarts:
        return [(0, signals)]
    bounds = _Bounds(restarts)
    parts: dict[int, list[Signal]] = {}
    for signal in signals:
        source = evidence.source(signal)
        index = source.attempt
        if index is None:
            told = bounds.index(signal)
            index = newest if told is None else told
        index = min(index, newest) if source.layout == _POD else index
        parts.setdefault(index, []).append(signal)
    if not parts:
        return [(0, [])]
    _forget_ends(signals, ends)
    final = max(parts)
    shared = [s for s in signals if s.role is Role.IDENTITY and s.source not in ends]
    return [
        (index, part if index == final else [*part, *(s for s in shared if s not in part)])
        for index, part in sorted(parts.items())
    ]


def _by_part(signals: Sequence[Signal]) -> dict[_Part, list[Signal]]:
    found: dict[_Part, list[Signal]] = defaultdict(list)
    for signal in signals:
        found[_part_of(signal)].append(signal)
    return found


def _told_again(marks: Sequence[Signal], signals: Sequence[Signal]) -> list[Signal]:
    """The ends after which their agent tells of another one, and between the two of steps, or of a rank's own end.

    `signals` are those of the same part of the file. A process raises once before its agent tells of its end: who does
    so again is another process.
    """
    agents = [_agent_of(mark) for mark in marks]
    last = {agent: mark.offset for agent, mark in zip(agents, marks, strict=True) if agent is not None}
    open_ = [(m, last[a]) for a, m in zip(agents, marks, strict=True) if a is not None and m.offset < last[a]]
    if not open_:
        return []
    steps = sorted(signal.offset for signal in signals if signal.role is Role.PROGRESS)
    raised: dict[int, list[int]] = {}
    for signal in signals:
        if signal.exception is not None and signal.rank is not None and signal.role is not Role.PROGRESS:
            raised.setdefault(signal.rank, []).append(signal.offset)
    twice = [sorted(offsets) for offsets in raised.values() if len(offsets) > 1]
    return [
        mark for mark, until in open_
        if _any_between(steps, mark.offset, until)
        or any(offsets[0] < mark.offset and _any_between(offsets, mark.offset, until) for offsets in twice)
    ]  # fmt: skip


def _any_between(offsets: Sequence[int], low: int, high: int) -> bool:
    """Whether any of these, which ascend, is above one and below the other."""
    place = bisect_right(offsets, low)
    return place < len(offsets) and offsets[place] < high


def _agent_of(mark: Signal) -> str | None:
    """The pid of the agent that wrote a line, None where its log has none."""
    found = _AGENT.search(mark.text)
    return found["pid"] if found is not None else None


class _Bounds:
    """Where incarnations begin: in each part of a file, and in the file for the lines that are of no part."""

    def __init__(self, restarts: Mapping[_Part, Sequence[Signal]]) -> None:
        self._of_part = {part: sorted(mark.offset for mark in marks) for part, marks in restarts.items()}
        self._of_file: dict[int, tuple[list[int], list[int]]] = {}
        found: dict[int, list[tuple[int, int]]] = {}
        for (source, _), offsets in self._of_part.items():
            found.setdefault(source, []).extend((offset, index) for index, offset in enumerate(offsets, 1))
        for source, begun in found.items():
            begun.sort()
            self._of_file[source] = [offset for offset, _ in begun], [*accumulate((i for _, i in begun), max)]

    def index(self, signal: Signal) -> int | None:
        """The incarnation that a line is of, by the restarts above it; None where nothing tells of any."""
        source, name = part = _part_of(signal)
        if part in self._of_part:
            return bisect_left(self._of_part[part], signal.offset)
        if name or source not in self._of_file:
            return None
        offsets, reached = self._of_file[source]
        above = bisect_left(offsets, signal.offset)
        return reached[above - 1] if above else 0


def _of_most_pods(sources: Sequence[Source], newest: int) -> int:
    """The last start that at least half of the pods went through; `newest` where the logs are not those of pods.

    What a container tells that was started again by itself is what came after the failure: the others are not there.
    """
    starts = Counter(source.attempt for source in sources if source.layout == _POD and source.attempt is not None)
    most = max(starts.values(), default=0)
    return max((start for start, pods in starts.items() if pods * 2 >= most), default=newest)


def _forget_ends(signals: Sequence[Signal], ends: dict[int, Signal]) -> None:
    """Take back the times that come from lines above the end of the incarnation before."""
    for signal in signals if ends else ():
        end = ends.get(signal.source)
        if end is None or end.ns is None or signal.offset <= end.offset or signal.ns is None or signal.ns > end.ns:
            continue
        if signal.quality is StampQuality.INHERITED:
            until = Stamp(signal.until_ns) if signal.until_ns is not None else None
            signal.stamp, signal.quality = until, StampQuality.BOUNDED if until else StampQuality.NONE


def _part_of(signal: Signal) -> _Part:
    """Where an agent's own lines are: pods, or srun's tasks, in one file start processes anew each by itself."""
    return signal.source, signal.fields.get("tag_pod") or signal.fields.get("tag_task", "")


def _restarts(signals: Sequence[Signal], newest: int, of_steps: Sequence[Signal]) -> dict[_Part, list[Signal]]:
    """By part of a file, the lines after which the next incarnation runs.

    An agent tells of a restart at level INFO, mostly hidden; what it always prints is the end of the last one. That
    is a restart where processes introduce themselves anew below it, or count their steps anew, where the same agent
    tells of another end further down, or where the attempts' folders (`newest` is the last one's number) show that
    there were so many. Of a step that srun ended it is one only where the program begins anew below: a batch script may
    run it again.
    """
    told: dict[_Part, list[Signal]] = {}
    ends: dict[_Part, list[Signal]] = {}
    over: dict[_Part, Signal] = {}
    begun: dict[_Part, int] = {}
    started: set[_Part] = set()
    final: set[_Part] = set()
    steps: dict[tuple[int, int | None, str], int] = {}
    tell = {signal.source for signal in signals if signal.signature in _TELL_RESTARTS}
    for signal in [signal for signal in signals if signal.source in tell] if tell else ():
        part = _part_of(signal)
        if signal.signature in _RESTARTS or (signal.signature in _STARTS and part in started):
            told.setdefault(part, []).append(signal)
        elif signal.signature in _STARTS:
            started.add(part)
        elif signal.signature == "te.failed":
            ends.setdefault(part, []).append(signal)
        elif signal.signature == "te.childfailed":
            final.add(part)
        elif signal.signature == "slurm.srun_abort" and "Force Terminated" in signal.text:
            over[part] = signal
        elif _begins(signal, steps):
            begun[part] = signal.offset
            if part in over:
                told.setdefault(part, []).append(over.pop(part))
    by_part = _by_part(signals) if ends else {}
    for part, marks in ends.items():
        if part not in told:
            again = set(map(id, _told_again(marks, by_part[part])))
            found = [mark for mark in marks if mark.offset < begun.get(part, 0) or id(mark) in again]
            # An agent whose workers write elsewhere tells of nothing else; what it raises at last is no restart.
            found = found or (marks[:-1] if part in final else marks)[:newest]
            if found:
                told[part] = found
    for mark in of_steps:
        for part in {_part_of(signal) for signal in signals if signal.source == mark.source}:
            told.setdefault(part, []).append(mark)
    return told


def outlived(signals: Sequence[Signal]) -> list[Signal]:
    """The last words on each step or job that Slurm cancelled, where its log goes on long after.

    Slurm kills what is left of a step after `KillWait` seconds (30 unless set otherwise, slurm.conf(5)). That the
    clocks of the nodes and of slurmstepd agree is seen above the line: nothing was written there after the end.
    """
    cancelled = {signal.source for signal in signals if signal.signature.startswith(_CANCELLED)}
    found: list[Signal] = []
    over: dict[int, tuple[int, Signal]] = {}
    latest: dict[int, int] = {}
    for signal in [signal for signal in signals if signal.source in cancelled] if cancelled else ():
        source = signal.source
        if signal.signature.startswith(_CANCELLED) and signal.quality is StampQuality.OWN and signal.ns:
            if latest.get(source, 0) <= signal.ns + _KILLED_NS:
                over[source] = (signal.ns, signal)
            continue
        if source in over:
            ended, mark = over[source]
            if signal.role in _LAST_WORDS:
                over[source] = (ended, signal)
            elif signal.signature.startswith("slurm."):
                continue  # its daemons have their say about what does not end
            elif precise(signal) and signal.ns is not None and signal.ns > ended + _KILLED_NS:
                found.append(mark)
                del over[source]
        if precise(signal) and signal.ns is not None:
            latest[source] = max(latest.get(source, 0), signal.ns)
    return found


def _begins(signal: Signal, steps: dict[tuple[int, int | None, str], int]) -> bool:
    """Whether a process introduces itself, or counts its steps anew; `steps` keeps the highest of each writer."""
    if signal.role is Role.PROGRESS:
        step = number(signal.fields.get("step"))
        writer = (signal.source, signal.rank, signal.signature)
        if step is None:
            return False
        if step < steps.get(writer, -1):
            return True
        steps[writer] = step
        return False
    return signal.role is Role.IDENTITY or (signal.role is Role.PHASE and signal.phase == "init")
