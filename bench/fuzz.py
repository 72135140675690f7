"""Feeds mutated logs, dumps, folders and whole jobs to the program: `python bench/fuzz.py --count 1000000 --seed 1`.

A finding is an exception that nobody foresaw, an answer that is no valid JSON, more than 5 s of processor time or a
minute of any time, more than 1 GB of memory, or the end of the process. Input `number` of a target and a seed is always
the same: `--target NAME --seed SEED --first NUMBER --count 1` does it again.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from fuzzing.targets import TARGETS, empty

CPU_S = 5.0
WALL_S = 60.0
MEMORY_KB = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What one input did. `what` is a line; the rest is the traceback, where there is one."""

    target: str
    seed: int
    number: int
    what: str


class HangError(Exception):
    """An input took more than its processor time."""


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise HangError(f"more than {CPU_S:g} s of processor time")


def one(name: str, seed: int, number: int, folder: Path) -> str | None:
    """Gives one input to a target; what is wrong with what it did, or None."""
    told = None
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        try:
            TARGETS[name][0](Random(f"{seed}/{name}/{number}"), folder)  # repeatable on purpose
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except Exception:  # noqa: BLE001 - what it may be is the question
        told = traceback.format_exc()
    empty(folder)
    if told is not None:
        return told
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{used >> 10} MB of memory" if used > MEMORY_KB else None


def _child(name: str, seed: int, numbers: range, done: mmap.mmap, found: int) -> None:
    signal.signal(signal.SIGPROF, _hang)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder,
        os.fdopen(found, "w") as out,
    ):
        for number in numbers:
            done[:8] = number.to_bytes(8, "little")
            if (what := one(name, seed, number, Path(folder))) is not None:
                out.write(f"{number}\0{what}\1")
                out.flush()
                if what.endswith("of memory"):
                    return  # the largest set is the process's: a new one begins anew


def fuzz(name: str, seed: int, numbers: range) -> list[Finding]:
    """Gives inputs of these numbers to a target, in a process that may die of them."""
    findings = []
    first = numbers.start
    while first < numbers.stop:
        done = mmap.mmap(-1, 8)
        done[:8] = first.to_bytes(8, "little")
        reading, writing = os.pipe()
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_child, args=(name, seed, range(first, numbers.stop), done, writing))
        child.start()
        os.close(writing)
        told = _watch(child, done, reading)
        last = int.from_bytes(done[:8], "little")
        findings += [Finding(name, seed, *told_of) for told_of in told]
        if child.exitcode and not any(number == last for number, _ in told):
            findings.append(Finding(name, seed, last, f"the process ended with {child.exitcode}"))
        first = last + 1
    return findings


def _watch(child: multiprocessing.process.BaseProcess, done: mmap.mmap, reading: int) -> list[tuple[int, str]]:
    """Waits for a child, kills it when it stands still, and reads what it found."""
    os.set_blocking(reading, False)
    text, at, since = b"", b"", time.monotonic()
    while True:
        child.join(0.2)
        try:
            while piece := os.read(reading, 1 << 16):
                text += piece
        except BlockingIOError:
            pass
        if not child.is_alive():
            break
        if done[:8] != at:
            at, since = done[:8], time.monotonic()
        elif time.monotonic() - since > WALL_S:
            child.kill()
    os.close(reading)
    items = [item.split("\0", 1) for item in text.decode(errors="replace").split("\1")[:-1]]
    return [(int(number), what) for number, what in items]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="inputs over all targets, or of --target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input of each target")
    parser.add_argument("--target", choices=list(TARGETS), help="only this one")
    asked = parser.parse_args()
    shares = {name: share for name, (_, share) in TARGETS.items() if asked.target in {None, name}}
    total = sum(shares.values())
    inputs = findings = 0
    for name, share in shares.items():
        count = -(-asked.count * share // total)
        began = time.monotonic()
        found = fuzz(name, asked.seed, range(asked.first, asked.first + count))
        spent = time.monotonic() - began
        inputs, findings = inputs + count, findings + len(found)
        print(
            f"{name}: {count:,} inputs, {len(found)} findings, {spent:.0f} s ({count / max(spent, 1e-9):,.0f}/s)",
            flush=True,
        )
        for item in found[:20]:
            print(f"\n--target {name} --seed {item.seed} --first {item.number} --count 1\n{item.what}", flush=True)
    print(f"all: {inputs:,} inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
