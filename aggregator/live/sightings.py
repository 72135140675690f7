"""What is newest of each rank, from the ends of the streams that have grown."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from aggregator.live.progress import Sighting, Tracker
from aggregator.live.view import RankHealth, Suspicion

if TYPE_CHECKING:
    from aggregator.live.reducer import Reducer
    from parsers.scan import StreamKey

_WINDOW = (1 << 10, 64 << 10, 512 << 10)
"""Bytes at the end of a stream that are read for it: at least, at most, and of all streams together."""


class Sightings:
    """Feeds a tracker of progress, and keeps what it says."""

    def __init__(self, reducer: Reducer) -> None:
        self.health: Sequence[RankHealth] = ()
        self.suspicion: Suspicion | None = None
        self._reducer = reducer
        self._tracker = Tracker()
        self._grown: dict[int, float] = {}
        self._last: dict[tuple[int, StreamKey], tuple[str, float]] = {}

    @property
    def usual_step_s(self) -> float:
        """Seconds that a step usually takes; 0 as long as that is not known."""
        return self._tracker.usual_step_s

    def arrived(self, when: Mapping[int, float]) -> None:
        """Bytes of streams came, at these monotonic seconds."""
        self._grown.update(when)

    def restart(self) -> None:
        """The job's ranks have begun anew."""
        self._tracker = Tracker()
        self._last.clear()

    def look(self, now: float, utc: int, ended: Container[int]) -> None:
        """Look at what has grown; `utc` is `now` in ns, `ended` are ranks that are known to have ended."""
        least, most, every = _WINDOW
        size = max(least, min(most, every // max(len(self._grown), 1)))
        newest: dict[int, Sighting] = {}
        for stream_id, when in self._grown.items():
            for mark in self._reducer.latest(stream_id, size):
                before = self._last.get((stream_id, mark.key))
                # Of a file that many write to, only those that wrote since are heard of.
                heard = when if before is None or before[0] != mark.text else before[1]
                self._last[stream_id, mark.key] = (mark.text, heard)
                rank, host, path = self._reducer.writer(stream_id, mark.key)
                if rank is None or path is None:
                    continue
                seen = newest.get(rank)
                step = mark.step if mark.step is not None else (seen.step if seen is not None else None)
                if seen is not None and seen.arrived > heard:
                    newest[rank] = Sighting(rank, seen.host, step, seen.arrived, seen.line, seen.path, seen.ended)
                else:
                    newest[rank] = Sighting(rank, host, step, heard, mark.text, path, rank in ended)
        self._grown.clear()
        self._tracker.look(now, newest.values())
        self.suspicion = self._tracker.suspicion(now, utc)
        self.health = tuple(self._tracker.health(now))
