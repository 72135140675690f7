"""Each rank's story: what it said of itself, in its own order, and how it ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.correlate.evidence import MAX_WORLD, NS, JobEvidence, number
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.identity import Identity, stream_rank
from parsers.records import Role, Signal, Stamp, StampQuality

FAULTS = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM})
_SIGABRT = 6
_HARDWARE = frozenset({"ib_error", "network_error", "nvlink_error", "gpu_xid", "gpu_ecc"})
_STEPS_AFTER = 5
_ANY_CLOCK_NS = 600 * NS
"""Clocks of a job's hosts are not further apart; time zones are."""
_A_HABIT = 2
"""A program that went on from the same error so often goes on from the next one too."""
_FAR_NS = 12 * 3600 * NS
_PROGRESS_AFTER = 3
"""Progress marks after a fault that show that the program went on."""


@dataclass(slots=True)
class Story:
    """One rank. Lists are in file order within a source; sources of one rank are ordered by time where both tell."""

    rank: int
    host: str | None = None
    roots: list[Signal] = field(default_factory=list)
    eithers: list[Signal] = field(default_factory=list)
    symptoms: list[Signal] = field(default_factory=list)
    teardown: list[Signal] = field(default_factory=list)
    success: list[Signal] = field(default_factory=list)
    progress: list[Signal] = field(default_factory=list)
    phases: list[Signal] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    recovered: list[Signal] = field(default_factory=list)
    first_ns: int | None = None
    last_ns: int | None = None
    last_text: str = ""
    last_place: tuple[int, int] | None = None
    """Source index and line of the last line seen."""
    lines: int = 0
    sources: set[tuple[int, str]] = field(default_factory=set)
    """Files, and the pods in them, that hold words of its own."""

    @property
    def faults(self) -> list[Signal]:
        """Roots, undecided and symptoms together, earliest first where times tell."""
        return in_order([*self.roots, *self.eithers, *self.symptoms])

    @property
    def signals(self) -> list[Signal]:
        """All that is known of the rank in this attempt."""
        shelves = (
            self.roots, self.eithers, self.symptoms, self.teardown, self.success, self.progress, self.phases,
            self.recovered, [item.report for item in self.exits],
        )  # fmt: skip
        return [signal for shelf in shelves for signal in shelf]

    @property
    def heard(self) -> bool:
        """Whether anything that the rank itself printed is here."""
        return bool(self.lines or self.progress or self.phases or self.faults or self.success or self.recovered)

    @property
    def spoke_of_trouble(self) -> bool:
        """Whether the rank printed any error of its own."""
        return bool(self.roots or self.eithers or self.symptoms)

    @property
    def aborted(self) -> bool:
        """Whether it ended with SIGABRT."""
        return any(item.signum == _SIGABRT for item in self.exits)

    @property
    def told_to_stop(self) -> bool:
        """Whether a launcher says that it stopped the rank."""
        return any(signal.signature.startswith(("te.closing", "slurm.")) for signal in self.teardown)

    def ended(self, *endings: Ending) -> Exit | None:
        """The first exit report of one of these kinds."""
        return next((item for item in self.exits if item.ending in endings), None)


def in_order(signals: Iterable[Signal]) -> list[Signal]:
    """By time where it is known, else by place; a stable order for one rank's signals."""
    return sorted(signals, key=lambda s: (s.ns if s.ns is not None else 1 << 63, s.source, s.offset))


def written_in(signal: Signal) -> tuple[int, str]:
    """The file of a signal, and the pod where one file holds several."""
    return signal.source, signal.fields.get("tag_pod", "")


class _Stories(dict[int, Story]):
    """The story of every rank; of one that is none of the job's, whose number a line made up, an empty one."""

    def __missing__(self, rank: int) -> Story:
        return Story(rank)


