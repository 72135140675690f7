"""What the driver's and kernel's records prove, and what they do not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from aggregator.correlate.evidence import NS, JobEvidence
from aggregator.correlate.identity import bus_key
from parsers.records import Role, Signal

_LINK_END = "nvidia.xid.nvlink_end"
_FATAL = re.compile(r"(?i)(?<!non)(?<!non-)\bfatal\b")
_NOT_FATAL = re.compile(r"(?i)\bnon-?fatal\b")
_CLEARLY_NS = NS // 2
"""By so much the first end of a link complains before the other."""
_FIRMWARE_SILENT = frozenset({"119", "120"})
"""Xid codes of a GPU whose firmware does not answer: whoever calls it waits, mostly in the kernel."""
_TROUBLE = frozenset({Role.TEARDOWN, Role.ROOT, Role.EITHER, Role.SYMPTOM})


def find_broken_link_ends(evidence: JobEvidence, signals: Sequence[Signal]) -> None:
    """Link errors (Xid 74, 144 to 149) are told of both ends of a link, and of all GPUs behind a switch.

    What broke is the only GPU that they are told of, else the only one of a fatal error, else the clearly first one.
    Where links join the GPUs of several hosts, one that is told of errors that are not fatal saw another break.
    """
    told: dict[str | None, dict[str, list[Signal]]] = defaultdict(lambda: defaultdict(list))
    for signal in signals:
        if signal.signature == _LINK_END and "bus_id" in signal.fields:
            told[signal.host or evidence.source(signal).host][bus_key(signal.fields["bus_id"])].append(signal)
    any_fatal = any(_FATAL.search(s.text) for by_gpu in told.values() for s in chain.from_iterable(by_gpu.values()))
    for by_gpu in told.values():
        if any_fatal and all(_NOT_FATAL.search(s.text) for records in by_gpu.values() for s in records):
            for signal in chain.from_iterable(by_gpu.values()):
                signal.role = Role.CONTEXT
            continue
        fatal = [records for records in by_gpu.values() if any(_FATAL.search(s.text) for s in records)]
        ordered = sorted(by_gpu.values(), key=_began)
        if len(by_gpu) == 1 or len(fatal) == 1:
            broken = fatal[0] if fatal else ordered[0]
        elif _began(ordered[1]) - _began(ordered[0]) >= _CLEARLY_NS:
            broken = ordered[0]
        else:
            continue
        for signal in broken:
            signal.role = Role.ROOT


def _began(records: Sequence[Signal]) -> int:
    return min(signal.ns or 0 for signal in records)


def only_kept_waiting(signals: Sequence[Signal]) -> bool:
    """Whether the only trouble told is that the kernel or a GPU's firmware keeps a process waiting.

    No process has said a word of it, so all of them are still there as far as is known.
    """
    trouble = [s for s in signals if s.role in _TROUBLE or s.exception is not None]
    told = all(s.signature.startswith(("nvidia.", "kernel.")) for s in trouble)
    return told and any(s.signature == "kernel.hung_task" or s.fields.get("xid") in _FIRMWARE_SILENT for s in trouble)
