"""Learns the identity table from everything that a job's files tell, and sets each signal's rank and host.

Passes go from what is certain (a file of one rank, a launcher's tag) to what follows from it (a pid, a GPU, a local
rank on a known node); none overwrites what an earlier one set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from aggregator.correlate.bases import (
    are_components,
    fill_hosts,
    interpolate_pids,
    learn_bases,
    learn_killed_tasks,
    learn_pids,
    learn_pod_files,
    learn_pods,
    place_missing,
    unite_pods,
)
from aggregator.correlate.evidence import MAX_WORLD, JobEvidence, ints, number
from aggregator.correlate.files import filed_by_host, own_files, trust_files
from aggregator.correlate.identity import Identity, bus_key, scope_of, stream_rank
from aggregator.correlate.restarts import outlived
from aggregator.correlate.writers import labels_repeat, learn_writers
from parsers.records import Known, Role, Signal, Source

_TELL_WORLD = frozenset({Role.IDENTITY, Role.SYMPTOM, Role.STATE, Role.PROGRESS, Role.PHASE})
_TELL_WRITER = ("rank", "tag_task", "tag_pod", "tag_ip")
"""Fields by which marks of progress are of one writer, or of several."""
_SURE = frozenset({Known.FILE, Known.TAG, Known.PREFIX})
_ROLE_AND_RANK = re.compile(r"\[rank\d{1,4}\]:\[rank\d{1,6}\]:")
_GENERIC_HOSTS = frozenset({"localhost", "127.0.0.1", "localhost.localdomain"})
_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_GROUP_TAG = re.compile(r"\[(?:PG (?:ID )?(?P<pg>\w{1,40}) (?:PG GUID \S{1,80} )?)?Rank (?P<rank>\d{1,6})\] ")
"""How ProcessGroupNCCL begins its own lines, whatever error they tell of."""
_DEFAULT_GROUP = frozenset({None, "0", "default_pg"})


def build_identity(evidence: JobEvidence, signals: list[Signal]) -> Identity:
    """Learn the table, and set rank and host of every signal as far as it tells."""
    table = Identity(log_hosts={source.host for source in evidence.sources if source.kind == "log" and source.host})
    trust_files(evidence, table)
    _tell_roles_from_ranks(signals, table)
    table.tasks_are_ranks = _tasks_are_ranks(evidence, signals)
    table.reports_count_ranks = table.tasks_are_ranks and not are_components(signals)
    plain = _plain_group_ranks(signals)
    widest = _widest(signals)
    for signal in signals:
        if not _of_a_smaller_group(signal, widest):
            _own_rank(signal, evidence.source(signal), table, plain)
    own_files(evidence, signals, table)
    telling = _the_last_first(_without_repeats(signals))
    _learn(evidence, telling, table)
    learn_writers(evidence, table)
    learn_pods(telling, table)
    learn_pod_files(evidence, telling, table)
    learn_bases(evidence, signals, table)
    for signal in signals:
        if signal.rank is None:
            _derive(signal, evidence.source(signal), table)
    _learn(evidence, telling, table)
    learn_pids(evidence, telling, table)
    interpolate_pids(telling, table)
    learn_killed_tasks(telling, table)
    for signal in signals:
        if signal.rank is None:
            _derive(signal, evidence.source(signal), table)
        if signal.host is None and signal.rank is not None:
            signal.host = table.host_of_rank.get(signal.rank)
    _finish(evidence, signals, table)
    return table


def _the_last_first(signals: list[Signal]) -> list[Signal]:
    """What the last incarnation tells before what others do: ranks may run on other hosts by then."""
    ends = {mark.source: mark.offset for mark in outlived(signals)}
    return sorted(signals, key=lambda signal: signal.offset <= ends.get(signal.source, -1)) if ends else signals


def _without_repeats(signals: Sequence[Signal]) -> list[Signal]:
    """Signals less the marks of progress whose writer made one before: most of them, and they tell nothing new."""
    kept = []
    writers = set()
    for signal in signals:
        if signal.role is Role.PROGRESS:
            told = tuple(map(signal.fields.get, _TELL_WRITER))
            writer = (signal.source, signal.rank, signal.local_rank, signal.pid, signal.host, told)
            if writer in writers:
                continue
            writers.add(writer)
        kept.append(signal)
    return kept


def _tasks_are_ranks(evidence: JobEvidence, signals: list[Signal]) -> bool:
    """A label's number is the global rank, unless each task is a launcher of its own, or each node counts its own."""
    agree = differ = 0
    if labels_repeat(evidence, signals):
        return False
    for _, key, _ in evidence.activities:
        if key.task is not None and key.rank is not None:
            agree += key.rank == number(key.task)
            differ += key.rank != number(key.task)
    if agree or differ:
        return agree > differ
    return not any(signal.signature.startswith("te.") for signal in signals)


