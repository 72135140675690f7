"""What the event log of a machine's management controller proves: that it was struck while ranks ran on it.

Such a log covers years, by a clock of its own; supplies are redundant, and most events end nothing. A machine was
struck where it started anew afterwards, or was switched off, and its ranks had fallen silent just before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from aggregator.correlate.evidence import NS, precise
from aggregator.correlate.identity import Identity, same_host, stream_rank
from parsers.records import Role, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.correlate.evidence import JobEvidence

_SOON_NS: Final = 1800 * NS
"""A rank that runs prints something in such a time."""
_CLOCK_NS: Final = 5 * NS
"""The controller's clock and the machine's differ by so much where somebody sets them."""
_STRIKES: Final = frozenset({"ipmi.power", "ipmi.hardware"})
_BOOT: Final = "ipmi.boot"
_OFF: Final = "Power off/down"


def find_struck_machines(evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> None:
    """Give the first event that ended a machine its role: it struck the ranks there from outside."""
    events: dict[str, list[Signal]] = defaultdict(list)
    for signal in signals:
        if signal.host is not None and signal.signature in {_BOOT, *_STRIKES} and precise(signal):
            events[signal.host].append(signal)
    for host, told in events.items():
        silent = _silent_since(evidence, table, host)
        if silent is None:
            continue
        boots = [s.ns or 0 for s in told if s.signature == _BOOT]
        offs = [s.ns or 0 for s in told if s.fields.get("message") == _OFF]
        struck = [
            s for s in told
            if s.signature in _STRIKES and -_CLOCK_NS <= (s.ns or 0) - silent <= _SOON_NS
            and any(ns >= (s.ns or 0) for ns in (*boots, *offs))
        ]  # fmt: skip
        if struck:
            min(struck, key=lambda s: s.ns or 0).role = Role.EXTERNAL


def _silent_since(evidence: JobEvidence, table: Identity, host: str) -> int | None:
    """When the last of a machine's ranks last wrote a line, None if none did or a line's time is not known."""
    lasts = []
    for source, key, activity in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is not None and same_host(table.host_of_rank.get(rank), host):
            if activity.last_stamp is None or activity.last_stamp.boot:
                return None
            lasts.append(activity.last_stamp.ns)
    return max(lasts, default=None)
