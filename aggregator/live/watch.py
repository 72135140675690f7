"""The watch of one job: collects, stores, reduces, and says how the job is doing.

One thread does all of it, a step at a time: `Watch.step` never waits, and tells when it wants to be called again.
`Watch.view` may be called from any other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from aggregator.collect.collector import TICK, Collector
from aggregator.collect.folder import Folder, Hints, is_remote
from aggregator.collect.tail import Tail
from aggregator.live.arrangement import Arranger
from aggregator.live.clock import Clock
from aggregator.live.newlines import NewLine, NewLines
from aggregator.live.reducer import Reducer
from aggregator.live.sightings import Sightings
from aggregator.live.standing import Standing, attempt_of
from aggregator.live.states import Assessment, assess, colour_ranks, suspicion_words
from aggregator.live.storing import Storing
from aggregator.live.view import Counters, LiveEvent, LiveState, LiveView, RankHealth
from aggregator.store import Store, StoreStalled
from aggregator.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from aggregator.notify.dispatch import Dispatcher

SCAN, SCAN_BLIND, SCAN_LEAST = 10.0, 2.0, 0.2
"""Seconds between listings of the folder: where changes are hinted at, where they are not, and at least."""
SCAN_SHARE = 50
"""A listing is not made before so many times the time that the last one took."""
LOOK, LOOK_LEAST, LOOK_SHARE = 10.0, 1.0, 100
"""Seconds between looks at the ranks' progress: at most, at least, and one more for so many logs."""
SOON = 0.15
"""Seconds from a line that may change the verdict to the next verdict: what belongs to it comes at the same time."""
FEW = 256
"""Streams that a hasty verdict looks at in one go."""
FULL = 2.0
"""Seconds from a hasty verdict to one for which every stream is looked at anew."""
AGAIN = 10.0
"""Seconds between verdicts on a job that failed and still writes: it may have gone on."""
LEARN, LEARN_MOST = 5.0, 900.0
"""Seconds between verdicts on a job that is well, from which it is learned who is who: at first, and after hours."""
BEHIND = 3.0
"""Seconds for which reading on comes before everything else."""
SHARE, LEARN_SHARE = 5.0, 50.0
"""A verdict is not made before so many times the time that the last one took: a hasty one, or one to learn from."""
SLICE = 0.1
"""Seconds for which streams are looked at until what has been written meanwhile is taken in."""
RATE = 5.0
"""Seconds over which lines are counted for their rate."""
MAX_EVENTS = 1000


