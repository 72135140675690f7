"""Measures a watch of a running job: `python bench/live.py --files 1000 --rate 10`, or `--idle 8192`.

A process of its own writes the job, whose CPU is not counted, while `denpex-agg watch --plain` follows it. A line is a
row as soon as its bytes are in the store's journal: from then on `denpex-agg export --state-dir` gives it. Each line
carries the time at which it was written, in ms, rounded down.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from aggregator.store.journal import Journal, Kind, Record

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.005
"""Seconds between looks at the journal, and between batches of lines."""
PATIENCE_S = 120.0
"""Seconds for which a line of the watch is waited for."""
SETTLE_S = 15.0
"""Seconds from the first sign of life to a watch that has caught up and made its first verdict."""
LAG_S, PEERS_S = 0.5, 2.0
"""Seconds from a fault to the end of its process, and from there until the last of the others has aborted."""
STAMP = re.compile(rb"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", re.MULTILINE)
OOM = """[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/workspace/tinylm/train.py", line 153, in main
[rank{rank}]:     logits = model(ids[:, :-1])
[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward
[rank{rank}]:     return F.linear(input, self.weight, self.bias)
[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB. GPU {local} has a total capacity \
of 79.11 GiB of which 612.50 MiB is free. Including non-PyTorch memory, this process has 78.50 GiB memory in use.
"""
ABORT = """{host}:51{local}1:5901 [{local}] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote \
peer {peer}.cluster<51224>
{stamp} [rank {rank}] ERROR tinylm: exception in training loop
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/workspace/tinylm/train.py", line 160, in main
[rank{rank}]:     loss.backward()
[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, \
remote process exited or there was a network error, NCCL version 2.22.3
[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
"""


def host_of(rank: int) -> str:
    return f"node-{rank // 8:04d}"


def stamp() -> str:
    """Now, as the lines give it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S,%f}"[:-3]


def line(rank: int, number: int, at: str) -> bytes:
    """One of about 100 bytes; every fifth tells no step."""
    told = (
        f"step {number}/900000 loss {5 - number * 1e-6:.4f} gnorm 1.067 lr 2.94e-04 tok/s/gpu {7900 + number % 97}"
        if number % 5
        else f"data: shard {number % 400} of 400 read in 0.21 s, 8192 samples queued"
    )
    return f"{at} [rank {rank}] INFO tinylm: {told}\n".encode()


def begin(job: Path, files: int) -> list[int]:
    """Descriptors of the logs of so many ranks, eight a host, each with its first line."""
    descriptors = []
    for rank in range(files):
        path = job / host_of(rank) / f"rank_{rank:05d}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
        hello = f"initialised process group: rank {rank} of {files} on {host_of(rank)} pid {4000 + rank}"
        os.write(descriptors[-1], f"{stamp()} [rank {rank}] INFO tinylm: {hello}\n".encode())
    return descriptors


def write(job: Path, files: int, rate: float, orders: Connection) -> None:
    """Train until ordered to stop (None), or to fail: by the rank that is ordered, whose peers abort after it."""
    descriptors = begin(job, files)
    began, done = time.monotonic(), 0
    while not orders.poll(POLL_S):
        at, due = stamp(), int((time.monotonic() - began) * files * rate)
        for number in range(done, due):
            os.write(descriptors[number % files], line(number % files, number // files, at))
        done = due
    culprit = orders.recv()
    if culprit is None:
        return
    orders.send(time.time())
    os.write(descriptors[culprit], OOM.format(rank=culprit, local=culprit % 8).encode())
    time.sleep(LAG_S)
    for rank in random.sample(range(files), files):
        time.sleep(PEERS_S / files)
        if rank != culprit:
            text = ABORT.format(rank=rank, local=rank % 8, host=host_of(rank), peer=host_of(culprit), stamp=stamp())
            os.write(descriptors[rank], text.encode())


@contextmanager
def written(job: Path, files: int, rate: float) -> Iterator[Connection]:
    """A job that is written meanwhile; the connection takes the order."""
    orders, theirs = multiprocessing.Pipe()
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(job, files, rate, theirs))
    writer.start()
    try:
        yield orders
    finally:
        if not orders.closed:
            orders.send(None)
        writer.join()


@dataclass(frozen=True, slots=True)
class Use:
    """Of a process at a moment, monotonic seconds: user and system time of all its threads, and its largest size."""

    at: float
    cpu_s: float
    peak_mb: float


class Watched:
    """A watch as a process of its own, and what it says."""

    def __init__(self, job: Path, state: Path) -> None:
        command = [sys.executable, "-m", "aggregator", "watch", str(job), "--plain", "--state-dir", str(state)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._proc = Path("/proc", str(self._process.pid))
        self._said: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # asked to end, it would first make the exact verdict, which nobody measures
        self._process.wait()
        self._reader.join()

    def wait_for(self, pattern: str) -> tuple[float, str]:
        """The first line with the pattern, and when it came, seconds since the epoch.

        Raises:
            SystemExit: none came.
        """

        def found() -> tuple[float, str] | None:
            return next((said for said in self._said if re.search(pattern, said[1])), None)

        with self._news:
            said = self._news.wait_for(found, PATIENCE_S)
        if said is None:
            raise SystemExit(f"the watch never said {pattern!r}, but {[text for _, text in self._said[-20:]]}")
        return said

    @property
    def use(self) -> Use:
        """What it has used so far."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        peak = (self._proc / "status").read_text().partition("VmHWM:")[2].split()[0]
        ticks = int(fields[11]) + int(fields[12])
        return Use(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), int(peak) * 1024 / 1e6)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            with self._news:
                self._said.append((time.time(), text.rstrip()))
                self._news.notify_all()


@dataclass
class JournalGrowth:
    """When the journals of a store reached which size. Those that are sealed meanwhile stay open, and so readable."""

    folder: Path
    first: int
    """The number of the first one: those before it may be gone."""
    journals: list[Journal] = field(default_factory=list)
    reached: list[list[tuple[int, float]]] = field(default_factory=list)

    def follow(self, until: float) -> None:
        """Look until then, monotonic seconds."""
        while time.monotonic() < until:
            time.sleep(POLL_S)
            newest = self.folder / f"{self.first + len(self.journals):06}.journal"
            is_new = newest.exists()  # then the one before it has reached its end
            if self.journals:
                size, sizes = self.journals[-1].path.stat().st_size, self.reached[-1]
                if not sizes or size > sizes[-1][0]:
                    sizes.append((size, time.time()))
            if is_new:
                self.journals.append(Journal(newest, os.O_RDONLY))
                self.reached.append([])

    def latencies(self, since: float) -> list[float]:
        """Of each line written since then: seconds until it was in a journal."""
        found: list[float] = []
        for journal, sizes in zip(self.journals, self.reached, strict=True):

            def note(record: Record, journal: Journal = journal, sizes: Sequence[tuple[int, float]] = sizes) -> bool:
                place = bisect_right(sizes, (journal.size, float("inf")))
                if record.kind == Kind.DATA and place < len(sizes):
                    found.extend(sizes[place][1] - at for at in written_at(record.payload) if at >= since)
                return True

            journal.replay(note)
        return found


def written_at(data: bytes) -> Iterator[float]:
    """The times that the lines of `line` carry, seconds since the epoch; a line may have been read in two pieces."""
    for text in STAMP.findall(data):
        yield datetime.fromisoformat(f"{text.decode()}Z").timestamp()


def told(name: str, seconds: Sequence[float]) -> str:
    """A row: the quantiles of some latencies."""
    ordered = sorted(seconds)
    cuts = [ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in (0.5, 0.95, 0.99)]
    return f"| {name} | {len(ordered):,} | " + " | ".join(f"{cut * 1000:,.0f}" for cut in (*cuts, ordered[-1])) + " |"


def growing(options: argparse.Namespace, scratch: Path) -> None:
    """CPU, memory and latencies while all files grow."""
    job, state = scratch / "job", scratch / "state"
    with written(job, options.files, options.rate), Watched(job, state) as watch:
        watch.wait_for("healthy")
        time.sleep(SETTLE_S)
        store = next(state.iterdir())
        first = max(int(path.stem) for path in store.glob("*.journal"))
        since, growth, uses = time.time(), JournalGrowth(store, first), [watch.use]
        for _ in range(2):  # in the first, the heads of the files are read line by line
            growth.follow(time.monotonic() + options.seconds)
            uses.append(watch.use)
    print(f"{options.files:,} files, {options.files * options.rate:,.0f} lines/s, twice {options.seconds:.0f} s\n")
    report_use(uses)
    print("\n| seconds from the write until | times | p50 ms | p95 ms | p99 ms | most ms |\n|---|---|---|---|---|---|")
    print(told("a line is a row", growth.latencies(since)))


def failing(options: argparse.Namespace, scratch: Path) -> None:
    """How long it takes to name the rank that failed, in jobs of their own."""
    delays, wrong = [], 0
    for number in range(options.failures):
        job, state = scratch / f"job-{number}", scratch / f"state-{number}"
        culprit = random.randrange(options.files)
        with written(job, options.files, options.rate) as orders, Watched(job, state) as watch:
            watch.wait_for("healthy")
            time.sleep(SETTLE_S + random.random())
            orders.send(culprit)
            struck = orders.recv()
            orders.close()
            at, said = watch.wait_for("failed:")
            delays.append(at - struck)
            wrong += re.search(rf"rank {culprit}\b", said) is None
    print(told("the rank is named", delays))
    if wrong:
        print(f"\nnote: {wrong} times another rank was named first")


def idle(options: argparse.Namespace, scratch: Path) -> None:
    """CPU and memory while nobody writes."""
    job = scratch / "job"
    for descriptor in begin(job, options.idle):
        os.close(descriptor)
    with Watched(job, scratch / "state") as watch:
        watch.wait_for("healthy")
        time.sleep(SETTLE_S)
        uses = [watch.use]
        time.sleep(options.seconds)
        uses.append(watch.use)
    print(f"{options.idle:,} idle files, {options.seconds:.0f} s\n")
    report_use(uses)


def report_use(uses: Sequence[Use]) -> None:
    """What was used before the first of these moments, and between them."""
    print(f"| until it is caught up, CPU s | {'then, % of a core | ' * (len(uses) - 1)}peak MB | load |")
    print("|---|" + "---|" * (len(uses) + 1))
    shares = [
        f"{100 * (after.cpu_s - before.cpu_s) / (after.at - before.at):.1f}"
        for before, after in itertools.pairwise(uses)
    ]
    print(f"| {uses[0].cpu_s:.1f} | {' | '.join(shares)} | {uses[-1].peak_mb:.0f} | {os.getloadavg()[0]:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=10.0, help="lines of each file a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which is measured")
    parser.add_argument("--failures", type=int, default=20, help="jobs that fail; 0 leaves them out")
    parser.add_argument("--idle", type=int, help="measure so many idle files instead")
    options = parser.parse_args()
    for measure in (idle,) if options.idle else (growing, failing)[: 1 + (options.failures > 0)]:
        with tempfile.TemporaryDirectory(prefix="denpex-bench-") as name:
            measure(options, Path(name))


if __name__ == "__main__":
    main()
