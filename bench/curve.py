"""How time and memory grow with a job: `python bench/curve.py --most 2GB --files 8 1024 16384`.

Makes a job of each number of files at each size from 64 MB on, four times as large each time, runs `postmortem` on it,
and fits what was measured: CPU = start + a * MB + b * files, by least squares. Memory is the sum of the resident sets
of the process and its children, looked at 20 times a second, and more often in the first; pages that they share count
for each of them. The data is removed after each run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from generate import generate, parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "aggregator"]
LEAST_FILE = 4000
"""Bytes of a file: shorter ones are no logs of a rank."""
LOOK_S = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def family_memory(pid: int) -> int:
    """Bytes that a process and its descendants have in memory."""
    parents, sizes = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)], sizes[int(entry.name)] = int(status[1]), int(status[21]) * PAGE
    family, more = {pid}, True
    while more:
        found = {child for child, parent in parents.items() if parent in family} - family
        family |= found
        more = bool(found)
    return sum(sizes.get(one, 0) for one in family)


@dataclass(frozen=True, slots=True)
class Used:
    """What a command and its children took: seconds, and bytes of memory."""

    cpu: float
    wall: float
    memory: int


def watched(command: Sequence[str], *, cores: int | None = None) -> Used:
    """Run a command to its end, on so many cores, and look at the memory of all its processes.

    Raises:
        SystemExit: it fails.
    """
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:cores])
    began, most = time.perf_counter(), 0
    # Its verdicts are no jobs of the user's.
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | {"DENPEX_HISTORY": "0"})
    os.sched_setaffinity(0, allowed)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most = max(most, family_memory(process.pid))
        time.sleep(LOOK_S if time.perf_counter() - began > 1 else LOOK_S / 10)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1 is grep's "nothing found"
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Used(used.ru_utime + used.ru_stime, wall, most)


def fit(rows: list[tuple[float, float, float]]) -> tuple[np.ndarray, float]:
    """Start, seconds a MB and seconds a file that fit (MB, files, CPU s) best, and the share that they explain (R²)."""
    table = np.array(rows)
    known = np.column_stack([np.ones(len(table)), table[:, 0], table[:, 1]])
    # Each row counts by its own size: the largest would decide alone.
    weight = 1 / table[:, 2:]
    found, *_ = np.linalg.lstsq(known * weight, table[:, 2] * weight[:, 0], rcond=None)
    missed = table[:, 2] - known @ found
    return found, 1 - float((missed**2).sum() / ((table[:, 2] - table[:, 2].mean()) ** 2).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=parse_size, default=parse_size("64MB"), help="bytes of the smallest job")
    parser.add_argument("--most", type=parse_size, default=parse_size("1GB"), help="bytes of the largest job")
    parser.add_argument("--files", type=int, nargs="+", default=[8, 1024, 16384])
    options = parser.parse_args()
    rows: list[tuple[float, float, float]] = []
    print("| MB | files | CPU s | wall s | MB/s of wall | peak MB |\n|---|---|---|---|---|---|", flush=True)
    size = options.least
    while size <= options.most:
        for files in (files for files in options.files if size // files >= LEAST_FILE):
            with tempfile.TemporaryDirectory(prefix="denpex-curve-") as name:
                real = sum(path.stat().st_size for path in generate(Path(name), files=files, size=size)) / 1e6
                used = watched([*PROGRAM, "postmortem", name, "-q"])
            rows.append((real, files, used.cpu))
            told = f"{used.cpu:.1f} | {used.wall:.1f} | {real / used.wall:.0f} | {used.memory / 1e6:.0f}"
            print(f"| {real:,.0f} | {files:,} | {told} |", flush=True)
        size *= 4
    if len(rows) > 3:
        (start, a_mb, a_file), share = fit(rows)
        print(f"\nCPU s = {start:.2f} + {a_mb * 1000:.2f} ms a MB + {a_file * 1000:.2f} ms a file (R² {share:.3f})")


if __name__ == "__main__":
    main()
