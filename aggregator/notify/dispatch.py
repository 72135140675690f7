"""Runs the notifiers beside the watch, so that one that hangs never keeps it from reading."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from aggregator.notify import FailureMessage, Notifier, NotifyError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aggregator.verdict import Verdict

MAX_WAITING = 32
"""Deliveries that may wait; what comes on top is reported as not delivered."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Delivery:
    notifier: Notifier
    message: FailureMessage
    problem: str | None = "not told before the end of the watch"


class Dispatcher:
    """Tells each failure once, by every notifier in the order given, on one background thread.

    A failure is known by its attempt and ranks: more evidence or another kind are no news. A message that blames other
    ranks than the one before it is marked as a correction.
    """

    def __init__(self, notifiers: Sequence[Notifier], *, redact: bool = True, memory: Path | None = None) -> None:
        """Begin; `memory` is a file that keeps what was told, for a watch that is started again."""
        self._notifiers = notifiers
        self._redact = redact
        self._memory = memory
        self._told = _remembered(memory)
        """By attempt, the ranks that were blamed last."""
        self._deliveries: list[_Delivery] = []
        self._queue: SimpleQueue[_Delivery | None] = SimpleQueue()
        self._is_over = threading.Event()
        # A daemon: a webhook that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def failed(self, verdict: Verdict, attempt: int) -> bool:
        """Queue the failure of an attempt unless it was told before; never waits.

        Returns:
            Whether it is new.
        """
        failure = verdict.first_failure
        ranks = tuple(sorted(failure.ranks)) if failure else ()
        before = self._told.get(attempt)
        if before == ranks:
            return False
        message = FailureMessage(verdict, before is not None, self._redact)
        self._told[attempt] = ranks
        self._remember()
        for notifier in self._notifiers:
            delivery = _Delivery(notifier, message)
            self._deliveries.append(delivery)
            if self._queue.qsize() < MAX_WAITING:
                self._queue.put(delivery)
            else:
                _fail(delivery, "not told, as too many messages were waiting")
        return True

    def _remember(self) -> None:
        if self._memory is not None:
            with contextlib.suppress(OSError):  # told twice is better than not at all
                self._memory.write_text(json.dumps(sorted(self._told.items())), encoding="utf-8")
                self._memory.chmod(0o600)

    def close(self, timeout: float) -> list[str]:
        """Wait up to `timeout` seconds for what is queued, then give up on the rest.

        Returns:
            What was not delivered in the whole watch and why, a short text each.
        """
        self._queue.put(None)
        self._thread.join(timeout)
        self._is_over.set()
        return [f"{item.notifier.name}: {item.problem}" for item in self._deliveries if item.problem]

    def _work(self) -> None:
        while (delivery := self._queue.get()) and not self._is_over.is_set():
            try:
                delivery.notifier.send(delivery.message)
                delivery.problem = None
            except NotifyError as error:
                _fail(delivery, str(error))
            except Exception as error:  # noqa: BLE001 - a bug in one notifier must not silence the others
                _fail(delivery, f"this is a bug: {type(error).__name__}")  # its text could hold a secret


def _fail(delivery: _Delivery, problem: str) -> None:
    delivery.problem = problem
    _log.info("cannot tell of the failure: %s: %s", delivery.notifier.name, problem)


def _remembered(memory: Path | None) -> dict[int, tuple[int, ...]]:
    if memory is None:
        return {}
    try:
        return {int(attempt): tuple(ranks) for attempt, ranks in json.loads(memory.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError):
        return {}
