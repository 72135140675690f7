"""What follows from the order in which launchers start their workers: ranks of a node from its base, and from pids."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from aggregator.correlate.evidence import MAX_WORLD, JobEvidence, ints, number
from aggregator.correlate.identity import Identity, Scope, scope_of
from parsers.later import later
from parsers.records import Signal

_INDEXED_POD = later(r"^(?P<hostname>.*\d)-[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""A pod of an indexed Job; its hostname is the name without the random end."""
_POD_NUMBER = later(r"^(?P<family>[a-z0-9][a-z0-9-]{0,200}-)(?P<number>\d{1,5})(?:-[a-z0-9]{5})?$")
_HOST_RANKS = later(r"'(?P<host>[^'\s]{1,200})': \[(?P<ranks>[\d, ]{1,4000})\]")
_PID_GAP = 64
"""Workers that one launcher starts one after the other have pids no further apart."""

_PLACES = frozenset({"k8s.placed", "k8s.node"})

_NOT_STARTED = frozenset({"slurm.launch_failed", "k8s.cannot_start"})
LOST_HOST = ("peer", "failed_host", "rebooted", "host", "pod", "nodes")
"""Fields in which schedulers name the node that they lost; `node` is the one that reports."""

_POD = later(r"^(?P<job>.+)-(?P<role>master|launcher|worker|chief|ps|node)-(?P<index>\d+)$")


