"""Measures what docs/scale.md sets itself as goals: `python bench/goals.py`.

Each row is the median of some rounds; ratios are medians of pairs that ran one after the other. CPU is user and system
time of the process and its children. Memory is the sum of the resident sets of the process and its children, looked at
20 times a second (bench/curve.py); on one core there is one process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from curve import PROGRAM, watched
from generate import generate, parse_size
from run import keywords

if TYPE_CHECKING:
    from collections.abc import Sequence


def told(what: str, goal: str, value: str) -> None:
    """Print a row of the table."""
    print(f"| {what} | {goal} | {value} |", flush=True)


def middle(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and from where to where the values go."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def pairs(ours: Sequence[str], theirs: Sequence[str], rounds: int) -> str:
    """How many times the CPU time of another command ours takes."""
    return middle([watched(ours).cpu / watched(theirs).cpu for _ in range(rounds)])


class Jobs:
    """Job folders of the benchmark's data, made when they are asked for; they are read once before they are used."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, files: int, size: str) -> str:
        """The folder of a job of so many files that have that size together."""
        folder = self._root / f"{files}-files-{parse_size(size)}"
        for path in sorted(folder.rglob("*.log")) or generate(folder, files=files, size=parse_size(size)):
            path.read_bytes()
        return str(folder)


def measure(jobs: Jobs, scratch: Path, rounds: int, large: str | None) -> None:
    """Print the rows, one after the other."""
    table = str(scratch / "events.parquet")
    export = [*PROGRAM, "export", "-o", table, "--force", "-q"]
    read = [*PROGRAM, "postmortem", "-q"]
    few, many = jobs.of(8, "250MB"), jobs.of(8192, "250MB")
    search = ["rg", "--no-config", "-a", "-j1", "-c", "-F", "-f", str(keywords(scratch)), few]
    pack = ["sh", "-c", f"cat {few}/*/*.log | zstd -1 -T1 -c -q"]
    if shutil.which("rg"):
        told("post-mortem of 250 MB, CPU, x rg with the same literals", "1", pairs([*read, few], search, rounds))
    if shutil.which("zstd"):
        told("every line to Parquet, CPU, x zstd -1", "2.5", pairs([*export, few], pack, rounds))
        told("the same, secrets not masked", "", pairs([*export, "--no-redact", few], pack, rounds))
    job = jobs.of(64, "200MB")
    used = [watched([*read, job]) for _ in range(rounds)]
    told("200 MB in 64 files, wall s", "0.8", middle([one.wall for one in used]))
    told("the same, MB of memory", "250", middle([one.memory / 1e6 for one in used], ".0f"))
    job = jobs.of(8, "8MB")
    told("8 ranks x 1 MB, CPU s", "0.15", middle([watched([*read, job]).cpu for _ in range(rounds)]))
    for option, goal in (("--version", "0.03"), ("--help", "0.2")):
        told(f"`{option}`, CPU s", goal, middle([watched([*PROGRAM, option]).cpu for _ in range(rounds)], ".3f"))
    told("post-mortem, 8,192 files x 8 files", "1.3", pairs([*read, many], [*read, few], rounds))
    told("every line to Parquet, 8,192 files x 8 files", "1.3", pairs([*export, many], [*export, few], rounds))
    job = jobs.of(64, "1GB")
    apart = [(watched([*read, job], cores=1), watched([*read, job])) for _ in range(rounds)]
    told("1 GB, wall time on one core x on two", "1.7", middle([one.wall / two.wall for one, two in apart]))
    told("1 GB, MB of memory on one core", "300", middle([one.memory / 1e6 for one, _ in apart], ".0f"))
    job = jobs.of(1, "1GB")
    told("one file of 1 GB, post-mortem, MB of memory", "300", middle([watched([*read, job]).memory / 1e6], ".0f"))
    told("one file of 1 GB, export, MB of memory", "300", middle([watched([*export, job]).memory / 1e6], ".0f"))
    if large is not None:
        job = jobs.of(64, large)
        used = [watched([*read, job], cores=1), watched([*read, job]), watched([*export, job])]
        for what, one in zip(("on one core", "on all", "export"), used, strict=True):
            told(f"{large} in 64 files, {what}, MB of memory", "", f"{one.memory / 1e6:.0f} ({one.wall:.0f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="keep the data here, and use what is there")
    parser.add_argument("--large", help="also a job of this size (10GB), whose memory is to be that of 1 GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="denpex-goals-") as name:
        print("| | goal | measured |\n|---|---|---|", flush=True)
        measure(Jobs(options.data or Path(name)), Path(name), options.rounds, options.large)


if __name__ == "__main__":
    main()
