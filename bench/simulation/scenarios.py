"""The faults: each makes its world and says what the truth is."""

from __future__ import annotations

from collections.abc import Callable, Collection

from simulation import launchers, wording
from simulation.peers import TIMEOUT, Loss, Wait, lose, observe, raise_tagged, time_out
from simulation.world import PER_HOST, Exit, Truth, World

FAILED = frozenset({"failed", "hung"})
SEQ_PER_STEP = 3


def begin(world: World, last: int) -> None:
    """Start, initialisation and the healthy steps up to `last`."""
    size = world.setting.ranks
    first, total = world.taus[0], world.setting.steps * (1 if last == world.setting.steps else 20)
    for rank in world.ranks:
        host = world.hosts[world.host_of(rank)]
        early = first - world.rng.uniform(0.5, 5)
        world.c10(
            rank,
            early,
            "socket.cpp:207",
            "[c10d] The hostname of the client socket cannot be retrieved. err=-3",
            "W",
            tag=False,
        )
        opening = f"initialised process group: rank {rank} of {size} on {host} pid {world.pids[rank]}"
        world.say(rank, first + world.lag(rank), opening)
    for step in range(1, last + 1):
        at, mean = world.taus[step], 5.4 - 0.2 * step
        for rank in world.ranks:
            world.say(rank, at + world.lag(rank), f"step {step}/{total} loss {mean + world.rng.uniform(-0.1, 0.1):.4f}")


