"""What the others print when a rank is gone: lost connections, or watchdogs after ten minutes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from simulation import wording
from simulation.world import Exit, Stamps, World

TIMEOUT = 600.0
DEFAULT = "0(default_pg)"


@dataclass(frozen=True, slots=True)
class Wait:
    """What a rank waits in: the group (number in its process, GUID with name), its rank there, and the counters."""

    seq: int
    enqueued: int
    group: int = 0
    guid: str = DEFAULT
    group_rank: int | None = None


def raise_tagged(world: World, rank: int, at: float, text: str, code: int = 1) -> None:
    """The rank raises: in about half of the jobs its logger says so first, by its host's clock."""
    world.cut(rank, at)
    if world.rng.random() < 0.5:
        world.say(rank, at, "training failed, see the exception below", "ERROR")
    world.put(rank, at + 0.002, wording.tagged(rank, text))
    world.exits[rank] = Exit(at + world.rng.uniform(0.2, 0.9), code, at)
    world.raised[rank] = text


def lose_gloo(world: World, rank: int, at: float, hosts: list[int]) -> None:
    """Gloo names the address of a peer whose connection broke."""
    peer = world.rng.choice(hosts)
    address = f"10.{32 + peer // 200}.{peer % 200}.12"
    text = wording.gloo_closed(address, world.rng.randrange(1024, 65000), reset=world.rng.random() < 0.4)
    raise_tagged(world, rank, at, text)


def lose_nccl(world: World, rank: int, at: float, seq: int, hosts: list[int]) -> None:
    """NCCL's remote error, found by the watchdog, which takes the process down."""
    peer = world.hosts[world.rng.choice(hosts)]
    group = _prefix(world, Wait(seq, seq), rank)
    world.cut(rank, at)
    detail = wording.remote_detail(peer, world.rng.randrange(30000, 60000))
    error = f"[Rank {rank}] Collective {wording.work(seq)} raised the following async exception: {wording.REMOTE}"
    world.c10(rank, at, "ProcessGroupNCCL.cpp:552", f"{error}\n{detail}")
    end = at + world.rng.uniform(0.05, 1.0)
    _take_down(world, rank, end, group, f"{wording.REMOTE}\n{detail}")


def _prefix(world: World, wait: Wait, rank: int) -> str:
    inside = rank if wait.group_rank is None else wait.group_rank
    if world.setting.stamps is Stamps.NONE:
        return f"[PG {wait.guid.split('(')[0]} Rank {inside}]"
    return f"[PG ID {wait.group} PG GUID {wait.guid} Rank {inside}]"


def _take_down(world: World, rank: int, at: float, group: str, why: str) -> None:
    world.c10(rank, at, "ProcessGroupNCCL.cpp:684", f"[Rank {rank}] {wording.TEARDOWN}")
    world.c10(rank, at, "ProcessGroupNCCL.cpp:698", f"[Rank {rank}] {wording.DOWN}")
    ended = f"{group} Process group watchdog thread terminated with exception: {why}"
    world.c10(rank, at + 0.001, "ProcessGroupNCCL.cpp:1911", ended)
    world.put(
        rank, at + 0.002, f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {ended}"
    )
    world.exits[rank] = Exit(at + world.rng.uniform(0.05, 0.6), -6)


def time_out(world: World, rank: int, entered: float, wait: Wait) -> float:
    """The watchdog of a rank that waits; returns when it fired."""
    rng = world.rng
    at = entered + TIMEOUT + rng.uniform(0.0, 0.12)
    inside = rank if wait.group_rank is None else wait.group_rank
    group = _prefix(world, wait, rank)
    caught = (
        f"[Rank {inside}] Watchdog caught collective operation timeout: {wording.work(wait.seq)} ran for"
        f" {int((at - entered) * 1000)} milliseconds before timing out."
    )
    world.cut(rank, at)
    world.c10(rank, at, "ProcessGroupNCCL.cpp:632", caught)
    done = wait.seq - 1
    if world.setting.stamps is Stamps.NONE:
        status = (
            f"{group} Timeout at NCCL work: {wait.seq}, last enqueued NCCL work: {wait.enqueued}, last"
            f" completed NCCL work: {done}."
        )
        world.c10(rank, at + 0.001, "ProcessGroupNCCL.cpp:1537", status)
    else:
        status = (
            f"{group}  failure detected by watchdog at work sequence id: {wait.seq} PG status: last enqueued work:"
            f" {wait.enqueued}, last completed work: {done}"
        )
        world.c10(rank, at + 0.001, "ProcessGroupNCCL.cpp:2268", status)
        world.c10(rank, at + 0.001, "ProcessGroupNCCL.cpp:670", wording.NO_STACK)
        world.c10(rank, at + 0.002, "ProcessGroupNCCL.cpp:2103", f"{group} First PG on this rank to signal dumping.")
        own = (
            f"{_prefix(world, Wait(0, 0), rank)} Received a dump signal due to a collective timeout from this local"
            f" rank and we will try our best to dump the debug info. Last enqueued NCCL work: {wait.enqueued}, last"
            f" completed NCCL work: {done}.{wording.DUMP_ADVICE}"
        )
        if wait.group == 0:
            world.c10(rank, at + 0.05, "ProcessGroupNCCL.cpp:1743", own)
    _take_down(world, rank, at + rng.uniform(0.3, 20.0), group, caught)
    return at


def observe(world: World, rank: int, at: float, source: int, counter: int) -> None:
    """The heartbeat thread of a rank that waits for nothing sees another's dump signal and gives its counters."""
    if world.setting.stamps is Stamps.NONE:
        return
    group = _prefix(world, Wait(0, 0), rank)
    world.c10(
        rank,
        at,
        "ProcessGroupNCCL.cpp:1682",
        f"{group} Observed flight recorder dump signal from another rank via TCPStore.",
    )
    told = (
        f"{group} Received a dump signal due to a collective timeout from  rank {source} and we will try our best to"
        f" dump the debug info. Last enqueued NCCL work: {counter}, last completed NCCL work:"
        f" {counter}.{wording.DUMP_ADVICE}"
    )
    world.c10(rank, at + 0.01, "ProcessGroupNCCL.cpp:1743", told)


@dataclass(frozen=True, slots=True)
class Loss:
    """Ranks that left at `at`; the others had entered the collective `seq` at `entered`. `mode`: how they notice."""

    guilty: Collection[int]
    at: float
    mode: str
    seq: int
    entered: float
    apart: Collection[int] = ()
    """Ranks that go their own way."""


def lose(world: World, loss: Loss) -> None:
    """All other ranks notice it: by gloo, by NCCL, or by their watchdogs."""
    at, mode, seq, entered = loss.at, loss.mode, loss.seq, loss.entered
    origin = sorted({world.host_of(rank) for rank in loss.guilty})
    fallen = list(origin)
    others = [rank for rank in world.ranks if rank not in loss.guilty and rank not in loss.apart]
    world.rng.shuffle(others)
    ahead = world.rng.randrange(4)
    for rank in others:
        noticed = at + world.rng.expovariate(2.0)
        if mode == "gloo":
            lose_gloo(world, rank, noticed, origin if world.rng.random() < 0.7 else fallen)
            fallen.append(world.host_of(rank))
        elif mode == "nccl":
            lose_nccl(world, rank, noticed, seq, origin)
        else:
            time_out(world, rank, entered + world.rng.uniform(0, 0.3), Wait(seq, seq + ahead))
