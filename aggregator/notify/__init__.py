"""Telling people of a failure: a command, a webhook, a file for Prometheus.

The first two are `Notifier`s, which a `dispatch.Dispatcher` runs beside the watch. Each is checked when it is made, so
that a mistake is told before the hours of watching and not after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aggregator.verdict import Verdict


@dataclass(frozen=True, slots=True)
class FailureMessage:
    """One failure to tell. `correction`: an earlier message on the same attempt blamed other ranks.

    `redact` masks secrets in whatever leaves the program.
    """

    verdict: Verdict
    correction: bool = False
    redact: bool = True


class NotifyError(Exception):
    """A message was not delivered. The text says why, holds neither secrets nor log text, and has no full stop."""


class Notifier(Protocol):
    """One way to tell people. `name` is what the user calls it."""

    name: str

    def send(self, message: FailureMessage) -> None:
        """Deliver the message; may take minutes.

        Raises:
            NotifyError: it was not delivered.
        """
        ...
