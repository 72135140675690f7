"""The verdict where every rank that speaks only waited or lost its peers: at most a host can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.correlate.confidence import Basis
from aggregator.correlate.decide import Decision
from aggregator.correlate.evidence import NS
from aggregator.correlate.hangs import host_of_peer
from aggregator.correlate.identity import Identity, same_host
from aggregator.correlate.leads import Lead, Tier, bounds, most_specific
from aggregator.correlate.stories import FAULTS, Story
from aggregator.verdict import Status
from parsers.records import Role, Signal, StampQuality

_LINKS = frozenset({"kernel.nic.down", "kernel.link.down"})
_BEFORE_NS = 7200 * NS
"""A link that went down longer before the first trouble than any time-out lasts has nothing to do with it."""
_WITNESSES = 2


def only_waiting(
    signals: Sequence[Signal], stories: Mapping[int, Story], homeless: Sequence[Signal], table: Identity,
    lost: list[tuple[Lead, str]],
) -> Decision | None:  # fmt: skip
    """What is left to be said of a job in which nobody tells of a fault of its own; None where nobody tells of any."""
    trouble = [s for story in stories.values() for s in story.symptoms]
    trouble += [s for s in homeless if s.role in FAULTS and s.signature not in _LINKS]
    if not trouble:
        return None
    # What broke beneath a collective says more than that it timed out.
    signal = next((s for s in trouble if s.kind == "ib_error"), trouble[0])
    lead = Lead((), signal.kind or "unknown", Tier.EITHER, signal)
    reasons = ["every rank that speaks only reports waiting for others or losing them"]
    beneath = _of_one_host(signals, trouble)
    named = _lost_by_all(stories, table)
    if beneath is not None and beneath.host is not None:
        lead.signal, lead.kind, lead.hosts = beneath, beneath.kind or lead.kind, (beneath.host,)
        if beneath.signature in _LINKS and not any(s.kind == "ib_error" for s in trouble):
            lead.kind = "network_error"  # the adapters of InfiniBand are used for Ethernet too
        lead.lo, lead.hi = bounds(beneath)
        reasons.append(f"{beneath.host} alone tells of what may be a cause")
    elif named is not None:
        lead.signal, lead.hosts = named[0], (named[1],)
        reasons.append(f"all that lost a connection lost it to {named[1]}, of whose ranks no line was found")
    elif len(table.hosts) == 1:
        lead.hosts = (table.hosts[0],)
    decision = Decision(Status.UNDETERMINED, [lead], lost, reasons, Basis.ONLY_WAITING)
    decision.would_settle.append("flight-recorder dumps of all ranks, or the logs of ranks that are missing here")
    return decision


def _of_one_host(signals: Sequence[Signal], trouble: Sequence[Signal]) -> Signal | None:
    """What may be a cause and is told of one host alone, while others are in trouble too: its names, its link."""
    stamped = [s for s in trouble if s.ns is not None]
    begun = [s.ns for s in stamped if s.ns is not None]
    open_end = any(s.quality is not StampQuality.OWN for s in stamped)  # such a time is that of the line above
    causes = [s for s in trouble if s.role is Role.EITHER and s.rank is None and s.kind not in {None, "abort"}]
    causes += [
        s for s in signals
        if s.signature in _LINKS and s.ns is not None and begun
        and min(begun) - _BEFORE_NS <= s.ns <= max(begun) + (_BEFORE_NS if open_end else 0)
    ]  # fmt: skip
    hosts = {s.host for s in causes}
    if len(hosts) != 1 or None in hosts or {s.host for s in trouble} <= hosts:
        return None
    return most_specific(causes)


def _lost_by_all(stories: Mapping[int, Story], table: Identity) -> tuple[Signal, str] | None:
    """The host that every lost connection led to, if none of its ranks is heard."""
    told: dict[str, Signal] = {}
    witnesses: set[int] = set()
    for story in stories.values():
        for signal in story.symptoms:
            peer = signal.fields.get("peer")
            if peer:
                told.setdefault(host_of_peer(peer, table) or peer, signal)
                witnesses.add(story.rank)
    if len(told) != 1 or len(witnesses) < _WITNESSES:
        return None
    host, signal = next(iter(told.items()))
    heard = any(story.heard and same_host(story.host, host) for story in stories.values())
    return None if heard or host[0].isdigit() or ":" in host else (signal, host)
