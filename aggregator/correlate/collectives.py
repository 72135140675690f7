"""Who is missing in a hung collective: from flight-recorder dumps, or from counters told by log lines.

Each group is compared by `group_states`; here groups are tied together. A rank that lags in one group because it
waits in another is a victim: the blame is followed to where it ends. No clock is used, no I/O is done. Methods:
https://github.com/pytorch/pytorch/tree/main/torch/distributed/flight_recorder
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aggregator.correlate.group_states import (
    Cause,
    CollectiveState,
    GroupStates,
    HangFinding,
    Pending,
    clean,
    flat,
    merge,
    names,
    operation,
    verb,
)
from parsers.flight_recorder import Entry, EntryState, FlightDump

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Cause", "CollectiveState", "HangFinding", "Pending", "analyse_dumps", "analyse_states"]

DEFAULT_GROUPS = frozenset({"", "0", "default_pg"})
_ABORTED = 0.9
"""An operation that "completed" after this part of its time-out was aborted: the abort ends the kernel as well."""
_CIRCLE = 0.6
"""Strength of a circle: each of its groups tells who lags there, and that it waits in the next."""
_PAIR = re.compile(r":?(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


def analyse_states(
    states: Sequence[CollectiveState], members: Mapping[str, frozenset[int]], world_size: int | None
) -> list[HangFinding]:
    """Findings from counters and pending operations, the strongest first.

    Args:
        states: any number for each rank and group, from log lines or dumps.
        members: the global ranks of the groups that are known; the default group's may follow from `world_size`.
        world_size: number of ranks of the job.
    """
    found = [item for group in _groups(states, members, world_size) for item in group.findings()]
    return _resolve(found, states)


def analyse_dumps(dumps: Sequence[FlightDump], world_size: int | None) -> list[HangFinding]:
    """Findings from flight-recorder dumps, the strongest first.

    Dumps of no known rank are left out; of several of one rank the furthest counts. Groups are joined over ranks by
    name and members, never by `pg_id`, which counts within a process.
    """
    best: dict[int, FlightDump] = {}
    for dump in dumps:
        if dump.rank is not None and (dump.rank not in best or _furthest(dump) > _furthest(best[dump.rank])):
            best[dump.rank] = dump
    tracks = _tracks(best, world_size)
    found: list[HangFinding] = []
    states: list[CollectiveState] = []
    for label, by_rank in sorted(tracks.items()):
        usable = {rank: state for rank, track in by_rank.items() if (state := track.state()) is not None}
        states.extend(usable.values())
        telling = [track for track in by_rank.values() if track.collectives]
        waits = any(state.pending is not None for state in usable.values())
        if telling and not waits and all(track.reliable for track in telling):
            continue  # everything that was entered is finished: the dumps were taken at different moments
        some = next(iter(by_rank.values()))
        # A rank whose dump tells nothing certain of the group is neither missing nor behind.
        mute = set(by_rank) - set(usable)
        group = GroupStates(label, usable, frozenset(some.members) - mute or None, some.title)
        earlier = _earlier_mismatch(group, by_rank)
        found.extend([earlier] if earlier is not None else group.findings())
    for label, by_rank in sorted(tracks.items()):
        found.extend(_unmatched(label, by_rank))
    return _resolve(found, states)


def _groups(
    states: Iterable[CollectiveState], members: Mapping[str, frozenset[int]], world_size: int | None
) -> list[GroupStates]:
    by_group: dict[str, dict[int, CollectiveState]] = defaultdict(dict)
    for state in states:
        known = by_group[state.group].get(state.rank)
        by_group[state.group][state.rank] = clean(state) if known is None else merge(known, clean(state))
    groups = []
    for name, ranks in sorted(by_group.items()):
        group = members.get(name) or None
        if group is None and name in DEFAULT_GROUPS and world_size:
            group = frozenset(range(world_size))
        groups.append(GroupStates(name, {r: s for r, s in ranks.items() if group is None or r in group}, group))
    return groups


def _resolve(findings: list[HangFinding], states: Iterable[CollectiveState]) -> list[HangFinding]:
    """Follows the blame through the groups.

    A finding whose suspects all wait elsewhere keeps its waiting ranks and loses its suspects. Where the blame goes
    round in a circle, nobody is named.
    """
    order = {(state.rank, state.group): state.pending.order for state in states if state.pending is not None}
    waits = defaultdict(list)
    for index, found in enumerate(findings):
        for rank in found.waiting:
            waits[rank].append(index)
    leads = [_leads(index, findings, waits, order) for index in range(len(findings))]
    resolved = []
    for found, onward in zip(findings, leads, strict=True):
        if not onward or len(onward) < len(found.suspects):
            free = tuple(rank for rank in found.suspects if rank not in onward)
            resolved.append(replace(found, suspects=free))
            continue
        groups = sorted({findings[index].group for indices in onward.values() for index in indices})
        tail = f"{verb(found.suspects, 'waits', 'wait')} in group {', '.join(groups)} in turn"
        resolved.append(
            replace(found, suspects=(), reason=f"{found.reason}; {tail}", strength=min(found.strength, 0.15))
        )
    resolved.extend(_circles(findings, leads))
    return sorted(resolved, key=lambda item: (-item.strength, -len(item.waiting), item.group, item.seq or 0))


def _leads(
    index: int,
    findings: Sequence[HangFinding],
    waits: Mapping[int, Sequence[int]],
    order: Mapping[tuple[int, str], int | None],
) -> dict[int, list[int]]:
    """For each suspect of a finding that waits elsewhere: the findings that say so."""
    found = findings[index]
    if found.cause in ("mismatch", "ahead"):
        return {}
    onward = {}
    for rank in found.suspects:
        here = order.get((rank, found.group))
        there = [
            other
            for other in waits.get(rank, ())
            if other != index
            and rank not in findings[other].suspects
            # A kernel that was not started is held by work issued before it, not after.
            and (found.cause != "not_started" or _before(order.get((rank, findings[other].group)), here))
        ]
        if there:
            onward[rank] = there
    return onward


def _before(one: int | None, two: int | None) -> bool:
    return one is not None and two is not None and one < two


def _circles(findings: Sequence[HangFinding], leads: Sequence[Mapping[int, Sequence[int]]]) -> list[HangFinding]:
    """Groups that wait for each other with nobody left to blame: collectives issued in different orders."""
    led = [bool(onward) and len(onward) == len(found.suspects) for found, onward in zip(findings, leads, strict=True)]
    told: set[int] = set()
    circles = []
    for start in range(len(findings)):
        if not led[start] or start in told:
            continue
        reached: set[int] = set()
        stack = [start]
        while stack:
            index = stack.pop()
            if index not in reached:
                reached.add(index)
                stack.extend(other for there in leads[index].values() for other in there)
        if not all(led[index] for index in reached):
            continue
        told |= reached
        ranks = sorted({rank for index in reached for rank in findings[index].suspects})
        groups = sorted({findings[index].group for index in reached})
        reason = (
            f"{names(ranks)} wait for each other in a circle through group {', '.join(groups)}: "
            "operations were issued in different orders"
        )
        circles.append(HangFinding("circle", groups[0], None, (), tuple(ranks), None, reason, _CIRCLE))
    return circles


@dataclass(slots=True)
class _Track:
    """What one rank's dump tells about one group. `members` are global ranks in the order of the group."""

    rank: int
    label: str
    title: str
    members: tuple[int, ...]
    dump: FlightDump
    name: str
    collectives: dict[int, list[Entry]] = field(default_factory=dict)
    p2p: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        if entry.is_p2p:
            self.p2p.append(entry)
        else:
            self.collectives.setdefault(entry.seq, []).append(entry)

    @property
    def reliable(self) -> bool:
        """Whether states advance: some back ends leave every operation at `scheduled` and retire it when done."""
        entries = [entry for listed in self.collectives.values() for entry in listed] + self.p2p
        advanced = any(entry.state is not EntryState.SCHEDULED for entry in entries)
        return advanced or len(entries) <= 1 or not any(entry.retired for entry in entries[:-1])

    @property
    def whole(self) -> bool:
        """Whether nothing was overwritten in the ring."""
        return self.dump.first_record_id == 0

    def unfinished(self, entries: Sequence[Entry], *, reliable: bool) -> Entry | None:
        """The entry of one sequence number that is not done; the end of a coalesced one speaks for its parts."""
        ends = [entry for entry in entries if operation(entry.name) == "coalesced"]
        for entry in ends or entries:
            if entry.state is EntryState.COMPLETED:
                if _aborted(entry):
                    return entry
            elif reliable or not entry.retired:
                return entry
        return None

    def state(self) -> CollectiveState | None:
        """As counters; None where the dump tells nothing certain about the group."""
        status = self.dump.status_of(self.name)
        told = status if status is not None and not self.p2p else None
        reach = max(self.collectives, default=None)
        if told is not None and told.enqueued is not None:
            reach = max(told.enqueued, reach or 0)
        if reach is None and not self.whole:
            return None
        pending = self._pending()
        return clean(
            CollectiveState(
                rank=self.rank,
                group=self.label,
                enqueued=reach or 0,
                started=told.started if told is not None else None,
                completed=told.completed if told is not None and pending is None else None,
                pending=pending[0] if pending is not None else None,
                entered_ns=pending[1] if pending is not None else None,
                source="dump",
            )
        )

    def _pending(self) -> tuple[Pending, int | None] | None:
        reliable = self.reliable
        first: Entry | None = None
        # Work of a group runs in order: what comes before a finished one is finished, whatever its entry says.
        for seq in sorted(self.collectives, reverse=True):
            entry = self.unfinished(self.collectives[seq], reliable=reliable)
            if entry is None:
                break
            first = entry
        if first is None:
            return None
        runs = first.state is EntryState.STARTED or first.started_ns is not None
        told = any(entry.started_ns is not None or entry.state is EntryState.STARTED for entry in self.dump.entries)
        sizes = str(sum(math.prod(shape) for shape in first.in_sizes)) if first.in_sizes else None
        pending = Pending(
            operation(first.name),
            first.seq,
            sizes,
            ",".join(first.dtypes) or None,
            runs if told else None,
            first.record_id,
        )
        return pending, first.created_ns