def learn_bases(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
    """A node's global ranks begin at some base: known from any line that tells both ranks."""
    votes: dict[Scope, Counter[int]] = defaultdict(Counter)
    locals_seen: set[int] = set()
    for source, key, _ in evidence.activities:
        local = key.local_rank if key.local_rank is not None else source.local_rank
        if local is None:
            continue
        locals_seen.add(local)
        if key.rank is not None and key.rank >= local:
            votes[scope_of(source)][key.rank - local] += 1
    for signal in signals:
        source = evidence.source(signal)
        local = number(signal.fields["local_rank"]) if "local_rank" in signal.fields else None
        local = local if local is not None else signal.local_rank
        local = local if local is not None else source.local_rank
        if local is None:
            continue
        locals_seen.add(local)
        if signal.rank is not None and signal.rank >= local:
            scope = scope_of(source)
            votes[scope][signal.rank - local] += 1
            host = signal.fields.get("host") or signal.host
            if host:
                votes[f"host {host}"][signal.rank - local] += 1
    for scope, base, local_ranks in _rendezvous_tables(evidence, signals):
        votes[scope][base] += len(local_ranks)
        locals_seen.update(local_ranks)
    _deepspeed_map(signals, table)
    for scope, counter in votes.items():
        base, count = counter.most_common(1)[0]
        if count * 2 > sum(counter.values()):
            table.base_of_scope[scope] = base
    table.local_size = max(locals_seen) + 1 if locals_seen else None
    _single_node_base(evidence, signals, table, locals_seen)


def _deepspeed_map(signals: list[Signal], table: Identity) -> None:
    """DeepSpeed's launcher lists the global ranks of each host, in the order of their local ranks."""
    for text in [signal.fields["map"] for signal in signals if "map" in signal.fields]:
        for found in _HOST_RANKS.finditer(text):
            ranks = ints(found["ranks"])
            if ranks and ranks == tuple(range(ranks[0], ranks[0] + len(ranks))):
                table.base_of_scope.setdefault(f"host {found['host']}", ranks[0])
                for rank in ranks:
                    table.host_of_rank.setdefault(rank, found["host"])


def _rendezvous_tables(evidence: JobEvidence, signals: list[Signal]) -> Iterator[tuple[Scope, int, tuple[int, ...]]]:
    """The agents' own tables of a rendezvous, the best map there is: node, its first rank, its local ranks."""
    local_ranks: dict[int, tuple[int, ...]] = {}
    for signal in signals:
        if not signal.signature.startswith("te.rdzv."):
            continue
        listed = ints(signal.fields.get("local_ranks") or signal.fields.get("ranks"))
        if signal.signature == "te.rdzv.local_ranks":
            local_ranks[signal.source] = listed
        elif signal.signature == "te.rdzv.global_ranks" and listed and local_ranks.get(signal.source):
            known = local_ranks[signal.source]
            yield scope_of(evidence.source(signal)), listed[0] - known[0], known


def _single_node_base(evidence: JobEvidence, signals: Sequence[Signal], table: Identity, locals_seen: set[int]) -> None:
    """With one node only, local ranks are global ranks."""
    nodes = {source.host for source in evidence.sources if source.local_rank is not None}
    if len(nodes - {None}) > 1:
        return
    known = set(table.pid_of_rank) | set(table.host_of_rank)
    seen = {signal.rank for signal in signals if signal.rank is not None}
    if len({signal.source for signal in signals if signal.local_rank is not None or "local_rank" in signal.fields}) > 1:
        known |= seen
    if (
        not locals_seen
        or any(base != 0 for base in table.base_of_scope.values())
        or max(known, default=0) > max(locals_seen)
    ):
        return
    machines = {signal.fields["machines"] for signal in signals if "machines" in signal.fields}
    # Where launchers of several nodes wrote, the program's own count is a default that nobody set.
    alone = (
        machines == {"1"}
        and len({*table.host_of_rank.values(), *nodes} - {None}) <= 1
        and _one_scope(evidence, signals)
    )
    whole = table.world_size is None or table.world_size <= max(locals_seen) + 1 or alone
    if whole:
        for scope in {scope_of(source) for source in evidence.sources}:
            table.base_of_scope.setdefault(scope, 0)
    if whole and table.world_size is None:
        world = max(locals_seen | seen) + 1
        table.world_size = world if len(locals_seen) > 1 and world <= MAX_WORLD else None


def _one_scope(evidence: JobEvidence, signals: Sequence[Signal]) -> bool:
    """Whether all local ranks are told in what one node wrote, as far as that can be seen."""
    scopes = {
        scope_of(source) for source, key, _ in evidence.activities
        if key.local_rank is not None or source.local_rank is not None
    }  # fmt: skip
    scopes |= {
        scope_of(evidence.source(signal)) for signal in signals
        if signal.local_rank is not None or "local_rank" in signal.fields
    }  # fmt: skip
    return len(scopes) <= 1


def learn_pod_files(evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> None:
    """Files named as pods, numbered as the ranks are: a pod of that family that left no file has the next number."""
    family: set[str] = set()
    for index, rank in table.rank_of_source.items():
        stem = evidence.sources[index].path.rpartition("/")[2].split(".", 1)[0]
        found = _POD_NUMBER.match(stem)
        if found is None or int(found["number"]) != rank:
            return
        family.add(found["family"])
    if len(family) != 1:
        return
    for pod in {pod for signal in signals if (pod := signal.fields.get("pod"))}:
        found = _POD_NUMBER.match(pod)
        if found is not None and found["family"] in family:
            table.rank_of_pod.setdefault(pod, int(found["number"]))


def learn_pids(evidence: JobEvidence, signals: list[Signal], table: Identity) -> None:
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


def learn_killed_tasks(signals: Sequence[Signal], table: Identity) -> None:
    """A kernel's record of a kill in one of Slurm's control groups names the task: with it, the rank of the process.

    Source: src/plugins/task/cgroup/task_cgroup.c: since 23.11 it is the global number, before the one on its node.
    """
    placed = table.host_of_rank.keys()
    if not table.reports_count_ranks or placed != set(range(table.world_size or len(placed))):
        return
    for signal in signals:
        task, pid = number(signal.fields.get("task")), number(signal.fields.get("pid"))
        of_step = signal.signature == "kernel.oom.slurm_task" and signal.fields.get("step_id", "").isdigit()
        if not of_step or task is None or pid is None or signal.host is None:
            continue
        there = table.ranks_on(signal.host)
        fits = {*there[task : task + 1], *({task} & set(there))}
        if len(fits) == 1:
            table.rank_of_pid.setdefault((signal.host, pid), *fits)


def unite_pods(table: Identity) -> None:
    """A pod that is known by its hostname too is called by that alone."""
    names = set(table.host_of_rank.values())
    for rank, name in table.host_of_rank.items():
        indexed = _INDEXED_POD.match(name)
        if indexed is not None and indexed["hostname"] in names:
            table.host_of_rank[rank] = indexed["hostname"]


def fill_hosts(table: Identity) -> None:
    """Launchers fill one host after the other: where all ranks whose host is known stand so, the others do too.

    Each host has as many ranks, in the order of their numbers, and at least one that is known to run there. Where the
    known ones might as well go round the hosts (`srun -m cyclic`), nothing is filled in.
    """
    placed = table.host_of_rank
    world, hosts = table.world_size or max(table.ranks, default=-1) + 1, set(placed.values())
    if len(hosts) < 2 or not len(hosts) <= world <= MAX_WORLD or world % len(hosts):  # noqa: PLR2004 - one is no order
        return
    size = world // len(hosts)
    host_of_block = {rank // size: host for rank, host in placed.items()}
    if len(host_of_block) < len(hosts) or any(host_of_block[rank // size] != host for rank, host in placed.items()):
        return
    if len({(rank % len(hosts), host) for rank, host in placed.items()}) == len(hosts):
        return
    for rank in range(world):
        placed.setdefault(rank, host_of_block[rank // size])


def place_missing(signals: Sequence[Signal], table: Identity) -> None:
    """The one host that started nothing, or was lost, and of which no line is known, has the ranks that nobody heard.

    They are one block, as large as that of each other host as far as those are known, where such a block would start.
    """
    world = table.world_size or 0
    unheard = [rank for rank in range(world) if rank not in table.ranks] if world <= MAX_WORLD else []
    size = len(unheard)
    if not 0 < size < world or world % size or unheard[0] % size or unheard[-1] - unheard[0] != size - 1:
        return
    sizes = {*Counter(table.host_of_rank.values()).values(), *([table.local_size] if table.local_size else [])}
    if any(rank in table.host_of_rank for rank in unheard) or max(sizes, default=size) != size:
        return
    gone = {id(signal): name for signal in signals if (name := _gone(signal)) and not table.ranks_on(name)}
    pods = {name for name in gone.values() if name in table.node_of_pod}
    names = pods or set(gone.values())
    host = names.pop() if len(names) == 1 else None
    if host is None or not all(table.runs_on(host, name) for name in gone.values()):
        return
    if host in pods or any(signal.signature.startswith("k8s.") for signal in signals if id(signal) in gone):
        known = {*table.host_of_rank.values(), *(s.fields["tag_pod"] for s in signals if "tag_pod" in s.fields)}
        if _shape(host) not in map(_shape, known):
            return  # a cluster tells of other pods and nodes too
    table.host_of_rank.update(dict.fromkeys(unheard, host))
    for signal in signals:
        if id(signal) in gone:
            signal.host = host


def without_foreign(signals: Sequence[Signal], table: Identity) -> list[Signal]:
    """Without what a cluster tells of nodes on which no rank ran: all are known to run on others of such names."""
    whole = table.world_size is not None and len(table.host_of_rank) >= table.world_size
    shapes = {_shape(name) for name in set(table.host_of_rank.values())} if whole else set()
    told = [next((s.fields[name] for name in LOST_HOST if name in s.fields), "") for s in signals]
    of_cluster = {host for host, s in zip(told, signals, strict=True) if host and s.signature.startswith("k8s.")}
    foreign = {host for host in of_cluster if _shape(host) in shapes and not table.ranks_on(host)}
    return [
        signal for host, signal in zip(told, signals, strict=True)
        if host not in foreign or not signal.signature.startswith("k8s.")
    ]  # fmt: skip


def _shape(name: str) -> str:
    """A name without what differs between hosts or pods of one job."""
    indexed = _INDEXED_POD.match(name)
    return re.sub(r"\d+", "#", indexed["hostname"] if indexed is not None else name.split(".", 1)[0])


def _gone(signal: Signal) -> str | None:
    """The host or pod that a line tells the loss of, or that nothing could be started on."""
    if signal.kind != "node_failure" and signal.signature not in _NOT_STARTED:
        return None
    return next((signal.fields[name] for name in ("pod", "listed", *LOST_HOST) if name in signal.fields), None)


def interpolate_pids(signals: Sequence[Signal], table: Identity) -> None:
    """Workers of a host whose pids and ranks rise together: a pid between two known ones has the rank between.

    Either all known ones rise by the same, or an agent stops just as many between two as there are ranks between.
    """
    told = {number(signal.fields.get("pid")) for signal in signals if signal.signature == "te.closing"}
    stopped = sorted(pid for pid in told if pid is not None)
    by_host: dict[str | None, dict[int, int]] = defaultdict(dict)
    for (host, pid), rank in table.rank_of_pid.items():
        by_host[host][pid] = rank
    for host, pairs in by_host.items():
        for (low, first), (high, last) in pairwise(sorted(pairs.items())):
            between = stopped[bisect_right(stopped, low) : bisect_left(stopped, high)]
            if len(between) == last - first - 1 and high - low <= _PID_GAP:
                for rank, pid in enumerate(between, first + 1):
                    table.rank_of_pid.setdefault((host, pid), rank)
                    if host is not None:
                        table.host_of_rank.setdefault(rank, host)
        shifts = {pid - rank for pid, rank in pairs.items()}
        if len(pairs) < 2 or len(shifts) != 1 or max(pairs) - min(pairs) > MAX_WORLD:  # noqa: PLR2004 - a line has two points
            continue
        shift = shifts.pop()
        for pid in range(min(pairs), max(pairs) + 1):
            table.rank_of_pid.setdefault((host, pid), pid - shift)


def are_components(signals: Iterable[Signal]) -> bool:
    """Whether one srun ends steps of several jobs at once: the components of a heterogeneous job."""
    ends = [
        (signal.source, signal.fields["job_id"]) for signal in signals
        if signal.signature == "slurm.srun_abort" and "step_id" in signal.fields
    ]  # fmt: skip
    runs = [end for end, _ in groupby(ends)]
    return len(runs) > len(set(runs))


def _learn_placement(signals: Sequence[Signal], table: Identity) -> None:
    """What cluster tools tell of a pod is of the machine that it runs on, and of the ranks that call it their host."""
    for signal in signals:
        fields = signal.fields
        pod = fields.get("assigned") or fields.get("pod")
        node = (
            fields.get("to") or fields.get("node") or (fields.get("host") if signal.signature == "k8s.node" else None)
        )
        if pod is None:
            continue
        if node is not None and signal.signature in _PLACES:
            table.node_of_pod.setdefault(pod, node)
            if (indexed := _INDEXED_POD.match(pod)) is not None:
                table.node_of_pod.setdefault(indexed["hostname"], node)
        there = table.ranks_on(pod)
        if len(there) == 1:
            table.rank_of_pod.setdefault(pod, *there)
        elif there and signal.host is None:
            signal.host = pod


def _place_by_tags(told: Mapping[str, set[int]], table: Identity) -> None:
    """The ranks of lines that a collector put a pod's name before ran there: not where one pod prints for all."""
    if len(told) < 2 or len(set[int]().union(*told.values())) < sum(map(len, told.values())):  # noqa: PLR2004 - one may be the launcher
        return
    for name, ranks in told.items():
        for rank in ranks if len(ranks) > 1 else ():
            table.host_of_rank.setdefault(rank, name)


def learn_pods(signals: Sequence[Signal], table: Identity) -> None:
    """Kubernetes training operators: the master is rank 0 and worker N is N + 1, one process a pod."""
    _learn_placement(signals, table)
    told: dict[str, set[int]] = defaultdict(set)
    for signal in signals:
        tag = signal.fields.get("tag_pod")
        if tag and signal.rank is not None:
            told[tag].add(signal.rank)
    for name, ranks in told.items():
        if len(ranks) == 1:
            table.rank_of_pod.setdefault(name, *ranks)
    _place_by_tags(told, table)
    on_host = Counter(table.host_of_rank.values())
    if any(len(ranks) > 1 for ranks in told.values()):
        return
    if not told and any(signal.signature.startswith("te.") for signal in signals):
        return  # torchrun's agents run in the pods: each may have started any number of processes
    pods = {pod for signal in signals if (pod := signal.fields.get("tag_pod") or signal.fields.get("pod"))}
    named = {pod: found for pod in pods if (found := _POD.match(pod))}
    if any(on_host[pod] > 1 for pod in named) or any(_POD.match(host) and many > 1 for host, many in on_host.items()):
        return  # several processes a pod
    masters = [pod for pod, found in named.items() if found["role"] in {"master", "chief", "launcher"}]
    if table.world_size is not None and len(named) != table.world_size:
        return
    for pod, found in named.items():
        if pod in masters:
            table.rank_of_pod.setdefault(pod, 0)
        elif found["role"] == "worker":
            table.rank_of_pod.setdefault(pod, int(found["index"]) + bool(masters))
