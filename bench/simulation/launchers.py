"""torchrun's agents and srun: who they saw end, whom they ended, and what they printed of it."""

from __future__ import annotations

from collections.abc import Sequence

from simulation import wording
from simulation.world import NEVER, PER_HOST, Exit, Line, World


def finish(world: World) -> None:
    """Let the launchers notice how the ranks ended."""
    if world.setting.layout.elastic:
        _run_agents(world)
    else:
        _run_srun(world)


def _run_agents(world: World) -> None:
    listed = world.rng.random() < 0.5  # PyTorch 2.9 lists those that it ended too
    store_lost = _run_agent(world, 0, NEVER, listed=listed)
    for host in range(1, len(world.hosts)):
        lost = store_lost + world.rng.uniform(0.1, 5.0) if store_lost < NEVER else NEVER
        _run_agent(world, host, lost, listed=listed)


def _run_agent(world: World, host: int, store_lost: float, *, listed: bool) -> float:
    """Returns when the agent ended, `NEVER` if it did not fail. `store_lost`: when the first host's one was missed."""
    rng, ranks = world.rng, world.ranks_of(host)
    if host in world.gone:
        return min((end.at for rank in ranks if (end := world.exits[rank]) is not None), default=NEVER)
    ends = [(end.at, rank) for rank in ranks if (end := world.exits[rank]) is not None and end.code != 0]
    poll = min(ends)[0] + rng.uniform(0.0, 0.1) if ends else NEVER
    running = any(at > store_lost for _, at in _exit_times(world, ranks))
    if store_lost < poll and running:
        _lose_store(world, host, store_lost)
        return store_lost
    if not ends:
        return NEVER
    failed = [rank for at, rank in ends if at <= poll]
    alive = [rank for rank in ranks if rank not in failed and not _ended(world, rank, poll)]
    for rank in alive:
        world.tell(host, poll + 0.005, f"Sending process {world.pids[rank]} closing signal SIGTERM")
        _terminate(world, rank, poll + rng.uniform(0.01, 0.2))
    at = poll + rng.uniform(0.2, 0.6)
    first = min(failed, key=lambda rank: (int(world.shown(host, _noticed(world, rank, poll))), rank))
    code = _code(world, first)
    world.tell(
        host, at, f"failed (exitcode: {code}) local_rank: {first % PER_HOST} (pid: {world.pids[first]}) of binary:"
        " /opt/venv/bin/python3.11", "E", "multiprocessing/api.py:874",
    )  # fmt: skip
    others = [rank for rank in failed if rank != first] + (alive if listed else [])
    world.agent_lines[host].extend(Line(at, line) for line in _box(world, host, poll, first, others))
    return at


def _exit_times(world: World, ranks: Sequence[int]) -> list[tuple[int, float]]:
    ends = [(rank, world.exits[rank]) for rank in ranks]
    return [(rank, NEVER if end is None else end.at) for rank, end in ends]


def _ended(world: World, rank: int, at: float) -> bool:
    end = world.exits[rank]
    return end is not None and end.at <= at


def _code(world: World, rank: int) -> int:
    end = world.exits[rank]
    return end.code if end is not None else -15


def _noticed(world: World, rank: int, poll: float) -> float:
    """When the box says that a rank failed: at its exception where that was recorded, else at the poll."""
    end = world.exits[rank]
    return end.raised_at if world.recorded and end is not None and end.raised_at is not None else poll


def _terminate(world: World, rank: int, at: float) -> None:
    world.cut(rank, at)
    world.exits[rank] = Exit(at, -15)


def _box(world: World, host: int, poll: float, first: int, others: Sequence[int]) -> list[str]:
    lines = [*f"{wording.CHILD_FAILED} ".split("\n"), "=" * 60, "train.py FAILED", "-" * 60, "Failures:"]
    if not others:
        lines.append("  <NO_OTHER_FAILURES>")
    for number, rank in enumerate(others, 1):
        lines += _entry(world, host, poll, rank, number)
    lines += ["-" * 60, "Root Cause (first observed failure):", *_entry(world, host, poll, first, 0), "=" * 60]
    return lines


def _entry(world: World, host: int, poll: float, rank: int, number: int) -> list[str]:
    code, pid = _code(world, rank), world.pids[rank]
    name = wording.SIGNALS.get(code)
    file, cause = "<N/A>", f"Signal {-code} ({name}) received by PID {pid}"
    if code > 0 and world.recorded:
        file = f"/results/{world.hosts[host]}/{world.error_file(rank)}"
        cause = world.raised[rank].strip().replace("\n", "\n  ")
    elif code > 0:
        cause = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    when = world.clock(host, _noticed(world, rank, poll), "box")
    return [
        f"[{number}]:", f"  time      : {when}", f"  host      : {world.hosts[host]}",
        f"  rank      : {rank} (local_rank: {rank % PER_HOST})",
        f"  exitcode  : {code} (pid: {pid})" + (f"  ({name})" if name else ""),
        f"  error_file: {file}", *f"  traceback : {cause}".split("\n"),
    ]  # fmt: skip


