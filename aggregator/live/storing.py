"""When the store is written to the disk, and what is done while the disk takes nothing."""

from __future__ import annotations

from aggregator.store import Store, StoreStalled

SYNC = 2.0
"""Seconds between forced writes of the store to the disk."""
RETRY = 10.0
"""Seconds at most between attempts to write to a disk that is full."""


class Storing:
    """Writes one store. While it can't, what was read stays in memory as far as it fits, and is judged all the same."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self._flush_at = self._sync_at = now
        self._failures = 0

    def flush(self, now: float) -> StoreStalled | bool:
        """Write what is due at `now`, monotonic seconds.

        Returns:
            Why nothing can be written, at the first failure in a row; True as soon as it can again; else False.
        """
        if now < self._flush_at:
            return False
        try:
            self._store.flush(sync=now >= self._sync_at)
        except StoreStalled as error:
            self._failures += 1
            self._flush_at = now + min(2.0 ** min(self._failures, 4), RETRY)
            return error if self._failures == 1 else False
        recovered, self._failures = self._failures > 0, 0
        if now >= self._sync_at:
            self._sync_at = now + SYNC
        return recovered
