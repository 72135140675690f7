"""Puts leads in order and decides: identified, ambiguous or undetermined."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.correlate.clocks import ClockModel
from aggregator.correlate.confidence import Basis
from aggregator.correlate.evidence import NS
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.identity import Identity
from aggregator.correlate.leads import Lead, Tier
from aggregator.correlate.stories import Story
from aggregator.verdict import Status
from parsers.records import Signal, StampQuality

_TOGETHER_NS = NS // 2
"""Faults of one kind within this are one event of several ranks."""
_SHARED_NS = 5 * NS
"""The same for what a host's ranks share, its adapters, links and drivers: each process notices when it looks."""
_SHARED_KINDS = frozenset(
    {"ib_error", "nvlink_error", "node_failure", "gpu_lost", "cuda_error", "shm_exhausted", "host_oom"}
)
_NO_ECHO = frozenset(
    {
        "storage_io",
        "disk_full",
        "checkpoint_corrupt",
        "cuda_oom",
        "host_oom",
        "shm_exhausted",
        "data_error",
        "import_error",
    }
)
"""What no process meets because another one ended."""
_OF_A_WORKER = frozenset({"dataloader_worker_died", "shm_exhausted", "bus_error"})
"""What a loader's worker prints of its end, without a rank, and what its rank says of it."""
_INSTALLED = frozenset({"config_error", "import_error"})
"""What all processes of a host meet alike: what is installed and set there."""
_LATE_NS = 3 * NS
_POLL_NS = 2 * NS
"""Launchers look at their processes so often, and stamp what they see to the second."""
_AFTER_HARDWARE = frozenset({"cuda_error", "cuda_illegal_access", "nccl_error", "nvlink_error", "gpu_xid", "abort"})
"""What processes report whose peer's GPU broke: they read its memory."""
_BY_ITS_END = 0.75
"""Strength of a lead whose rank the launcher tells."""
_AVERAGED = re.compile(r"(?i)\bgrad")
_ENOUGH = 64
"""Earliest leads that the others are compared with: who is later than any lead is later than one of these."""
_FEW = 3
_SIGN, _STRONG_SIGN = 0.6, 0.8
"""Strength of a reading of a hang from which it names a rank, and from which it does so by itself."""


@dataclass(slots=True)
class Decision:
    """Who, how sure, and why the others lost."""

    status: Status
    leads: list[Lead] = field(default_factory=list)
    """Identified: one, or several of one kind at once. Ambiguous: those that could not be ordered."""
    lost: list[tuple[Lead, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    basis: Basis = Basis.OWN_FAULT
    external: Signal | None = None
    would_settle: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for lead in self.leads for rank in lead.ranks}))

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({host for lead in self.leads for host in lead.hosts}))


def before(one: Lead, other: Lead, clocks: ClockModel) -> bool:
    """Whether `one` certainly happened before `other`, given what is known of the clocks."""
    if one.hi is None or other.lo is None:
        return False
    return clocks.precedes(one.hi, host_of(one), other.lo, host_of(other))


def host_of(lead: Lead) -> str | None:
    """The host whose clock stamped a lead, None where it is not known or not one."""
    return lead.hosts[0] if len(lead.hosts) == 1 else None


def drop_late(leads: list[Lead], stories: Mapping[int, Story], clocks: ClockModel) -> list[tuple[Lead, str]]:
    """Leads that began after other ranks were already in trouble cannot have caused it."""
    late: list[tuple[Lead, str]] = []
    for lead in list(leads):
        if lead.lo is None or lead.signal is None or lead.signal.quality is not StampQuality.OWN or not lead.ranks:
            continue
        begun = clocks.common(lead.lo, host_of(lead))
        first: tuple[int, int] | None = None
        for rank, story in stories.items():
            if rank in lead.ranks:
                continue
            for symptom in story.symptoms:
                if symptom.ns is None or symptom.quality is not StampQuality.OWN:
                    continue
                when = clocks.common(symptom.ns, story.host)
                late_for = clocks.precedes(symptom.ns, story.host, lead.lo, host_of(lead), _LATE_NS)
                if late_for and (first is None or when < first[0]):
                    first = (when, rank)
        if first is not None:
            seconds = (begun - first[0]) / NS
            late.append((lead, f"it failed {seconds:.0f} s after rank {first[1]} was already in trouble"))
            leads.remove(lead)
    return late


