"""Faults that carry no rank, and the rank that other evidence leaves for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.correlate.evidence import JobEvidence, number
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.identity import Identity, rank_in_path, same_host
from aggregator.correlate.leads import Lead, Tier, bounds, most_specific
from aggregator.correlate.stories import Story, written_in
from parsers.records import Known, Role, Signal, SourceKind

_ONE_NODE = 16
"""GPUs that one machine may have."""
_MAY_REPEAT = 2
"""One process may print its error so many times: by its logger, and as it ends."""


_FABRIC = ("nvidia.sxid", "nvidia.fabric")
"""Faults of the switches between all GPUs of a node."""


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
    tellers = [
        story for story in stories.values()
        if any(s.kind == signals[0].kind for s in story.roots) and (host is None or same_host(story.host or host, host))
    ]  # fmt: skip
    if count <= len(tellers):
        return _homeless_lead(signals, (), stories)  # a second thread of theirs, or a copy without a tag
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
        device = _by_device(signals, stories, host, table)
        if first is None and device is not None and count == 1:
            lead = _homeless_lead(signals, (device,), stories)
            lead.attributed = "the GPU that it names is that rank's, as no process was given devices of its own"
            lead.strength = 0.7
        elif first is not None:
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


def _by_device(
    signals: Sequence[Signal], stories: Mapping[int, Story], host: str | None, table: Identity
) -> int | None:
    """The rank whose local rank is the device that a fault names.

    Where each process is given one device (CUDA_VISIBLE_DEVICES) that is number 0 to all of them: 0 tells nothing, a
    higher number tells that all see all devices, and then local rank N takes device N.
    """
    devices = {number(signal.fields.get("gpu")) for signal in signals}
    device = devices.pop() if len(devices) == 1 else None
    if not device:
        return None
    base = table.base_of_scope.get(f"host {host}") if host else None
    if base is None and len(table.hosts) <= 1 and table.world_size is not None and table.world_size <= _ONE_NODE:
        base = 0
    rank = base + device if base is not None else None
    if rank is None or (rank in stories and stories[rank].spoke_of_trouble):
        return None
    return rank if table.world_size is None or rank < table.world_size else None


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
        if story is not None and (story.spoke_of_trouble or story.told_to_stop):
            continue
        found.append(item.rank)
    return sorted(found)


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
