"""Runs the notifiers beside the watch, so that one that hangs never keeps it from reading."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from aggregator.notify import FailureMessage, Notifier, NotifyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.verdict import Outcome, Verdict

MAX_WAITING = 32
"""Deliveries that may wait; what comes on top is reported as not delivered."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Identity:
    """What makes a failure of an attempt another one: more evidence or other words do not."""

    ranks: tuple[int, ...]
    kind: str | None
    outcome: Outcome


@dataclass(slots=True)
class _Delivery:
    notifier: Notifier
    message: FailureMessage
    problem: str | None = "not told before the end of the watch"


class Dispatcher:
    """Tells each failure once, by every notifier in the order given, on one background thread.

    A failure is known by its attempt, ranks, kind and outcome. What was told of an attempt is not told again; a message
    that blames other ranks than the one before it is marked as a correction.
    """

    def __init__(self, notifiers: Sequence[Notifier], *, redact: bool = True) -> None:
        self._notifiers = notifiers
        self._redact = redact
        self._told: defaultdict[int, list[_Identity]] = defaultdict(list)
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
        identity = _Identity(ranks, failure.kind if failure else None, verdict.outcome)
        told = self._told[attempt]
        if identity in told:
            return False
        message = FailureMessage(verdict, bool(told) and told[-1].ranks != ranks, self._redact)
        told.append(identity)
        for notifier in self._notifiers:
            delivery = _Delivery(notifier, message)
            self._deliveries.append(delivery)
            if self._queue.qsize() < MAX_WAITING:
                self._queue.put(delivery)
            else:
                _fail(delivery, "not told, as too many messages were waiting")
        return True

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
