"""How an attempt ended: as meant, failed, hung, stopped from outside, or not yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.correlate.decide import Decision
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.hardware import only_kept_waiting
from aggregator.correlate.leads import FAULT_TIERS, Tier
from aggregator.correlate.stories import Story
from aggregator.verdict import Outcome
from parsers.records import Role, Signal

_OF_ONE = frozenset({"ok.training"})
"""What each rank says of itself as it ends: in another file than a trouble it tells nothing of it."""

_OF_PARTING = frozenset({"network_error", "nccl_error", "rendezvous_failure"})
"""What ranks that are done see of each other's end: their connections, and the store that one of them kept."""

_LEAVES = "nccl.proxy.closed_local"
"""What NCCL tells, as an information, of each process that ends, in time or before."""


def outcome_of(
    decision: Decision | None, signals: Sequence[Signal], stories: Mapping[int, Story], exits: Sequence[Exit]
) -> Outcome:
    """How an attempt ended, given what struck it first."""
    bad_end = any(item.ending is not Ending.CLEAN for item in exits)
    success = [s for s in signals if s.role is Role.SUCCESS]
    clean = any(item.ending is Ending.CLEAN for item in exits) and not bad_end
    if decision is None:
        if bad_end:
            return Outcome.FAILED
        if success or clean:
            return Outcome.COMPLETED
        return Outcome.RUNNING if any(story.lines for story in stories.values()) or signals else Outcome.UNKNOWN
    if decision.external is not None:
        if success and _success_last(success, decision.external):
            return Outcome.COMPLETED
        return Outcome.FAILED if decision.external.kind == "node_failure" else Outcome.CANCELLED
    if success and not bad_end and _only_noise(decision, success, stories):
        return Outcome.COMPLETED
    stopped = bad_end or any(
        s.role in {Role.TEARDOWN, Role.ROOT, Role.EITHER} or (s.role is Role.SYMPTOM and s.kind != "collective_timeout")
        or s.exception is not None
        for s in signals
    )  # fmt: skip
    if not bad_end and only_kept_waiting(signals):
        return Outcome.HUNG
    waits = all(lead.tier is Tier.HANG for lead in decision.leads)
    return Outcome.HUNG if waits and not stopped else Outcome.FAILED


def _success_last(success: Sequence[Signal], act: Signal) -> bool:
    return any(s.source == act.source and s.offset > act.offset for s in success)


def _only_noise(decision: Decision, success: Sequence[Signal], stories: Mapping[int, Story]) -> bool:
    """Whether work ended as meant after everything that looked like trouble, or apart from it.

    A fault must be outlived by its rank. Where ranks only waited, each of them must be: that one was done is what the
    others waited for.
    """
    waited = [signal for story in stories.values() for signal in story.symptoms]
    for lead in decision.leads:
        if lead.signal is None or (lead.tier in FAULT_TIERS and not _outlived(lead.signal, success, lead.ranks)):
            return False
    done = {signal.rank for signal in success} - {None}
    return all(lead.tier in FAULT_TIERS for lead in decision.leads) or all(
        _outlived(signal, success, () if signal.rank is None else (signal.rank,))
        or (signal.rank in done and signal.kind in _OF_PARTING)
        or (signal.signature == _LEAVES and _is_below(signal, success))
        for signal in waited
    )


def _is_below(signal: Signal, success: Sequence[Signal]) -> bool:
    return any(s.source == signal.source and s.offset < signal.offset for s in success)


def _outlived(trouble: Signal, success: Sequence[Signal], ranks: Sequence[int]) -> bool:
    """Whether its ranks, or a launcher of all ranks, tell of success below a trouble; the launcher in any file."""
    return any(
        signal.rank in {None, *ranks}
        and (signal.offset > trouble.offset if signal.source == trouble.source else signal.signature not in _OF_ONE)
        for signal in success
    )
