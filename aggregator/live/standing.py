"""For how long a failure has stood, and whether that is long enough to name it or to tell people of it."""

from __future__ import annotations

from aggregator.verdict import Outcome, Verdict

CONFIRM = 5.0
"""Seconds for which a failure must stand before anybody is told: a fault may be caught, more evidence may come."""
CONFIRM_MOST = 60.0
"""The same where steps take long: twice as long as one, but no longer than this."""
HUNG = 30.0
"""The same for a job that hangs, as far as its own messages tell."""
SETTLE = 3.0
"""Seconds for which a rank that others are said to wait for must stand before it is named."""


class Standing:
    """The failure that is named now. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._named: object = None
        self._since = 0.0

    def name(self, verdict: Verdict | None, now: float) -> bool:
        """Take what the newest verdict names, None if it names no failure; tells whether that is the same as before."""
        if verdict is None:
            self._named = None
            return False
        failure = verdict.first_failure
        named = (attempt_of(verdict), verdict.outcome, failure and (failure.ranks, failure.kind))
        if named == self._named:
            return True
        self._named, self._since = named, now
        return False

    def is_settled(self, now: float) -> bool:
        """Whether it may be named."""
        return self._named is not None and now - self._since >= SETTLE

    def due(self, verdict: Verdict, usual_step_s: float) -> float:
        """From when on people may be told: whoever went on from the failure would have shown it by then."""
        hung = verdict.outcome is Outcome.HUNG
        return self._since + (HUNG if hung else min(max(CONFIRM, 2 * usual_step_s), CONFIRM_MOST))


def attempt_of(verdict: Verdict | None) -> int:
    """The number of the newest attempt."""
    return verdict.attempts[-1].index if verdict is not None and verdict.attempts else 0