def _fault(world: World) -> tuple[int, float, float, int]:
    """Steps before the fault, when the others enter what it keeps them waiting in, when it strikes, and the work."""
    last = world.rng.randrange(world.setting.steps // 2, world.setting.steps)
    begin(world, last)
    length = world.taus[last + 1] - world.taus[last]
    strikes = world.taus[last] + length * world.rng.uniform(0.1, 0.6)
    return last, world.taus[last] + length * 0.7, strikes, (last + 1) * SEQ_PER_STEP


def _culprit(world: World) -> int:
    return world.rng.randrange(world.setting.ranks)


def _mode(world: World) -> str:
    mode = world.rng.choice(("gloo", "nccl", "watchdog"))
    world.kill_on_bad_exit = mode != "watchdog"
    return mode


def _truth(world: World, ranks: set[int], kinds: set[str], at: float) -> Truth:
    hosts = {world.hosts[world.host_of(rank)] for rank in ranks}
    return Truth(FAILED, frozenset(ranks), frozenset(hosts), frozenset(kinds), at)


def oom(world: World) -> Truth:
    """CUDA out of memory on one rank."""
    culprit = _culprit(world)
    _, entered, at, seq = _fault(world)
    _raise_and_leave(world, {culprit: (at, wording.cuda_oom(culprit % PER_HOST))}, entered, seq)
    return _truth(world, {culprit}, {"cuda_oom"}, at)


def _raise_and_leave(
    world: World, raised: dict[int, tuple[float, str]], entered: float, seq: int, apart: Collection[int] = ()
) -> None:
    for rank, (at, text) in raised.items():
        raise_tagged(world, rank, at, text)
    gone = min(end.at for rank in raised if (end := world.exits[rank]) is not None)
    lose(world, Loss(raised.keys(), gone, _mode(world), seq, max(entered, gone), apart))


def kill(world: World) -> Truth:
    """SIGKILL on one rank, which says nothing."""
    culprit = _culprit(world)
    _, entered, at, seq = _fault(world)
    world.cut(culprit, at)
    world.exits[culprit] = Exit(at, -9)
    lose(world, Loss({culprit}, at, _mode(world), seq, max(entered, at)))
    return _truth(world, {culprit}, {"killed", "host_oom", "unknown"}, at)


def hang(world: World) -> Truth:
    """One rank stops in data loading; all others time out in the same collective."""
    culprit = _culprit(world)
    _, entered, at, seq = _fault(world)
    world.kill_on_bad_exit = False
    ahead = world.rng.randrange(4)
    fired = [
        (time_out(world, rank, entered + world.rng.uniform(0, 0.3), Wait(seq, seq + ahead)), rank)
        for rank in world.ranks if rank != culprit
    ]  # fmt: skip
    if world.rng.random() < 0.5:
        first, source = min(fired)
        observe(world, culprit, first + world.rng.uniform(0.2, 1.2), source, seq - 1)
    _end_hang(world, culprit, max(fired)[0])
    return _truth(world, {culprit}, {"collective_timeout", "deadlock", "unknown"}, at)


def _end_hang(world: World, culprit: int, last: float) -> None:
    """A rank that hangs ends by its launcher, or when the job is ended."""
    if not world.setting.layout.elastic:
        world.exits[culprit] = Exit(last + 40, -15)


def subgroup_hang(world: World) -> Truth:
    """Tensor-parallel groups inside a host, data-parallel ones across: the chain of waits ends at one rank."""
    culprit = _culprit(world)
    _, entered, at, seq = _fault(world)
    world.kill_on_bad_exit = False
    size = 4 if world.setting.ranks <= PER_HOST else PER_HOST
    team = culprit // size
    teams = world.setting.ranks // size
    fired = []
    for rank in world.ranks:
        if rank == culprit:
            continue
        own, local = divmod(rank, size)
        if own == team:
            wait = Wait(seq * 24 + 5, seq * 24 + 5, 1, f"{1 + own}(tensor_parallel)", local)
            begun = entered
        else:
            wait = Wait(seq, seq, 2, f"{1 + teams + local}(data_parallel)", own)
            begun = entered + 0.4
        fired.append(time_out(world, rank, begun + world.rng.uniform(0, 0.3), wait))
    _end_hang(world, culprit, max(fired))
    return _truth(world, {culprit}, {"collective_timeout", "deadlock", "unknown"}, at)


def loader(world: World) -> Truth:
    """A Python exception in a DataLoader worker of one rank."""
    culprit = _culprit(world)
    _, entered, at, seq = _fault(world)
    _raise_and_leave(world, {culprit: (at, wording.loader_error(world.rng.randrange(8)))}, entered, seq)
    return _truth(world, {culprit}, {"python_exception", "data_error"}, at)


def host(world: World) -> Truth:
    """A whole host stops at once, its launcher too."""
    lost = world.rng.randrange(len(world.hosts))
    ranks = set(world.ranks_of(lost))
    _, entered, at, seq = _fault(world)
    for rank in ranks:
        world.cut(rank, at)
        world.exits[rank] = Exit(at, -9)
    world.gone.add(lost)
    mode = _mode(world)
    lose(world, Loss(ranks, at + 1.0, mode, seq, max(entered, at)))
    if not world.setting.layout.elastic:
        launchers.node_lost(world, lost, at + (40 if mode != "watchdog" else TIMEOUT + 60))
    return _truth(world, ranks, {"node_failure", "network_error", "collective_timeout", "unknown", "killed"}, at)


def pair(world: World) -> Truth:
    """Two ranks of different hosts fail of the same cause within 100 ms, each by itself."""
    one = _culprit(world)
    other = (one + PER_HOST * world.rng.randrange(1, len(world.hosts))) % world.setting.ranks
    _, entered, at, seq = _fault(world)
    times = {one: at, other: at + world.rng.uniform(0.0, 0.1)}
    raised = {rank: (when, wording.cuda_oom(rank % PER_HOST)) for rank, when in times.items()}
    _raise_and_leave(world, raised, entered, seq)
    return _truth(world, {one, other}, {"cuda_oom"}, at)


def cascade(world: World) -> Truth:
    """One rank runs out of memory; 3 s later another's clean-up fails of its own mistake."""
    culprit = _culprit(world)
    second = (culprit + PER_HOST * world.rng.randrange(1, len(world.hosts))) % world.setting.ranks
    _, entered, at, seq = _fault(world)
    _raise_and_leave(world, {culprit: (at, wording.cuda_oom(culprit % PER_HOST))}, entered, seq, {second})
    raise_tagged(world, second, at + 3.0, wording.key_error())
    return _truth(world, {culprit}, {"cuda_oom"}, at)


def completed(world: World) -> Truth:
    """All steps done."""
    steps = world.setting.steps
    begin(world, steps)
    end = world.taus[steps] + 0.05
    for rank in world.ranks:
        world.say(rank, end + world.lag(rank), f"training finished after {steps} steps")
        world.exits[rank] = Exit(end + 1, 0)
    return Truth(frozenset({"completed"}), at=end)


def running(world: World) -> Truth:
    """At work when the logs were copied, in the middle of a line."""
    last = world.setting.steps - 1
    begin(world, world.setting.steps - 1)
    world.end = world.taus[last] + world.rng.uniform(-0.01, 0.5)
    return Truth(frozenset({"running", "unknown"}), at=world.end)


def time_limit(world: World) -> Truth:
    """Slurm's time limit ends a healthy job."""
    last = world.setting.steps - 1
    begin(world, last)
    at = world.taus[last] + world.rng.uniform(0.0, 1.0)
    launchers.time_limit(world, at)
    return Truth(frozenset({"cancelled"}), kinds=frozenset({"time_limit"}), at=at)


def _noise(world: World, innocent: int, until: float) -> None:
    """Exceptions that a rank catches, tells of and goes on from, before and between its steps."""
    for step, at in enumerate(world.taus[:-1]):
        when = at + 0.3 * (world.taus[step + 1] - at)
        if when < until:
            world.say(innocent, when, f"sample {world.rng.randrange(10**6)} could not be decoded, skipped", "WARNING")
            world.put(innocent, when, wording.NOISE)
    world.rank_lines[innocent].sort(key=lambda line: line.at)


def noisy_oom(world: World) -> Truth:
    """CUDA out of memory on one rank, while another tells of caught exceptions all along."""
    culprit = _culprit(world)
    innocent = (culprit + world.rng.randrange(1, world.setting.ranks)) % world.setting.ranks
    last, entered, at, seq = _fault(world)
    _noise(world, innocent, world.taus[last])
    _raise_and_leave(world, {culprit: (at, wording.cuda_oom(culprit % PER_HOST))}, entered, seq)
    return _truth(world, {culprit}, {"cuda_oom"}, at)


def noisy_completed(world: World) -> Truth:
    """A completed job, one rank of which told of caught exceptions all along."""
    truth = completed(world)
    _noise(world, _culprit(world), world.taus[world.setting.steps])
    return truth


SCENARIOS: dict[str, Callable[[World], Truth]] = {
    "oom": oom, "kill": kill, "hang": hang, "subgroup-hang": subgroup_hang, "loader": loader, "host": host,
    "pair": pair, "cascade": cascade, "completed": completed, "running": running, "time-limit": time_limit,
    "noisy-oom": noisy_oom, "noisy-completed": noisy_completed,
}  # fmt: skip
MANY_HOSTS = frozenset({"host", "pair", "cascade"})
"""Scenarios that need two hosts."""


def simulate(name: str, world: World) -> Truth:
    """Let a fault happen and the launchers see it."""
    truth = SCENARIOS[name](world)
    if name not in {"running", "time-limit"}:
        launchers.finish(world)
    return truth


def possible(name: str, ranks: int) -> bool:
    """Whether a scenario makes sense for a size: some need several hosts."""
    return name not in MANY_HOSTS or ranks > PER_HOST
