"""Tells from the progress of the ranks who keeps a running job waiting, before any watchdog fires.

Only the moments at which bytes arrived on this machine count, never the stamps of logs: clocks of other hosts cannot
mislead it. What is usual is learned from the job itself. A wrong name is worse than none: a rank is named only where it
is further behind than its own past explains; else the stall is told without a name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from aggregator.live.view import RankHealth, RankState, Suspicion
from aggregator.reports.words import counted, moment, ranks_words, span_words
from aggregator.verdict import NS_PER_S

_ASLEEP_S = 30.0
"""Looks further apart mean that this process did not run: nothing can be said of that time."""
_PATIENCE_S, _PATIENCE_STEPS = 10.0, 3
"""How long a rank may stand behind others that go on writing."""
_QUIET_S, _QUIET_STEPS = 60.0, 10
"""How long all may be quiet."""
_BUSY_S = 300.0
"""How long all may be quiet after one of them began to evaluate or to save."""
_START_S = 900.0
"""How long all may be quiet before anybody's second step: compilation, loading of data."""
_PAUSES = 2
"""How many times as long as the longest pause that ended in progress, of all or of the rank, the next may be."""
_BUSY = re.compile(r"(?i)checkpoint|evaluat|validat|\beval\b|saving")
_LINE_CHARS = 400

_WINDOW = 32
"""Advances that are remembered of each rank."""
_LEARNED = 6
"""A rank with fewer advances is not compared with others."""
_MOST_IN_ONE = 8
"""If a rank advances by more of its own logging steps than this from one look to the next, its grid is not seen."""
_FEWEST = 3
"""In a smaller group there is no majority to go by."""
_SHARE = 8
"""At most one rank in so many is named, or the ranks of one host."""
_SLOW_SHARE, _SLOW_STEPS = 0.05, 3
_END_OF_STEPS = 1 << 53
"""Larger numbers in logs are no steps."""

