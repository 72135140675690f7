"""Leads: what may have been the first failure, one a rank or group of ranks, before they are put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from aggregator.correlate.evidence import NS, JobEvidence, number
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.hangs import Suspect
from aggregator.correlate.identity import Identity, rank_in_path, same_host
from aggregator.correlate.phases import location
from aggregator.correlate.stories import Story, written_in
from parsers.records import Known, Role, Signal, SourceKind, StampQuality


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


_MAY_REPEAT = 2
"""One process may print its error so many times: by its logger, and as it ends."""
_LOST_HOST = ("peer", "failed_host", "rebooted", "host", "nodes")
"""Fields in which schedulers name the node that they lost; `node` is the one that reports."""
_FABRIC = ("nvidia.sxid", "nvidia.fabric")
"""Faults of the switches between all GPUs of a node."""
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


def fault_leads(stories: Mapping[int, Story]) -> list[Lead]:
    """One lead a rank that has a fault of its own."""
    leads = []
    for story in stories.values():
        if not story.roots:
            continue
        ordered = sorted(story.roots, key=lambda s: (s.ns is None, s.ns or 0, s.source, s.offset))
        first = ordered[0]
        near = [
            s for s in ordered
            if s.ns is None or first.ns is None or s.ns - first.ns <= _SAME_FAILURE_NS
        ]  # fmt: skip
        signal = most_specific(near)
        lead = Lead(
            (story.rank,), signal.kind or "unknown", Tier.FAULT, signal, support=[s for s in near if s is not signal]
        )
        lead.lo, lead.hi = bounds(first if first.ns is not None else signal)
        lead.hosts = (story.host,) if story.host else ((signal.host,) if signal.host else ())
        leads.append(lead)
    return leads


def exit_leads(stories: Mapping[int, Story]) -> list[Lead]:
    """Ranks with no fault of their own whose end speaks for itself."""
    leads = []
    told_to_stop = {rank for rank, story in stories.items() if _told_to_stop(story)}
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
        if tier is None:
            continue
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
        return None if item.signum == 6 and (story.symptoms or story.teardown) else Tier.CRASH  # noqa: PLR2004
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
        lead.dumped = suspect.dumped
        leads.append(lead)
    return leads


def node_leads(externals: Sequence[Signal], stories: Mapping[int, Story], table: Identity) -> list[Lead]:
    """Hosts that the scheduler or cluster declared lost."""
    leads: dict[str, Lead] = {}
    for signal in externals:
        if signal.kind != "node_failure":
            continue
        host = next((signal.fields[name] for name in _LOST_HOST if name in signal.fields), None)
        if host is None and signal.signature.startswith("kernel."):
            host = signal.host  # its own kernel's last words
        if host is None or host in leads:
            continue
        ranks = tuple(table.ranks_on(host))
        lead = Lead(ranks, "node_failure", Tier.NODE, signal, hosts=(host,))
        lasts = [ns for rank in ranks if rank in stories and (ns := stories[rank].last_ns) is not None]
        lead.lo = max(lasts) if lasts else None
        leads[host] = lead
    return list(leads.values())


def attribute_homeless(
    homeless: Sequence[Signal],
    stories: Mapping[int, Story],
    exits: Sequence[Exit],
    evidence: JobEvidence,
    table: Identity,
) -> list[Lead]:
    """Leads of faults that carry no rank, with the rank that other evidence leaves for them."""
    leads: list[Lead] = []
    roots = [s for s in homeless if s.role is Role.ROOT]
    for signal in [s for s in roots if evidence.source(s).kind is not SourceKind.KERNEL]:
        rank, how = _rank_by_path(signal, table), "the file that it was writing is that rank's"
        if rank is None:
            continue
        signal.rank, signal.rank_how = rank, Known.CONTENT
        lead = _homeless_lead([signal], (rank,), stories)
        lead.attributed = how
        leads.append(lead)
    clusters: dict[tuple[str, str, str], list[Signal]] = {}
    for signal in roots:
        if signal.rank is None:
            exception = signal.exception.root_type if signal.exception is not None else ""
            clusters.setdefault((signal.kind or "", exception, signal.host or ""), []).append(signal)
    for signals in clusters.values():
        lead = _cluster_lead(signals, stories, exits, evidence, table)
        leads.append(lead)
    return _merge_same_rank(leads)


def _rank_by_path(signal: Signal, table: Identity) -> int | None:
    text = signal.text
    if signal.exception is not None:
        text += "\n" + signal.exception.message + "\n" + signal.exception.root_message
    rank = rank_in_path(text)
    return rank if rank is not None and (table.world_size is None or rank < table.world_size) else None


def _homeless_lead(signals: list[Signal], ranks: tuple[int, ...], stories: Mapping[int, Story]) -> Lead:
    signal = most_specific(signals)
    lead = Lead(
        ranks, signal.kind or "unknown", Tier.FAULT, signal, support=[s for s in signals if s is not signal][:8]
    )
    lead.lo, lead.hi = bounds(signals[0])
    hosts = {host for rank in ranks if rank in stories and (host := stories[rank].host)}
    if signal.host:
        hosts = hosts or {signal.host}
    lead.hosts = tuple(sorted(hosts))
    return lead


def _cluster_lead(
    signals: list[Signal], stories: Mapping[int, Story], exits: Sequence[Exit], evidence: JobEvidence, table: Identity
) -> Lead:
    """The ranks that launchers say ended badly without a word of their own are those that said this."""
    host = signals[0].host or evidence.source(signals[0]).host
    if host and signals[0].kind == "nvlink_error" and signals[0].signature.startswith(_FABRIC):
        lead = _homeless_lead(signals, tuple(table.ranks_on(host)), stories)
        lead.attributed = "a fault of the node's switch fabric strikes all its GPUs"
        lead.hosts = (host,)
        return lead
    count = _distinct(signals)
    writers = _writers(signals, stories)
    if count == len(writers) > _MAY_REPEAT:
        lead = _homeless_lead(signals, writers, stories)
        lead.attributed = "the file is theirs, and each of them printed it once"
        return lead
    fit = _silent_enders(signals, exits, stories, host)
    stopped = _stopped_quietly(exits, stories, host, fit)
    if 0 < len(fit) < count == len(fit) + len(stopped):
        # The launcher saw one end and stopped the rest before it saw theirs; the print is there once for each.
        fit = sorted([*fit, *stopped])
    if fit and (len(fit) == 1 or count >= len(fit)):
        lead = _homeless_lead(signals, tuple(fit), stories)
        lead.attributed = "the launcher reports that rank's end and no other fault explains it"
    else:
        first = _first_reported(signals, exits, stories, host)
        if first is not None:
            lead = _homeless_lead(signals, (first,), stories)
            lead.attributed = "the launcher noticed that rank's end first"
            lead.strength = 0.75
        else:
            # What a scheduler or kernel prints of a host is no process's own word: nobody is left over for it.
            own_word = all(s.exception is not None or s.kind in {"abort", "segfault", "bus_error"} for s in signals)
            left = _left_over(stories, table) if own_word and count == 1 else []
            lead = _homeless_lead(signals, tuple(left) if len(left) == 1 else (), stories)
            lead.attributed = "every other rank's errors are accounted for" if lead.ranks else ""
            lead.strength = 0.7
    if not lead.hosts and host:
        lead.hosts = (host,)
    if not lead.hosts and len(table.hosts) == 1:
        lead.hosts = (table.hosts[0],)
    for signal in signals:
        if len(lead.ranks) == 1:
            signal.rank, signal.rank_how = lead.ranks[0], Known.GUESS
    return lead


def _writers(signals: Sequence[Signal], stories: Mapping[int, Story]) -> tuple[int, ...]:
    """The ranks whose words are in the one file that holds the signals, if none of them told an error elsewhere."""
    sources = {written_in(signal) for signal in signals}
    if len(sources) != 1:
        return ()
    found = tuple(story.rank for story in stories.values() if sources & story.sources)
    return () if any(stories[rank].spoke_of_trouble for rank in found) else found


def _stopped_quietly(
    exits: Sequence[Exit], stories: Mapping[int, Story], host: str | None, fit: Sequence[int]
) -> list[int]:
    """Ranks of a host that the launcher stopped and that printed nothing of their own."""
    return sorted(
        {
            item.rank for item in exits
            if item.rank is not None and item.rank not in fit and item.ending is Ending.STOPPED
            and (host is None or item.host is None or same_host(host, item.host))
            and not (item.rank in stories and stories[item.rank].spoke_of_trouble)
        }
    )  # fmt: skip


def _distinct(signals: Sequence[Signal]) -> int:
    """How many times a fault was printed, copies in a second file not counted."""
    per_source: dict[int, int] = {}
    for signal in signals:
        per_source[signal.source] = per_source.get(signal.source, 0) + 1
    return max(per_source.values())


def _silent_enders(
    signals: Sequence[Signal], exits: Sequence[Exit], stories: Mapping[int, Story], host: str | None
) -> list[int]:
    wanted = _endings_for(signals[0])
    found: list[int] = []
    for item in exits:
        if item.rank is None or item.rank in found or item.ending not in wanted:
            continue
        if host and item.host and not same_host(host, item.host) and host != "localhost":
            continue
        story = stories.get(item.rank)
        if story is not None and (story.spoke_of_trouble or _told_to_stop(story)):
            continue
        found.append(item.rank)
    return sorted(found)


def _told_to_stop(story: Story) -> bool:
    return any(signal.signature.startswith(("te.closing", "slurm.")) for signal in story.teardown)


def _endings_for(signal: Signal) -> frozenset[Ending]:
    """Which ends fit a fault: a crash message goes with a crash, an exception with an error status."""
    if signal.kind in {"segfault", "abort", "bus_error"}:
        return frozenset({Ending.CRASH})
    if signal.kind == "host_oom":
        return frozenset({Ending.KILLED, Ending.OOM, Ending.ERROR})
    return frozenset({Ending.ERROR, Ending.CRASH})


def _first_reported(
    signals: Sequence[Signal], exits: Sequence[Exit], stories: Mapping[int, Story], host: str | None
) -> int | None:
    """The rank whose end the launcher noticed first, if no other of its host ended in the same second."""
    wanted = _endings_for(signals[0])
    named = [
        item for item in exits
        if item.first and item.rank is not None and item.ending in wanted
        and (host is None or item.host is None or same_host(host, item.host))
    ]  # fmt: skip
    ranks = {item.rank for item in named}
    if len(ranks) != 1:
        return None
    first = named[0]
    story = stories.get(first.rank) if first.rank is not None else None
    if story is not None and story.spoke_of_trouble:
        return None
    rivals = [
        item for item in exits
        if item.rank is not None and item.rank != first.rank and item.ending in {Ending.ERROR, Ending.CRASH}
        and (item.rank not in stories or not stories[item.rank].spoke_of_trouble)
        and (item.ns is None or first.ns is None or item.ns <= first.ns)
    ]  # fmt: skip
    return first.rank if not rivals else None


def _left_over(stories: Mapping[int, Story], table: Identity) -> list[int]:
    """Ranks without an error or an order to stop."""
    world = table.world_size
    if world is None:
        return []
    mute = [rank for rank in range(world) if rank not in stories or not stories[rank].spoke_of_trouble]
    if len(mute) == 1:
        return mute  # every other rank printed an error of its own
    return [
        rank for rank in range(world)
        if rank not in stories
        or not (
            stories[rank].spoke_of_trouble
            or stories[rank].teardown
            or stories[rank].ended(Ending.STOPPED, Ending.CLEAN)
        )
    ]  # fmt: skip


def _merge_same_rank(leads: list[Lead]) -> list[Lead]:
    merged: dict[tuple[int, ...], Lead] = {}
    rest: list[Lead] = []
    for lead in leads:
        if not lead.ranks:
            rest.append(lead)
            continue
        known = merged.get(lead.ranks)
        if known is None:
            merged[lead.ranks] = lead
            continue
        signals = [s for s in (known.signal, lead.signal) if s is not None]
        best = most_specific(signals)
        keep, drop = (known, lead) if best is known.signal else (lead, known)
        keep.support.extend([s for s in (drop.signal, *drop.support) if s is not None])
        keep.lo = min((t for t in (keep.lo, drop.lo) if t is not None), default=None)
        merged[lead.ranks] = keep
    return [*merged.values(), *rest]


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


def step_of(signal: Signal | None) -> int | None:
    """A step that the fault itself names."""
    return number(signal.fields.get("step")) if signal is not None else None