def _lose_store(world: World, host: int, at: float) -> None:
    """The first host's agent, which keeps the store, is gone: the agent gives up and ends its ranks."""
    node = f"{world.hosts[host]}_{19000 + host % 900}_0"
    world.tell(
        host, at, f"The node '{node}' has failed to send a keep-alive heartbeat to the rendezvous 'none' due to an"
        " error of type RendezvousConnectionError.", place="rendezvous/dynamic_rendezvous.py:1161",
    )  # fmt: skip
    for rank in world.ranks_of(host):
        if not _ended(world, rank, at):
            world.tell(host, at + 0.1, f"Sending process {world.pids[rank]} closing signal SIGTERM")
            _terminate(world, rank, at + world.rng.uniform(0.12, 0.3))
    world.agent_lines[host].extend(Line(at + 0.5, line) for line in wording.STORE_LOST.split("\n"))


def node_lost(world: World, host: int, at: float) -> None:
    """Slurm notices that a node does not answer."""
    name, stamp = world.hosts[host], world.clock(0, at, "slurm")
    why = "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
    world.launcher_lines += [
        Line(at, f"srun: error: Node failure on {name}"),
        Line(at + 0.1, f"slurmstepd: error: *** JOB 6 ON {world.hosts[0]} CANCELLED AT {stamp} {why} ***"),
        Line(at + 0.2, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    ]


def time_limit(world: World, at: float) -> None:
    """Slurm ends the job at its time limit."""
    stamp, head = world.clock(0, at, "slurm"), world.hosts[0]
    world.launcher_lines += [
        Line(at, f"{world.label}slurmstepd: error: *** STEP 6.0 ON {head} CANCELLED AT {stamp} DUE TO TIME LIMIT ***"),
        Line(at, f"slurmstepd: error: *** JOB 6 ON {head} CANCELLED AT {stamp} DUE TO TIME LIMIT ***"),
        Line(at + 0.1, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    ]
    for rank in world.ranks:
        world.cut(rank, at + world.rng.uniform(0.0, 0.1))
    if world.setting.layout.elastic:
        for host in range(len(world.hosts)):
            told = "Received SIGTERM death signal, shutting down workers"
            world.tell(host, at + world.rng.uniform(0, 0.1), told, place="agent/server/api.py:719")
            for rank in world.ranks_of(host):
                world.tell(host, at + 0.11, f"Sending process {world.pids[rank]} closing signal SIGTERM")


def _run_srun(world: World) -> None:
    """srun hears of each task's end over the network; with kill-on-bad-exit the first bad one ends all."""
    rng = world.rng
    heard = sorted(
        (end.at + rng.uniform(0.0, 0.03), rank) for rank, end in enumerate(world.exits)
        if end is not None and end.code != 0 and world.host_of(rank) not in world.gone
    )  # fmt: skip
    if not heard:
        return
    if not world.kill_on_bad_exit:
        _report(world, heard)
        return
    first = heard[0][0]
    kill = first + rng.uniform(0.02, 0.2)
    ended = [(at, rank) for at, rank in heard if at <= kill]
    _report(world, ended)
    lines = world.launcher_lines
    lines.append(Line(kill, "srun: launch/slurm: _step_signal: Terminating StepId=6.0"))
    stamp = world.clock(0, kill, "slurm")
    lines.append(
        Line(kill + 0.01, f"{world.label}slurmstepd: error: *** STEP 6.0 ON {world.hosts[0]} CANCELLED AT {stamp} ***")
    )
    dead = {rank for _, rank in ended}
    late = []
    for rank in world.ranks:
        if rank not in dead and world.host_of(rank) not in world.gone:
            at = kill + rng.uniform(0.02, 0.2)
            _terminate(world, rank, at)
            late.append((at + 0.3, rank))
    _report(world, sorted(late))


def _report(world: World, heard: Sequence[tuple[float, int]]) -> None:
    """One line for the tasks of a host that ended alike within a moment."""
    groups: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for at, rank in heard:
        key = (world.host_of(rank), _code(world, rank))
        group = groups.setdefault(key, [])
        if group and at - group[0][0] > 0.1:
            _report_group(world, *key, group)
            groups[key] = group = []
        group.append((at, rank))
    for key, group in groups.items():
        _report_group(world, *key, group)


def _report_group(world: World, host: int, code: int, group: Sequence[tuple[float, int]]) -> None:
    tasks = sorted(rank for _, rank in group)
    word = "task" if len(tasks) == 1 else "tasks"
    text = f"srun: error: {world.hosts[host]}: {word} {_ranges(tasks)}: {wording.ENDS[code]}"
    world.launcher_lines.append(Line(group[0][0], text))


def _ranges(tasks: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for task in tasks:
        if parts and task == parts[-1][-1] + 1:
            parts[-1].append(task)
        else:
            parts.append([task])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
