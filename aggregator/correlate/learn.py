"""Learns the identity table from everything that a job's files tell, and sets each signal's rank and host.

Passes go from what is certain (a file of one rank, a launcher's tag) to what follows from it (a pid, a GPU, a local
rank on a known node); none overwrites what an earlier one set.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from aggregator.correlate.evidence import JobEvidence, ints, number
from aggregator.correlate.identity import Identity, Scope, bus_key, scope_of, stream_rank
from parsers.records import Known, Role, Signal, Source

_POD = re.compile(r"^(?P<job>.+)-(?P<role>master|launcher|worker|chief|ps|node)-(?P<index>\d+)$")
_GENERIC_HOSTS = frozenset({"localhost", "127.0.0.1", "localhost.localdomain"})
_DEFAULT_GROUP = frozenset({None, "0", "default_pg"})
_PID_GAP = 64
"""Workers that one launcher starts one after the other have pids no further apart."""


def build_identity(evidence: JobEvidence, signals: list[Signal]) -> Identity:
    """Learn the table, and set rank and host of every signal as far as it tells."""
    table = Identity()
    _trust_files(evidence, table)
    table.tasks_are_ranks = _tasks_are_ranks(evidence, signals)
    plain = _plain_group_ranks(signals)
    for signal in signals:
        _own_rank(signal, evidence.source(signal), table, plain)
    _own_files(evidence, signals, table)
    _learn(evidence, signals, table)
    learn_pods(signals, table)
    _learn_bases(evidence, signals, table)
    for signal in signals:
        _derive(signal, evidence.source(signal), table)
    _learn(evidence, signals, table)
    _learn_pids(evidence, signals, table)
    _interpolate_pids(table)
    for signal in signals:
        _derive(signal, evidence.source(signal), table)
        _set_host(signal, table)
    _finish(evidence, signals, table)
    return table


def _trust_files(evidence: JobEvidence, table: Identity) -> None:
    """Whether the number in a file's name is its global rank: its own lines and its siblings can refute it."""
    tagged: dict[int, Counter[int]] = defaultdict(Counter)
    for source, key, activity in evidence.activities():
        if key.rank is not None:
            tagged[source.index][key.rank] += activity.lines
    claimed = Counter(source.rank for source in evidence.sources if source.rank is not None and source.kind == "log")
    streams = {(s.rank, s.stream, s.path.rsplit("/", 1)[0]) for s in evidence.sources if s.rank is not None}
    by_folder: dict[int, set[str]] = defaultdict(set)
    for rank, _, folder in streams:
        if rank is not None:
            by_folder[rank].add(folder)
    for source in evidence.sources:
        if source.rank is None:
            continue
        inside = tagged[source.index]
        others = [rank for rank in inside if rank != source.rank]
        if len(inside) > 1 and source.layout == "rank-family":
            continue
        if others and source.rank not in inside and sum(inside.values()) > 2:  # noqa: PLR2004 - one line may be forged
            shared = claimed[source.rank] > 1 and len(by_folder[source.rank]) > 1
            if shared or source.layout == "rank-family":
                if len(others) == 1:
                    table.rank_of_source[source.index] = others[0]
                continue
        table.rank_of_source[source.index] = source.rank


def _tasks_are_ranks(evidence: JobEvidence, signals: list[Signal]) -> bool:
    """Srun's task number is the global rank, unless each task is a launcher of its own."""
    agree = differ = 0
    for _, key, _ in evidence.activities():
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
    told = {number(s.fields["pg_rank"]) for s in signals if "pg_rank" in s.fields and "pg" not in s.fields}
    worlds = [size for s in signals if (size := number(s.fields.get("world_size")))]
    ranks = [rank for rank in told if rank is not None]
    return bool(ranks) and (not worlds or (max(ranks) + 1) * 2 > max(worlds))