class Watch:
    """Follows one job. Use it in a `with`; call `step` as often as it asks for, and `final` at the end."""

    def __init__(
        self, paths: Sequence[str], store: Store, *, descriptors: int = 1024, dispatcher: Dispatcher | None = None,
        clock: Clock | None = None, hints: bool = True,
    ) -> None:  # fmt: skip
        """Begin, or go on where the store ended.

        Args:
            paths: folders, files, patterns; they need not exist yet.
            store: keeps what is read; closed with the watch.
            descriptors: files that may be open at once.
            dispatcher: tells people of failures.
            clock: the time.
            hints: whether to let the system tell of new files.
        """
        self.verdict: Verdict | None = None
        self._display = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        self._clock = clock or Clock()
        self._store = store
        self._dispatcher = dispatcher
        self._folder = Folder(paths)
        remote = is_remote(self._folder.root)
        self._collector = Collector(self._folder, store, descriptors=descriptors, remote=remote)
        self._reducer = Reducer(self._display, store.read)
        self._arranger = Arranger(self._folder, store, self._collector, self._reducer)
        self._sightings = Sightings(self._reducer)
        self._lines = NewLines(store.streams)
        self._hints = Hints(self._warn)
        self._may_hint, self._hinted, self._changed = hints and not remote, False, False
        self._events: deque[LiveEvent] = deque(maxlen=MAX_EVENTS)
        self._warnings: dict[str, None] = {}
        self._assessment = Assessment(LiveState.WAITING, "no line has been written yet")
        self._counters = Counters(bytes=sum(stream.position for stream in store.streams.values()))
        now, self._since = self._clock.monotonic(), self._clock.wall()
        self._scanned_at, self._scan_at, self._look_at = -SCAN, now, now
        self._storing, self._standing = Storing(store, now), Standing()
        self._judge_at: float | None = now
        self._rested_at, self._learn_s = now, LEARN
        self._looks: Iterator[None] | None = None
        self._looked_at = now
        self._urgent: set[int] = set()
        """Streams of which the next verdict must know the newest lines."""
        self._ended: set[int] = set()
        self._grown_at = now
        self._there = 0
        """Bytes of all files that there were at first."""
        self._behind_since: float | None = None
        self._ranks: tuple[tuple[object, ...], tuple[RankHealth, ...]] | None = None
        self._judged_at = now
        """When all streams were looked at for a verdict."""
        self._rate = (now, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives files, threads and the store back."""
        self._hints.stop()
        self._collector.close()
        self._store.close()

    def step(self) -> float:
        """Everything that is due now; tells after how many seconds to call again."""
        now = self._clock.monotonic()
        if self._urgent and self._is_wanted(now):
            for tail in self._collector.tails:
                tail.due = now  # the verdict rests on one moment: an idle file may hold the cause of what others tell
        self._gather(now)
        if self._is_behind(now):
            return 0.0
        if now >= self._look_at:
            self._look_at = now + min(max(self._arranger.logs / LOOK_SHARE, LOOK_LEAST), LOOK)
            self._sightings.look(now, self._clock.wall(), self._ended)
        if self._is_wanted(now):
            self._judge(now)
        self._assess(now)
        if self._collector.busy:
            return 0.0
        due = now + TICK if self._judge_at is None else min(now + TICK, self._judge_at)
        return max(due - self._clock.monotonic(), 0.0)

    def _is_behind(self, now: float) -> bool:
        """Whether to read on before anything is judged: at first all that was there, later no longer than some seconds.

        What there is of a job is no picture of it while half of it is unread; but one loud rank must hide no other.
        """
        if not self._collector.busy:
            self._behind_since = None
            return False
        if self.verdict is None and self._counters.bytes < self._there:
            return True
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since < BEHIND:
            return True
        self._behind_since = now
        return False

    def ask(self) -> None:
        """Make a verdict at the next step, whatever has come."""
        self._judge_at = self._clock.monotonic()

    @property
    def quiet_s(self) -> float:
        """Seconds since anything was written, by the files' own times where that was before the watch."""
        return self._clock.monotonic() - self._grown_at

    def final(self, patience_s: float = math.inf) -> Verdict:
        """The verdict on all that is there, as a post-mortem gives it.

        If it is not read within `patience_s`, the verdict is on what was read, and warns of that.
        """
        self._scan_at = now = self._clock.monotonic()
        self._gather(now)
        # Not what is written meanwhile: somebody may write faster than we read.
        there = {tail.number: tail.size for tail in self._collector.tails}
        while (unread := self._unread(there)) and self._clock.monotonic() < now + patience_s:
            self._gather(self._clock.monotonic())
        warnings = [f"the watch ended before {unread:,} bytes of the logs were read"] if unread else []
        self._arranger.arrange()  # a dump may have grown, and is read anew only when its size is known
        suspicion = self._assessment.suspicion
        self.verdict = self._told(self._reducer.verdict(exact=True))
        if suspicion is not None and self.verdict.outcome is Outcome.RUNNING:
            warnings.append(f"suspected when the watch ended, by the ranks' progress: {suspicion_words(suspicion)}")
        self.verdict = replace(self.verdict, warnings=(*self.verdict.warnings, *warnings))
        self._assess(now)
        if self._dispatcher is not None and self._assessment.state is LiveState.FAILED:
            self._dispatcher.failed(self.verdict, attempt_of(self.verdict))
        return self.verdict

    def _unread(self, there: Mapping[int, int]) -> int:
        """How many bytes of the files are still to be read, up to the given sizes."""
        busy = [tail for tail in self._collector.tails if tail.busy]
        return sum(max(there.get(tail.number, 0) - _read_of(tail), 0) for tail in busy)

    def view(self) -> LiveView:
        """The newest picture."""
        verdict, assessment, health = self.verdict, self._assessment, self._sightings.health
        made_of = (verdict, assessment.state, health)
        if self._ranks is None or any(old is not new for old, new in zip(self._ranks[0], made_of, strict=True)):
            self._ranks = made_of, colour_ranks(health, verdict, assessment.state)
        return LiveView(
            job=self._display, state=assessment.state, since=self._since, now=self._clock.wall(),
            headline=assessment.headline, ranks=self._ranks[1],
            world_size=verdict.job.world_size if verdict is not None else None, events=tuple(self._events.copy()),
            suspicion=assessment.suspicion, verdict=verdict, attempt=attempt_of(verdict),
            skipped=self._arranger.skipped, warnings=tuple(self._warnings), counters=self._counters,
        )  # fmt: skip

    def _gather(self, now: float) -> None:
        """Which files there are, and what has been written to them: to the store, then to the reducer."""
        changed = self._scan(now)
        arrived = self._collector.poll(now)
        self._flush(now)
        for stream_id, data in arrived:
            self._reducer.feed(stream_id, data)
        written = self._written(now)
        grown = {stream_id: written.get(stream_id, now) for stream_id, _ in arrived}
        if not self._is_caught_up:
            if self._there == 0:
                self._there = sum(tail.size for tail in self._collector.tails)
            self._grown_at = max(written.values(), default=self._grown_at)
            grown |= written
        self._sightings.arrived(grown)
        if changed or not grown.keys() <= self._arranger.known:
            self._arranger.arrange()
            self._learn_s = LEARN
            self._judge_by(now + LEARN)
        if arrived:
            self._notice(arrived, now)
        self._count(arrived, now)

    def _written(self, now: float) -> dict[int, float]:
        """By stream, when it was last written to, monotonic seconds: of what was there before the watch."""
        if self._is_caught_up:
            return {}
        wall = self._clock.wall()
        return {
            tail.stream.id: now - max(wall - tail.mtime_ns, 0) / 1e9
            for tail in self._collector.tails
            if tail.stream is not None
        }

    def _scan(self, now: float) -> bool:
        self._changed |= self._hints.taken()
        early = (self._changed or self._collector.wants_scan) and now >= self._scanned_at + SCAN_LEAST
        if now < self._scan_at and not early:
            return False
        self._changed = False
        began = self._clock.monotonic()
        changed = self._collector.scan(now)
        if self._may_hint and self._folder.root.is_dir():
            self._may_hint, self._hinted = False, self._hints.start(self._folder.root)
        took = self._clock.monotonic() - began
        self._scanned_at = now + SCAN_SHARE * took
        self._scan_at = now + max(SCAN if self._hinted else SCAN_BLIND, SCAN_SHARE * took)
        return changed

    def _flush(self, now: float) -> None:
        told = self._storing.flush(now)
        if isinstance(told, StoreStalled):
            self._warn(f"nothing can be stored at the moment: {told.text}; trying again")
        elif told:
            self._events.append(LiveEvent(self._clock.wall(), "storing again"))

    def _notice(self, arrived: Sequence[tuple[int, bytes]], now: float) -> None:
        """Whether what has come may change the verdict."""
        if self._is_caught_up:
            self._grown_at = now
        for line in self._lines.take(arrived):
            event = self._event(line)
            self._events.append(event)
            if line.is_end and event.rank is not None:
                self._ended.add(event.rank)
        if self._lines.touched:
            if not self._urgent:
                self._judge_at = None  # whatever was wanted earlier: it would know half of what has just begun
            self._urgent |= self._lines.touched
            self._judge_by(now + SOON)
        elif self._assessment.state is LiveState.FAILED:
            self._judge_by(now + AGAIN)

    @property
    def _is_caught_up(self) -> bool:
        return self.verdict is not None

    def _is_wanted(self, now: float) -> bool:
        """Whether it is time for a verdict."""
        return self._judge_at is not None and now >= self._judge_at

    def _judge_by(self, moment: float) -> None:
        """A verdict is wanted; not so often that nothing else gets done."""
        moment = max(moment, self._rested_at)
        self._judge_at = moment if self._judge_at is None else min(self._judge_at, moment)

    def _judge(self, now: float) -> None:
        """The verdict on what was read so far; at first only those who have something to say are looked at anew."""
        hasty = self.verdict is not None and 0 < len(self._urgent) <= FEW
        if hasty:
            self._looked_at = now
        elif not self._has_looked(now):
            return
        self._looks = None
        attempt = attempt_of(self.verdict)
        try:
            self.verdict = self._told(self._reducer.verdict(anew=self._urgent))
        except Exception as error:  # noqa: BLE001 - what is read must be kept, even if it cannot be judged
            self._warn(f"this is a bug: no verdict could be made: {type(error).__name__}: {error}; trying again")
        self._urgent = set()
        if attempt_of(self.verdict) != attempt:
            self._sightings.restart()
            self._ended.clear()
        ended, self._judge_at = self._clock.monotonic(), None
        took = ended - self._looked_at
        if hasty:
            self._rested_at = ended + SHARE * took
            self._judge_by(now + FULL)
        else:
            self._judged_at = now
            self._judge_by(now + max(self._learn_s, LEARN_SHARE * took))
            self._learn_s = min(3 * self._learn_s, LEARN_MOST)

    def _has_looked(self, now: float) -> bool:
        """Look at the next streams; tells whether those were the last."""
        if self._looks is None:
            self._looks, self._looked_at, self._urgent = self._reducer.looks(), now, set()
        began = self._clock.monotonic()
        return all(self._clock.monotonic() < began + SLICE for _ in self._looks)

    def _told(self, verdict: Verdict) -> Verdict:
        """The verdict with what only the watch knows."""
        tally = self._collector.tally
        warnings = [*verdict.warnings, *self._arranger.warnings]
        if not tally.truncations:
            return replace(verdict, warnings=tuple(warnings))
        lost = f", at least {tally.unread_bytes} bytes of them unread" if tally.unread_bytes else ""
        times = "once" if tally.truncations == 1 else f"{tally.truncations} times"
        warning = f"{times} a log was cut or overwritten while it was watched{lost}"
        return replace(verdict, warnings=(*warnings, warning))

    def _assess(self, now: float) -> None:
        wall = self._clock.wall()
        before = self._assessment
        fresh = assess(
            self.verdict, self._sightings.suspicion, now=wall, is_any=self._counters.bytes > 0,
            settled=self._standing.is_settled(now),
        )  # fmt: skip
        if fresh.suspicion is not None and before.suspicion is not None:
            since = min(fresh.suspicion.since, before.suspicion.since)
            fresh = replace(fresh, suspicion=replace(fresh.suspicion, since=since))
        if fresh.state is not before.state:
            self._since = wall
        self._assessment = fresh
        self._confirm(now)

    def _confirm(self, now: float) -> None:
        """Tells people of a failure that has stood for a while."""
        verdict = self.verdict
        if verdict is None or (self._assessment.state is not LiveState.FAILED and verdict.outcome is not Outcome.HUNG):
            self._standing.name(None, now)
            return
        stands, due = self._standing.name(verdict, now), self._standing.due(verdict, self._sightings.usual_step_s)
        if self._dispatcher is None or not stands or now < due:
            return
        if self._judged_at >= due:
            self._dispatcher.failed(verdict, attempt_of(verdict))
        else:
            self._judge_by(now)  # nobody is told of what has gone on meanwhile

    def _count(self, arrived: Sequence[tuple[int, bytes]], now: float) -> None:
        before, tally = self._counters, self._collector.tally
        lines = before.lines + sum(data.count(b"\n") for _, data in arrived)
        since, then = self._rate
        rate = before.lines_per_s
        if now - since >= RATE:
            rate = (lines - then) / (now - since)
            self._rate = (now, lines)
        self._counters = Counters(
            files=self._arranger.logs, open_files=self._collector.open_files,
            bytes=before.bytes + sum(len(data) for _, data in arrived), lines=lines, lines_per_s=rate,
            truncations=tally.truncations, rotations=tally.rotations, unread_bytes=tally.unread_bytes,
            backlog_bytes=self._store.backlog,
        )  # fmt: skip

    def _event(self, line: NewLine) -> LiveEvent:
        rank, host, path = self._reducer.writer(line.stream_id, line.key)
        wall = self._clock.wall()
        return LiveEvent(wall, line.text, line.level, line.time, rank, host, path, line.line, line.signature)

    def _warn(self, text: str) -> None:
        self._warnings[text] = None
        self._events.append(LiveEvent(self._clock.wall(), text, "warning"))


def _read_of(tail: Tail) -> int:
    return tail.stream.position if tail.stream is not None else 0
