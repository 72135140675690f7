"""One table that ties ranks to hosts, processes, GPUs and addresses, and what it makes of each signal.

A wrong global rank is the worst error there is: where two readings disagree the surer one is kept, and what is only
likely is marked `Known.GUESS`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from aggregator.correlate.evidence import number
from parsers.records import Source
from parsers.scan import StreamKey

Scope = str
"""A node as far as its name is known: a host, else a folder or file that one launcher wrote."""

_BUS_DIGITS = 5
"""Of a PCI address without its domain: bus, device, function."""

# DeepSpeed's shards are numbered by data-parallel rank, which is global where there is one model-parallel rank.
_RANK_IN_PATH = re.compile(
    r"(?:zero_pp_rank_(?P<shard>\d+)_mp_rank_0+(?!\d)|(?:^|[/.\s'\"-]|[a-oq-z]_)rank[_-]?(?P<rank>\d+))"
)


_NETWORK = re.compile(r"\w(?:[-_]?(?:ib|ibs|opa|hsn|roce|eth|mgmt)\d{0,2}|(?<=\d)i)")
"""The last letter of a machine's name and what stands behind it where one of its networks is meant; the single letter
is the way of large sites (`jwb0613i`)."""


@dataclass
class Identity:
    """The table. Ranks are global."""

    world_size: int | None = None
    tasks_are_ranks: bool = True
    reports_count_ranks: bool = True
    """Whether the task numbers of srun's reports are ranks: those of heterogeneous jobs count in each component."""
    rank_of_pid: dict[tuple[str | None, int], int] = field(default_factory=dict)
    pid_of_rank: dict[int, int] = field(default_factory=dict)
    rank_of_bus: dict[tuple[str | None, str], int] = field(default_factory=dict)
    base_of_scope: dict[Scope, int] = field(default_factory=dict)
    host_of_rank: dict[int, str] = field(default_factory=dict)
    host_of_ip: dict[str, str] = field(default_factory=dict)
    rank_of_pod: dict[str, int] = field(default_factory=dict)
    node_of_pod: dict[str, str] = field(default_factory=dict)
    """The machines that pods run on: a kernel calls itself by the machine, a process by its pod."""
    rank_of_source: dict[int, int] = field(default_factory=dict)
    tagged_by_role: set[int] = field(default_factory=set)
    """Sources in which what looks like PyTorch's tag is torchrun's, with the local rank behind a role called `rank`."""
    local_size: int | None = None
    ranks: set[int] = field(default_factory=set)
    hosts: list[str] = field(default_factory=list)
    log_hosts: set[str] = field(default_factory=set)
    """Hosts that the names and places of logs tell."""
    _known_hosts: set[str] = field(default_factory=set, repr=False)
    _by_pid: dict[int, set[tuple[str | None, int]]] = field(default_factory=dict, repr=False)
    _pids_indexed: int = field(default=0, repr=False)
    _machines: set[str] = field(default_factory=set, repr=False)
    _hosts_counted: int = field(default=-1, repr=False)

    def add_host(self, host: str | None) -> None:
        if host and host not in self._known_hosts:
            self._known_hosts.add(host)
            self.hosts.append(host)

    def ranks_on(self, host: str) -> list[int]:
        """Global ranks known to run on a host."""
        return sorted(rank for rank, name in self.host_of_rank.items() if self.runs_on(name, host))

    def runs_on(self, name: str | None, host: str | None) -> bool:
        """Whether what calls itself `name` is `host`, or a pod that runs there."""
        return same_host(name, host) or (name is not None and same_host(self.node_of_pod.get(name), host))

    def rank_for_pid(self, pid: int, host: str | None) -> int | None:
        """The rank of a process; without its host only if the pid is one rank's alone."""
        if (host, pid) in self.rank_of_pid:
            return self.rank_of_pid[host, pid]
        if self._pids_indexed != len(self.rank_of_pid):  # the table only grows
            self._pids_indexed = len(self.rank_of_pid)
            self._by_pid = defaultdict(set)
            for (where, known), rank in self.rank_of_pid.items():
                self._by_pid[known].add((where, rank))
        found = {rank for where, rank in self._by_pid.get(pid, ()) if self._may_be_on(rank, where, host)}
        return found.pop() if len(found) == 1 else None

    def _may_be_on(self, rank: int, where: str | None, host: str | None) -> bool:
        """Whether a process of a rank, told of on `where`, may be one on `host`: pids repeat from host to host."""
        known = where or self.host_of_rank.get(rank)
        if host is None or known is None or same_host(known, host) or _is_address(known) or _is_address(host):
            return True
        if self._hosts_counted != len(self.host_of_rank):  # the table only grows
            self._hosts_counted = len(self.host_of_rank)
            self._machines = self.log_hosts.union(self.host_of_rank.values())
        return len(self._machines) <= 1  # one host under two names

    def rank_for_bus(self, bus: str, host: str | None) -> int | None:
        """The rank whose GPU has a PCI address, in NCCL's or the kernel's spelling."""
        wanted = bus_key(bus)
        found = {
            rank
            for (where, other), rank in self.rank_of_bus.items()
            if other == wanted and (host is None or where is None or self.runs_on(where, host))
        }
        if not found:  # NCCL leaves out the PCI domain where there is one only
            found = {
                rank
                for (where, other), rank in self.rank_of_bus.items()
                if other[-_BUS_DIGITS:] == wanted[-_BUS_DIGITS:] and where is not None and self.runs_on(where, host)
            }
        return found.pop() if len(found) == 1 else None


def _is_address(host: str) -> bool:
    return host[:1].isdigit() or ":" in host


def same_host(left: str | None, right: str | None) -> bool:
    """Whether two spellings name one host: `node-b`, `node-b.cluster.example` and `node-b-ib0` do."""
    if left is None or right is None:
        return False
    if left == right:
        return True
    left, right = left.split(".", 1)[0], right.split(".", 1)[0]
    if left[:1].isdigit():
        return False
    if left == right:
        return True
    short, long = sorted((left, right), key=len)
    return bool(short) and long.startswith(short) and _NETWORK.fullmatch(long, len(short) - 1) is not None


def bus_key(bus: str) -> str:
    """PCI address as domain, bus, device without function and leading zeros: `0000:5d:00.0` and `5d000` agree."""
    text = bus.lower().removeprefix("pci:")
    if ":" in text:
        parts = text.split(".", 1)[0].split(":")
        text = "".join(part.zfill(2) for part in parts) + "0"
    return text.lstrip("0") or "0"


def scope_of(source: Source) -> Scope:
    """The node that a source's local ranks belong to."""
    if source.host:
        return f"host {source.host}"
    if source.group:
        return f"group {source.group}"
    return f"file {source.path}"


def stream_rank(source: Source, key: StreamKey, table: Identity) -> int | None:
    """The rank that wrote a stream of a file, None where the table does not tell."""
    filed = table.rank_of_source.get(source.index)
    if filed is not None:
        return filed
    if key.task is not None and table.tasks_are_ranks:
        return number(key.task)
    if key.rank is not None and (source.index not in table.tagged_by_role or key.local_rank is not None):
        return key.rank
    local = key.local_rank if key.local_rank is not None else source.local_rank
    if local is not None:
        base = table.base_of_scope.get(scope_of(source))
        if base is not None:
            return base + local
    return None


def rank_in_path(text: str) -> int | None:
    """A rank that a file name in an error text carries, if it carries exactly one."""
    found = {int(match["shard"] or match["rank"]) for match in _RANK_IN_PATH.finditer(text)}
    return found.pop() if len(found) == 1 else None