def _plain_group_ranks(signals: Sequence[Signal]) -> bool:
    """Whether `[Rank N]` of old ProcessGroupNCCL lines is the global rank: it is the rank in some group, and only
    where the numbers reach over most of the world are they those of the default group.
    """
    fields = [s.fields for s in signals if "pg" in s.fields or "pg_rank" in s.fields]
    if any(told.get("pg") not in _DEFAULT_GROUP for told in fields):
        return False  # versions that name the group do so in every line but those that quote another
    ranks = [rank for told in fields if "pg" not in told and (rank := number(told["pg_rank"])) is not None]
    worlds = [size for s in signals if "world_size" in s.fields and (size := number(s.fields["world_size"]))]
    return bool(ranks) and (not worlds or (max(ranks) + 1) * 2 > max(worlds))


def _widest(signals: Sequence[Signal]) -> int:
    """The most ranks that any line speaks of."""
    worlds = [number(s.fields["world_size"]) for s in signals if "world_size" in s.fields]
    ranks = {s.rank for s in signals if s.rank is not None and s.rank < MAX_WORLD}
    return max([max(ranks, default=-1) + 1, *(size for size in worlds if size is not None and size <= MAX_WORLD)])


def _of_a_smaller_group(signal: Signal, widest: int) -> bool:
    """Whether NCCL counts the ranks of a communicator here that has only some of the job's."""
    if signal.rank is not None or not signal.signature.startswith("nccl."):
        return False
    size = number(signal.fields.get("world_size"))
    return size is not None and size < widest


def _sent_by(signal: Signal, rank: int) -> None:
    """Make a signal that of the rank which sent it: who prints it may be elsewhere."""
    if signal.rank != rank:
        signal.host = signal.local_rank = signal.pid = None
    signal.rank, signal.rank_how = rank, Known.CONTENT


def _own_rank(signal: Signal, source: Source, table: Identity, plain: bool) -> None:
    """The rank that a signal's own place and tags give."""
    fields = signal.fields
    if (raised_by := number(fields.get("raised_by"))) is not None:
        _sent_by(signal, raised_by)
        return
    filed = table.rank_of_source.get(source.index)
    if filed is not None:
        if signal.rank is not None and signal.rank != filed:
            fields["conflict_rank"] = str(signal.rank)
        signal.rank, signal.rank_how = filed, Known.FILE
        return
    if signal.role is Role.EXIT and "rank" in fields:
        signal.rank, signal.rank_how = number(fields["rank"]), Known.EXIT
        return
    task = number(fields.get("tag_task"))
    launcher_line = fields.get("logger") in {"srun", "slurmstepd"}
    if task is not None and table.tasks_are_ranks and not launcher_line and signal.role is not Role.EXIT:
        # The launcher's own label: the text behind it can be printed by anyone.
        if signal.rank is not None and signal.rank != task:
            fields["conflict_rank"] = str(signal.rank)
        signal.rank, signal.rank_how = task, Known.TAG
        return
    if signal.rank is not None:
        return
    if "box_rank" in fields:
        signal.rank, signal.rank_how = number(fields["box_rank"]), Known.EXIT
        return
    if "rank" in fields and signal.role not in {Role.EXIT, Role.EXTERNAL}:
        rank = number(fields["rank"])
        if rank is not None and fields.get("pg") in _DEFAULT_GROUP:
            signal.rank, signal.rank_how = rank, Known.CONTENT
            return
    tag = _GROUP_TAG.search(signal.text) if "pg_rank" not in fields else None
    if tag is not None:
        fields["pg_rank"] = tag["rank"]
        if tag["pg"] is not None:
            fields["pg"] = tag["pg"]
    if "pg_rank" in fields and (fields.get("pg") in {"0", "default_pg"} or (plain and "pg" not in fields)):
        signal.rank, signal.rank_how = number(fields["pg_rank"]), Known.CONTENT


