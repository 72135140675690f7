"""Who the others were waiting for: collective counters, named peers, silence.

Symptoms of waiting (watchdog and gloo time-outs, lost peers) never blame their own rank. They tell which ranks were
waiting; this module looks for the rank that they were waiting for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aggregator.correlate.evidence import ints, number
from aggregator.correlate.exits import Ending
from aggregator.correlate.group_states import CollectiveState, HangFinding, Pending
from aggregator.correlate.identity import Identity, same_host
from aggregator.correlate.stories import Story, last_step
from parsers.records import Role, Signal

if TYPE_CHECKING:
    from parsers.flight_recorder import FlightDump

WAITING_KINDS = frozenset({"collective_timeout", "rendezvous_failure"})
_MARKS, _FEW = 2, 3
"""Marks of progress that show a rank's pace; ranks of which most can be of one mind."""
_LOST_LOG = 0.2
"""How much weaker silence is where there is no log to be silent in."""
LOST_KINDS = frozenset({"network_error", "nccl_error", "ib_error"})


@dataclass(frozen=True, slots=True)
class Suspect:
    """Ranks that others were waiting for or lost, and how that is known. `strength` is 0 to 1."""

    ranks: tuple[int, ...]
    kind: str
    reason: str
    strength: float
    signal: Signal | None = None
    witnesses: int = 0
    dumped: bool = False
    """Known from flight-recorder dumps."""
    still: bool = False
    """Known to stand still although nobody says so."""
    support: tuple[Signal, ...] = ()


def find_suspects(
    stories: Mapping[int, Story], signals: Sequence[Signal], dumps: Sequence[FlightDump], table: Identity
) -> list[Suspect]:
    """Every reading of the hang, strongest first."""
    found: list[Suspect] = []
    recorded, logged = list[HangFinding](), list[HangFinding]()
    states = _states(signals)
    if dumps or states:
        from aggregator.correlate.collectives import analyse_dumps, analyse_states  # noqa: PLC0415 - few jobs hang

        recorded = analyse_dumps(dumps, table.world_size) if dumps else []
        logged = analyse_states(states, _members(table), table.world_size)
    heard = {story.rank for story in stories.values() if story.heard}
    waited = (
        {story.rank for story in stories.values() if story.aborted and not story.heard} if _aborts(stories) else set()
    )
    found += [
        replace(item, dumped=True) for finding in recorded if (item := _from_finding(finding, signals, waited, heard))
    ]
    found += [item for finding in logged if (item := _from_finding(finding, signals, waited, heard))]
    found.extend(_odd_fingerprints(signals))
    found.extend(_named_peers(stories, signals, table))
    found.extend(_lost_peers(stories, signals, table))
    found.extend(_silent(stories, table))
    found.extend(_silent_hosts(stories, table))
    found.extend(_behind_in_steps(stories))
    found.sort(key=lambda suspect: -suspect.strength)
    return found


def _aborts(stories: Mapping[int, Story]) -> bool:
    """Whether watchdogs abort the ranks that wait: whose log is lost and whose end was an abort then waited too."""
    return any(story.aborted and story.symptoms for story in stories.values())


def _from_finding(finding: HangFinding, signals: Sequence[Signal], waited: set[int], heard: set[int]) -> Suspect | None:
    if finding.cause == "circle":
        return Suspect((), "deadlock", finding.reason, finding.strength)
    suspects = tuple(rank for rank in finding.suspects if rank not in waited)
    if not suspects:
        return None
    kind = "collective_mismatch" if finding.cause in {"mismatch", "ahead"} else "collective_timeout"
    signal = next((s for s in signals if s.rank in suspects and s.role in {Role.STATE, Role.SYMPTOM}), None)
    lost = finding.cause == "silent" and not heard & set(suspects)  # their logs are missing, whatever they did
    return Suspect(suspects, kind, finding.reason, finding.strength - (_LOST_LOG if lost else 0), signal)


