"""Judges one attempt of a job: what struck it first, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aggregator.correlate import narrate
from aggregator.correlate.bases import without_foreign
from aggregator.correlate.calls import calls_apart
from aggregator.correlate.clocks import ClockModel
from aggregator.correlate.confidence import Basis
from aggregator.correlate.decide import (
    Decision,
    choose,
    drop_late,
    drop_silent_aborts,
    external_ns,
    hang_decision,
    open_averages,
    open_comparisons,
    strikes_first,
    take_whole_host,
)
from aggregator.correlate.evidence import NS, JobEvidence
from aggregator.correlate.exits import Ending, Exit, read_exits
from aggregator.correlate.hangs import find_suspects
from aggregator.correlate.homeless import attribute_homeless
from aggregator.correlate.identity import Identity
from aggregator.correlate.joining import explain_aborts, join_hardware, join_kernel, merge_leads
from aggregator.correlate.lastwords import kept_by_kernel, left_behind
from aggregator.correlate.leads import (
    FAULT_TIERS,
    Lead,
    Tier,
    add_exits,
    either_leads,
    exit_leads,
    fault_leads,
    hang_leads,
    node_leads,
)
from aggregator.correlate.onlywaiting import only_waiting
from aggregator.correlate.outcomes import outcome_of
from aggregator.correlate.ras import least_launched
from aggregator.correlate.stacks import known_from_stacks, stack_suspects, stood_since
from aggregator.correlate.stories import FAULTS, Story, build_stories
from aggregator.correlate.versions import drop_common_versions, open_versions
from aggregator.verdict import (
    Failure,
    Outcome,
    Status,
)
from parsers.records import Role, Signal, SourceKind, StampQuality

_HUNG_NS = 60 * NS
"""So long before the end of a job its ranks' time-outs cannot be what its end brought about."""
_STILL_NS = 600 * NS
_STILL_STEPS = 20
"""A job that goes on does not pause for so long, nor for the time of so many of its steps."""
_SURE_HANG = 0.75
"""Strength of a reading of a hang that stands against a kill elsewhere."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One attempt, judged."""

    outcome: Outcome
    failure: Failure | None
    stories: Mapping[int, Story]
    exits: Sequence[Exit]
    leads: Sequence[Lead] = ()
    """Those that failed first."""


def judge_attempt(evidence: JobEvidence, signals: list[Signal], table: Identity, clocks: ClockModel) -> Judgement:
    exits = read_exits(evidence, signals, table)
    stories, homeless = build_stories(evidence, signals, exits, table)
    externals = without_foreign([signal for signal in signals if signal.role is Role.EXTERNAL], table)
    decision = _decide(evidence, signals, stories, homeless, exits, externals, table, clocks)
    outcome = outcome_of(decision, signals, stories, exits)
    if decision is None or outcome in {Outcome.COMPLETED, Outcome.RUNNING}:
        return Judgement(outcome, None, stories, exits)
    if decision.external is not None:
        hosts = table.hosts if len(table.hosts) <= 64 else ()  # noqa: PLR2004 - a list for a reader
        failure = narrate.outside(decision, decision.external, evidence, stories, hosts)
    else:
        failure = narrate.failure(decision, evidence, stories, signals, exits, table.hosts, clocks)
    return Judgement(outcome, failure, stories, exits, decision.leads)


