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
    """Seconds and bytes. `before`: resident with the evidence read; `peak`: the most while judging."""

    read: float
    judge: float
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
    started = time.perf_counter()
    verdict = judge(evidence)
    return Cost(read, time.perf_counter() - started, before, _resident("VmHWM"), grade(verdict, truth))


def measure(scenario: str, ranks: int, seed: str, layout: Layout) -> Cost:
    """Measure one job in a process of its own."""
    setting = Setting(ranks, 1.0, Stamps.MS, layout, f"{seed}/{scenario}/{ranks}")
    with tempfile.TemporaryDirectory(prefix="denpex-simulation-") as folder:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_measure, (scenario, setting, folder))


def table(sizes: Sequence[int], seed: str) -> str:
    """Markdown."""
    rows = ["| ranks | scenario | reading s | correlator s | resident before MB | peak while judging MB | verdict |"]
    rows.append("|---|---|---|---|---|---|---|")
    for ranks in sizes:
        for scenario in SCENARIOS:
            cost = measure(scenario, ranks, seed, Layout.RANKS)
            rows.append(
                f"| {ranks:,} | {scenario} | {cost.read:.1f} | {cost.judge:.2f} | {cost.before / 1e6:.0f} |"
                f" {cost.peak / 1e6:.0f} | {cost.grade} |"
            )
    return "\n".join(rows)
