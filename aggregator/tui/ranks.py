"""The screens whose rows are ranks: the health grid, the timeline, the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from aggregator.live.view import LiveView, RankHealth
from aggregator.tui import display
from aggregator.tui.display import Clean
from aggregator.tui.events import EventsScreen
from aggregator.tui.history import History
from aggregator.tui.panes import HealthGrid, Lines
from aggregator.tui.screens import SEARCHED, Place, RowsScreen
from aggregator.verdict import NS_PER_S


class _RankRows(RowsScreen[RankHealth]):
    def details(self, row: RankHealth) -> Text:
        """The rank in full."""
        return display.rank_details(row, self.clean)

    def searched(self, row: RankHealth) -> str:
        """Rank, host, state and last line."""
        return f"rank {row.rank} {row.host} {row.state} {row.last_line[:SEARCHED]}"

    def is_failure(self, row: RankHealth) -> bool:
        """Whether the rank failed, or is suspected."""
        return row.state in display.FAILURES

    def place(self) -> Place | None:
        """The file of the rank under the cursor."""
        row = self.pane.chosen
        return None if row is None or row.path is None else (row.path, None)

    def on_pane_opened(self) -> None:
        """Show what the rank has written."""
        if (row := self.pane.chosen) is not None:
            self.app.push_screen(EventsScreen(self.clean, rank=row.rank))


class GridScreen(_RankRows):
    """The health of all ranks at once. The filter hides none: `n` goes from match to match."""

    def __init__(self, clean: Clean) -> None:
        self._grid = HealthGrid(clean)
        super().__init__(clean, self._grid)

    def caption(self, view: LiveView) -> Text:
        """What the watch has done, and how many ranks are in which state."""
        return display.facts(view, self.clean)

    def show_rows(self, view: LiveView) -> None:
        """Draw the grid."""
        self._grid.show_ranks(view.ranks)


class _RankList(_RankRows):
    def __init__(self, clean: Clean) -> None:
        self.lines = Lines(self.draw)
        super().__init__(clean, self.lines)

    def draw(self, row: RankHealth) -> Text:
        """One rank on a line."""
        raise NotImplementedError

    def ordered(self, ranks: Sequence[RankHealth]) -> Sequence[RankHealth]:
        """The ranks in the order in which they are listed."""
        raise NotImplementedError

    def show_rows(self, view: LiveView) -> None:
        """List the ranks, the cursor on the one on which it was."""
        rows, chosen = self.filtered(self.ordered(view.ranks)), self.pane.chosen
        same = (index for index, row in enumerate(rows) if chosen is not None and row.rank == chosen.rank)
        self.lines.show_rows(rows, next(same, 0))


class RanksScreen(_RankList):
    """The table of ranks, the worst first."""

    def caption(self, _view: LiveView) -> Text:
        """The names of the columns."""
        return Text(display.RANK_COLUMNS, "bold")

    def draw(self, row: RankHealth) -> Text:
        """A line of the table."""
        return display.rank_row(row, self.clean)

    def ordered(self, ranks: Sequence[RankHealth]) -> Sequence[RankHealth]:
        """By trouble, then by rank."""
        return sorted(ranks, key=lambda row: (display.TROUBLE[row.state], row.rank))


class TimelineScreen(_RankList):
    """One lane a rank: its states over time, or how far it has come in steps."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "axis", "axis")]
    _LABEL_CELLS = 20

    def __init__(self, clean: Clean, history: History) -> None:
        super().__init__(clean)
        self._history = history
        self._is_by_step = False

    def action_axis(self) -> None:
        """Change between time and steps."""
        self._is_by_step = not self._is_by_step
        if self.view is not None:
            self.show(self.view)

    def on_resize(self) -> None:
        """Fill the new width."""
        if self.view is not None:
            self.show(self.view)

    @property
    def _cells(self) -> int:
        return max(self.size.width - self._LABEL_CELLS - 3, 8)

    def caption(self, _view: LiveView) -> Text:
        """The axis."""
        history = self._history
        if self._is_by_step:
            steps = history.step_range
            text = f"steps {steps[0]:,} to {steps[1]:,}" if steps else "steps: no rank has reported one"
        else:
            end = history.start + history.columns * history.period_s * NS_PER_S
            text = f"time {display.clock(history.start)} to {display.clock(end)}"
            text += f", a sign is {history.seconds_per_cell(self._cells):,} s"
        return Text(text, "bold")

    def draw(self, row: RankHealth) -> Text:
        """A lane."""
        lane = Text(display.wide(f"{row.rank:>6} {self.clean(row.host or '')}", self._LABEL_CELLS) + " ")
        over = self._history.over_steps if self._is_by_step else self._history.over_time
        for state in over(row.rank, self._cells):
            lane.append(*(display.RANK_MARKS[state].sign, display.RANK_MARKS[state].style) if state else (" ", ""))
        return lane

    def ordered(self, ranks: Sequence[RankHealth]) -> Sequence[RankHealth]:
        """As they come."""
        return ranks