def drop_silent_aborts(leads: list[Lead], stories: Mapping[int, Story]) -> list[tuple[Lead, str]]:
    """An abort without a word is a watchdog's where others report lost peers, and one tells of a cause of its own."""
    told = any(lead.kind in _NO_ECHO and lead.ranks and lead.signal is not None for lead in leads)
    if not told or sum(bool(story.symptoms) for story in stories.values()) < _FEW:
        return []
    silent = [lead for lead in leads if lead.tier is Tier.CRASH and lead.kind == "abort" and lead.signal is None]
    dropped = set(map(id, silent))
    leads[:] = [lead for lead in leads if id(lead) not in dropped]
    return [(lead, "it was aborted without a word, as by its watchdog") for lead in silent]


def strikes_first(external: Signal, lead: Lead) -> bool:
    """Whether the scheduler or user acted before the fault of a lead.

    A plain cancellation is printed by a launcher's own clean-up too: it must be the earlier one for certain.
    """
    if (
        lead.exit is not None
        and lead.exit.report.source == external.source
        and lead.exit.report.offset < external.offset
    ):
        return False
    if lead.signal is None and lead.exit is not None and lead.exit.report.source == external.source:
        return True
    when = external_ns(external)
    own = lead.signal is not None and lead.signal.quality is StampQuality.OWN
    if when is not None and lead.lo is not None and own:
        return when + NS <= lead.lo if external.kind == "cancelled" else when <= lead.lo + NS
    if lead.signal is not None and lead.signal.source == external.source:
        return external.offset < lead.signal.offset
    return when is not None and lead.lo is not None and when <= lead.lo + NS


def external_ns(external: Signal) -> int | None:
    """When the scheduler acted: as it says itself, else as its line is stamped."""
    return external.ns if external.quality is StampQuality.OWN else None


def choose(leads: list[Lead], exits: Sequence[Exit], clocks: ClockModel) -> Decision:
    """Order fault leads of one tier: earliest, or all of them where they failed of one cause at once."""
    earliest = sorted(leads, key=lambda lead: _common_hi(lead, clocks))[:_ENOUGH]
    first = [
        lead
        for lead in leads
        if not any(
            before(other, lead, clocks) and not _shared(other, lead) and not _at_once(other, lead, clocks)
            for other in earliest
            if other is not lead
        )
    ]
    first = first or leads  # clocks that contradict one another order nothing
    kept = {id(lead) for lead in first}
    lost = [(lead, _later(lead, first, clocks)) for lead in leads if id(lead) not in kept]
    if len(first) == 1:
        return Decision(Status.IDENTIFIED, first, lost, basis=_basis(first[0], lost))
    proven = [lead for lead in first if lead.proven]
    if (
        proven
        and len({lead.kind for lead in proven}) == 1
        and all(lead in proven or lead.kind in _AFTER_HARDWARE for lead in first)
    ):
        rest = [
            (lead, "the kernel proves a hardware fault elsewhere, which reaches its peers' memory")
            for lead in first
            if lead not in proven
        ]
        if rest:
            return Decision(Status.IDENTIFIED, proven, [*lost, *rest], basis=Basis.FIRST_FAULT)
    named = [lead for lead in first if lead.ranks]
    if len(named) == 1:
        # What no rank is known for is most likely the same fault, printed once more without its tag.
        echo = [lead for lead in first if lead is not named[0] and _may_be_echo(lead, named[0])]
        if len(echo) == len(first) - 1:
            if any(lead.kind == "shm_exhausted" for lead in echo):
                named[0].kind = "shm_exhausted"  # why the worker died
            return Decision(Status.IDENTIFIED, named, lost, basis=_basis(named[0], lost))
    if len({lead.group for lead in first}) == 1 and len(named) == len(first):
        return _one_cause(first, lost, clocks)
    kinds = {lead.kind for lead in first}
    decision = Decision(Status.AMBIGUOUS, named or first, lost, basis=Basis.OPEN_ORDER)
    if not named:
        decision.status = Status.UNDETERMINED
    told = "ranks failed by themselves" if len(named) == len(first) else "faults were told, not each with its rank"
    decision.reasons.append(f"{len(first)} {told} ({', '.join(sorted(kinds))}) and no clock or launcher orders them")
    reported = _reported_first(named, exits, clocks)
    if reported is not None:
        return Decision(
            Status.IDENTIFIED, [reported],
            [*lost, *((lead, "its launcher saw it end later") for lead in first if lead is not reported)],
            ["the launcher saw this rank end first"], Basis.FIRST_FAULT,
        )  # fmt: skip
    decision.would_settle.append("per-line time stamps with sub-second digits on every rank")
    return decision


