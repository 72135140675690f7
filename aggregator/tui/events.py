"""The screens whose rows are lines of the logs: the list of events, and one event in full."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from aggregator.live.view import LiveEvent, LiveView
from aggregator.reports import words
from aggregator.tui import display
from aggregator.tui.display import Clean
from aggregator.tui.panes import Lines
from aggregator.tui.screens import SEARCHED, PageScreen, Place, RowsScreen


class EventsScreen(RowsScreen[LiveEvent]):
    """The lines worth showing, of all ranks or of one, the newest last."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f", "follow", "follow")]

    def __init__(self, clean: Clean, *, rank: int | None = None) -> None:
        self._list = Lines(self._draw)
        super().__init__(clean, self._list)
        self._rank = rank
        self._is_following = True

    def _draw(self, row: LiveEvent) -> Text:
        return display.event_row(row, self.clean)

    def caption(self, _view: LiveView) -> Text:
        """How many, whose, and whether the newest is followed."""
        whose = "all ranks" if self._rank is None else f"rank {self._rank}"
        following = ", following" if self._is_following else ""
        return Text(f"{words.counted(len(self._list.rows), 'event')} of {whose}{following}", "bold")

    def details(self, row: LiveEvent) -> Text:
        """Where it stands."""
        return display.event_details(row, self.clean)

    def searched(self, row: LiveEvent) -> str:
        """Rank, host, level, file and text."""
        return f"rank {row.rank} {row.host} {row.level} {row.path} {row.text[:SEARCHED]}"

    def is_failure(self, row: LiveEvent) -> bool:
        """Whether it is an error."""
        return row.level == "error"

    def place(self) -> Place | None:
        """Where the event under the cursor stands."""
        return _place(self.pane.chosen)

    def show_rows(self, view: LiveView) -> None:
        """List the events, the cursor on the newest, or on the one on which it was (the oldest, if that is gone)."""
        mine = view.events if self._rank is None else [row for row in view.events if row.rank == self._rank]
        rows, chosen = self.filtered(mine), self.pane.chosen
        same = (index for index, row in enumerate(rows) if row is chosen or row == chosen)
        self._list.show_rows(rows, max(len(rows) - 1, 0) if self._is_following else next(same, 0))

    def action_follow(self) -> None:
        """Stay on the newest event, or no longer."""
        self._is_following = not self._is_following
        if self.view is not None:
            self.show(self.view)

    def on_pane_moved(self) -> None:
        """Stay where the user went."""
        self._is_following = False
        if self.view is not None:
            self.show(self.view)

    def on_pane_opened(self) -> None:
        """Show the whole event."""
        if (row := self.pane.chosen) is not None:
            self.app.push_screen(EventScreen(self.clean, row))


class EventScreen(PageScreen):
    """One event in full."""

    def __init__(self, clean: Clean, event: LiveEvent) -> None:
        super().__init__(clean)
        self._event = event
        self._whole = display.whole_event(event, clean)

    def text(self, _view: LiveView) -> Text:
        """All of the event."""
        return self._whole

    def place(self) -> Place | None:
        """Where it stands."""
        return _place(self._event)


def _place(event: LiveEvent | None) -> Place | None:
    return None if event is None or event.path is None else (event.path, event.line)
