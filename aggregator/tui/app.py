"""The app: asks for pictures of the job, and hands them to the screen that is in front."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import PurePosixPath
from types import FrameType
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from aggregator import safe
from aggregator.live.view import LiveView
from aggregator.tui.display import Clean, place
from aggregator.tui.events import EventsScreen
from aggregator.tui.history import History
from aggregator.tui.ranks import GridScreen, RanksScreen, TimelineScreen
from aggregator.tui.reading import HelpScreen, VerdictScreen
from aggregator.tui.screens import WatchScreen

_POLL_S = 0.25
_DEAF_TERMS = frozenset({"dumb", "linux", "vt100", "vt220"})
"""Terminals without a clipboard."""


class WatchApp(App[None]):
    """Shows a running job on a terminal until the user quits.

    `source` gives the newest picture: it is called up to four times a second on the app's thread, so it must be cheap
    and must not wait. `on_postmortem` asks for a verdict and returns at once; the verdict comes with a later picture.
    """

    TITLE = "denpex-agg watch"
    CSS = """
    Pane, Page { height: 1fr; }
    #head { height: auto; max-height: 3; }
    #caption { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
    #details { height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
    #search { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "events", "events"),
        Binding("t", "timeline", "time"),
        Binding("r", "ranks", "ranks"),
        Binding("p", "postmortem", "verdict"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, source: Callable[[], LiveView], *, redact: bool, on_postmortem: Callable[[], None]) -> None:
        # With the terminal's own colours Textual drops all colour for NO_COLOR; else it only turns them grey.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self._source = source
        self._on_postmortem = on_postmortem
        self._clean = Clean(redact=redact)
        self._history = History()
        self.view: LiveView | None = None
        """The newest picture."""

    def run_to_end(self) -> None:
        """Run until the user quits. SIGTERM takes effect once the terminal is as it was before.

        Raises:
            Exception: whatever went wrong inside the app; the terminal is as it was before.
        """
        signals: list[int] = []

        def leave(number: int, _frame: FrameType | None) -> None:
            signals.append(number)
            self.exit()

        before = signal.signal(signal.SIGTERM, leave)
        try:
            self.run()
        finally:
            signal.signal(signal.SIGTERM, before)
        if signals:
            signal.raise_signal(signal.SIGTERM)
        if self._exception is not None:
            raise self._exception

    def _fatal_error(self) -> None:
        """Leave without a word, `run_to_end` tells: Textual prints local variables, which hold log text and secrets."""
        self._close_messages_no_wait()

    def get_default_screen(self) -> Screen[None]:
        """The health grid, under all other screens."""
        return GridScreen(self._clean)

    def on_mount(self) -> None:
        """Look, and keep looking."""
        self.poll()
        self.set_interval(_POLL_S, self.poll)

    def poll(self) -> None:
        """Draw the newest picture, if it is another one."""
        view = self._source()
        if view is self.view:
            return
        self.view = view
        self._history.add(view)
        if isinstance(self.screen, WatchScreen) and self.screen.view is not None:
            self.screen.show(view)

    def on_watch_screen_resumed(self) -> None:
        """Give a screen that came to the front the newest picture."""
        if self.view is not None and isinstance(self.screen, WatchScreen):
            self.screen.show(self.view)

    def _go(self, screen: WatchScreen) -> None:
        """Show a screen that stands right above the grid."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.push_screen(screen)

    def action_events(self) -> None:
        """Follow the events of all ranks."""
        self._go(EventsScreen(self._clean))

    def action_timeline(self) -> None:
        """Show what the ranks did over time."""
        self._go(TimelineScreen(self._clean, self._history))

    def action_ranks(self) -> None:
        """Show the table of ranks."""
        self._go(RanksScreen(self._clean))

    def action_postmortem(self) -> None:
        """Ask for a verdict now, and show the newest one."""
        self._on_postmortem()
        self._go(VerdictScreen(self._clean))

    def action_help(self) -> None:
        """Show the keys, over the screen that is in front."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self._clean))

    def action_copy(self) -> None:
        """Copy `path:line` to the clipboard of the terminal, or show it where there is none."""
        found = self.screen.place() if isinstance(self.screen, WatchScreen) else None
        if found is None:
            self.notify("Nothing to copy here.", markup=False)
            return
        path, line = found
        text = place(path, line)
        if safe.show(text) != text or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            self.notify("Not copied: a file name that could mislead.", severity="warning", markup=False)
        elif os.environ.get("TERM", "dumb") in _DEAF_TERMS:
            self.notify(text, markup=False)
        else:
            self.copy_to_clipboard(text)
            self.notify(f"Copied {text}", markup=False)