def _odd_fingerprints(signals: Sequence[Signal]) -> list[Suspect]:
    """Ranks whose collective differs from the majority's, from messages that compare two ranks each."""
    prints: dict[int, tuple[str, ...]] = {}
    first: dict[int, Signal] = {}
    for signal in signals:
        if signal.kind != "collective_mismatch":
            continue
        fields = signal.fields
        if "peer_rank" not in fields:
            continue  # cut off before the comparison, perhaps within the figures of the first rank
        for prefix in ("", "peer_"):
            rank = number(fields.get(prefix + "rank"))
            if rank is not None and prefix + "op" in fields:
                what = tuple(fields.get(prefix + name, "") for name in ("op", "shape", "dtype", "seq"))
                prints.setdefault(rank, what)
                first.setdefault(rank, signal)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, what in prints.items():
        groups[what].append(rank)
    if len(groups) < 2:  # noqa: PLR2004 - nothing to compare
        return []
    ordered = sorted(groups.values(), key=len)
    majority = ordered[-1]
    odd = sorted(rank for group in ordered[:-1] for rank in group)
    if len(odd) * 2 >= len(prints):
        reason = f"{len(groups)} ways to call the collective were printed, none of them by most ranks"
        named = sorted(prints)
        return [Suspect(tuple(named), "collective_mismatch", reason, 0.5, first[named[0]], len(prints))]
    differs = ", ".join(" ".join(part for part in prints[rank] if part) for rank in odd[:2])
    common = " ".join(part for part in prints[majority[0]] if part)
    alone = f"rank {odd[0]}" if len(odd) == 1 else "ranks " + ", ".join(map(str, odd))
    reason = f"{len(majority)} ranks called {common}; {alone} alone called {differs}"
    return [Suspect(tuple(odd), "collective_mismatch", reason, 0.92, first[odd[0]], len(majority))]


def _states(signals: Sequence[Signal]) -> list[CollectiveState]:
    """What log lines tell of each rank's place in each group, the first reading of each kind."""
    merged: dict[tuple[int, str], CollectiveState] = {}
    grouped = {(s.rank, s.fields["seq"]): s.fields["pg"] for s in signals if "pg" in s.fields and "seq" in s.fields}
    for signal in signals:
        fields = signal.fields
        if signal.rank is None or not ({"seq", "enqueued"} & fields.keys()) or signal.signature.startswith("nccl."):
            continue  # NCCL counts the operations of a kind and communicator, PyTorch those of a group
        if signal.role not in {Role.SYMPTOM, Role.STATE, Role.TEARDOWN}:
            continue
        group = fields.get("pg") or grouped.get((signal.rank, fields.get("seq", "")))
        if group is None:
            if grouped:
                continue  # the line does not tell its group, and there are several
            group = "0"
        key = (signal.rank, "0" if group == "default_pg" else group)
        known = merged.get(key)
        pending = None
        ran = number(fields.get("ran_ms"))
        entered = signal.ns - ran * 1_000_000 if ran is not None and signal.ns is not None else None
        seq = number(fields.get("seq"))
        if "op" in fields and seq is not None:
            pending = Pending(
                op=fields["op"], seq=seq,
                sizes=fields.get("numel_in") or fields.get("shape"), dtype=fields.get("dtype"),
            )  # fmt: skip
        state = CollectiveState(
            rank=signal.rank, group=key[1], enqueued=number(fields.get("enqueued")),
            started=number(fields.get("started")), completed=number(fields.get("completed")),
            pending=pending, entered_ns=entered, source="watchdog",
        )  # fmt: skip
        merged[key] = state if known is None else _join(known, state)
    return list(merged.values())


def _join(known: CollectiveState, new: CollectiveState) -> CollectiveState:
    return CollectiveState(
        rank=known.rank, group=known.group,
        enqueued=known.enqueued if known.enqueued is not None else new.enqueued,
        started=known.started if known.started is not None else new.started,
        completed=known.completed if known.completed is not None else new.completed,
        pending=known.pending or new.pending,
        entered_ns=known.entered_ns if known.entered_ns is not None else new.entered_ns,
        source=known.source,
    )  # fmt: skip


def _members(table: Identity) -> dict[str, frozenset[int]]:
    if table.world_size is None:
        return {}
    return {"0": frozenset(range(table.world_size))}


def _named_peers(stories: Mapping[int, Story], signals: Sequence[Signal], table: Identity) -> list[Suspect]:
    """Ranks that messages name as missing or lagging: monitoredBarrier, desync reports, Horovod's stall list."""
    votes: Counter[int] = Counter()
    witnesses: dict[int, set[int | None]] = defaultdict(set)
    first: dict[int, Signal] = {}
    newest = {(signal.source, signal.signature): signal for signal in signals if signal.role is Role.STATE}
    for signal in signals:
        named = ints(signal.fields.get("peer_ranks")) or ints(signal.fields.get("peer_rank"))
        if signal.role not in {Role.SYMPTOM, Role.STATE, Role.EITHER} or signal.signature in _WEAK_NAMES:
            continue
        if signal.role is Role.STATE and (signal is not newest[signal.source, signal.signature] or _is_even(signal)):
            continue
        if signal.kind == "collective_mismatch" or signal.fields.get("pg") not in {None, "0", "default_pg"}:
            continue  # a comparison of two ranks, or ranks in the numbering of a smaller group
        for rank in named:
            if rank != signal.rank and (table.world_size is None or rank < table.world_size):
                votes[rank] += 1
                witnesses[rank].add(signal.rank)
                first.setdefault(rank, signal)
    if not votes:
        return []
    sinks = [rank for rank in votes if not _names_others(rank, signals)]
    chosen = sinks or list(votes)
    best = max(len(witnesses[rank]) for rank in chosen)
    ranks = tuple(sorted(rank for rank in chosen if len(witnesses[rank]) == best))
    whole = table.world_size or len(stories)
    if whole > 2 and len(ranks) * 2 >= whole:  # noqa: PLR2004 - of two, one is half
        return []
    signal = first[ranks[0]]
    named_text = "ranks " + ", ".join(map(str, ranks)) if len(ranks) > 1 else f"rank {ranks[0]}"
    reason = f"{best} rank{'s' if best != 1 else ''} name {named_text} as the one that did not arrive"
    return [Suspect(ranks, signal.kind or "collective_timeout", reason, 0.9, signal, best)]


