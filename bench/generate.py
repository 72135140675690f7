"""Writes a deterministic job folder of rank logs for the benchmark: `python bench/generate.py OUT --size 250MB`.

One file a rank, `node-0000/rank_00000.log`, eight ranks a node. Each file is the same mix of what training jobs print;
the bytes depend on the options alone.
"""

from __future__ import annotations

import argparse
import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
WORDS = [
    "shard", "bucket", "tensor", "pipeline", "stage", "forward", "backward", "gather", "reduce", "optimizer",
    "state", "checkpoint", "resumed", "worker", "prefetch", "batch", "sequence", "length", "hidden", "dropout",
    "compile", "cache", "memory", "allocated", "reserved", "throughput", "tokens", "gradient", "norm", "clip",
    "scale", "warmup", "decay", "schedule", "epoch", "evaluation", "perplexity",
]  # fmt: skip
LOGGERS = (
    "megatron.training", "transformers.trainer", "torch.distributed.fsdp", "lightning.pytorch", "datasets.builder",
    "deepspeed.runtime.engine", "accelerate.utils",
)  # fmt: skip
BLOCKS = " ▏▎▍▌▋▊▉█"
TRACEBACK = """Traceback (most recent call last):
  File "/workspace/train.py", line 412, in <module>
    main(args)
  File "/workspace/model/attention.py", line 118, in forward
    out = torch.matmul(scores, v)
RuntimeError: CUDA error: an illegal memory access was encountered
"""


@dataclass(slots=True)
class Rank:
    """The state of one rank's log while it is written."""

    number: int
    random: random.Random
    phrases: list[str]
    now: datetime = START
    step: int = 0

    @property
    def local(self) -> int:
        return self.number % 8

    @property
    def host(self) -> str:
        return f"node-{self.number // 8:04d}"

    def below(self, limit: int) -> int:
        return int(self.random.random() * limit)

    def phrase(self) -> str:
        return self.phrases[self.below(len(self.phrases))]

    def stamp(self, form: str) -> str:
        return self.now.strftime(form)

    def iso(self, point: str = ",") -> str:
        return f"{self.now:%Y-%m-%d %H:%M:%S}{point}{self.now.microsecond // 1000:03d}"


def python_logging(r: Rank) -> str:
    level = "INFO" if r.below(30) else "WARNING"
    return f"{r.iso()} - {LOGGERS[r.below(7)]} - {level} - {r.phrase()} {r.below(100000)}\n"


def deepspeed(r: Rank) -> str:
    return f"[{r.iso()}] [INFO] [logging.py:{r.below(900)}:log_dist] [Rank {r.number}] {r.phrase()} step={r.step}\n"