def build_stories(
    evidence: JobEvidence, signals: list[Signal], exits: list[Exit], table: Identity
) -> tuple[dict[int, Story], list[Signal]]:
    """A story a rank, and the faults that no rank could be found for."""
    known = table.ranks | set(range(table.world_size if table.world_size and table.world_size <= MAX_WORLD else 0))
    stories: dict[int, Story] = _Stories({rank: Story(rank, table.host_of_rank.get(rank)) for rank in sorted(known)})
    homeless: list[Signal] = []
    for signal in signals:
        if signal.rank in stories and signal.role in {Role.IDENTITY, Role.PROGRESS, Role.PHASE}:
            stories[signal.rank].sources.add(written_in(signal))
        if signal.role in {Role.EXIT, Role.EXTERNAL, Role.IDENTITY, Role.CONTEXT, Role.STATE}:
            continue
        if signal.rank is None or (table.world_size is not None and signal.rank >= table.world_size):
            if signal.role in FAULTS:
                homeless.append(signal)
            continue
        story = stories.setdefault(signal.rank, Story(signal.rank, table.host_of_rank.get(signal.rank)))
        _file(story, signal)
    for item in exits:
        if item.rank is not None:
            stories.setdefault(item.rank, Story(item.rank, item.host)).exits.append(item)
    _last_seen(evidence, stories, table)
    for story in stories.values():
        _forgive(story)
        _excuse_aborts(story)
    _forgive_hardware(stories, [signal for signal in signals if signal.role is Role.PROGRESS])
    return stories, _homeless_faults(evidence, signals, homeless)


def _file(story: Story, signal: Signal) -> None:
    shelf = {
        Role.ROOT: story.roots, Role.EITHER: story.eithers, Role.SYMPTOM: story.symptoms,
        Role.TEARDOWN: story.teardown, Role.SUCCESS: story.success, Role.PROGRESS: story.progress,
        Role.PHASE: story.phases, Role.RECOVERED: story.recovered,
    }.get(signal.role)  # fmt: skip
    if shelf is not None:
        shelf.append(signal)


def _last_seen(evidence: JobEvidence, stories: dict[int, Story], table: Identity) -> None:
    for source, key, activity in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is None or rank not in stories:
            continue
        story = stories[rank]
        story.lines += activity.lines
        first, last = _wall(activity.first_stamp), _wall(activity.last_stamp)
        if first is not None and (story.first_ns is None or first < story.first_ns):
            story.first_ns = first
        if last is not None and (story.last_ns is None or last > story.last_ns):
            story.last_ns = last
        if activity.last is not None and (story.last_place is None or source.stream != "stdout"):
            story.last_text = activity.last_body
            story.last_place = (source.index, activity.last.line)


def _wall(stamp: Stamp | None) -> int | None:
    return stamp.ns if stamp is not None and not stamp.boot else None


def _forgive(story: Story) -> None:
    """A fault followed by progress on the same rank was caught by the program: no failure."""
    told = tuple(story.recovered)
    for shelf in (story.roots, story.eithers, story.symptoms):
        for signal in list(shelf):
            later = [mark for mark in story.progress if _after(mark, signal)]
            caught = any(_beside(mark, signal) for mark in told)
            if caught or len(later) >= _PROGRESS_AFTER or any(_after(mark, signal) for mark in story.success):
                shelf.remove(signal)
                story.recovered.append(signal)
    habits = Counter(_habit(signal) for signal in story.recovered[len(told) :])
    for shelf in (story.roots, story.eithers, story.symptoms):
        for signal in list(shelf):
            if signal.exception is not None and habits[_habit(signal)] >= _A_HABIT:
                shelf.remove(signal)
                story.recovered.append(signal)


def _forgive_hardware(stories: Mapping[int, Story], marks: Sequence[Signal]) -> None:
    """A port or a GPU that complained long before the job's last steps, whoever told of these, did not stop it."""
    faults = [
        (story, signal) for story in stories.values()
        for signal in story.roots if signal.kind in _HARDWARE and signal.exception is None
    ]  # fmt: skip
    if not faults:
        return
    by_source: dict[int, list[Signal]] = defaultdict(list)
    for mark in marks:
        by_source[mark.source].append(mark)
    steps_of = {source: _last_steps(told) for source, told in by_source.items()}
    timed = [mark for mark in marks if mark.quality is StampQuality.OWN and mark.ns is not None]
    latest = _last_steps(sorted(timed, key=lambda mark: mark.ns or 0))
    for story, signal in faults:
        below = steps_of.get(signal.source)
        on = below is not None and below.offset > signal.offset and not _is_flushed_late(below, signal)
        if on or (
            latest is not None and _after(latest, signal) and (latest.ns or 0) - (signal.ns or 0) > _ANY_CLOCK_NS
        ):
            story.roots.remove(signal)
            story.recovered.append(signal)