def _decide(
    evidence: JobEvidence, signals: Sequence[Signal], stories: Mapping[int, Story], homeless: Sequence[Signal],
    exits: Sequence[Exit], externals: Sequence[Signal], table: Identity,
    clocks: ClockModel,
) -> Decision | None:  # fmt: skip
    leads = [
        *fault_leads(stories),
        *attribute_homeless(homeless, stories, exits, evidence, table),
        *exit_leads(stories),
    ]
    join_kernel(leads, homeless, evidence)
    explain_aborts(leads, homeless, stories)
    join_hardware(leads, table.hosts)
    leads = merge_leads(leads)
    add_exits(leads, stories)
    elsewhere = [lead for lead in leads if _is_elsewhere(lead, evidence, table)]
    faults = [lead for lead in leads if lead.tier in FAULT_TIERS and lead not in elsewhere]
    lost = drop_common_versions(faults, signals)
    lost += drop_late(faults, stories, clocks)
    lost += drop_silent_aborts(faults, stories)
    lost += [(lead, "no rank of the job ran on that host") for lead in elsewhere]
    external = _acting_external(externals, faults, exits, signals)
    if external is not None:
        hung = None if faults else _hung_before(external, evidence, signals, stories, homeless, table)
        if hung is not None:
            return hung
        decision = Decision(Status.IDENTIFIED, [], lost, basis=Basis.OUTSIDE, external=external)
        decision.lost.extend((lead, "it failed after the job was being stopped") for lead in faults)
        return decision
    nodes = node_leads(externals, stories, table)
    if nodes and not any(_precedes_node(lead, nodes) for lead in faults):
        decision = Decision(Status.IDENTIFIED, nodes, lost, [_told_lost(nodes[0].signal)], Basis.NODE)
        decision.lost.extend((lead, "it lost its peers on the node that failed") for lead in faults)
        return decision
    lost_node = next((s for s in externals if s.kind == "node_failure"), None)
    if lost_node is not None and not nodes and not faults:
        return Decision(Status.IDENTIFIED, [], lost, basis=Basis.NODE, external=lost_node)
    if faults:
        decision = _decide_faults(faults, lost, exits, clocks)
        take_whole_host(decision, faults, stories, table)
        return decision
    hangs = _hang_leads(evidence, signals, stories, homeless, table)
    killed = _killed_first(leads, hangs)
    if killed is not None:
        return _decide_silent_end([killed], lost, stories)
    waiting = any(story.symptoms or story.eithers for story in stories.values()) or any(
        s.role is Role.SYMPTOM for s in homeless
    )
    if hangs and (waiting or evidence.dumps or any(lead.still or known_from_stacks(lead) for lead in hangs)):
        decision = hang_decision(hangs)
        decision.lost.extend(lost)
        return decision
    return _decide_weak(leads, lost, signals, stories, homeless, exits, table, clocks)


def _is_elsewhere(lead: Lead, evidence: JobEvidence, table: Identity) -> bool:
    """Whether a fault without a rank struck a machine on which none ran, of a job all of whose hosts are known.

    Ranks may know their hosts by other names than the machines (pods): not where the kernel log of one of them has its.
    """
    if lead.ranks or not lead.hosts or table.world_size is None or len(table.host_of_rank) < table.world_size:
        return False
    if any(table.ranks_on(host) for host in lead.hosts):
        return False
    kernels = {
        source.host or activity.host for source, _, activity in evidence.activities if source.kind is SourceKind.KERNEL
    }
    return any(table.ranks_on(host) for host in kernels if host)


def _told_lost(signal: Signal | None) -> str:
    if signal is not None and signal.signature.startswith("ipmi."):
        return "the event log of its management controller tells what struck it, just as its ranks fell silent"
    if signal is not None and signal.signature.startswith("kernel."):
        return "its kernel's last words tell of it"
    return "the scheduler declares the node lost"


def _killed_first(leads: Sequence[Lead], hangs: Sequence[Lead]) -> Lead | None:
    """The one process that was killed outright, unless the others' errors clearly point elsewhere."""
    killed = [lead for lead in leads if lead.tier is Tier.KILLED]
    if len(killed) > 1:
        killed = _noticed_first(killed)
    if len(killed) != 1:
        return None
    against = [lead for lead in hangs if lead.strength >= _SURE_HANG and not set(killed[0].ranks) & set(lead.ranks)]
    return None if against else killed[0]


def _hang_leads(
    evidence: JobEvidence, signals: Sequence[Signal], stories: Mapping[int, Story], homeless: Sequence[Signal],
    table: Identity, until: int | None = None,
) -> list[Lead]:  # fmt: skip
    live = {id(s) for story in stories.values() for s in story.faults} | {id(s) for s in homeless}
    current = [s for s in signals if s.role not in FAULTS or id(s) in live]
    found = [
        *find_suspects(stories, current, evidence.dumps, table), *stack_suspects(current),
        *calls_apart(stories, table.world_size), *least_launched(current, stories, table.world_size),
        *left_behind(evidence, current, stories, table, until), *kept_by_kernel(signals, stories, until),
    ]  # fmt: skip
    return hang_leads(sorted(found, key=lambda suspect: -suspect.strength), stories)


def _hung_before(
    external: Signal, evidence: JobEvidence, signals: Sequence[Signal], stories: Mapping[int, Story],
    homeless: Sequence[Signal], table: Identity,
) -> Decision | None:  # fmt: skip
    """The hang that the job was already in when it was ended from outside, if its logs name a rank for it."""
    when = external_ns(external)
    waited = [
        s.ns for story in stories.values() for s in story.symptoms
        if s.kind == "collective_timeout" and s.ns is not None and s.quality is StampQuality.OWN
    ]  # fmt: skip
    leads = _hang_leads(evidence, signals, stories, homeless, table, when)
    left = [ns for lead in leads if lead.still if (ns := stories[lead.ranks[0]].last_ns) is not None]
    waited += [*stood_since(signals), *_still_since(stories, when), *left]
    if when is None or not waited or min(waited) > when - _HUNG_NS:
        return None
    decision = hang_decision(leads) if leads else None
    if decision is None or decision.status is not Status.IDENTIFIED:
        return None
    minutes = (when - min(waited)) / (60 * NS)
    decision.reasons.append(f"ranks had waited in vain for {minutes:.0f} min when the job was ended from outside")
    return decision


