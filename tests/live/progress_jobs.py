"""Simulates what the logs of a training job let one see, look by look. Deterministic; all times are seconds."""

import random
from dataclasses import dataclass, field, replace
from heapq import merge

from aggregator.live.progress import Sighting, Tracker

LOOK_S, POLL_S = 5.0, 0.25
NOON_NS = 1_772_625_600 * 10**9


@dataclass(frozen=True)
class Job:
    """A job as its logs show it. `hung` ranks write their last step before `hang_at`; others one more, if in step."""

    ranks: int = 8
    step_s: float = 1.0
    jitter: float = 0.05
    """How much later than the group a rank may write a step, as a share of the step's time."""
    in_step: bool = True
    """All ranks wait for each other at each step; else each goes at its own pace."""
    log_every: int = 1
    log_s: float = 0.0
    """A step is logged only if the last one logged is so long ago, as progress bars do."""
    offsets: bool = False
    """Each rank logs at steps of its own."""
    loggers: frozenset[int] | None = None
    """Who reports steps; all, if None."""
    stages: int = 1
    """Pipeline stages: each reports one step less than the one before."""
    scale: dict[int, int] = field(default_factory=dict)
    """Ranks whose counter goes so many times as fast."""
    start_s: float = 20.0
    eval_every: int = 0
    eval_s: float = 0.0
    eval_line_s: float = 0.0
    """Rank 0 writes so often during an evaluation; 0: all are silent."""
    eval_says: str = ""
    """What rank 0 writes when an evaluation begins."""
    epoch: int = 0
    """Counters begin again after so many steps."""
    buffered_s: float = 0.0
    """Logs arrive in portions so far apart."""
    per_host: int = 4
    hung: frozenset[int] = frozenset()
    hang_at: int = 0
    others_write_s: float = 0.0
    """The other ranks write a line so often while they wait."""
    slow: dict[int, float] = field(default_factory=dict)
    """Ranks that need so many times as long for a step (not in step)."""
    ends: dict[int, int] = field(default_factory=dict)
    """Ranks that end after so many steps (not in step)."""
    seed: int = 0


def lines(job, rank, until):
    """The lines of one rank in the order of arrival: time, step or None, text."""
    shared, own = random.Random(job.seed), random.Random(f"{job.seed}/{rank}")
    now, step, logged = job.start_s, 0, own.uniform(-job.log_s, 0)
    yield 0.5, None, "NCCL INFO Init COMPLETE"
    while now < until:
        step += 1
        stops = step >= job.hang_at > 0
        if stops and (rank in job.hung or (job.in_step and step > job.hang_at)):
            break
        if step > job.ends.get(rank, step):
            yield now, None, "training finished"
            return
        spread = shared.uniform(0.9, 1.1) if job.in_step else own.uniform(0.7, 1.3)
        now += job.step_s * spread * job.slow.get(rank, 1.0)
        written = now + job.step_s * own.uniform(0, job.jitter)
        number = step - rank * job.stages // job.ranks
        logs = (job.loggers is None or rank in job.loggers) and written - logged >= job.log_s
        if logs and number > 0 and (number + (rank * 7 if job.offsets else 0)) % job.log_every == 0:
            shown = (number % job.epoch if job.epoch else number) * job.scale.get(rank, 1)
            yield written, shown, f"step {shown} loss 2.1"
            logged = written
        if job.eval_every and step % job.eval_every == 0:
            if rank == 0 and job.eval_says:
                yield written + 0.5, None, job.eval_says
            if rank == 0 and job.eval_line_s:
                batches = range(1, int(job.eval_s / job.eval_line_s))
                yield from ((now + batch * job.eval_line_s, None, f"batch {batch}") for batch in batches)
            now += job.eval_s
    if job.others_write_s and rank not in job.hung:
        while now < until:
            now += job.others_write_s
            yield now, None, "waiting"


def arrivals(job, rank, until):
    """What arrives of one rank and when: lines come in portions, and are seen at the next poll."""
    portion = job.buffered_s or POLL_S
    phase = random.Random(f"phase/{job.seed}/{rank}").uniform(0, portion) if job.buffered_s else 0.0
    for time, step, line in lines(job, rank, until):
        arrived = time if step is None and not job.buffered_s else (int((time - phase) / portion) + 1) * portion + phase
        yield -(-arrived // POLL_S) * POLL_S, rank, step, line


def looks(job, until):
    """Every look: its time and what is newest of each rank that has written."""
    newest, now = {}, LOOK_S
    for arrived, rank, step, line in merge(*(arrivals(job, rank, until) for rank in range(job.ranks))):
        while arrived > now:
            yield now, list(newest.values())
            now += LOOK_S
        seen = newest.get(rank)
        newest[rank] = Sighting(
            rank=rank, host=f"node-{rank // job.per_host}", arrived=arrived, line=line, path=f"rank_{rank}.log",
            step=seen.step if step is None and seen else step, ended=line == "training finished",
        )  # fmt: skip
    while now < until:
        yield now, list(newest.values())
        now += LOOK_S


def suspicions(job, until):
    """What is suspected, with the time of the look."""
    tracker, found = Tracker(), []
    for now, sightings in looks(job, until):
        tracker.look(now, sightings)
        if suspicion := tracker.suspicion(now, utc(now)):
            found.append((now, suspicion))
    return found


def hang_time(job):
    """When those who stop have written their last step: all others where ranks wait for each other, else the hung."""
    quiet = replace(job, others_write_s=0.0)
    stopped = set(range(job.ranks)) - job.hung if job.in_step else job.hung
    return max((time for rank in stopped for time, step, _ in lines(quiet, rank, 10**6) if step), default=job.start_s)


def utc(now):
    return NOON_NS + round(now * 10**9)