def _aborted(entry: Entry) -> bool:
    if entry.created_ns is None or entry.completed_ns is None or not entry.timeout_ms:
        return False
    return entry.completed_ns - entry.created_ns >= _ABORTED * entry.timeout_ms * 1_000_000


def _furthest(dump: FlightDump) -> tuple[int, int]:
    return (dump.entries[-1].record_id if dump.entries else -1, len(dump.entries))


def _tracks(dumps: Mapping[int, FlightDump], world_size: int | None) -> dict[str, dict[int, _Track]]:
    """By group, then rank. The same name with other members is another group."""
    everyone = tuple(range(world_size)) if world_size else tuple(sorted(dumps))
    found: dict[str, dict[tuple[int, ...], dict[int, _Track]]] = defaultdict(lambda: defaultdict(dict))
    for rank, dump in dumps.items():
        for track in _tracks_of(rank, dump, everyone):
            found[track.label][track.members][rank] = track
    tracks = {}
    for name, by_members in found.items():
        for members, by_rank in by_members.items():
            label = name if len(by_members) == 1 else f"{name}{list(members)}"
            for track in by_rank.values():
                track.label = label
            tracks[label] = by_rank
    return tracks


def _tracks_of(rank: int, dump: FlightDump, everyone: tuple[int, ...]) -> list[_Track]:
    """The groups of one dump, with their entries."""
    descs = {config.name or "0": config.desc for config in dump.groups.values()}
    descs.update({entry.group: entry.desc for entry in dump.entries})
    if not descs and 0 in dump.status:
        descs["0"] = "default_pg"
    tracks = {}
    for name, desc in descs.items():
        config = dump.config_of(name, desc)
        default = name in DEFAULT_GROUPS or desc == "default_pg"
        members = config.ranks if config is not None and config.ranks else everyone if default else ()
        title = f"{name} ({desc})" if desc and desc != name else name
        if not members or rank in members:
            tracks[name] = _Track(rank, name, title, members, dump, name)
    for entry in dump.entries:
        if entry.group in tracks:
            tracks[entry.group].add(entry)
    return list(tracks.values())