def _still_since(stories: Mapping[int, Story], when: int | None) -> list[int]:
    """The last step that any rank told of, if by `when` many more were due: since then the job stood still."""
    told = [
        [s.ns for s in story.progress if s.ns is not None and s.quality is StampQuality.OWN]
        for story in stories.values()
    ]
    strides = [after - before for times in told for before, after in pairwise(times) if after > before]
    if when is None or not strides:
        return []
    from statistics import median  # noqa: PLC0415 - brings fractions and decimals

    last = max(times[-1] for times in told if times)
    return [last] if when - last > max(_STILL_NS, _STILL_STEPS * int(median(strides))) else []


def _decide_faults(
    faults: list[Lead],
    lost: list[tuple[Lead, str]],
    exits: Sequence[Exit],
    clocks: ClockModel,
) -> Decision:
    decision = choose(faults, exits, clocks)
    open_comparisons(decision)
    open_versions(decision)
    open_averages(decision)
    decision.lost.extend(lost)
    named = decision.ranks
    if decision.status is Status.IDENTIFIED and not named:
        decision.status = Status.UNDETERMINED
        decision.basis = Basis.NO_RANK
        decision.reasons.append("the fault is certain, its rank is not told by any line, file or launcher")
        decision.would_settle.append(
            "torchrun --log-dir DIR --redirects 3, or srun --label, so that each line tells its rank"
        )
    return decision


def _decide_weak(
    leads: Sequence[Lead], lost: list[tuple[Lead, str]], signals: Sequence[Signal], stories: Mapping[int, Story],
    homeless: Sequence[Signal], exits: Sequence[Exit], table: Identity, clocks: ClockModel,
) -> Decision | None:  # fmt: skip
    """No fault, no hang: an end without a word, undecided errors, or nothing at all."""
    weak = [lead for lead in leads if lead.tier in {Tier.KILLED, Tier.ERROR_EXIT}]
    if weak:
        return _decide_silent_end(weak, lost, stories)
    eithers = [*either_leads(stories), *(lead for lead in leads if lead.tier is Tier.EITHER)]
    if eithers:
        drop = drop_late(eithers, stories, clocks)
        decision = choose(eithers, [], clocks)
        decision.lost.extend([*lost, *drop])
        decision.basis = Basis.PERHAPS_ECHO
        if len(decision.ranks) * 2 > len(stories) and len(stories) > 1:
            decision.status = Status.UNDETERMINED
        elif len(decision.hosts) > 1 or any(lead.kind == "collective_mismatch" for lead in decision.leads):
            decision.status = Status.AMBIGUOUS  # both ends of a link report it, and both sides of a comparison
        return decision
    waited = only_waiting(signals, stories, homeless, table, lost)
    if waited is not None:
        return waited
    ends = [item for item in exits if item.ending not in {Ending.CLEAN, Ending.STOPPED}]
    if ends:
        lead = Lead((), ends[0].kind, Tier.ERROR_EXIT, ends[0].report, ends[0])
        decision = Decision(
            Status.UNDETERMINED, [lead], lost, ["a process ended badly; no line tells whose it was"], Basis.OPEN_END
        )
        decision.would_settle.append("the output of every rank, each line with its rank")
        return decision
    return None


def _decide_silent_end(weak: list[Lead], lost: list[tuple[Lead, str]], stories: Mapping[int, Story]) -> Decision:
    """Processes that ended badly without a word: the first that its launcher reports, if that is an order."""
    firsts = _noticed_first(weak) or weak
    earliest = _first_in_report(firsts)
    if earliest is not None and earliest.kind == "unknown":
        earliest.kind = "python_exception"
    if earliest is not None and earliest.tier is Tier.ERROR_EXIT and _log_lost(earliest, stories):
        decision = Decision(
            Status.UNDETERMINED, [earliest], lost,
            ["its launcher reports its end before any other, but its log, which may show a victim's error, is lost"],
            Basis.OPEN_END,
        )  # fmt: skip
        decision.would_settle.append("the output of that rank")
        return decision
    if earliest is not None:
        decision = Decision(
            Status.IDENTIFIED, [earliest], lost, ["its launcher reports its end before any other"], Basis.SILENT_END
        )
        decision.lost.extend((lead, "its end was reported later") for lead in weak if lead is not earliest)
        decision.would_settle.append("the rank's own output, or the node's kernel log")
        return decision
    decision = Decision(
        Status.AMBIGUOUS, firsts, lost, [f"{len(firsts)} processes ended together without a word"], Basis.OPEN_END
    )
    decision.would_settle.append("the kernel log of the node (dmesg), and per-rank output files")
    return decision


