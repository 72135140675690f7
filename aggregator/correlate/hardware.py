"""What the driver's and kernel's records prove, and what they do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aggregator.correlate.identity import bus_key
from parsers.records import Role, Signal

_LINK_END = "nvidia.xid.nvlink_end"


def find_broken_link_ends(signals: Sequence[Signal]) -> None:
    """Xid 74 is told of both ends of a link, and of switches: where it is told of one GPU of a host only, that broke."""
    told: dict[str | None, dict[str, list[Signal]]] = defaultdict(lambda: defaultdict(list))
    for signal in signals:
        if signal.signature == _LINK_END and "bus_id" in signal.fields:
            told[signal.host][bus_key(signal.fields["bus_id"])].append(signal)
    for by_gpu in told.values():
        if len(by_gpu) == 1:
            for signal in next(iter(by_gpu.values())):
                signal.role = Role.ROOT
