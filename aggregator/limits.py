"""Limits that a program puts on itself before it reads for somebody else: whose files, and how much of them."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from aggregator.opening import OpenFile


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Only files of the user `uid` are read; with `sole_name` none that also has another name (a hard link)."""

    uid: int
    sole_name: bool

    def refusal(self, status: os.stat_result) -> str | None:
        """Why a file of this status is not read, or None."""
        if status.st_uid != self.uid:
            return "not read: it belongs to somebody else"
        if self.sole_name and status.st_nlink != 1:
            return "not read: it has another name too (a hard link)"
        return None


_owner_rule: OwnerRule | None = None


def bind_to(rule: OwnerRule) -> None:
    """From now on this process opens no foreign file that the rule refuses; there is no way back."""
    global _owner_rule  # noqa: PLW0603 - like the process's user id, which goes with it
    _owner_rule = rule


def refusal(status: os.stat_result) -> str | None:
    """Why this process must not read a file of this status, or None."""
    return None if _owner_rule is None else _owner_rule.refusal(status)


def fair_share(sizes: Sequence[int], total: int) -> int:
    """How much of each file may be read so that all together stay within `total`: the small ones whole, of the
    others equally much.
    """
    left = total
    for place, size in enumerate(ordered := sorted(sizes)):
        share = left // (len(ordered) - place)
        if size > share:
            return share
        left -= size
    return total


def end_of(file: OpenFile, limit: int, piece: int) -> Iterator[bytes]:
    """At most `limit` bytes from the end of a file, from the start of a line on, even if the file goes on growing."""
    place = max(file.size - limit, 0)
    stop, in_line = place + limit, place > 0
    while place < stop and (data := file.read_at(min(piece, stop - place), place)):
        place += len(data)
        if in_line:
            _, newline, data = data.partition(b"\n")
            in_line = not newline
        if data:
            yield data


@contextlib.contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Let what the block does take no longer than this; for the main thread only, and not within itself.

    Raises:
        TimeoutError: it took longer.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