def _noticed_first(leads: Sequence[Lead]) -> list[Lead]:
    """The leads whose ends a launcher noticed before others.

    torchrun's agent looks at its processes now and then, in the order of their local ranks: where it lists most of them
    as killed, all between two looks, the one that it names is the first in that order only.
    """
    firsts = [lead for lead in leads if lead.exit is not None and lead.exit.first]
    listed = [lead for lead in leads if lead in firsts or (lead.exit and lead.exit.report.signature == "te.box")]
    at_once = len({lead.exit.report.source for lead in listed if lead.exit}) == 1
    killed = all(lead.exit is not None and lead.exit.ending is Ending.KILLED for lead in listed)
    return listed if at_once and killed and len(listed) * 2 > len(leads) else firsts


def _log_lost(lead: Lead, stories: Mapping[int, Story]) -> bool:
    """Whether nothing that a rank said is here although others' words are."""
    return any(story.heard for story in stories.values()) and not any(stories[rank].heard for rank in lead.ranks)


def _first_in_report(leads: Sequence[Lead]) -> Lead | None:
    """The lead reported first, if one is: receipt order within one file is an order, equal stamps are not."""
    if len(leads) == 1:
        return leads[0]
    reports = [(lead.exit.report.source, lead.exit.report.offset, lead) for lead in leads if lead.exit is not None]
    if len(reports) != len(leads) or not reports or len({source for source, _, _ in reports}) != 1:
        return None
    if not all(lead.exit is not None and lead.exit.report.signature.startswith("slurm.") for lead in leads):
        return None
    reports.sort(key=lambda row: row[1])
    return reports[0][2] if reports[0][1] < reports[1][1] else None


def _acting_external(
    externals: Sequence[Signal], faults: Sequence[Lead], exits: Sequence[Exit], signals: Sequence[Signal]
) -> Signal | None:
    """The scheduler's or user's act that ended the job, if nothing had failed before it."""
    acts = [s for s in externals if s.kind in {"time_limit", "preempted", "cancelled"}]
    if not acts:
        return None
    order = {"time_limit": 0, "preempted": 1, "cancelled": 2}
    acts.sort(key=lambda s: (order.get(s.kind or "", 3), external_ns(s) is None, external_ns(s) or 0))
    act = acts[0]
    if act.kind == "cancelled":
        bad = [item for item in exits if item.ending not in {Ending.CLEAN, Ending.STOPPED}]
        ended = any(not _after_act(item.report, act) or _cleaned_up_after(item.report, act, signals) for item in bad)
        if ended or any(s.kind == "node_failure" for s in externals):
            return None
    for lead in faults:
        if not strikes_first(act, lead):
            return None
    return act


def _cleaned_up_after(report: Signal, act: Signal, signals: Sequence[Signal]) -> bool:
    """Whether srun says, below the report of an end, that it terminates the very step that was cancelled."""
    step = _step_of(act)
    return act.source != report.source and any(
        signal.signature == "slurm.srun_abort" and signal.source == report.source and signal.offset > report.offset
        and step is not None and _step_of(signal) == step
        for signal in signals
    )  # fmt: skip


def _step_of(signal: Signal) -> tuple[str, str] | None:
    """Job and step that a line of Slurm's names; None of one about a whole job."""
    fields = signal.fields
    return (fields["job_id"], fields["step_id"]) if fields.get("job_id") and fields.get("step_id") else None


def _after_act(report: Signal, act: Signal) -> bool:
    if report.source == act.source:
        return report.offset > act.offset
    return report.ns is None or act.ns is None or report.ns >= act.ns


def _precedes_node(lead: Lead, nodes: Sequence[Lead]) -> bool:
    """Whether a fault is older than the loss of a node and on none of the lost nodes' account."""
    if lead.signal is None or lead.signal.role is not Role.ROOT:
        return False
    lost = [node.lo for node in nodes if node.lo is not None]
    return not lost or lead.lo is None or lead.lo < min(lost) - NS
