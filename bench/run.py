"""Measures export and post-mortem beside the tools anyone has: `python bench/run.py --size 250MB`.

Makes the data (bench/generate.py), then runs every program once a round, in turn, so that a machine that slows down
slows all of them. Reported are medians over the rounds: CPU is user and system time of the process and its children,
memory the largest resident set of one of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from generate import generate, parse_size

from parsers.lineformats import load_formats

ROOT = Path(__file__).resolve().parent.parent
ROWS_ONLY = """
import sys
from functools import partial
from pathlib import Path
from aggregator.discover import discover
from aggregator.export import write_events
from aggregator.opening import ReadNotes, read_chunks
from parsers.normalise import normalise
sources = discover([sys.argv[1]]).logs
write_events(normalise(sources, partial(read_chunks, notes=ReadNotes())), Path(sys.argv[2]))
"""
"""The export without triage: no signatures."""
IN_DUCKDB = r"""
import sys
import duckdb
duckdb.sql("set threads=1")
duckdb.execute(
    "select count(*), count(*) filter (contains(line, 'Error')) from read_csv(?, columns={'line': 'VARCHAR'},"
    " auto_detect=false, header=false, delim='\x01', quote='', escape='', ignore_errors=true, strict_mode=false,"
    " max_line_size=4000000, buffer_size=64000000)",
    [sys.argv[1] + "/**/*.log"],
).fetchall()
"""
"""Splits all lines and looks for one word: no stamps, no ranks."""
SETS = (8, 8192)
"""Files of the two folders: the same number of bytes in few files and in many."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one process used: seconds, and bytes of memory."""

    cpu: float
    wall: float
    memory: int


@dataclass(frozen=True, slots=True)
class Case:
    """A program to measure.

    `stdin` says that it reads the files as one stream, made by `cat` outside the measure; `may_fail`, that files may be
    too many or too odd for it.
    """

    name: str
    command: list[str]
    stdin: bool = False
    may_fail: bool = False


def measure(case: Case, paths: list[Path]) -> Run | None:
    """Run a case to its end; None if it fails and may.

    Raises:
        SystemExit: it fails.
    """
    feeder = None
    if case.stdin:
        feeder = subprocess.Popen(["xargs", "-0", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started = time.perf_counter()
    process = subprocess.Popen(
        case.command,
        cwd=ROOT,
        env=os.environ | {"DENPEX_HISTORY": "0"},  # its verdicts are no jobs of the user's
        stdin=feeder.stdout if feeder else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if feeder is not None and feeder.stdin is not None and feeder.stdout is not None:
        feeder.stdout.close()
        feeder.stdin.write(b"\0".join(os.fsencode(path) for path in paths))
        feeder.stdin.close()
    message = process.stderr.read() if process.stderr else b""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    if feeder is not None:
        feeder.wait()
    # 1 is a verdict without a culprit, and grep's "nothing found".
    if case.may_fail and code != 0:
        return None
    if code not in (0, 1):
        raise SystemExit(f"{case.name} ended with {code}: {message.decode(errors='replace')[-500:]}")
    return Run(used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss * 1024)


def keywords(folder: Path) -> Path:
    """A file with the literals that triage looks for, one a line."""
    words = {
        word for fmt in load_formats() for message in fmt.messages if not message.ends_only for word in message.keywords
    }
    path = folder / "keywords.txt"
    path.write_text("".join(f"{word}\n" for word in sorted(words)))
    return path


def cases(folder: Path, scratch: Path) -> tuple[list[Case], list[str]]:
    """The programs to compare, and notes on those that are missing."""
    program = [sys.executable, "-m", "aggregator"]
    found, notes = [Case("wc -l", ["wc", "-l"], stdin=True)], []
    if shutil.which("zstd"):
        found.append(Case("zstd -1", ["zstd", "-1", "-T1", "-c", "-q"], stdin=True))
    else:
        notes.append("zstd is not installed: no ratios (apt-get install zstd)")
    if shutil.which("rg"):
        words = ["rg", "--no-config", "-a", "-j1", "-c", "-F", "-f", str(keywords(scratch)), str(folder)]
        found.append(Case("rg -F -f", words))
    else:
        notes.append("rg is not installed (apt-get install ripgrep)")
    if shutil.which("lnav"):
        found.append(
            Case("lnav", ["lnav", "-n", "-r", "-c", ";select count(*) from all_logs", str(folder)], may_fail=True)
        )
    else:
        notes.append("lnav is not installed (apt-get install lnav)")
    if importlib.util.find_spec("duckdb"):
        found.append(Case("DuckDB, one word", [sys.executable, "-c", IN_DUCKDB, str(folder)], may_fail=True))
    else:
        notes.append("DuckDB is not installed (pip install duckdb)")
    table = str(scratch / "events.parquet")
    found.append(Case("rows without signatures", [sys.executable, "-c", ROWS_ONLY, str(folder), table]))
    found.append(Case("denpex-agg export", [*program, "export", str(folder), "-o", table, "--force", "-q"]))
    found.append(Case("denpex-agg postmortem", [*program, "postmortem", str(folder)]))
    return found, notes


def report(size: int, results: dict[str, list[Run]]) -> None:
    """Print the table of one folder."""
    middle = {name: statistics.median(run.cpu for run in runs) for name, runs in results.items()}
    print("| program | CPU s | MB/s of CPU | x zstd -1 | x rg | wall s | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in results.items():
        ratios = [
            f"{middle[name] / middle[other]:.2f}" if other in middle else "-" for other in ("zstd -1", "rg -F -f")
        ]
        wall = statistics.median(run.wall for run in runs)
        memory = max(run.memory for run in runs) / 1e6
        rate = size / 1e6 / max(middle[name], 1e-3)
        print(f"| {name} | {middle[name]:.2f} | {rate:,.0f} | {' | '.join(ratios)} | {wall:.2f} | {memory:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=parse_size, default=parse_size("250MB"), help="bytes of each folder")
    parser.add_argument("--files", type=int, nargs="+", default=list(SETS), help="files of each folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="keep the data here, and use what is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="denpex-bench-") as name:
        scratch = Path(name)
        for files in options.files:
            folder = (options.data or scratch) / f"{files}-files-{options.size}"
            paths = sorted(folder.rglob("*.log")) or generate(folder, files=files, size=options.size)
            size = sum(path.stat().st_size for path in paths)
            lines = sum(path.read_bytes().count(b"\n") for path in paths)  # also brings the files into memory
            programs, notes = cases(folder, scratch)
            results: dict[str, list[Run]] = {case.name: [] for case in programs}
            for _ in range(options.rounds):
                for case in programs:
                    if (run := measure(case, paths)) is not None:
                        results[case.name].append(run)
            notes += [f"{name} fails on these files" for name, runs in results.items() if not runs]
            print(f"\n{size / 1e6:.0f} MB, {lines:,} lines, {len(paths):,} files, median of {options.rounds} rounds\n")
            report(size, {name: runs for name, runs in results.items() if runs})
            print(*(f"\nnote: {note}" for note in notes), sep="")


if __name__ == "__main__":
    main()
