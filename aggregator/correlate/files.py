"""Which files are one rank's, or one host's: by their names, where their lines and their siblings do not refute it."""

from __future__ import annotations

from collections import Counter, defaultdict

from aggregator.correlate.evidence import JobEvidence, number
from aggregator.correlate.identity import Identity, stream_rank
from parsers.records import Known, Role, Signal, Source

_FORGED = 2
"""Lines of another rank's tag that a file may hold and still be its own: text can be printed by anyone."""
_FAMILY = 2
"""Files at least that prove, by each telling another rank, that each is one rank's."""


def trust_files(evidence: JobEvidence, table: Identity) -> None:
    """Whether the number in a file's name is its global rank: its own lines and its siblings can refute it."""
    tagged: dict[int, Counter[int]] = defaultdict(Counter)
    for source, key, activity in evidence.activities:
        if key.rank is not None:
            tagged[source.index][key.rank] += activity.lines
    folders: dict[int, set[str]] = defaultdict(set)
    for source in evidence.sources:
        if source.rank is not None and source.kind == "log":
            folders[source.rank].add(source.path.rpartition("/")[0])
    agents = _agents(evidence)
    for source in evidence.sources:
        if source.rank is not None and source.index not in agents:
            rank = _file_rank(source, source.rank, tagged[source.index], shared=len(folders[source.rank]) > 1)
            if rank is not None:
                table.rank_of_source[source.index] = rank


def _agents(evidence: JobEvidence) -> set[int]:
    """Sources in which a launcher tells of several workers: a node's log, whatever number its name holds."""
    told: dict[int, set[str]] = defaultdict(set)
    for scan in evidence.scans:
        for signal in scan.signals:
            if signal.signature in {"te.closing", "te.failed"} and "pid" in signal.fields:
                told[scan.source.index].add(signal.fields["pid"])
    return {index for index, pids in told.items() if len(pids) > 1}


def _file_rank(source: Source, named: int, inside: Counter[int], *, shared: bool) -> int | None:
    """The rank of one file: as named, as its lines say where the name is a local rank's, or unknown."""
    if len(inside) > 1 and source.layout == "rank-family":
        return None
    contradicted = inside and named not in inside and inside.total() > _FORGED
    if contradicted and (shared or source.layout == "rank-family"):
        return next(iter(inside)) if len(inside) == 1 else None
    return named


def own_files(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """Files whose process tells its own rank, each file another one: then all of a file is that rank's.

    One such file alone proves nothing: in a merged log often rank 0 only introduces itself.
    """
    told: dict[int, set[int]] = defaultdict(set)
    for signal in signals:
        if signal.rank is not None and signal.role is not Role.EXIT:
            told[signal.source].add(signal.rank)
    for source, key, _ in evidence.activities:
        if key.rank is not None:
            told[source.index].add(key.rank)
    single = {index: ranks.copy().pop() for index, ranks in told.items() if len(ranks) == 1}
    introduced = {s.source for s in signals if s.role is Role.IDENTITY and s.rank_how is Known.CONTENT}
    world = {number(s.fields.get("world_size")) for s in signals if s.role is Role.IDENTITY} - {None}
    if world == {len(single)}:
        introduced |= single.keys()  # a file a rank
    chosen = {
        index: rank for index, rank in single.items() if index in introduced and index not in table.rank_of_source
    }
    if (
        len(chosen) < _FAMILY
        or len(set(chosen.values())) != len(chosen)
        or any(len(ranks) > 1 for index, ranks in told.items() if index in introduced)
    ):
        return
    for signal in signals:
        if signal.rank is None and signal.source in chosen and signal.role is not Role.EXIT:
            signal.rank, signal.rank_how = chosen[signal.source], Known.CONTENT
    table.rank_of_source.update(chosen)


def filed_by_host(evidence: JobEvidence, table: Identity) -> dict[int, str]:
    """The hosts of ranks that write to a file a host: several such files, and no rank in those of two hosts."""
    hosts: dict[int, set[str]] = defaultdict(set)
    for source, key, _ in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is not None and source.host:
            hosts[rank].add(source.host)
    single = {rank: min(names) for rank, names in hosts.items() if len(names) == 1}
    return single if len(single) == len(hosts) and len(set(single.values())) > 1 else {}
