"""Faults that carry no rank, and the rank that other evidence leaves for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aggregator.correlate.evidence import JobEvidence, ints, number
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.identity import Identity, rank_in_path, same_host
from aggregator.correlate.leads import Lead, Tier, bounds, most_specific
from aggregator.correlate.stories import Story, written_in
from parsers.records import Known, Role, Signal, SourceKind

_WITNESSES = 3
_ONE_NODE = 16
"""GPUs that one machine may have."""
_MAY_REPEAT = 2
"""One process may print its error so many times: by its logger, and as it ends."""


_OF_A_HOST = (
    ("nvidia.sxid", "a fault of the node's switch fabric strikes all its GPUs"),
    ("nvidia.fabric", "a fault of the node's switch fabric strikes all its GPUs"),
    ("k8s.evicted", "all processes of a pod are evicted with it"),
    ("k8s.cannot_start", "none of its processes was started"),
    ("slurm.launch_failed", "none of its processes was started"),
)
"""Faults that strike all ranks of a host or pod."""


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
        if rank is None and _opens_the_store(signal):
            rank, how = 0, "the processes keep their store in rank 0, which alone opens its port"
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
    words = _words_of_exceptions(clusters, evidence)
    for key, signals in clusters.items():
        lead = _cluster_lead(signals, stories, exits, evidence, table, homeless)
        leads.append(lead)
        lead.support.extend(words.get(key, ())[:8])
    return _merge_same_rank(leads)


def _words_of_exceptions(
    clusters: dict[tuple[str, str, str], list[Signal]], evidence: JobEvidence
) -> dict[tuple[str, str, str], list[Signal]]:
    """Takes out what only tells of another cluster's exception: a kernel's lines, and what its process printed before.

    Assertions of GPU kernels are such words, once for each thread; so is what the driver records of the fault.
    """
    words: dict[tuple[str, str, str], list[Signal]] = {}
    for bare in [key for key in clusters if not key[1]]:
        raised = [key for key in clusters if key[1] and (key[0], key[2]) == (bare[0], bare[2])]
        if len(raised) == 1 and _tell_of_one(clusters[bare], clusters[raised[0]], evidence):
            words[raised[0]] = clusters.pop(bare)
    return words


def _tell_of_one(bare: Sequence[Signal], raised: Sequence[Signal], evidence: JobEvidence) -> bool:
    if all(evidence.source(signal).kind is SourceKind.KERNEL for signal in bare):
        return len({signal.fields.get("bus_id") for signal in bare}) <= _distinct(raised)
    return {written_in(signal) for signal in bare} <= {written_in(signal) for signal in raised}


def _witnessed(homeless: Sequence[Signal], stories: Mapping[int, Story]) -> int | None:
    """The one rank that several others name as lost and that has no error of its own."""
    told: Counter[int] = Counter()
    for signal in [*homeless, *(s for story in stories.values() for s in story.symptoms)]:
        for rank in ints(signal.fields.get("peer_ranks")) or ints(signal.fields.get("peer_rank")):
            if rank != signal.rank:
                told[rank] += 1
    quiet = [rank for rank in told if rank not in stories or not stories[rank].spoke_of_trouble]
    return quiet[0] if len(quiet) == 1 and told[quiet[0]] >= _WITNESSES else None


def _rank_by_path(signal: Signal, table: Identity) -> int | None:
    text = signal.text
    if signal.exception is not None:
        text += "\n" + signal.exception.message + "\n" + signal.exception.root_message
    rank = rank_in_path(text)
    return rank if rank is not None and (table.world_size is None or rank < table.world_size) else None


def _opens_the_store(signal: Signal) -> bool:
    """Whether a process that no agent started could not open the store's port (torch/distributed/rendezvous.py)."""
    frames = signal.exception.frames if signal.exception is not None else ()
    by_process = any(frame.function == "_create_c10d_store" for frame in frames)
    by_agent = any(
        "/distributed/elastic/" in frame.file or frame.file.endswith("distributed/run.py") for frame in frames
    )
    return by_process and not by_agent and "failed to listen" in signal.text


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


@dataclass(frozen=True, slots=True)
class _Whose:
    """Ranks that a fault is put down to, why, and how sure that is."""

    ranks: tuple[int, ...] = ()
    how: str = ""
    strength: float = 0.9


def _cluster_lead(
    signals: list[Signal], stories: Mapping[int, Story], exits: Sequence[Exit], evidence: JobEvidence, table: Identity,
    homeless: Sequence[Signal],
) -> Lead:  # fmt: skip
    host = signals[0].host or evidence.source(signals[0]).host
    whose = _whose(signals, stories, exits, host, table, homeless)
    lead = _homeless_lead(signals, whose.ranks, stories)
    lead.attributed, lead.strength = whose.how, whose.strength
    if host and (not lead.hosts or lead.kind == "nvlink_error"):
        lead.hosts = (host,)
    if not lead.hosts and len(table.hosts) == 1:
        lead.hosts = (table.hosts[0],)
    if len(lead.ranks) == 1:
        for signal in signals:
            signal.rank, signal.rank_how = lead.ranks[0], Known.GUESS
    return lead


