"""Leads: what may have been the first failure, one a rank or group of ranks, before they are put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from aggregator.correlate.bases import LOST_HOST
from aggregator.correlate.evidence import NS
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.hangs import Suspect
from aggregator.correlate.identity import Identity
from aggregator.correlate.phases import location
from aggregator.correlate.stories import Story
from parsers.records import Signal, StampQuality


class Tier(IntEnum):
    """How a lead is known, the surest first. A lower tier decides only where a higher one is silent."""

    FAULT = 0
    """The rank printed a fault of its own, or the kernel or scheduler proves one."""
    CRASH = 1
    """A process ended by a signal that it brought on itself."""
    NODE = 2
    HANG = 3
    """Others were waiting for it."""
    KILLED = 4
    ERROR_EXIT = 5
    EITHER = 6
    """Only faults that may be echoes."""


FAULT_TIERS = (Tier.FAULT, Tier.CRASH)
"""Tiers that need no other rank to explain them."""


@dataclass(slots=True)
class Lead:
    """A possible first failure. `lo`/`hi` bound its time in ns on its host's clock, None where open."""

    ranks: tuple[int, ...]
    kind: str
    tier: Tier
    signal: Signal | None = None
    exit: Exit | None = None
    hosts: tuple[str, ...] = ()
    lo: int | None = None
    hi: int | None = None
    support: list[Signal] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    strength: float = 0.9
    attributed: str = ""
    dumped: bool = False
    """Known from flight-recorder dumps."""
    still: bool = False
    """Known to stand still although nobody says so."""

    @property
    def proven(self) -> bool:
        """Whether the kernel or driver saw the hardware break."""
        return any(
            s is not None and s.kind in _HARDWARE and s.signature.startswith("nvidia.")
            for s in (self.signal, *self.support)
        )

    @property
    def place(self) -> str | None:
        """Where in the program it failed, None if that is not told."""
        return location(self.signal.exception) if self.signal is not None else None

    @property
    def group(self) -> tuple[str, str]:
        """Leads of one group failed of the same thing."""
        if self.signal is None:
            return (self.kind, "")
        exception = self.signal.exception
        return (self.kind, exception.root_type if exception is not None else "")


_SIGABRT = 6
_HARDWARE = frozenset({"gpu_ecc", "gpu_lost", "nvlink_error"})

# Which of several faults of one rank names the failure: proof by kernel or scheduler first, then what says most.
_SPECIFIC = (
    "gpu_lost", "gpu_ecc", "nvlink_error", "host_oom", "shm_exhausted", "disk_full", "cuda_oom", "cuda_device_assert",
    "cuda_illegal_access", "gpu_xid", "storage_io", "nan_loss", "ib_error", "checkpoint_corrupt", "segfault",
    "bus_error", "abort", "cuda_error", "config_error", "import_error", "collective_mismatch", "data_error",
    "dataloader_worker_died", "network_error", "rendezvous_failure", "nccl_error", "python_exception",
    "collective_timeout", "killed", "unknown",
)  # fmt: skip
_ORDER = {kind: place for place, kind in enumerate(_SPECIFIC)}
_SAME_FAILURE_NS = 30 * NS


def most_specific(signals: Sequence[Signal]) -> Signal:
    """Of one rank's faults at about one moment the one that says most; the earliest of equals."""
    return min(signals, key=lambda s: _ORDER.get(s.kind or "unknown", len(_ORDER)))


def bounds(signal: Signal) -> tuple[int | None, int | None]:
    """Between which moments a signal happened: its own stamp, or after the stamp that it inherits."""
    if signal.ns is None or signal.stamp is None:
        return None, None
    if signal.quality is StampQuality.OWN:
        return signal.ns, signal.ns + signal.stamp.resolution_ns
    if signal.quality is StampQuality.INHERITED or (signal.until_ns is not None and signal.ns < signal.until_ns):
        return signal.ns, signal.until_ns
    return None, signal.until_ns


def _may_be_one(first: Signal, later: Signal) -> bool:
    """Whether two faults of one rank lie so close together that they are of one failure, as far as their times tell."""
    end, begin = bounds(first)[1], bounds(later)[0]
    if end is not None and first.ns is not None:
        end = max(end, first.ns)  # clocks of two writers in one file may disagree
    return end is None or begin is None or begin - end <= _SAME_FAILURE_NS


def fault_leads(stories: Mapping[int, Story]) -> list[Lead]:
    """One lead a rank that has a fault of its own."""
    leads = []
    for story in stories.values():
        if not story.roots:
            continue
        ordered = sorted(story.roots, key=lambda s: (s.ns is None, s.ns or 0, s.source, s.offset))
        first = ordered[0]
        near = [s for s in ordered if _may_be_one(first, s)]
        signal = most_specific(near)
        lead = Lead(
            (story.rank,), signal.kind or "unknown", Tier.FAULT, signal, support=[s for s in near if s is not signal]
        )
        lead.lo, lead.hi = bounds(first if first.ns is not None else signal)
        if lead.hi is None:  # nothing stamped follows its first fault: the others tell when it was over
            lead.hi = min((hi for s in near if (hi := bounds(s)[1]) is not None), default=None)
        lead.hosts = (story.host,) if story.host else ((signal.host,) if signal.host else ())
        leads.append(lead)
    return leads