def _own_rank(signal: Signal, source: Source, table: Identity, plain: bool) -> None:
    """The rank that a signal's own place and tags give."""
    fields = signal.fields
    filed = table.rank_of_source.get(source.index)
    if filed is not None:
        if signal.rank is not None and signal.rank != filed:
            fields["conflict_rank"] = str(signal.rank)
        signal.rank, signal.rank_how = filed, Known.FILE
        return
    if signal.role is Role.EXIT and "rank" in fields:
        signal.rank, signal.rank_how = number(fields["rank"]), Known.EXIT
        return
    if signal.rank is not None:
        return
    task = number(fields.get("tag_task"))
    launcher_line = fields.get("logger") in {"srun", "slurmstepd"}
    if task is not None and table.tasks_are_ranks and not launcher_line and signal.role is not Role.EXIT:
        signal.rank, signal.rank_how = task, Known.TAG
        return
    if "box_rank" in fields:
        signal.rank, signal.rank_how = number(fields["box_rank"]), Known.EXIT
        return
    if "rank" in fields and signal.role not in {Role.EXIT, Role.EXTERNAL}:
        rank = number(fields["rank"])
        if rank is not None and fields.get("pg") in _DEFAULT_GROUP:
            signal.rank, signal.rank_how = rank, Known.CONTENT
            return
    if "pg_rank" in fields and (fields.get("pg") in {"0", "default_pg"} or (plain and "pg" not in fields)):
        signal.rank, signal.rank_how = number(fields["pg_rank"]), Known.CONTENT


