"""What the fronts of lines tell of those who write them: a rank, and beside it a process and an address."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aggregator.correlate.evidence import number
from aggregator.correlate.identity import Identity, stream_rank

if TYPE_CHECKING:
    from aggregator.correlate.evidence import JobEvidence
    from parsers.records import Signal


def learn_writers(evidence: JobEvidence, table: Identity) -> None:
    """A process in front of lines that one rank tags as its own is that rank's, whatever these lines say.

    What only prints the lines of several ranks is none of them.
    """
    ranks: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    pids: dict[int, set[int]] = defaultdict(set)
    for source, key, activity in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is None or activity.pid is None:
            continue
        host = activity.host or (table.host_of_ip.get(activity.ip, activity.ip) if activity.ip else source.host)
        ranks[host, activity.pid].add(rank)
        pids[rank].add(activity.pid)
        if activity.several_pids:
            pids[rank].add(-1)
        elif activity.ip:
            table.host_of_rank.setdefault(rank, host or activity.ip)
    for (host, pid), written in ranks.items():
        rank = min(written)
        if len(written) == 1 and pids[rank] == {pid}:
            table.rank_of_pid.setdefault((host, pid), rank)
            table.pid_of_rank.setdefault(rank, pid)


def labels_repeat(evidence: JobEvidence, signals: list[Signal]) -> bool:
    """Whether the numbers that launchers put in front of lines begin anew on each node."""
    hosts: dict[str, set[str]] = defaultdict(set)
    files: dict[str, set[int]] = defaultdict(set)
    for source, key, _ in evidence.activities:
        if key.task is not None:
            files[key.task].add(source.index)
            if source.host is not None:
                hosts[key.task].add(source.host)
    if _mostly_several(hosts):
        return True
    if not _mostly_several(files):
        return False
    worlds = {size for signal in signals if (size := number(signal.fields.get("world_size")))}
    return bool(worlds) and min(worlds) > len(files)


def _mostly_several(seen: dict[str, set[str]] | dict[str, set[int]]) -> bool:
    return sum(len(where) > 1 for where in seen.values()) * 2 > len(seen)