def megatron(r: Rank) -> str:
    r.step += 1
    return (
        f" [{r.now:%Y-%m-%d %H:%M:%S.%f}] iteration {r.step:8d}/  500000 | consumed samples: {r.step * 1024:12d} |"
        f" elapsed time per iteration (ms): {3000 + r.below(9999) / 10:.1f} | throughput per GPU (TFLOP/s/GPU):"
        f" {400 + r.below(999) / 10:.1f} | learning rate: {r.random.random() * 1e-4:.6E} | global batch size:  1024 |"
        f" lm loss: {2 + r.random.random():.6E} | loss scale: 1.0 | grad norm: {r.random.random():.3f} |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def nccl(r: Rank) -> str:
    peer = (r.local + 1) % 8
    return (
        f"{r.host}:{20000 + r.number}:{20900 + r.number} [{r.local}] NCCL INFO Channel {r.below(32):02d}/0 :"
        f" {r.number}[{r.local}] -> {r.number + 1}[{peer}] via P2P/CUMEM/read\n"
    )


def nccl_dated(r: Rank) -> str:
    return (
        f"[{r.now:%Y-%m-%d %H:%M:%S}] {r.host}:{20000 + r.number}:{20900 + r.number} [{r.local}] NCCL INFO comm"
        f" 0x{r.below(1 << 47):012x} rank {r.number} nranks 1024 cudaDev {r.local} - Init COMPLETE\n"
    )


def c10(r: Rank) -> str:
    day = f"{r.now.month}{r.now.day:02d}"
    return (
        f"[rank{r.number}]:[{'WI'[r.below(2)]}{day} {r.now:%H:%M:%S.%f}{r.below(1000):03d}"
        f" ProcessGroupNCCL.cpp:{r.below(3000)}] [PG ID 0 PG GUID 0(default_pg) Rank {r.number}] {r.phrase()}\n"
    )


def glog(r: Rank) -> str:
    return f"I{r.now:%m%d %H:%M:%S.%f} {r.below(40000)} torch/_dynamo/utils.py:{r.below(900)}] [3/0] {r.phrase()}\n"


def progress_bar(r: Rank) -> str:
    states = 5 + r.below(35)
    total = 1000
    bars = []
    for state in range(states):
        done = state * total // states
        filled = "█" * (done // 100) + BLOCKS[done % 9]
        bars.append(
            f"\rEpoch {r.step % 9}: {done // 10:3d}%|{filled:<11}| {done}/{total} [{state // 60:02d}:{state % 60:02d}<"
            f"00:{(states - state) % 60:02d}, {3 + r.random.random():.2f}it/s, loss={2 + r.random.random():.3f}]"
        )
    return "".join(bars) + "\n"


def json_iso(r: Rank) -> str:
    return (
        f'{{"time": "{r.now:%Y-%m-%dT%H:%M:%S}.{r.now.microsecond // 1000:03d}Z", "level": "info", "rank": {r.number},'
        f' "logger": "{LOGGERS[r.below(7)]}", "msg": "{r.phrase()}", "loss": {2 + r.random.random():.5f}}}\n'
    )


def json_epoch(r: Rank) -> str:
    return (
        f'{{"ts": {r.now.timestamp():.6f}, "lvl": "INFO", "rank": {r.number}, "event": "metrics",'
        f' "gpu_mem": {r.below(80000)}, "tokens_per_s": {r.below(20000)}}}\n'
    )


def printed(r: Rank) -> str:
    return f"step {r.step} rank {r.number} loss {2 + r.random.random():.4f} {r.phrase()}\n"


def coloured(r: Rank) -> str:
    return (
        f"\x1b[32m{r.iso('.')}\x1b[0m | \x1b[1mINFO    \x1b[0m | \x1b[36m{LOGGERS[r.below(7)]}\x1b[0m:\x1b[36mrun"
        f"\x1b[0m:\x1b[36m{r.below(900)}\x1b[0m - \x1b[1m{r.phrase()}\x1b[0m\n"
    )


def slashed(r: Rank) -> str:
    return f"{r.now:%Y/%m/%d %H:%M:%S} {r.phrase()} ...\n"


def indented(r: Rank) -> str:
    return f"    {r.phrase()}\n" if r.below(2) else "\n"


def failure(r: Rank) -> str:
    xid = f"Mar  1 {r.now:%H:%M:%S} {r.host} kernel: NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n"
    timeout = (
        f"[rank{r.number}]:[E301 {r.now:%H:%M:%S.%f}123 ProcessGroupNCCL.cpp:632] [Rank {r.number}] Watchdog caught"
        " collective operation timeout: WorkNCCL(SeqNum=91827, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096,"
        " Timeout(ms)=600000) ran for 600033 milliseconds before timing out.\n"
    )
    return (TRACEBACK, xid, timeout)[r.below(3)]


def not_utf8(r: Rank) -> str:
    """Latin-1 and worse; surrogate escapes become raw bytes when written."""
    return f"{r.iso()} - tokenizer - INFO - bad sample caf\udce9 \udcff\udcfe{r.below(1000)}\n"


def long_line(r: Rank) -> str:
    return f"{r.iso()} - config - INFO - args = {{{', '.join(f'param_{n:06d}: {n * 7919}' for n in range(40000))}}}\n"


MIX: tuple[tuple[int, Callable[[Rank], str]], ...] = (
    (2400, python_logging), (800, deepspeed), (800, megatron), (1640, nccl), (10, nccl_dated), (250, c10), (100, glog),
    (600, progress_bar), (800, json_iso), (300, json_epoch), (1000, printed), (600, coloured), (260, slashed),
    (400, indented), (2, failure), (1, not_utf8),
)  # fmt: skip
LONG_AFTER = 50_000_000
"""One line of about a megabyte in each file of at least this size."""


def lines(number: int, size: int, seed: int) -> Iterator[str]:
    """The log of one rank, at least `size` bytes."""
    source = random.Random(seed * 1_000_003 + number)
    rank = Rank(number, source, [" ".join(source.choices(WORDS, k=4 + source.randrange(12))) for _ in range(300)])
    kinds = source.choices([kind for _, kind in MIX], [weight for weight, _ in MIX], k=9973)
    tick = timedelta(microseconds=39_371)
    long_at = size // 2 if size >= LONG_AFTER else None
    written = count = 0
    while written < size:
        rank.now += tick
        text = kinds[(count * (1 + count // 9973)) % 9973](rank)
        if long_at is not None and written > long_at:
            text, long_at = long_line(rank), None
        count += 1
        written += len(text.encode(errors="surrogateescape"))
        yield text


def generate(out: Path, *, files: int, size: int, seed: int = 1) -> list[Path]:
    """Write the folder, about `size` bytes in `files` files; returns their paths in order of rank."""
    paths = []
    for number in range(files):
        path = out / f"node-{number // 8:04d}" / f"rank_{number:05d}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.writelines(lines(number, size // files, seed))
        paths.append(path)
    return paths


def parse_size(text: str) -> int:
    """`250MB` as bytes; units are powers of ten."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|KB|MB|GB)", text.strip(), re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 250MB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=parse_size, default=parse_size("250MB"))
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    paths = generate(options.out, files=options.files, size=options.size, seed=options.seed)
    print(f"{len(paths)} files, {sum(path.stat().st_size for path in paths):,} bytes in {options.out}")


if __name__ == "__main__":
    main()
