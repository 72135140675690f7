"""What `denpex-agg watch` does once its command line is read."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.errors import UsageError
from aggregator.live.place import run_folder
from aggregator.live.plain import PlainLines
from aggregator.live.run import Stopper, Until, descriptor_budget, run
from aggregator.live.watch import Watch
from aggregator.notify import Notifier
from aggregator.notify.dispatch import Dispatcher
from aggregator.reports import ReportOptions, reporter
from aggregator.reports.destination import standard_output
from aggregator.store import Store, StoreStalled
from aggregator.streams import complain

if TYPE_CHECKING:
    from aggregator.live.view import LiveView
    from aggregator.notify.prometheus import PrometheusFile
    from aggregator.verdict import Verdict

_DELIVER_S = 20.0
"""Seconds that messages on their way are waited for at the end."""
_LAST_READ_S, _HURRY_S = 5.0, 0.5
"""Seconds for which what is unread is read on at the end: by itself, and after a signal, which is soon followed by a
harder one.
"""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the user asked for. `screen` shows the terminal UI, else plain lines go to stdout (`to_stderr`: stderr)."""

    until: Until
    state_dir: Path | None = None
    screen: bool = False
    to_stderr: bool = False
    quiet: bool = False
    redact: bool = True
    on_failure: str | None = None
    webhook: str | None = None
    prometheus: Path | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The verdict so far, and the signal that ended the watch, if one did."""

    verdict: Verdict
    signal: int | None


def watch_job(paths: Sequence[str], options: WatchOptions) -> Ending:
    """Follow a job until it, the time or the user ends it.

    Raises:
        UsageError: the options do not fit together, or name what does not exist.
        OutputError: the state folder cannot be used, or another watch of the same job uses it.
        ClosedPipeError: nobody reads the plain lines any more.
    """
    if not math.isfinite(options.until.timeout_s or 0.0):
        raise UsageError("--timeout is no number of seconds", help="leave it out to watch until Ctrl-C")
    folder = run_folder(paths, options.state_dir)
    textfile = _textfile(options.prometheus)
    with ExitStack() as stack:
        notifiers = _notifiers(options)
        store = Store(folder)
        dispatcher = Dispatcher(notifiers, redact=options.redact, memory=folder / "told.json")
        watch = Watch(paths, store, descriptors=descriptor_budget(), dispatcher=dispatcher)
        stack.callback(_close, watch)
        viewers: list[Callable[[LiveView], None]] = [textfile.update] if textfile is not None else []
        stopper = Stopper()
        if options.screen:
            _on_screen(watch, viewers, options, stopper)
        else:
            out = sys.stderr if options.to_stderr else sys.stdout
            # Whoever asked for the end, or for JSON, gets the verdict then, and once.
            waits = options.until.job_ends or options.to_stderr
            report = None if waits else reporter("text", ReportOptions(options.redact))
            show = PlainLines(out, report, redact=options.redact, quiet=options.quiet).show
            viewers.append(_whatever_happens(show) if options.to_stderr else standard_output()(show))
            stopper.listen()
            run(watch, _each(viewers), options.until, stopper.wanted)
        verdict = watch.final(_HURRY_S if stopper.signal is not None else _LAST_READ_S)
        if not options.screen:
            viewers[-1](watch.view())
        if textfile is not None:
            textfile.update(watch.view(), is_last=True)
        for problem in dispatcher.close(_DELIVER_S):
            complain(f"warning: not told: {safe.show(problem)}\n")
    return Ending(verdict, stopper.signal)


def _notifiers(options: WatchOptions) -> list[Notifier]:
    notifiers: list[Notifier] = []
    if options.on_failure is not None:
        from aggregator.notify.command import CommandNotifier  # noqa: PLC0415 - imported for who asks for it

        notifiers.append(CommandNotifier(options.on_failure))
    if options.webhook is not None:
        from aggregator.notify.webhook import WebhookNotifier  # noqa: PLC0415 - brings an HTTP client

        notifiers.append(WebhookNotifier(options.webhook))
    return notifiers


def _textfile(path: Path | None) -> PrometheusFile | None:
    if path is None:
        return None
    from aggregator.notify.prometheus import PrometheusFile  # noqa: PLC0415 - an extra

    return PrometheusFile(path)


def _each(viewers: Sequence[Callable[[LiveView], None]]) -> Callable[[LiveView], None]:
    def show(view: LiveView) -> None:
        for viewer in viewers:
            viewer(view)

    return show


def _whatever_happens(show: Callable[[LiveView], None]) -> Callable[[LiveView], None]:
    """The verdict is worth more than the lines that lead to it."""

    def shown(view: LiveView) -> None:
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or not there at all
            show(view)

    return shown


def _close(watch: Watch) -> None:
    try:
        watch.close()
    except StoreStalled as error:
        complain(f"warning: the last lines could not be stored: {safe.show(error.text)}\n")


def _on_screen(
    watch: Watch, viewers: Sequence[Callable[[LiveView], None]], options: WatchOptions, stopper: Stopper
) -> None:
    """The watch on a thread of its own, the screen on this one, until either ends."""
    try:
        from aggregator.tui.app import WatchApp  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(
            "the screen needs the package textual", help="pip install 'denpex-agg[tui]', or use --plain"
        ) from None
    logging.getLogger("aggregator").setLevel(logging.WARNING)  # what is done would be told in the middle of the screen
    failures: list[BaseException] = []
    app = WatchApp(watch.view, redact=options.redact, on_postmortem=watch.ask)

    def work() -> None:
        try:
            run(watch, _each(viewers), options.until, stopper.wanted)
        except BaseException as error:  # noqa: BLE001 - told by the thread that has the terminal
            failures.append(error)
        app.call_later(app.exit)

    stopper.listen()
    worker = threading.Thread(target=work, name="watch")
    worker.start()
    try:
        app.run_to_end()
    finally:
        stopper.wanted.set()
        worker.join()
    if failures:
        raise failures[0]