def _whose(
    signals: Sequence[Signal], stories: Mapping[int, Story], exits: Sequence[Exit], host: str | None, table: Identity,
    homeless: Sequence[Signal],
) -> _Whose:  # fmt: skip
    """The surest of the ways that there are to tell whose fault it is."""
    of_all = next((how for begin, how in _OF_A_HOST if signals[0].signature.startswith(begin)), None)
    there = tuple(table.ranks_on(host)) if host else ()
    if there and of_all is not None:
        return _Whose(there, of_all)
    count = _distinct(signals)
    writers = _writers(signals, stories)
    if count == len(there) > _MAY_REPEAT and not any(
        stories[rank].spoke_of_trouble for rank in there if rank in stories
    ):
        return _Whose(there, "they are all of their host, and each of them printed it once")
    if count == len(writers) > _MAY_REPEAT:
        return _Whose(writers, "the file is theirs, and each of them printed it once")
    tellers = [
        story for story in stories.values()
        if any(s.kind == signals[0].kind for s in story.roots) and (host is None or same_host(story.host or host, host))
    ]  # fmt: skip
    files = {written_in(signal) for story in tellers for signal in story.roots}
    printed_there = all(signal.exception is None and written_in(signal) in files for signal in signals)
    if count <= len(tellers) or printed_there:
        return _Whose()  # a second thread of theirs, a copy without a tag, or what was printed before the exception
    ended = _by_its_end(signals, count, stories, exits, host, homeless)
    named = _witnessed(homeless, stories)
    on_host = host is None or same_host(table.host_of_rank.get(named if named is not None else -1, host), host)
    if named is not None and on_host and (not ended.ranks or named in ended.ranks):
        return _Whose((named,), "the other ranks name it as the one that they lost", 0.7)
    reported = [item.report for item in exits if item.rank in ended.ranks]
    if ended.ranks and count + _victims(homeless, host, reported) <= max(len(ended.ranks), 1):
        return ended
    device = _by_device(signals, stories, host, table) if count == 1 else None
    if device is not None:
        how = "the GPU that it names is that rank's, as no process was given devices of its own"
        return _Whose((device,), how, 0.7)
    # What a scheduler or kernel prints of a host is no process's own word: nobody is left over for it.
    own_word = all(s.exception is not None or s.kind in {"abort", "segfault", "bus_error"} for s in signals)
    left = _left_over(stories, table) if own_word and count == 1 else []
    return _Whose(tuple(left), "every other rank's errors are accounted for", 0.7) if len(left) == 1 else _Whose()


def _by_its_end(
    signals: Sequence[Signal], count: int, stories: Mapping[int, Story], exits: Sequence[Exit], host: str | None,
    homeless: Sequence[Signal],
) -> _Whose:  # fmt: skip
    """The ranks that launchers say ended badly without a word of their own are those that said this."""
    fit = _silent_enders(signals, exits, stories, host)
    fit = _first_launchers(signals, count, [item for item in exits if item.rank in fit], homeless) or fit
    stopped = _stopped_quietly(exits, stories, host, fit)
    if 0 < len(fit) < count == len(fit) + len(stopped):
        # The launcher saw one end and stopped the rest before it saw theirs; the print is there once for each.
        fit = sorted([*fit, *stopped])
    if fit and (len(fit) == 1 or count >= len(fit)):
        return _Whose(tuple(fit), "the launcher reports that rank's end and no other fault explains it")
    first = _first_reported(signals, exits, stories, host)
    if first is not None:
        return _Whose((first,), "the launcher noticed that rank's end first", 0.75)
    return _Whose()


def _first_launchers(
    signals: Sequence[Signal], count: int, ends: Sequence[Exit], homeless: Sequence[Signal]
) -> list[int]:
    """The ranks of the first of several launchers that report below a fault, if each error is accounted for.

    As many ranks as faults above its report, and below it as many errors of waiting as ranks that others report on.
    """
    sources = {signal.source for signal in (*signals, *(item.report for item in ends))}
    by_host: dict[str | None, list[Exit]] = {}
    for item in sorted(ends, key=lambda item: item.report.offset):
        by_host.setdefault(item.host, []).append(item)
    if len(sources) != 1 or len(by_host) < 2 or None in by_host:  # noqa: PLR2004 - one launcher's report is the only one
        return []
    first, *others = by_host.values()
    ranks, rest = {item.rank for item in first}, {item.rank for items in others for item in items}
    told, over = first[0].report.offset, max(item.report.offset for item in first)
    next_told = min(items[0].report.offset for items in others)
    waited = [s.offset for s in homeless if s.role is Role.SYMPTOM and s.exception is not None and s.source in sources]
    in_order = max(signal.offset for signal in signals) < told and all(over < offset < next_told for offset in waited)
    if not in_order or len(ranks) != count or len(waited) != len(rest):
        return []
    return sorted(rank for rank in ranks if rank is not None)


def _victims(homeless: Sequence[Signal], host: str | None, reported: Sequence[Signal]) -> int:
    """Errors of ranks that nothing tells, and that waited or lost a peer: a launcher's report may be of their ends.

    None of them is an error that stands below all reports in their own file: a process's words come before its end.
    """
    last = {report.source: report.offset for report in sorted(reported, key=lambda report: report.offset)}
    return sum(
        signal.role is Role.SYMPTOM and signal.exception is not None and signal.local_rank is None
        and (host is None or signal.host is None or same_host(signal.host, host))
        and not (len(last) == 1 and signal.offset > last.get(signal.source, signal.offset))
        for signal in homeless
    )  # fmt: skip


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
    hosts = {stories[rank].host for rank in fit if rank in stories} - {None}
    host = host or (hosts.pop() if len(hosts) == 1 else None)
    told = {
        item.rank for item in exits
        if item.rank is not None and item.ending is Ending.STOPPED
        and (host is None or item.host is None or same_host(host, item.host))
    }  # fmt: skip
    told |= {rank for rank, s in stories.items() if s.told_to_stop and (host is None or same_host(host, s.host))}
    return sorted(rank for rank in told if rank not in fit and not (rank in stories and stories[rank].spoke_of_trouble))


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