_SLOW = 1.3
"""A rank is slow if it takes so many times as long as the fastest."""
_WEAK_NAMES = frozenset({"pt.fr.signal_rank", "pt.fr.signal_25", "pt.fr.signal_local", "pt.fr.remote_error"})
"""The first rank to notice is usually the earliest waiter."""


def _is_even(signal: Signal) -> bool:
    """Whether a report on the slowest rank shows that it is hardly slower than the others."""
    least, most = (_ms(signal.fields.get(name)) for name in ("least_ms", "ms"))
    return least is not None and most is not None and most < _SLOW * least


def _ms(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _names_others(rank: int, signals: Sequence[Signal]) -> bool:
    return any(
        signal.rank == rank
        and signal.role is Role.SYMPTOM
        and signal.fields.get("peer_ranks", signal.fields.get("peer_rank"))
        for signal in signals
    )


def _lost_peers(stories: Mapping[int, Story], signals: Sequence[Signal], table: Identity) -> list[Suspect]:
    """Hosts that others lost their connections to, counted by distinct witnesses; a host that itself blames is none."""
    witnesses: dict[str, set[str]] = defaultdict(set)
    blamers: set[str] = set()
    first: dict[str, Signal] = {}
    for signal in signals:
        peer = signal.fields.get("peer")
        if signal.role is not Role.SYMPTOM or not peer:
            continue
        host = host_of_peer(peer, table)
        if host is None:
            continue
        who = signal.host or (f"rank {signal.rank}" if signal.rank is not None else None)
        if who is None or same_host(who, host):
            continue
        witnesses[host].add(who)
        blamers.add(who)
        first.setdefault(host, signal)
    hosts = [host for host in witnesses if not any(same_host(host, blamer) for blamer in blamers)]
    if not hosts:
        return _end_of_all(witnesses, first, table)
    if len(hosts) != 1:
        return []
    host = hosts[0]
    ranks = (
        tuple(rank for rank in table.ranks_on(host) if not stories[rank].spoke_of_trouble)
        if table.ranks_on(host)
        else ()
    )
    if not ranks:
        return []
    count = len(witnesses[host])
    kind = first[host].kind or "network_error"
    reason = f"{count} host{'s' if count != 1 else ''} lost the connection to {host}, which blames nobody"
    return [Suspect(ranks, kind, reason, 0.6 if count > 1 else 0.5, first[host], count)]


def _is_unanswered(signal: Signal) -> bool:
    """Whether a line tells of a path on which nothing was acknowledged, and not of a process that closed its end."""
    timed_out = signal.signature == "nccl.ib.completion" and signal.fields.get("status") == "12"
    return timed_out or signal.signature == "efa.unresponsive"


def _end_of_all(witnesses: Mapping[str, set[str]], first: Mapping[str, Signal], table: Identity) -> list[Suspect]:
    """The host that is one end of all paths on which nothing was answered, several others being at their other ends."""
    if not all(map(_is_unanswered, first.values())):
        return []
    pairs = [(host, who) for host, told in witnesses.items() for who in told]
    shared = [host for host in witnesses if all(same_host(host, end) or same_host(host, who) for end, who in pairs)]
    if len(shared) != 1 or len(witnesses[shared[0]]) < 2 or not table.ranks_on(shared[0]):  # noqa: PLR2004 - of one path both ends are
        return []
    host, count = shared[0], len(witnesses[shared[0]])
    reason = f"{count} hosts got no answer from {host}, which is one end of every path on which nothing was answered"
    return [Suspect(tuple(table.ranks_on(host)), first[host].kind or "network_error", reason, 0.8, first[host], count)]


def host_of_peer(peer: str, table: Identity) -> str | None:
    """The host at the other end of a connection, if the job's logs tell of it."""
    name = peer.split("<", 1)[0].strip("[]")
    if name in table.host_of_ip:
        return table.host_of_ip[name]
    return next((host for host in table.hosts if same_host(host, name)), None)


def _is_notice(signal: Signal) -> bool:
    """Whether a line only passes on that some other rank timed out: the missing rank prints it too."""
    return signal.signature.startswith("pt.fr.")


def _complains(story: Story) -> bool:
    return bool(story.roots or story.eithers) or any(not _is_notice(s) for s in story.symptoms)


def _silent(stories: Mapping[int, Story], table: Identity) -> list[Suspect]:
    """Ranks that say nothing of a trouble that the others all report."""
    world = table.world_size or (max(stories) + 1 if stories else 0)
    if world < 2 or world > 1 << 17:  # noqa: PLR2004 - nobody else to wait
        return []
    waiting = [
        rank
        for rank, story in stories.items()
        if any(s.kind in WAITING_KINDS | LOST_KINDS and not _is_notice(s) for s in story.symptoms)
    ]
    quiet = [rank for rank in range(world) if rank not in stories or not _complains(stories[rank])]
    quiet = [rank for rank in quiet if rank not in waiting]
    if _aborts(stories):
        quiet = [rank for rank in quiet if rank not in stories or stories[rank].heard or not stories[rank].aborted]
    if not quiet or len(waiting) * 2 < world or len(quiet) * 3 > world:
        return []
    if table.world_size is None and not stories.keys() >= set(quiet):
        return []  # of a world of unknown size others may be missing, too
    kinds = {s.kind for rank in waiting for s in stories[rank].symptoms}
    waited = bool(kinds & WAITING_KINDS)
    kind = _kind_of_silence(kinds, [stories[rank] for rank in quiet if rank in stories], stories)
    text = "ranks " + ", ".join(map(str, quiet)) if len(quiet) > 1 else f"rank {quiet[0]}"
    what = "timed out waiting" if waited else "lost a connection"
    reason = f"{len(waiting)} of {world} ranks {what}; {text} alone printed no error"
    strength = 0.75 if len(quiet) == 1 and len(waiting) == world - 1 else 0.5
    return [Suspect(tuple(quiet), kind, reason, strength)]


def _kind_of_silence(told: set[str | None], quiet: Sequence[Story], stories: Mapping[int, Story]) -> str:
    """What it was that a rank did without a word, from what the others met and from how it ended."""
    if "collective_timeout" in told or any(story.success or story.ended(Ending.CLEAN) for story in quiet):
        return "collective_timeout"
    begun = any(story.progress for story in stories.values())
    return "killed" if not told & WAITING_KINDS else "collective_timeout" if begun else "rendezvous_failure"


def _silent_hosts(stories: Mapping[int, Story], table: Identity) -> list[Suspect]:
    """The host whose ranks ran and then fell silent, its launcher too, while all others tell of trouble."""
    by_host: dict[str, list[Story]] = defaultdict(list)
    for story in stories.values():
        if story.host is None:
            return []
        by_host[story.host].append(story)
    quiet = [
        host for host, members in by_host.items()
        if all(story.heard and not (story.spoke_of_trouble or story.exits or story.teardown) for story in members)
    ]  # fmt: skip
    others = [members for host, members in by_host.items() if host not in quiet]
    told = all(any(story.exits for story in members) for members in others)
    troubled = all(any(story.symptoms for story in members) for members in others)
    if len(quiet) != 1 or not others or not told or not troubled:
        return []
    reason = f"{quiet[0]} fell silent, its launcher too; the ranks of all other hosts report errors and ends"
    return [Suspect(tuple(table.ranks_on(quiet[0])), "node_failure", reason, 0.85, None, len(others))]


def _behind_in_steps(stories: Mapping[int, Story]) -> list[Suspect]:
    """Ranks that stopped at an earlier step than the others, who then waited in vain, and that tell of no waiting."""
    reached = {
        story.rank: step for story in stories.values()
        if len(story.progress) >= _MARKS and (step := last_step(story.progress)) is not None
    }  # fmt: skip
    if len(reached) < _FEW:
        return []
    step, count = Counter(reached.values()).most_common(1)[0]
    behind = sorted(rank for rank, last in reached.items() if last < step and not _complains(stories[rank]))
    waited = any(s.kind in WAITING_KINDS for rank in reached if rank not in behind for s in stories[rank].symptoms)
    if not behind or not waited or count * 2 <= len(reached) or len(behind) * 4 > len(reached):
        return []
    named = f"rank {behind[0]}" if len(behind) == 1 else "ranks " + ", ".join(map(str, behind))
    reason = (
        f"{named} stopped at step {min(reached[rank] for rank in behind)}; {count} others went on to {step} and waited"
    )
    return [Suspect(tuple(behind), "collective_timeout", reason, 0.78)]