def exit_leads(stories: Mapping[int, Story]) -> list[Lead]:
    """Ranks with no fault of their own whose end speaks for itself."""
    leads = []
    aborted = {
        story.rank for story in stories.values()
        if (story.symptoms or story.teardown) and story.aborted
    }  # fmt: skip
    told_to_stop = {rank for rank, story in stories.items() if story.told_to_stop}
    for story in stories.values():
        if story.roots:
            continue
        item = next((e for e in story.exits if e.ending not in {Ending.CLEAN, Ending.STOPPED}), None)
        tier = _exit_tier(story, item) if item is not None else None
        if item is None:
            item = _stopped_alone(story, told_to_stop)
            tier = Tier.KILLED if item is not None else None
        if item is None:
            continue
        if tier is None or (item.signum == _SIGABRT and aborted and not story.spoke_of_trouble):
            continue  # where watchdogs abort the ranks that waited, an abort without a word is one more of these
        lead = Lead((story.rank,), item.kind, tier, None, item)
        told = [e.ns for e in story.exits if e.ns is not None]
        lead.hi = min(told) + NS if told else item.report.until_ns
        lead.lo = story.last_ns if lead.hi is None or (story.last_ns is not None and story.last_ns <= lead.hi) else None
        host = story.host or item.host
        lead.hosts = (host,) if host else ()
        leads.append(lead)
    return leads


def _stopped_alone(story: Story, told_to_stop: set[int]) -> Exit | None:
    """A SIGTERM that no launcher sent: the launcher saw this end first, and then stopped the others by pid."""
    if story.rank in told_to_stop or not told_to_stop or story.symptoms:
        return None
    return next((e for e in story.exits if e.ending is Ending.STOPPED and e.first), None)


def _exit_tier(story: Story, item: Exit) -> Tier | None:
    if item.ending is Ending.OOM:
        return Tier.FAULT
    if item.ending is Ending.CRASH:
        # A watchdog that tears its process down ends it with SIGABRT: a consequence.
        return None if item.signum == _SIGABRT and (story.symptoms or story.teardown) else Tier.CRASH
    if story.symptoms or story.teardown:
        return None
    return Tier.KILLED if item.ending is Ending.KILLED else Tier.ERROR_EXIT


def either_leads(stories: Mapping[int, Story]) -> list[Lead]:
    """Ranks whose faults may be their own or an echo."""
    leads = []
    for story in stories.values():
        if story.roots or not story.eithers:
            continue
        signal = most_specific(story.eithers)
        lead = Lead((story.rank,), signal.kind or "unknown", Tier.EITHER, signal, strength=0.5)
        lead.lo, lead.hi = bounds(signal)
        lead.hosts = (story.host,) if story.host else ()
        leads.append(lead)
    return leads


def hang_leads(suspects: Sequence[Suspect], stories: Mapping[int, Story]) -> list[Lead]:
    """Ranks that others were waiting for."""
    leads = []
    for suspect in suspects:
        hosts = sorted({host for rank in suspect.ranks if rank in stories and (host := stories[rank].host)})
        lead = Lead(
            suspect.ranks, suspect.kind, Tier.HANG, suspect.signal, hosts=tuple(hosts), strength=suspect.strength
        )
        lead.reasons.append(suspect.reason)
        lead.dumped, lead.still = suspect.dumped, suspect.still
        own = stories[suspect.ranks[0]].eithers if suspect.ranks and suspect.ranks[0] in stories else []
        if len(suspect.ranks) == 1 and own and not any(s.eithers for r, s in stories.items() if r not in suspect.ranks):
            # What others waited for is told by the rank itself, and by nobody else.
            lead.signal, lead.kind = own[0], own[0].kind or lead.kind
        lead.support.extend(suspect.support)
        leads.append(lead)
    return leads


def node_leads(externals: Sequence[Signal], stories: Mapping[int, Story], table: Identity) -> list[Lead]:
    """Hosts that the scheduler or cluster declared lost.

    A launcher that only lost its daemon there tells of no host where all that ran was killed for its memory.
    """
    leads: dict[str, Lead] = {}
    seen: set[str] = set()
    for signal in externals:
        if signal.kind != "node_failure":
            continue
        host = next((signal.fields[name] for name in LOST_HOST if name in signal.fields), None)
        if host is None and signal.signature.startswith(("kernel.", "ipmi.")):
            host = signal.host  # its own kernel's last words, its controller's log
        if host is None or host in seen:
            continue
        seen.add(host)
        if any(table.runs_on(host, other) or table.runs_on(other, host) for other in leads):
            continue
        ranks = tuple(table.ranks_on(host))
        if ranks and all(rank in stories and stories[rank].ended(Ending.OOM) for rank in ranks):
            continue
        lead = Lead(ranks, "node_failure", Tier.NODE, signal, hosts=(host,))
        lasts = [ns for rank in ranks if rank in stories and (ns := stories[rank].last_ns) is not None]
        lead.lo = max(lasts) if lasts else None
        leads[host] = lead
    return list(leads.values())


def add_exits(leads: Sequence[Lead], stories: Mapping[int, Story]) -> None:
    """Give each lead the first report of how its rank ended, as evidence and as a bound of its time."""
    for lead in leads:
        reports = [
            e for rank in lead.ranks if rank in stories for e in stories[rank].exits if e.ending is not Ending.CLEAN
        ]
        if lead.exit is None and reports:
            lead.exit = min(reports, key=lambda e: (e.ns is None, e.ns or 0))
        if lead.hi is None:
            told = [e.ns for e in reports if e.ns is not None]
            lead.hi = min(told) + NS if told else None
