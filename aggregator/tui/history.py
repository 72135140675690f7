"""What the ranks did over time, kept from one picture to the next in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aggregator.live.view import LiveView, RankState
from aggregator.tui.display import TROUBLE
from aggregator.verdict import NS_PER_S

COLUMNS = 160
"""Columns of time that are kept. When they are full, each two become one: the whole run stays in view."""
_CODES = {state: len(TROUBLE) - place for state, place in TROUBLE.items()}
_STATES = {code: state for state, code in _CODES.items()}
_NO_STEP = -1
_MAX_STEP = 2**62
"""A number that a log calls a step may be of any length."""


class History:
    """State and step of each rank, a column for each `period_s` seconds since the first picture."""

    def __init__(self) -> None:
        self.period_s = 1
        self.start = 0
        """Of the first column, ns UTC."""
        self.columns = 0
        """How many are in use."""
        self.step_range: tuple[int, int] | tuple[()] = ()
        """The lowest and the highest step that any rank has reported; empty if none has."""
        self._second = -1
        self._lanes: dict[int, int] = {}
        self._codes = np.zeros((0, COLUMNS), np.uint8)
        self._steps = np.full((0, COLUMNS), _NO_STEP, np.int64)

    def add(self, view: LiveView) -> None:
        """Take in a picture, one a second at most: a column keeps the worst state and the last step of its time."""
        if not self.columns:
            self.start = view.now
        second = (view.now - self.start) // NS_PER_S
        if second == self._second:
            return
        self._second = second
        while (column := max(second // self.period_s, self.columns - 1)) >= COLUMNS:
            self._halve()
        self.columns = column + 1
        for health in view.ranks:
            self._lanes.setdefault(health.rank, len(self._lanes))
        more = ((0, len(self._lanes) - len(self._codes)), (0, 0))
        self._codes = np.pad(self._codes, more)
        self._steps = np.pad(self._steps, more, constant_values=_NO_STEP)
        lanes = [self._lanes[health.rank] for health in view.ranks]
        codes = np.array([_CODES[health.state] for health in view.ranks], np.uint8)
        self._codes[lanes, column] = np.maximum(self._codes[lanes, column], codes)
        steps = [_NO_STEP if health.step is None else min(max(health.step, 0), _MAX_STEP) for health in view.ranks]
        self._steps[lanes, column] = steps
        known = [step for step in (*steps, *self.step_range) if step != _NO_STEP]
        self.step_range = (min(known), max(known)) if known else ()

    def _halve(self) -> None:
        self._codes = np.pad(np.maximum(self._codes[:, ::2], self._codes[:, 1::2]), ((0, 0), (0, COLUMNS // 2)))
        later, earlier = self._steps[:, 1::2], self._steps[:, ::2]
        steps = np.where(later == _NO_STEP, earlier, later)
        self._steps = np.pad(steps, ((0, 0), (0, COLUMNS // 2)), constant_values=_NO_STEP)
        self.period_s *= 2
        self.columns = (self.columns + 1) // 2

    def seconds_per_cell(self, cells: int) -> int:
        """How much time a cell stands for where that many are free for a lane."""
        return self.period_s * self._merged(cells)

    def _merged(self, cells: int) -> int:
        return max(-(-self.columns // max(cells, 1)), 1)

    def over_time(self, rank: int, cells: int) -> list[RankState | None]:
        """The worst state of each stretch of time, in at most `cells` cells; None where nothing was known."""
        merged = self._merged(cells)
        codes = self._lane(rank, self._codes)
        padded = np.pad(codes, (0, -len(codes) % merged))
        return _states(padded.reshape(-1, merged).max(axis=1))

    def over_steps(self, rank: int, cells: int) -> list[RankState | None]:
        """How far the rank has come, in `cells` cells over `step_range`: its worst state there, None beyond."""
        first, last = self.step_range or (0, 0)
        reached, codes = self._lane(rank, self._steps), self._lane(rank, self._codes)
        is_known = reached != _NO_STEP
        spots = ((reached[is_known] - first) / max(last - first, 1) * (cells - 1)).astype(np.int64)
        lane = np.zeros(cells, np.uint8)
        np.maximum.at(lane, spots, codes[is_known])
        if spots.size:  # steps that went by between two pictures: as the step before them
            filled = np.maximum.accumulate(np.where(lane > 0, np.arange(cells), 0))
            lane[: spots.max() + 1] = lane[filled][: spots.max() + 1]
        return _states(lane)

    def _lane(self, rank: int, table: NDArray[np.generic]) -> NDArray[np.generic]:
        lane = self._lanes.get(rank)
        return table[:0, : self.columns].reshape(-1) if lane is None else table[lane, : self.columns]


def _states(codes: NDArray[np.generic]) -> list[RankState | None]:
    return [_STATES.get(code) for code in codes.tolist()]