def _may_be_echo(lead: Lead, named: Lead) -> bool:
    """Whether a fault without a rank may be that of a known one: the same, or what the driver told of in its words."""
    driver = named.signal is not None and named.signal.signature.startswith("nvidia.xid.")
    if {lead.kind, named.kind} <= _OF_A_WORKER:
        return not lead.hosts or lead.hosts == named.hosts
    on_host = not lead.hosts or lead.hosts == named.hosts
    return lead.group == named.group or (driver and on_host and lead.kind in {"cuda_error", "cuda_illegal_access"})


def open_comparisons(decision: Decision) -> None:
    """Who aborts because another's call differs from its own is one of two: which of them is wrong is left open."""
    if decision.status is Status.IDENTIFIED and all(_only_compares(lead) for lead in decision.leads):
        decision.status, decision.basis = Status.AMBIGUOUS, Basis.PERHAPS_ECHO
        decision.reasons.append("its call and a peer's differ: either may be the wrong one")
        decision.would_settle.append("TORCH_DISTRIBUTED_DEBUG=DETAIL, which compares the calls of all ranks")


def open_averages(decision: Decision) -> None:
    """Gradients are averaged over ranks: a NaN of one is in all of them, and who reports it tells nothing of where."""
    if (
        decision.status is Status.IDENTIFIED
        and len(decision.leads) > 1
        and all(
            lead.kind == "nan_loss" and lead.signal and _AVERAGED.search(lead.signal.text) for lead in decision.leads
        )
    ):
        decision.status, decision.basis = Status.AMBIGUOUS, Basis.PERHAPS_ECHO
        decision.reasons.append("a NaN in the gradients of one rank is in those of all once they are averaged")
        decision.would_settle.append("the loss of each rank at that step, before the gradients are averaged")


def take_whole_host(decision: Decision, faults: Sequence[Lead], stories: Mapping[int, Story], table: Identity) -> None:
    """What most ranks of one host fail of as they start, and no other host's do, is what the host lacks.

    The rest of its ranks met it later, or were stopped before, unless they tell of something else.
    """
    ranks = set(decision.ranks)
    hosts = {table.host_of_rank.get(rank) for rank in ranks}
    host = hosts.pop() if len(hosts) == 1 else None
    if decision.status is not Status.IDENTIFIED or host is None:
        return
    there, kind, place = set(table.ranks_on(host)), decision.leads[0].group, decision.leads[0].place
    alike = [lead for lead in faults if (lead.group, lead.place) == (kind, place)]
    others = any(there.intersection(lead.ranks) for lead in faults if lead not in alike)
    if (
        others
        or any(not there.issuperset(lead.ranks) for lead in alike)
        or not len(ranks) < len(there) < len(table.ranks)
    ):
        return
    met = there.intersection(rank for lead in faults for rank in lead.ranks)
    begun = any(stories[rank].progress for rank in there if rank in stories)
    # Half of a host's ranks in a row may be those that share a batch.
    half = len(met) * 2 - len(there) if len(met) > 1 else -1
    most = half > 0 or (half == 0 and max(met) - min(met) >= len(met))
    if (kind[0] in _INSTALLED and half >= 0) or (kind[0] == "python_exception" and most and not begun):
        decision.leads += [lead for lead, _ in decision.lost if there.intersection(lead.ranks)]
        decision.lost = [(lead, why) for lead, why in decision.lost if lead not in decision.leads]
        last = decision.leads[-1]
        last.ranks = tuple(sorted(there.difference(decision.ranks).union(last.ranks)))
        decision.reasons.append(f"most ranks of {host} failed of it, and none elsewhere: it is what that host lacks")


def _only_compares(lead: Lead) -> bool:
    return lead.kind == "collective_mismatch" and lead.tier is Tier.CRASH


def _common_hi(lead: Lead, clocks: ClockModel) -> float:
    return clocks.common(lead.hi, host_of(lead)) if lead.hi is not None else math.inf


def _shared(one: Lead, other: Lead) -> bool:
    """Whether two leads are one event of what their host's ranks share, noticed one after the other."""
    close = one.lo is not None and other.lo is not None and abs(one.lo - other.lo) <= _SHARED_NS
    return (
        one.kind == other.kind and one.kind in _SHARED_KINDS and bool(one.hosts) and one.hosts == other.hosts and close
    )


def _at_once(one: Lead, other: Lead, clocks: ClockModel) -> bool:
    """Whether two ranks failed of the same, at the same place, so close together that neither caused the other."""
    if one.lo is None or other.lo is None or one.group != other.group or one.place != other.place:
        return False
    apart = abs(clocks.common(one.lo, host_of(one)) - clocks.common(other.lo, host_of(other)))
    return apart <= _TOGETHER_NS


