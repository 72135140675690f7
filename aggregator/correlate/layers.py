"""Which layer a first failure belongs to, where other lines than its own tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aggregator.correlate.exits import Ending
from aggregator.correlate.identity import same_host
from aggregator.correlate.leads import Lead, Tier
from aggregator.correlate.phases import layer_of
from aggregator.correlate.stories import Story, in_order
from parsers.later import later
from parsers.records import Role, Signal

FILE_SYSTEMS = ("nfs.", "lustre.", "cluster_fs.")
"""How the signatures of what clients of file servers say begin."""
_EXITS = "pt.exitwarn"
"""PyTorch's word on a process that ends by itself with its groups still there."""
_CUT = later(r"timed out|[Nn]o route|unreachable")
"""What a socket says where the network is gone; a reset or a broken pipe is the peer's end."""
_DOING = {"checkpoint": "at a checkpoint", "data_loading": "loading data"}


def layer(lead: Lead, story: Story | None, signals: Iterable[Signal]) -> str:
    """The layer of a lead: as its message, its rank's other errors or its file system tell, else its kind."""
    told = lead.signal.layer if lead.signal is not None else None
    if lead.tier is Tier.HANG and any(s.signature.startswith(FILE_SYSTEMS) for s in lead.support):
        return "storage"
    if lead.tier is Tier.HANG and story is not None:
        left = any(s.signature == _EXITS and s.rank == story.rank for s in signals)
        if left or story.success or story.ended(Ending.CLEAN):
            return "software"  # who was done as far as it knew was told to do less than the others
    if lead.tier in {Tier.EITHER, Tier.HANG} and told is None and story is not None:
        told = next((s.layer for s in story.faults if _explains(s, lead)), None)
    return layer_of(lead.kind, told)


def _explains(signal: Signal, lead: Lead) -> bool:
    if signal.layer is None:
        return False
    same = signal.role is Role.EITHER and signal.kind == lead.kind
    return same or (lead.tier is Tier.EITHER and _CUT.search(signal.fields.get("message", "")) is not None)


def join_file_system(lead: Lead, phase: str, signals: Iterable[Signal], known_hosts: Sequence[str]) -> None:
    """A file server that does not answer is what a rank waits for that others wait for, while it saves or loads."""
    if lead.tier is not Tier.HANG or phase not in _DOING:
        return
    hosts = lead.hosts or known_hosts[: len(known_hosts) == 1]
    told = in_order(
        s for s in signals
        if s.signature.startswith(FILE_SYSTEMS) and (s.host is None or any(same_host(s.host, host) for host in hosts))
    )  # fmt: skip
    if told and told[-1].role is not Role.RECOVERED:
        lead.support.append(told[-1])
        lead.reasons.append(f"a file system did not answer while it was {_DOING[phase]}")
