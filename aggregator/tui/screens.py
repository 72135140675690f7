"""What all screens share: the head, the keys, the filter, the jumps. A screen draws one picture after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeAlias

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from aggregator.live.view import LiveView
from aggregator.tui import display
from aggregator.tui.display import Clean
from aggregator.tui.panes import Pane, Row

SEARCHED = 4096
"""Characters of a line in which the filter looks."""
_NO_CONTROLS = r"[^\x00-\x1f\x7f-\x9f]*"

Place: TypeAlias = tuple[str, int | None]
"""A path, relative to the job folder, and a line of it."""


class Panel(Static):
    """A few lines of text, drawn anew only when they change."""

    _put = Text()

    def put(self, text: Text) -> None:
        """Show other text."""
        if text != self._put:
            self._put = text
            self.update(text)


class WatchScreen(Screen[None]):
    """A screen that follows the job."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", key_display="esc"),
        Binding("y", "app.copy", "copy", show=False),
    ]

    class Resumed(Message):
        """The screen has come to the front and wants to know how the job is."""

    def __init__(self, clean: Clean) -> None:
        super().__init__()
        self.clean = clean
        self.view: LiveView | None = None
        """The picture that is drawn; None until the screen is ready for one."""

    def show(self, view: LiveView) -> None:
        """Draw another picture."""
        self.view = view
        self.query_one("#head", Panel).put(display.head(view, self.clean))

    def place(self) -> Place | None:
        """What `y` copies."""
        return None

    def on_screen_resume(self) -> None:
        """Ask for the newest picture."""
        self.post_message(self.Resumed())

    def action_leave(self) -> None:
        """Go back to the screen below; the first one stays."""
        if len(self.app.screen_stack) > 1:
            self.dismiss()


class RowsScreen(WatchScreen, Generic[Row]):
    """A screen of rows: with a filter, and with jumps to what matches it and to failures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "filter", key_display="/"),
        Binding("n", "jump('matches', 1)", show=False),
        Binding("N", "jump('matches', -1)", show=False),
        Binding("e", "jump('is_failure', 1)", "fail"),
        Binding("E", "jump('is_failure', -1)", show=False),
    ]

    def __init__(self, clean: Clean, pane: Pane[Row]) -> None:
        super().__init__(clean)
        self.pane = pane
        self.needle = ""
        """What is filtered for, in lower case."""

    def caption(self, view: LiveView) -> Text:
        """What stands above the rows, once they are drawn."""
        raise NotImplementedError

    def details(self, row: Row) -> Text:
        """What stands below the rows of the one under the cursor."""
        raise NotImplementedError

    def searched(self, row: Row) -> str:
        """The text of a row in which the filter looks."""
        raise NotImplementedError

    def is_failure(self, row: Row) -> bool:
        """Whether `e` stops here."""
        raise NotImplementedError

    def show_rows(self, view: LiveView) -> None:
        """Draw the rows."""
        raise NotImplementedError

    def matches(self, row: Row) -> bool:
        """Whether the row holds what is filtered for."""
        return self.needle in self.searched(row).lower()

    def filtered(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows that match."""
        return [row for row in rows if self.matches(row)] if self.needle else rows

    def compose(self) -> ComposeResult:
        """Head, title, rows, details, the line for the filter, footer."""
        yield Panel(id="head")
        yield Panel(id="caption")
        yield self.pane
        yield Panel(id="details")
        yield Input(id="search", placeholder="text to look for", restrict=_NO_CONTROLS, compact=True)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Give the keys to the rows, not to the hidden filter."""
        self.pane.focus()

    def show(self, view: LiveView) -> None:
        """Draw the rows, and what is around them."""
        super().show(view)
        self.show_rows(view)
        caption = self.caption(view)
        if self.needle:
            caption.append(f" | filter: {self.clean(self.needle)}", "bold yellow")
        self.query_one("#caption", Panel).put(caption)
        self._show_details()

    def on_pane_moved(self) -> None:
        """Tell of another row."""
        self._show_details()

    def _show_details(self) -> None:
        row = self.pane.chosen
        self.query_one("#details", Panel).put(Text("nothing here", "dim") if row is None else self.details(row))

    def action_search(self) -> None:
        """Ask for a filter."""
        search = self.query_one("#search", Input)
        search.display = True
        self.set_focus(search)

    def action_leave(self) -> None:
        """Close the line for the filter, else take the filter off, else leave."""
        search = self.query_one("#search", Input)
        if search.has_focus:
            self._filter_for(self.needle)
        elif self.needle:
            search.value = ""
            self._filter_for("")
        else:
            super().action_leave()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Use the filter."""
        self._filter_for(event.value)

    def _filter_for(self, needle: str) -> None:
        self.needle = needle.lower()
        self.query_one("#search", Input).display = False
        self.set_focus(self.pane)
        if self.view is not None:
            self.show(self.view)

    def action_jump(self, test: str, step: int) -> None:
        """Go to the next row (the one before, if `step` is negative) that passes the test, past the end if need be."""
        passes: Callable[[Row], bool] = self.matches if test == "matches" else self.is_failure
        count = len(self.pane.rows)
        for distance in range(1, count + 1):
            index = (self.pane.cursor + step * distance) % count
            if passes(self.pane.rows[index]):
                self.pane.action_select(index)
                return


class Page(VerticalScroll, can_focus=True):
    """Text to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]


class PageScreen(WatchScreen):
    """A screen of text."""

    def text(self, view: LiveView) -> Text:
        """What there is to read."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """Head, text, footer."""
        yield Panel(id="head")
        with Page():
            yield Panel(id="text")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Give the keys to the text."""
        self.query_one(Page).focus()

    def on_resize(self) -> None:
        """Fill the new width."""
        if self.view is not None:
            self.show(self.view)

    def show(self, view: LiveView) -> None:
        """Draw the text anew, as far as it changed."""
        super().show(view)
        self.query_one("#text", Panel).put(self.text(view))