def _learn(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """Take up what lines of a known rank tell of its process, GPU and host."""
    for signal in signals:
        _learn_line(signal, evidence.source(signal), table)
    # The name of a file or folder may be an alias: what lines say comes first.
    for signal in signals:
        if signal.rank is None or signal.rank_how is Known.GUESS or "raised_by" in signal.fields:
            continue
        known = table.host_of_rank.get(signal.rank)
        if known is None or _is_nameless(known):
            host = host_named(signal, evidence.source(signal), table)
            if host:
                _tell_host(table, signal.rank, host)
    for source in evidence.sources:
        filed = table.rank_of_source.get(source.index)
        if filed is not None and source.host:
            _tell_host(table, filed, source.host)
    for rank, host in filed_by_host(evidence, table).items():
        _tell_host(table, rank, host)
    for signal in [s for s in signals if "tasks" in s.fields]:
        host, tasks = signal.fields.get("host"), ints(signal.fields["tasks"])
        if host and tasks and "[" not in host and "," not in host:
            for task in tasks:
                if table.reports_count_ranks:
                    _tell_host(table, task, host)
            table.add_host(host)
    _learn_world(signals, table)


def _learn_line(signal: Signal, source: Source, table: Identity) -> None:
    fields, rank = signal.fields, signal.rank
    if "told_rank" in fields:
        rank = number(fields["told_rank"])
    address, place = fields.get("ip"), signal.host or source.host
    if address and place and signal.role is Role.IDENTITY:
        table.host_of_ip.setdefault(address, place)
    if rank is None:
        return
    host = host_named(signal, source, table)
    pid = number(fields.get("pid")) if signal.role in {Role.IDENTITY, Role.EXIT} else None
    pid = pid if pid is not None else signal.pid
    if pid is not None:
        table.rank_of_pid.setdefault((host, pid), rank)
        table.pid_of_rank.setdefault(rank, pid)
    if "bus_id" in fields and signal.role is Role.IDENTITY:
        table.rank_of_bus.setdefault((host, bus_key(fields["bus_id"])), rank)
    if host and host != source.host and signal.rank_how is not Known.GUESS:
        _tell_host(table, rank, host)
    address = address or fields.get("tag_ip")
    if address and host:
        table.host_of_ip.setdefault(address, host)


def _learn_world(signals: Iterable[Signal], table: Identity) -> None:
    """The number of ranks: what most lines say that is not contradicted by a rank surely seen."""
    worlds: Counter[int] = Counter()
    floor = -1
    for signal in signals:
        if "world_size" in signal.fields and signal.role in _TELL_WORLD:
            world = number(signal.fields["world_size"])
            if world and 0 < world <= MAX_WORLD:
                worlds[world] += 1
        if signal.rank is not None and signal.rank_how in _SURE:
            floor = max(floor, signal.rank)
    possible = {size: count for size, count in worlds.items() if size > floor}
    if possible:
        best = max(possible.values())
        table.world_size = max(size for size, count in possible.items() if count * 4 >= best)


def _is_nameless(host: str) -> bool:
    return host in _GENERIC_HOSTS or _ADDRESS.fullmatch(host) is not None


def _tell_host(table: Identity, rank: int, host: str) -> None:
    known = table.host_of_rank.get(rank)
    if known is None or (known != host and _is_nameless(known) and not _is_nameless(host)):
        table.host_of_rank[rank] = host


def _derive(signal: Signal, source: Source, table: Identity) -> None:
    """The rank of a signal whose own place gives none, through the table."""
    fields = signal.fields
    host = host_named(signal, source, table)
    pid = number(fields.get("pid"))
    for candidate in (pid, signal.pid):
        if candidate is not None:
            rank = table.rank_for_pid(candidate, host)
            if rank is not None:
                signal.rank, signal.rank_how = rank, Known.MAP
                if "bus_id" in fields:
                    table.rank_of_bus.setdefault((host, bus_key(fields["bus_id"])), rank)
                return
    bus = fields.get("bus_id")
    if bus is not None:
        rank = table.rank_for_bus(bus, host)
        if rank is not None:
            signal.rank, signal.rank_how = rank, Known.MAP
            return
    local = number(fields.get("local_rank"))
    local = local if local is not None else signal.local_rank
    local = local if local is not None else source.local_rank
    if local is not None:
        base = table.base_of_scope.get(scope_of(source))
        if base is None and host:
            base = table.base_of_scope.get(f"host {host}", _lowest_on(host, table))
        if base is not None:
            signal.rank, signal.rank_how = base + local, Known.MAP
            return
    pod = fields.get("tag_pod") or fields.get("pod")
    if pod is not None and pod in table.rank_of_pod:
        signal.rank, signal.rank_how = table.rank_of_pod[pod], Known.MAP


def _tell_roles_from_ranks(signals: Sequence[Signal], table: Identity) -> None:
    """Where torchrun's role is called `rank`, its tag holds a local rank: seen where PyTorch's own stands behind it."""
    for signal in signals:
        if signal.local_rank not in {None, signal.rank} and _ROLE_AND_RANK.search(signal.text):
            table.tagged_by_role.add(signal.source)
    for signal in signals if table.tagged_by_role else ():
        if signal.source in table.tagged_by_role and signal.rank_how is Known.PREFIX and signal.local_rank is None:
            signal.local_rank, signal.rank, signal.rank_how = signal.rank, None, Known.NONE


def _lowest_on(host: str, table: Identity) -> int | None:
    """The first of a host's ranks, if they follow one another."""
    ranks = table.ranks_on(host)
    return ranks[0] if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1 else None


def host_named(signal: Signal, source: Source, table: Identity) -> str | None:
    """The host of the process that a signal is about."""
    fields = signal.fields
    address = fields.get("ip") if signal.role is not Role.IDENTITY else None
    address = address or fields.get("tag_ip")
    return (
        fields.get("host") or fields.get("box_host") or signal.host
        or (table.host_of_ip.get(address, address) if address else None) or source.host or fields.get("tag_pod")
    )  # fmt: skip


def _finish(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    for source, key, _ in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is not None:
            table.ranks.add(rank)
    for signal in signals:
        if signal.rank is not None and signal.rank_how is not Known.GUESS:
            table.ranks.add(signal.rank)
        if signal.signature.startswith("slurm.taskexit") and table.reports_count_ranks:
            table.ranks.update(ints(signal.fields.get("tasks")))
    table.ranks.update(dump.rank for dump in evidence.dumps if dump.rank is not None)
    if table.world_size is not None:
        table.ranks = {rank for rank in table.ranks if rank < table.world_size}
    elif table.ranks:
        table.world_size = None
    unite_pods(table)
    fill_hosts(table)
    place_missing(signals, table)
    for _, host in sorted(table.host_of_rank.items()):
        table.add_host(host)
