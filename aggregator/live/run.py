"""Runs a watch until it ends: by itself, after a time, or when the user has seen enough."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator.live.view import LiveState, LiveView

if TYPE_CHECKING:
    from types import FrameType

    from aggregator.live.watch import Watch

_SHOW_S = 0.25
_QUIET_S = {LiveState.FINISHED: 3.0, LiveState.FAILED: 30.0, LiveState.SUSPECT: 600.0}
"""After so many seconds without a byte a job that is in this state has ended: restarts take their time."""
_LAST_WORDS = frozenset({
    "te.box.exitcode", "te.signal_exception", "mpi.exited", "mpi.signalled", "slurm.acct.failed", "k8s.job_failed",
    "deepspeed.exit", "horovod.exit",
})  # fmt: skip
"""Messages with which a launcher gives up for good; after one of them `_LAST_S` seconds are enough."""
_LAST_S = 5.0
_SILENT_S = 3600.0
"""The same for all other states: nobody runs any more."""
_RESERVE = 64
"""Descriptors that are left for everything but logs."""


@dataclass(frozen=True, slots=True)
class Until:
    """When a watch ends by itself: with the job, after `timeout_s` seconds, or never."""

    job_ends: bool = False
    timeout_s: float | None = None


class Stopper:
    """Turns signals into a wish: what is being done is finished, and the verdict so far told."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self.signal: int | None = None

    def listen(self) -> None:
        """Take over SIGINT and SIGTERM; a second one has its usual effect."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        self.wanted.set()
        signal.signal(number, signal.SIG_DFL)


def run(watch: Watch, show: Callable[[LiveView], None], until: Until, stop: threading.Event) -> None:
    """Step until it is over; each new picture goes to `show`, four a second at most."""
    began = time.monotonic()
    shown = -_SHOW_S
    while not stop.is_set():
        pause = watch.step()
        now = time.monotonic()
        if now - shown >= _SHOW_S:
            shown = now
            show(watch.view())
        if until.timeout_s is not None and now - began >= until.timeout_s:
            return
        if until.job_ends and watch.verdict is not None and _is_over(watch):
            return
        stop.wait(pause)


def _is_over(watch: Watch) -> bool:
    view = watch.view()
    limit = _QUIET_S.get(view.state, _SILENT_S)
    if view.state is LiveState.FAILED and any(event.signature in _LAST_WORDS for event in view.events):
        limit = _LAST_S
    failure = watch.verdict.first_failure if watch.verdict is not None else None
    if failure is not None and failure.kind == "preempted":
        limit = _SILENT_S  # its scheduler may start it again, hours later
    return watch.quiet_s >= limit


def descriptor_budget() -> int:
    """How many logs may be open at once: as many as the system lets us, whose soft limit is raised to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(hard - _RESERVE, hard // 2) if hard != resource.RLIM_INFINITY else 1 << 16
