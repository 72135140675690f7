"""Measures the correlator alone: time and memory of `judge` on evidence that was already read."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aggregator.correlate.judge import judge
from aggregator.discover import discover
from aggregator.pipeline import collect
from simulation import layouts
from simulation.scenarios import simulate
from simulation.scoring import Grade, grade
from simulation.world import Layout, Setting, Stamps, World

SCENARIOS = ("oom", "hang", "subgroup-hang")


class Cost(NamedTuple):
    """Seconds (`cpu`: of processor, by the correlator) and bytes.

    `before`: resident with the evidence read; `peak`: the most while judging.
    """

    read: float
    judge: float
    cpu: float
    before: int
    peak: int
    grade: Grade


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def _measure(scenario: str, setting: Setting, folder: str) -> Cost:
    world = World(setting)
    truth = simulate(scenario, world)
    layouts.write(world, Path(folder))
    del world
    started = time.perf_counter()
    evidence = collect(discover([folder]))
    read = time.perf_counter() - started
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the high-water mark (Linux)
    before = _resident("VmRSS")
    started, used = time.perf_counter(), time.process_time()
    verdict = judge(evidence)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    return Cost(read, wall, cpu, before, _resident("VmHWM"), grade(verdict, truth))


def measure(scenario: str, ranks: int, seed: str, layout: Layout) -> Cost:
    """Measure one job in a process of its own."""
    setting = Setting(ranks, 1.0, Stamps.MS, layout, f"{seed}/{scenario}/{ranks}")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="denpex-simulation-") as folder, spawn.Pool(1) as pool:
        return pool.apply(_measure, (scenario, setting, folder))


def table(sizes: Sequence[int], seed: str) -> str:
    """Markdown."""
    heads = ("ranks", "scenario", "reading s", "correlator s", "its CPU s", "MB before", "peak MB", "verdict")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for ranks in sizes:
        for scenario in SCENARIOS:
            cost = measure(scenario, ranks, seed, Layout.RANKS)
            rows.append(
                f"| {ranks:,} | {scenario} | {cost.read:.1f} | {cost.judge:.2f} | {cost.cpu:.2f} |"
                f" {cost.before / 1e6:.0f} | {cost.peak / 1e6:.0f} | {cost.grade} |"
            )
    return "\n".join(rows)