def _own_files(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """Files whose process tells its own rank, each file another one: then all of a file is that rank's.

    One such file alone proves nothing: in a merged log often rank 0 only introduces itself.
    """
    told: dict[int, set[int]] = defaultdict(set)
    for signal in signals:
        if signal.rank is not None and signal.role is not Role.EXIT:
            told[signal.source].add(signal.rank)
    for source, key, _ in evidence.activities():
        if key.rank is not None:
            told[source.index].add(key.rank)
    single = {index: ranks.copy().pop() for index, ranks in told.items() if len(ranks) == 1}
    introduced = {s.source for s in signals if s.role is Role.IDENTITY and s.rank_how is Known.CONTENT}
    chosen = {
        index: rank for index, rank in single.items() if index in introduced and index not in table.rank_of_source
    }
    if (
        len(chosen) < 2
        or len(set(chosen.values())) != len(chosen)
        or any(  # noqa: PLR2004 - a family of files
            len(ranks) > 1 for index, ranks in told.items() if index in introduced
        )
    ):
        return
    for signal in signals:
        if signal.rank is None and signal.source in chosen and signal.role is not Role.EXIT:
            signal.rank, signal.rank_how = chosen[signal.source], Known.CONTENT
    table.rank_of_source.update(chosen)


def _learn(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    worlds: Counter[int] = Counter()
    for signal in signals:
        fields = signal.fields
        world = number(fields.get("world_size"))
        if world and signal.role in {Role.IDENTITY, Role.SYMPTOM, Role.STATE, Role.PROGRESS, Role.PHASE}:
            worlds[world] += 1
        rank = signal.rank
        host = host_named(signal, evidence.source(signal), table)
        if rank is None:
            continue
        pid = number(fields.get("pid")) if signal.role in {Role.IDENTITY, Role.EXIT} else None
        pid = pid if pid is not None else signal.pid
        if pid is not None and signal.signature != "dl.exit":
            table.rank_of_pid.setdefault((host, pid), rank)
            table.pid_of_rank.setdefault(rank, pid)
        if "bus_id" in fields and signal.role is Role.IDENTITY:
            table.rank_of_bus.setdefault((host, bus_key(fields["bus_id"])), rank)
        if host and signal.rank_how is not Known.GUESS:
            _tell_host(table, rank, host)
        ip = fields.get("ip") or fields.get("tag_ip")
        if ip and host:
            table.host_of_ip.setdefault(ip, host)
    for signal in signals:
        ip, host = signal.fields.get("ip"), signal.host or evidence.source(signal).host
        if ip and host and signal.role is Role.IDENTITY:
            table.host_of_ip.setdefault(ip, host)
    for source in evidence.sources:
        filed = table.rank_of_source.get(source.index)
        if filed is not None and source.host:
            _tell_host(table, filed, source.host)
    for signal in signals:
        host, tasks = signal.fields.get("host"), ints(signal.fields.get("tasks"))
        if host and tasks and "[" not in host and "," not in host:
            for task in tasks:
                table.host_of_task.setdefault(task, host)
                if table.tasks_are_ranks:
                    _tell_host(table, task, host)
            table.add_host(host)
    sure = {s.rank for s in signals if s.rank is not None and s.rank_how in {Known.FILE, Known.TAG, Known.PREFIX}}
    floor = max(sure, default=-1)
    worlds = Counter({size: count for size, count in worlds.items() if size > floor})
    if worlds:
        best = max(worlds.values())
        table.world_size = max(size for size, count in worlds.items() if count * 4 >= best)


def _tell_host(table: Identity, rank: int, host: str) -> None:
    known = table.host_of_rank.get(rank)
    if known is None or (known in _GENERIC_HOSTS and host not in _GENERIC_HOSTS):
        table.host_of_rank[rank] = host


def _learn_bases(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """A node's global ranks begin at some base: known from any line that tells both ranks."""
    votes: dict[Scope, Counter[int]] = defaultdict(Counter)
    locals_seen: set[int] = set()
    for source, key, _ in evidence.activities():
        local = key.local_rank if key.local_rank is not None else source.local_rank
        if local is None:
            continue
        locals_seen.add(local)
        if key.rank is not None and key.rank >= local:
            votes[scope_of(source)][key.rank - local] += 1
    for signal in signals:
        source = evidence.source(signal)
        local = number(signal.fields.get("local_rank"))
        local = local if local is not None else signal.local_rank
        local = local if local is not None else source.local_rank
        if local is not None:
            locals_seen.add(local)
        if local is not None and signal.rank is not None and signal.rank >= local:
            scope = scope_of(source)
            votes[scope][signal.rank - local] += 1
            host = signal.fields.get("host") or signal.host
            if host:
                votes[f"host {host}"][signal.rank - local] += 1
    rows: dict[tuple[int, str], tuple[int, ...]] = {}
    for signal in signals:
        # The agent's own table of the rendezvous: the best map there is.
        for name, listed in (("te.rdzv.local_ranks", "local_ranks"), ("te.rdzv.global_ranks", "ranks")):
            if signal.signature == name:
                rows[signal.source, name] = ints(signal.fields.get(listed) or signal.fields.get("ranks"))
        told, local_ranks = (
            rows.get((signal.source, "te.rdzv.global_ranks")),
            rows.get((signal.source, "te.rdzv.local_ranks")),
        )
        if signal.signature == "te.rdzv.global_ranks" and told and local_ranks:
            votes[scope_of(evidence.source(signal))][told[0] - local_ranks[0]] += len(told)
            locals_seen.update(local_ranks)
    for scope, counter in votes.items():
        base, count = counter.most_common(1)[0]
        if count * 2 > sum(counter.values()):
            table.base_of_scope[scope] = base
    table.local_size = max(locals_seen) + 1 if locals_seen else None
    _single_node_base(evidence, table, locals_seen)


def _single_node_base(evidence: JobEvidence, table: Identity, locals_seen: set[int]) -> None:
    """With one node only, local ranks are global ranks."""
    known = set(table.pid_of_rank) | set(table.host_of_rank)
    if (
        not locals_seen
        or any(base != 0 for base in table.base_of_scope.values())
        or max(known, default=0) > max(locals_seen)
    ):
        return
    scopes = {
        scope_of(source)
        for source in evidence.sources
        if source.local_rank is not None or any(
            key.local_rank is not None for other, key, _ in evidence.activities() if other.index == source.index
        )
    }  # fmt: skip
    whole = table.world_size is None or table.world_size <= max(locals_seen) + 1
    if whole:
        for scope in scopes | {scope_of(source) for source in evidence.sources}:
            table.base_of_scope.setdefault(scope, 0)
    if whole and table.world_size is None:
        table.world_size = max(locals_seen) + 1 if len(locals_seen) > 1 else None


def _learn_pids(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """A launcher starts its workers in order of local rank: their pids, once all are known, tell it."""
    by_scope: dict[Scope, set[int]] = defaultdict(set)
    for signal in signals:
        pid = number(signal.fields.get("pid"))
        if pid is not None and signal.signature.startswith(("te.closing", "te.failed", "te.box", "te.unable", "dl.")):
            by_scope[scope_of(evidence.source(signal))].add(pid)
    for scope, pids in by_scope.items():
        base = table.base_of_scope.get(scope)
        ordered = sorted(pids)
        if base is None or len(ordered) < (table.local_size or 1):
            continue
        if any(later - earlier > _PID_GAP for earlier, later in pairwise(ordered)):
            continue
        guess = {pid: base + local for local, pid in enumerate(ordered)}
        known = {pid: table.rank_for_pid(pid, None) for pid in ordered}
        anchored = any(rank is not None for rank in known.values()) or len(ordered) == table.world_size
        if anchored and all(rank is None or rank == guess[pid] for pid, rank in known.items()):
            for pid, rank in guess.items():
                table.rank_of_pid.setdefault((None, pid), rank)
                table.pid_of_rank.setdefault(rank, pid)


def _interpolate_pids(table: Identity) -> None:
    """Workers of a host whose pids and ranks rise together: a pid between two known ones has the rank between."""
    by_host: dict[str | None, dict[int, int]] = defaultdict(dict)
    for (host, pid), rank in table.rank_of_pid.items():
        by_host[host][pid] = rank
    for host, pairs in by_host.items():
        shifts = {pid - rank for pid, rank in pairs.items()}
        if len(pairs) < 2 or len(shifts) != 1:  # noqa: PLR2004 - a line has two points
            continue
        shift = shifts.pop()
        for pid in range(min(pairs), max(pairs) + 1):
            table.rank_of_pid.setdefault((host, pid), pid - shift)


def _derive(signal: Signal, source: Source, table: Identity) -> None:
    """The rank of a signal through the table, where its own place gives none."""
    if signal.rank is not None:
        return
    fields = signal.fields
    host = host_named(signal, source, table)
    pid = number(fields.get("pid"))
    for candidate in (pid, signal.pid):
        if candidate is not None:
            rank = table.rank_for_pid(candidate, host)
            if rank is not None:
                signal.rank, signal.rank_how = rank, Known.MAP
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
        or (table.host_of_ip.get(address, address) if address else None) or source.host
    )  # fmt: skip


def _set_host(signal: Signal, table: Identity) -> None:
    if signal.host is None and signal.rank is not None:
        signal.host = table.host_of_rank.get(signal.rank)


def _finish(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    for source, key, _ in evidence.activities():
        rank = stream_rank(source, key, table)
        if rank is not None:
            table.ranks.add(rank)
    for signal in signals:
        if signal.rank is not None and signal.rank_how is not Known.GUESS:
            table.ranks.add(signal.rank)
        if signal.signature.startswith("slurm.taskexit") and table.tasks_are_ranks:
            table.ranks.update(ints(signal.fields.get("tasks")))
    table.ranks.update(dump.rank for dump in evidence.dumps if dump.rank is not None)
    if table.world_size is not None:
        table.ranks = {rank for rank in table.ranks if rank < table.world_size}
    elif table.ranks:
        table.world_size = None
    for _, host in sorted(table.host_of_rank.items()):
        table.add_host(host)


def learn_pods(signals: Iterable[Signal], table: Identity) -> None:
    """Kubernetes training operators: the master is rank 0 and worker N is N + 1, one process a pod."""
    told: dict[str, set[int]] = defaultdict(set)
    for signal in signals:
        tag = signal.fields.get("tag_pod")
        if tag and signal.rank is not None:
            told[tag].add(signal.rank)
    for pod, ranks in told.items():
        if len(ranks) == 1:
            table.rank_of_pod.setdefault(pod, *ranks)
    if any(len(ranks) > 1 for ranks in told.values()):
        return
    pods = {pod for signal in signals if (pod := signal.fields.get("tag_pod") or signal.fields.get("pod"))}
    named = {pod: found for pod in pods if (found := _POD.match(pod))}
    masters = [pod for pod, found in named.items() if found["role"] in {"master", "chief", "launcher"}]
    if table.world_size is not None and len(named) != table.world_size:
        return
    for pod, found in named.items():
        if pod in masters:
            table.rank_of_pod.setdefault(pod, 0)
        elif found["role"] == "worker":
            table.rank_of_pod.setdefault(pod, int(found["index"]) + bool(masters))