def _earlier_mismatch(group: GroupStates, tracks: Mapping[int, _Track]) -> HangFinding | None:
    """The first sequence number at which members issued different operations, if it explains the hang."""
    kinds: dict[int, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for rank, track in tracks.items():
        # The oldest number may have lost some of its entries to the ring.
        for seq in sorted(track.collectives)[0 if track.whole else 1 :]:
            kinds[seq][rank] = tuple(sorted({flat(entry.name) for entry in track.collectives[seq]}))
    for seq in sorted(kinds):
        if len(set(kinds[seq].values())) > 1:
            shown = {
                rank: ", ".join(sorted({operation(entry.name) for entry in tracks[rank].collectives[seq]}))
                for rank in kinds[seq]
            }
            return group.disagreement(seq, kinds[seq], shown)
    return None


def _unmatched(label: str, tracks: Mapping[int, _Track]) -> list[HangFinding]:
    """Sends and receives that wait for a peer which has not issued its half."""
    found = []
    pairs = {rank: _pairs(track) for rank, track in tracks.items()}
    opened = {rank: _open_pairs(tracks[rank], pairs[rank]) for rank in tracks}
    for rank, track in sorted(tracks.items()):
        for (kind, peer), entry in sorted(opened[rank].items()):
            mirror, towards = ("recv", "to") if kind == "send" else ("send", "from")
            reason = f"rank {rank} waits in {kind} {entry.p2p_seq} {towards} rank {peer} of group {track.title}"
            other = tracks.get(peer)
            if other is None:
                reason += f", and rank {peer} left no dump of it"
                found.append(HangFinding("silent", label, entry.p2p_seq, (peer,), (rank,), kind, reason, 0.5))
                continue
            issued, answered = len(pairs[rank][kind, peer]), len(pairs[peer].get((mirror, rank), ()))
            if (mirror, rank) in opened[peer] or (track.whole and other.whole and answered >= issued):
                continue
            reason += f", which has no matching {mirror} open"
            found.append(HangFinding("laggard", label, entry.p2p_seq, (peer,), (rank,), kind, reason, 0.7))
    return found


def _pairs(track: _Track) -> dict[tuple[str, int], list[Entry]]:
    """Point-to-point entries by direction and global rank of the peer."""
    pairs = defaultdict(list)
    for entry in track.p2p:
        match = _PAIR.search(entry.name)
        if match is not None and int(match[3]) < len(track.members):
            pairs[match[1], track.members[int(match[3])]].append(entry)
    return pairs


def _open_pairs(track: _Track, pairs: Mapping[tuple[str, int], list[Entry]]) -> dict[tuple[str, int], Entry]:
    """The last point-to-point operation of each direction and peer, where it is not done."""
    reliable = track.reliable
    ends = [entry for entry in track.p2p if operation(entry.name) == "coalesced"]
    opened = {}
    for key, entries in pairs.items():
        last = entries[-1]
        speaks = [end for end in ends if end.p2p_seq == last.p2p_seq and end.record_id > last.record_id]
        if track.unfinished([last, *speaks[:1]], reliable=reliable) is not None:
            opened[key] = last
    return opened