# One row a rank. Times are seconds of the clock that stands still while this process sleeps.
_ROW = np.dtype(
    [
        ("step", np.int64),  # the last one, -1: none
        ("arrived", np.float64),  # its newest line, as the caller gave it
        ("heard", np.float64),  # the same by the clock that sleeps
        ("moved", np.float64),  # when `step` last changed
        ("advances", np.int64),  # since its counter last went back
        ("behind", np.float64),  # since when it has been behind, NaN: it is not
        ("pause", np.float64),  # the longest from one advance to the next
        ("ended", np.bool_),
        # A ring of advances: the step that was left, and by how much it was behind the group just before.
        ("left", np.int64, (_WINDOW,)),
        ("lags", np.int64, (_WINDOW,)),
    ]
)
_NONE = np.int64(-1)
_FAR_AHEAD = -(1 << 62)

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is newest of one rank. `arrived` is when its newest line arrived, monotonic seconds of this machine.

    `step` is the last step that it reported, None if it reports none; `ended` is that it said or is known to have
    ended, well or not.
    """

    rank: int
    host: str | None
    step: int | None
    arrived: float
    line: str
    path: str
    ended: bool = False


class Tracker:
    """Follows one attempt of a job; a restart of the job gets a new tracker.

    Where a counter goes back (a new epoch), that rank's progress is learned anew; the usual pauses stay known.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._newest: list[Sighting] = []
        self._table = np.zeros(0, _ROW)
        self._intervals: deque[float] = deque(maxlen=_WINDOW)
        self._looked: float | None = None
        self._asleep = 0.0
        self._active = 0.0
        self._stepped: float | None = None
        self._pause = self._longest_pause = 0.0
        self._reference = 0
        self._group = self._slow = np.zeros(0, np.bool_)

    @property
    def usual_step_s(self) -> float:
        """Seconds that a step usually takes; 0 as long as that is not known."""
        return self._interval()

    def look(self, now: float, sightings: Iterable[Sighting]) -> None:
        """Take in what is newest at `now`, monotonic seconds. Ranks that are left out are as they were before."""
        woken = self._looked is not None and now - self._looked > _ASLEEP_S
        if self._looked is None:
            self._active = now
        elif woken:
            self._asleep += now - self._looked
            self._table["advances"] = 0  # what was read at once says nothing of the usual pace
        self._looked = now
        newest = {sighting.rank: sighting for sighting in sightings}
        rows = self._rows_of(newest)
        seen = list(newest.values())
        for row, sighting in zip(rows.tolist(), seen, strict=True):
            self._newest[row] = sighting
        arrived = np.array([sighting.arrived for sighting in seen], np.float64)
        steps = np.array([_plausible(sighting.step) for sighting in seen], np.int64)
        self._table["ended"][rows] = [sighting.ended for sighting in seen]
        fresh = arrived != self._table["arrived"][rows]
        heard = np.maximum(arrived - self._asleep, self._table["heard"][rows])
        changed = (steps != _NONE) & (steps != self._table["step"][rows])
        self._learn_pause(heard[fresh | changed], stepped=bool(changed.any()))
        self._advance(rows[changed], steps[changed], heard[changed], learn=not woken)
        self._table["arrived"][rows] = arrived
        self._table["heard"][rows] = heard
        self._compare()

    def suspicion(self, now: float, utc: int) -> Suspicion | None:
        """Who keeps the job waiting at `now`, which is `utc` in ns UTC; None while all seems well."""
        rows, stalled = self._suspects(now)
        if not rows.size and not stalled:
            return None
        arrived: npt.NDArray[np.float64] = self._table["arrived"]
        silent_since = float(arrived[rows].min() if rows.size else arrived.max(initial=self._active))
        since = utc - round((now - silent_since) * NS_PER_S)
        if not rows.size:
            return Suspicion((), (), self._stall_reason(now - silent_since), since)
        ranks = tuple(sorted(self._newest[row].rank for row in rows))
        hosts = tuple(sorted({host for row in rows if (host := self._newest[row].host) is not None}))
        return Suspicion(ranks, hosts, self._reason(rows, ranks, hosts, since), since)

    def health(self, now: float) -> list[RankHealth]:
        """Each rank that was ever sighted, by number."""
        rows, stalled = self._suspects(now)
        suspects, slow, steps = set(rows.tolist()), self._slow.tolist(), self._table["step"].tolist()
        told = []
        for rank, row in sorted(self._rows.items()):
            newest = self._newest[row]
            if newest.ended:
                state = RankState.ENDED
            elif row in suspects:
                state = RankState.SUSPECT
            elif stalled:
                state = RankState.SILENT
            else:
                state = RankState.SLOW if slow[row] else RankState.OK
            told.append(
                RankHealth(
                    rank, state, newest.host, None if steps[row] == _NONE else steps[row],
                    max(0.0, now - newest.arrived), newest.line, newest.path,
                )
            )  # fmt: skip
        return told

    def _rows_of(self, newest: dict[int, Sighting]) -> Rows:
        added = {rank: sighting for rank, sighting in newest.items() if rank not in self._rows}
        if added:
            fresh = np.zeros(len(added), _ROW)
            fresh["step"], fresh["arrived"], fresh["heard"], fresh["behind"] = _NONE, np.nan, -np.inf, np.nan
            self._table = np.concatenate([self._table, fresh])
            self._rows.update({rank: row for row, rank in enumerate(added, len(self._rows))})
            self._newest.extend(added.values())
        return np.array([self._rows[rank] for rank in newest], np.intp)

    def _learn_pause(self, heard: npt.NDArray[np.float64], *, stepped: bool) -> None:
        """Remember how long all were quiet, once somebody's step shows that it was no hang."""
        if not heard.size:
            return
        if self._stepped is not None:
            self._pause = max(self._pause, float(heard.min()) - self._active)
        if stepped:
            self._longest_pause = max(self._longest_pause, self._pause)
            self._pause, self._stepped = 0.0, float(heard.max())
        self._active = max(self._active, float(heard.max()))

    def _advance(
        self, rows: Rows, steps: npt.NDArray[np.int64], heard: npt.NDArray[np.float64], *, learn: bool
    ) -> None:
        table = self._table
        old = table["step"][rows]
        on = (old != _NONE) & (steps > old) & learn
        moved, gained = rows[on], (steps - old)[on]
        if moved.size:
            passed = heard[on] - table["moved"][moved]
            self._intervals.append(float(np.median(passed / gained)))
            at = table["advances"][moved] % _WINDOW
            table["left"][moved, at] = old[on]
            table["lags"][moved, at] = self._reference - old[on]
            table["advances"][moved] += 1
            table["pause"][moved] = np.maximum(table["pause"][moved], passed)
        table["advances"][rows[steps < old]] = 0
        table["step"][rows], table["moved"][rows], table["behind"][rows] = steps, heard, np.nan

    def _compare(self) -> None:
        """Note who is now further behind the group than its own past and its way of logging explain.

        The group are the ranks whose steps can be compared: learned, and of a counter that runs as the others' do. Its
        reference is the step that half of it has reached. The slow ones go on, but fall steadily behind.
        """
        table = self._table
        grown, steps = _growth(table)
        slack = np.maximum(_SLOW_STEPS, _mean_gain(table, steps))
        alike = (grown >= -np.maximum(slack, steps / 4)) & (grown <= np.maximum(slack, steps / 2))
        self._group = group = alike & (table["advances"] >= _LEARNED) & ~table["ended"]
        steady = table["advances"] >= _WINDOW // 2
        self._slow = group & steady & (grown > np.maximum(slack, _SLOW_SHARE * steps))
        # Before there is a group, half of all that report steps.
        reached = np.sort(table["step"][group if group.any() else table["step"] != _NONE])
        self._reference = int(reached[(reached.size - 1) // 2]) if reached.size else 0
        rows = np.flatnonzero(group & (table["step"] < self._reference))
        rows = rows[self._reference - table["step"][rows] >= _needed_lag(table[rows])]
        behind = np.full(len(table), np.nan)
        behind[rows] = np.where(np.isnan(table["behind"][rows]), self._clock(), table["behind"][rows])
        table["behind"] = behind

    def _suspects(self, now: float) -> tuple[Rows, bool]:
        """The rows of those who keep the others waiting, and whether nobody goes on."""
        table, group = self._table, self._group
        if self._looked is None or (len(table) and table["ended"].all()):
            return np.zeros(0, np.intp), False
        clock = self._clock() + (now - self._looked if now - self._looked <= _ASLEEP_S else 0.0)
        rows = np.flatnonzero(~np.isnan(table["behind"]))
        if clock - self._active > self._quiet_limit(clock):
            return self._if_few(rows[~self._slow[rows]]), True
        behind = table[rows]
        usual_s = _mean_gain(behind, _growth(behind)[1]) * self._interval()
        patience = np.maximum(max(_PATIENCE_S, _PATIENCE_STEPS * self._interval()), usual_s)
        others_heard = np.median(table["heard"][group]) if rows.size else 0.0
        waited = (clock - behind["behind"] > patience) & (clock - behind["moved"] > _PAUSES * behind["pause"])
        silent = clock - behind["heard"] > patience
        return self._if_few(rows[waited & silent & (others_heard > behind["heard"] + patience)]), False

    def _quiet_limit(self, clock: float) -> float:
        """How many seconds all may be quiet before that is a stall."""
        if not self._intervals:
            return _START_S
        limit = max(_QUIET_S, _QUIET_STEPS * self._interval(), _PAUSES * self._longest_pause)
        if limit < clock - self._active <= _BUSY_S and self._is_busy():
            return _BUSY_S
        return limit

    def _is_busy(self) -> bool:
        recent = np.flatnonzero(self._table["heard"] >= (self._stepped or 0.0))
        return any(_BUSY.search(self._newest[row].line, 0, _LINE_CHARS) for row in recent)

    def _if_few(self, rows: Rows) -> Rows:
        """The rows, if they are so few that the others are the rule; else none."""
        members = int(np.count_nonzero(self._group))
        hosts = {self._newest[row].host for row in rows}
        few = rows.size <= max(1, members // _SHARE) or (len(hosts) == 1 and None not in hosts)
        return rows if few and members >= _FEWEST and 2 * rows.size < members else rows[:0]

    def _interval(self) -> float:
        """Usual seconds a step."""
        return median(self._intervals) if self._intervals else 0.0

    def _clock(self) -> float:
        return (self._looked or 0.0) - self._asleep

    def _reason(self, rows: Rows, ranks: tuple[int, ...], hosts: tuple[str, ...], since: int) -> str:
        steps = self._table["step"]
        low, high = int(steps[rows].min()), int(steps[rows].max())
        others = int(np.count_nonzero(self._group & (steps >= self._reference)))
        where = f" (all on {hosts[0]})" if len(ranks) > 1 and len(hosts) == 1 else ""
        at = f"step {low}" if low == high else f"steps {low} to {high}"
        return (
            f"{ranks_words(ranks)}{where} at {at} while {counted(others, 'other')} reached {self._reference}, "
            f"silent since {moment(since)}"
        )

    def _stall_reason(self, seconds: float) -> str:
        told = f"no rank has made progress for {span_words(round(seconds))}"
        return f"{told} (a step usually takes {span_words(self._interval())})" if self._intervals else told


def _plausible(step: int | None) -> int:
    return step if step is not None and 0 <= step < _END_OF_STEPS else int(_NONE)


def _growth(table: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """By how much the lag of each rank has grown over its window, and how many steps it made meanwhile."""
    every, advances = np.arange(len(table)), table["advances"]
    oldest, newest = np.where(advances > _WINDOW, advances % _WINDOW, 0), (advances - 1) % _WINDOW
    grown = table["lags"][every, newest] - table["lags"][every, oldest]
    return grown, table["left"][every, newest] - table["left"][every, oldest]


def _mean_gain(table: npt.NDArray[np.void], steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Steps from one advance to the next, of the `steps` made over the window."""
    return np.asarray(steps / np.maximum(np.minimum(table["advances"], _WINDOW) - 1, 1))


def _needed_lag(table: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """How many steps behind each rank must be for it to be behind for certain.

    A rank that logs each 100th step may stand 99 behind; one further logging step beyond its usual lag is certain. Of a
    rank that logs at irregular steps, or far more often than the looks come, twice the largest lag is.
    """
    known = np.arange(_WINDOW) < table["advances"][:, None]
    step = table["step"][:, None]
    gains = np.diff(np.sort(np.hstack([np.where(known, table["left"], step), step]), axis=1), axis=1)
    grid = np.gcd.reduce(gains, axis=1)
    lags = np.sort(np.where(known, table["lags"], _FAR_AHEAD), axis=1)
    # In one look of eight a rank may be caught between its neighbours' line and its own.
    kth = _WINDOW - 1 - np.minimum(table["advances"], _WINDOW) // 8
    usual = np.maximum(lags[np.arange(len(table)), kth], 0)
    largest = np.maximum(lags[:, -1], 0)
    return np.asarray(np.where(gains.max(axis=1, initial=0) <= _MOST_IN_ONE * grid, usual, 2 * largest) + grid)
