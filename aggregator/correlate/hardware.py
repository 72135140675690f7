"""What the driver's and kernel's records prove, and what they do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from aggregator.correlate.identity import bus_key
from parsers.records import Role, Signal

_LINK_END = "nvidia.xid.nvlink_end"
_FIRMWARE_SILENT = frozenset({"119", "120"})
"""Xid codes of a GPU whose firmware does not answer: whoever calls it waits, mostly in the kernel."""
_TROUBLE = frozenset({Role.TEARDOWN, Role.ROOT, Role.EITHER, Role.SYMPTOM})


def find_broken_link_ends(signals: Sequence[Signal]) -> None:
    """Xid 74 is told of both ends of a link, and of switches: told of one GPU of a host only, it is that one's."""
    told: dict[str | None, dict[str, list[Signal]]] = defaultdict(lambda: defaultdict(list))
    for signal in signals:
        if signal.signature == _LINK_END and "bus_id" in signal.fields:
            told[signal.host][bus_key(signal.fields["bus_id"])].append(signal)
    for by_gpu in told.values():
        if len(by_gpu) == 1:
            for signal in next(iter(by_gpu.values())):
                signal.role = Role.ROOT


def only_kept_waiting(signals: Sequence[Signal]) -> bool:
    """Whether the only trouble told is that the kernel or a GPU's firmware keeps a process waiting.

    No process has said a word of it, so all of them are still there as far as is known.
    """
    trouble = [s for s in signals if s.role in _TROUBLE or s.exception is not None]
    told = all(s.signature.startswith(("nvidia.", "kernel.")) for s in trouble)
    return told and any(s.signature == "kernel.hung_task" or s.fields.get("xid") in _FIRMWARE_SILENT for s in trouble)