def _is_flushed_late(mark: Signal, signal: Signal) -> bool:
    """Whether a line stands below one that it is older than: a program's output is often written out as it ends."""
    own = mark.quality is StampQuality.OWN and signal.quality is StampQuality.OWN
    return own and (mark.ns or 0) < (signal.ns or 0)


def _last_steps(marks: Sequence[Signal]) -> Signal | None:
    """The first mark of the last few steps; None if there were not so many."""
    steps: set[str] = set()
    for mark in reversed(marks):
        steps.add(mark.fields.get("step", ""))
        if len(steps - {""}) >= _STEPS_AFTER:
            return mark
    return None


def _habit(signal: Signal) -> tuple[str, str | None, tuple[str, int] | None]:
    """What faults have in common that come from the same line of the program."""
    exception = signal.exception
    frame = exception.frames[-1] if exception is not None and exception.frames else None
    kind = exception.root_type if exception is not None else None
    return signal.signature, kind, (frame.file, frame.line) if frame is not None else None


def _excuse_aborts(story: Story) -> None:
    """A process that its own watchdog or error handler aborts ends with SIGABRT: the abort is no fault of its own."""
    for shelf in (story.roots, story.eithers):
        for signal in list(shelf):
            generic = signal.kind == "abort" and not signal.fields.get("own")
            earlier = [s for s in story.faults if s is not signal and s.kind != "abort" and not _after(s, signal)]
            if generic and earlier:
                shelf.remove(signal)
                story.teardown.append(signal)


def _after(later: Signal, earlier: Signal) -> bool:
    if later.source == earlier.source:
        return later.offset > earlier.offset
    if _guessed_day(later, earlier):
        return False
    return (
        later.quality is StampQuality.OWN and later.ns is not None and earlier.quality is StampQuality.OWN
        and earlier.ns is not None and later.ns > earlier.ns + NS
    )  # fmt: skip


def _guessed_day(later: Signal, earlier: Signal) -> bool:
    """Whether two times lie far apart of which one was completed by a guess: a clock without a date, say."""
    guessed = any(s.stamp is not None and not s.stamp.year_known for s in (later, earlier))
    return guessed and later.ns is not None and earlier.ns is not None and later.ns - earlier.ns > _FAR_NS


def _beside(mark: Signal, fault: Signal) -> bool:
    return mark.source == fault.source and abs(mark.line - fault.line) <= 60  # noqa: PLR2004 - a traceback's length


def _homeless_faults(evidence: JobEvidence, signals: list[Signal], homeless: list[Signal]) -> list[Signal]:
    """Faults without a rank, less those that the job went on from."""
    marks: dict[int, list[int]] = defaultdict(list)
    caught: dict[int, list[int]] = defaultdict(list)
    for signal in signals:
        if signal.role is Role.PROGRESS:
            marks[signal.source].append(signal.offset)
        elif signal.role is Role.RECOVERED:
            caught[signal.source].append(signal.line)
    kept = []
    for signal in homeless:
        if evidence.source(signal).kind == "kernel":
            kept.append(signal)
            continue
        later = sum(1 for offset in marks[signal.source] if offset > signal.offset)
        near = any(abs(line - signal.line) <= 60 for line in caught[signal.source])  # noqa: PLR2004
        if not near and later < 2 * _PROGRESS_AFTER:
            kept.append(signal)
    return kept


def marks_above(fault: Signal, signals: Iterable[Signal]) -> list[Signal]:
    """Phases and progress that lines without a rank tell above a fault in its file: those of whoever it was."""
    return [
        signal for signal in signals
        if signal.role in {Role.PHASE, Role.PROGRESS} and signal.rank is None
        and written_in(signal) == written_in(fault) and signal.offset < fault.offset
    ]  # fmt: skip


def last_step(marks: Sequence[Signal]) -> int | None:
    """The last step or iteration that marks of progress tell."""
    for signal in reversed(marks):
        step = number(signal.fields.get("step"))
        if step is not None:
            return step
    return None