def _later(lead: Lead, first: Sequence[Lead], clocks: ClockModel) -> str:
    reference = next((other for other in first if before(other, lead, clocks)), first[0])
    if reference.hi is not None and lead.lo is not None:
        start = clocks.common(reference.lo or reference.hi, host_of(reference))
        return f"it failed {(clocks.common(lead.lo, host_of(lead)) - start) / NS:.1f} s later"
    return "it failed later"


def _one_cause(first: list[Lead], lost: list[tuple[Lead, str]], clocks: ClockModel) -> Decision:
    """Several ranks, one kind of fault: one event if they came together, else the first that is told apart."""
    begun = {id(lead): clocks.common(lead.lo, host_of(lead)) for lead in first if lead.lo is not None}
    fine = all(
        lead.hi is not None and lead.signal is not None and lead.signal.stamp is not None
        and lead.signal.quality is StampQuality.OWN and lead.signal.stamp.resolution_ns < NS
        for lead in first
    )  # fmt: skip
    if fine and len(begun) == len(first):
        origin = min(first, key=lambda lead: begun[id(lead)])
        hosts = {host for lead in first for host in lead.hosts}
        shared = origin.kind in _SHARED_KINDS and len(hosts) == 1
        window = _SHARED_NS if shared else _TOGETHER_NS
        together = [
            lead for lead in first
            if begun[id(lead)] - begun[id(origin)] <= window + clocks.slack_ns(host_of(lead), host_of(origin))
        ]  # fmt: skip
        if len(together) < len(first):
            kept = {id(lead) for lead in together}
            rest = [(lead, "it failed of the same, later") for lead in first if id(lead) not in kept]
            return Decision(Status.IDENTIFIED, together, [*lost, *rest], basis=Basis.ONE_CAUSE)
    return Decision(
        Status.IDENTIFIED, first, lost,
        [f"{len(first)} ranks failed independently of the same cause at about the same time"], Basis.ONE_CAUSE,
    )  # fmt: skip


def _basis(lead: Lead, lost: Sequence[tuple[Lead, str]]) -> Basis:
    if lead.attributed:
        return Basis.LEFT_OVER if lead.strength < _BY_ITS_END else Basis.ATTRIBUTED
    if lead.signal is None:
        return Basis.CRASH
    return Basis.FIRST_FAULT if lost else Basis.OWN_FAULT


def _reported_first(leads: Sequence[Lead], exits: Sequence[Exit], clocks: ClockModel) -> Lead | None:
    """The lead whose end a launcher saw first, where launchers of all of them speak and their clocks tell an order."""
    ends: list[tuple[int, str | None, Lead]] = []
    for lead in leads:
        own = [
            (clocks.common(item.ns, item.host), item.ns, item.host)
            for item in exits
            if item.rank in lead.ranks and item.ns is not None and item.ending is not Ending.CLEAN
        ]
        if not own:
            return None
        _, ns, host = min(own, key=lambda row: row[0])
        ends.append((ns, host, lead))
    for ns, host, lead in ends:
        rest = [other for other in ends if other[2] is not lead]
        if rest and all(clocks.precedes(ns, host, other[0], other[1], _POLL_NS) for other in rest):
            return lead
    return None


def hang_decision(leads: list[Lead]) -> Decision:
    """The strongest reading of the hang, unless another of like strength names someone else."""
    best = leads[0]
    agree = [lead for lead in leads if lead.ranks == best.ranks]
    rivals = [lead for lead in leads if not set(lead.ranks) & set(best.ranks) and lead.strength >= best.strength - 0.2]
    lost = [
        (lead, lead.reasons[0] if lead.reasons else "weaker evidence") for lead in leads if lead.ranks != best.ranks
    ]
    best.dumped = any(lead.dumped for lead in agree)
    if not best.ranks:  # a circle: whoever waits, waits for one that waits
        return Decision(Status.UNDETERMINED, [best], lost, basis=Basis.ONLY_WAITING)
    for other in agree[1:]:
        best.reasons.extend(reason for reason in other.reasons if reason not in best.reasons)
    if rivals:
        decision = Decision(Status.AMBIGUOUS, [best, *rivals], [], basis=Basis.OPEN_WAIT)
        decision.would_settle.append(
            "flight-recorder dumps of all ranks (TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
        )
        return decision
    scattered = len(best.ranks) > _FEW and len(best.hosts) > 1
    if best.strength < _SIGN or scattered:  # no one cause makes so many ranks here and there fall silent
        return Decision(Status.AMBIGUOUS, [best], lost, basis=Basis.OPEN_WAIT)
    strong = best.strength >= _STRONG_SIGN or len(agree) > 1
    return Decision(Status.IDENTIFIED, [best], lost, basis=Basis.WAITED_FOR if strong else Basis.PERHAPS_WAITED_FOR)
