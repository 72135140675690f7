"""Stack dumps of processes that stand still: py-spy, faulthandler, gdb and pstack.

A dump tells what a process was doing at one moment. It is no fault: who stands where is what counts, and that is for
the correlator to compare. Sources: https://github.com/benfred/py-spy/blob/master/src/dump.rs,
https://docs.python.org/3/library/faulthandler.html, `thread apply all bt` of gdb.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from parsers.later import later
from parsers.records import Frame

TRACEBACK_HEAD = "Traceback (most recent call last):"
STACK_LITERALS = ("(most recent call first):", "Python v3", " (idle)", " (active)", "+gil)", " (LWP ")
"""What a dump can begin with."""

_PYTHON_HEAD = later(r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[[^\]]{0,64}\])? \(most recent call first\)")
_SPY_HEAD = later(
    r'^Thread (?P<tid>0x[0-9A-Fa-f]+|\d+) \((?:idle|active)(?:\+gil)?\)(?:: "(?P<name>[^"]{0,200})")?\s*$'
)
_GDB_HEAD = later(r"^Thread (?P<number>\d+) \(Thread 0x[0-9a-f]+ \(LWP (?P<tid>\d+)\)[^)]{0,80}\)+:?")
_FIRST_CALL_FIRST = "Traceback (most recent call first):"
_VERSION = later(r"^Python v\d+\.\d+\.\S+(?: \(.{1,500}\))?\s*$")
_PROCESS = later(r"^Process (?P<pid>\d{1,10}): (?P<command>.*)")
_PARENT = later(r"^Parent Process (?P<pid>\d{1,10}): ")
_PYTHON_FRAME = later(r'^  File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}|\?\?\?),? in (?P<function>.{1,300})')
_SPY_FRAME = later(r"^ {4}(?P<function>\S.{0,500}?) \((?P<file>[^()]{1,1000}?)(?::(?P<line>\d{1,9}))?\)\s*$")
_GDB_FRAME = later(
    r"^#\d{1,4}\s+(?:0x[0-9a-f]+ in )?(?P<function>[^\s(]{1,500}) ?\(.*?"
    r"(?: from (?P<library>\S{1,500})| at (?P<file>[^\s:]{1,500}):(?P<line>\d{1,9}))?\s*$"
)
_ANY_FRAME = later(r'^(?:  (?:File "|Binary file "|<|\.\.\.)| {4,}\S|#\d{1,4}\s+\S)')
_MAX_FRAMES = 400

_LOCAL_RANK = later(r"(?:--?local[-_]rank[= ]|\bLOCAL_RANK=)(?P<rank>\d{1,6})\b")
_RANK = later(r"(?:(?:^|\s)--?(?:global[-_])?rank[= ]|\bRANK=)(?P<rank>\d{1,6})\b")
_EXAMINED = later(r"\b(?:py-spy|gdb|pstack|eu-stack|gstack)\b.{0,300}?\s(?P<pid>\d{2,10})\b")
_HEADING = later(r"\b(?P<scope>local[ _-]?|node[ _-]?)?rank[ _=:#]{0,2}(?P<rank>\d{1,6})\b", re.IGNORECASE)
_ABOUT_STACKS = later(
    r"\b(?:stacks?|stacktraces?|dump(?:ing|ed|s)?|SIGUSR\d|py-spy|faulthandler|pid)\b|^\W*rank[ _=:#]{0,2}\d+\W*$",
    re.IGNORECASE,
)


class Waits(StrEnum):
    """What a process was waiting for."""

    COLLECTIVE = "collective"
    DEVICE = "device"
    """The GPU's queue, or the backward engine: collectives run in both."""
    STORE = "store"
    OTHER = "other"


class Fit(StrEnum):
    """How a line relates to an open dump."""

    TAKEN = "taken"
    STRAY = "stray"
    OVER = "over"
    """It begins something new."""


@dataclass(slots=True)
class _Thread:
    """One thread's frames, innermost first, each with the index of its line."""

    tid: int | None = None
    name: str | None = None
    main: bool = False
    frames: list[tuple[Frame, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stack:
    """One dump of one process: its main thread's frames, innermost first.

    `shown` is the index of the line that says most: the innermost frame of the program's own, else the innermost.
    `pid` is the process, `parent` its parent where told; ranks are as its command line tells.
    """

    frames: tuple[Frame, ...]
    shown: int
    pid: int | None = None
    parent: int | None = None
    rank: int | None = None
    local_rank: int | None = None

    @property
    def waits(self) -> Waits:
        """What the main thread was waiting for."""
        return waits_for(self.frames)

    @property
    def worker(self) -> bool:
        """Whether the process is a worker of a DataLoader."""
        return any(_WORKER.search(f"{frame.file}:{frame.function}") for frame in self.frames)


def begins_stack(body: str, lead: str) -> bool:
    """Whether a line begins a dump; `lead` is the line before it in its stream."""
    if _VERSION.match(body):
        return _PROCESS.match(lead) is not None
    return _is_head(body)


def _is_head(body: str) -> bool:
    return bool(
        _PYTHON_HEAD.match(body) or _SPY_HEAD.match(body) or _GDB_HEAD.match(body) or body.startswith(_FIRST_CALL_FIRST)
    )


def fit_stack(heads: dict[str, None], body: str) -> Fit:
    """Whether a line goes on with an open dump. `heads`, the threads of it so far, takes up a further one."""
    if not body.strip() or _ANY_FRAME.match(body):
        return Fit.TAKEN
    if _is_head(body):
        key = _head_key(body)
        # Where a debugger counts its threads down, what follows the first is another process.
        counted_down = "LWP 1" in heads and next(iter(heads)) != "LWP 1" and key.startswith("LWP ")
        if key in heads or counted_down:
            return Fit.OVER
        heads[key] = None
        return Fit.TAKEN
    if _PARENT.match(body) or body.startswith(("Extension modules:", "Current thread's C stack trace")):
        return Fit.TAKEN
    if _PROCESS.match(body) or _VERSION.match(body) or body.startswith("Timeout ("):
        return Fit.OVER
    return Fit.STRAY


def _head_key(body: str) -> str:
    """What tells the threads of one dump apart."""
    if gdb := _GDB_HEAD.match(body):
        return f"LWP {gdb['number']}"
    if '"MainThread"' in body:
        return "main"
    return body.split(" (", 1)[0].removeprefix("Current ").lower()


def read_stack(lines: Sequence[str], lead: str) -> Stack | None:
    """What a dump tells, None where no thread of it has a frame. `lead` is the line before it."""
    threads, parent = _threads(lines)
    threads = [thread for thread in threads if thread.frames]
    if not threads:
        return None
    main = _main_thread(threads)
    if _GDB_HEAD.match(lines[0]) and not main.main:
        return None  # an excerpt without the thread that runs the program
    process = _PROCESS.match(lead)
    frames = tuple(frame for frame, _ in main.frames)
    own = next((index for frame, index in main.frames if is_own(frame)), main.frames[0][1])
    pid = int(process["pid"]) if process is not None else main.tid if main.main else None
    if process is None and (examined := _EXAMINED.search(lead)):
        pid = int(examined["pid"])
    rank, local_rank = _ranks_told(process["command"] if process is not None else "", lead)
    return Stack(frames, own, pid, parent, rank, local_rank)


def _ranks_told(command: str, lead: str) -> tuple[int | None, int | None]:
    """Global and local rank, as the command line or a heading right above tells them."""
    rank, local = _RANK.search(command), _LOCAL_RANK.search(command)
    if rank is not None or local is not None or command:
        return int(rank["rank"]) if rank else None, int(local["rank"]) if local else None
    heading = _HEADING.search(lead) if _ABOUT_STACKS.search(lead) else None
    if heading is None or (heading["scope"] or "").lower().startswith("node"):
        return None, None
    return (None, int(heading["rank"])) if heading["scope"] else (int(heading["rank"]), None)


def _threads(lines: Sequence[str]) -> tuple[list[_Thread], int | None]:
    threads: list[_Thread] = []
    parent = None
    for index, line in enumerate(lines):
        if _is_head(line):
            threads.append(_thread(line))
        elif found := _PARENT.match(line):
            parent = int(found["pid"])
        elif threads and len(threads[-1].frames) < _MAX_FRAMES and (frame := _frame(line)) is not None:
            threads[-1].frames.append((frame, index))
    return threads, parent


def _thread(head: str) -> _Thread:
    if spy := _SPY_HEAD.match(head):
        tid = int(spy["tid"], 0) if spy["tid"].startswith("0x") else int(spy["tid"])
        return _Thread(tid, spy["name"], main=spy["name"] == "MainThread")
    if gdb := _GDB_HEAD.match(head):
        return _Thread(int(gdb["tid"]), main=gdb["number"] == "1")
    return _Thread()


def _frame(line: str) -> Frame | None:
    found = _PYTHON_FRAME.match(line) or _SPY_FRAME.match(line)
    if found is not None:
        number = found["line"]
        return Frame(found["file"], int(number) if number and number.isdigit() else 0, found["function"].strip())
    gdb = _GDB_FRAME.match(line)
    if gdb is not None:
        return Frame(gdb["file"] or gdb["library"] or "", int(gdb["line"] or 0), gdb["function"])
    return None


_OUTERMOST = frozenset({"<module>", "_run_module_as_main", "_worker_loop", "spawn_main", "main"})


def _main_thread(threads: Sequence[_Thread]) -> _Thread:
    """The thread that runs the program. Faulthandler, which names none, prints the oldest one last."""
    named = [thread for thread in threads if thread.main]
    if named:
        return named[0]
    return next((t for t in reversed(threads) if t.frames[-1][0].function in _OUTERMOST), threads[-1])


def show_stack(frames: Sequence[Frame], limit: int = 24) -> str:
    """Frames as one field: `function (file:line)`, innermost first, one a line."""
    return "\n".join(f"{frame.function} ({frame.file}:{frame.line})" for frame in frames[:limit])


_SHOWN = later(r"^(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)$")


def shown_frames(text: str) -> tuple[Frame, ...]:
    """The frames of a field that `show_stack` wrote, innermost first."""
    found = (_SHOWN.match(line) for line in text.split("\n"))
    return tuple(Frame(match["file"], int(match["line"]), match["function"]) for match in found if match is not None)


# What a frame is, as `file:function`.

_INSTALLED = later(r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|\.so(?:[.\d]*)$|^/(?:usr/)?lib|^$")
_PACKAGES = later(
    r"^(?:torch|torchvision|torchaudio|deepspeed|transformers|accelerate|datasets|lightning|pytorch_lightning|horovod"
    r"|jax|jaxlib|flax|tensorflow|numpy|filelock|fsspec|ray|composer|streaming|webdataset|apex|triton|tqdm|wandb|h5py"
    r"|pyarrow|pandas|requests|urllib3|botocore|boto3|s3fs|huggingface_hub|safetensors|zmq|PIL|cv2)/"
)
_WORKER = later(r"torch/utils/data/_utils/worker\.py:_worker_loop$")
_WAITS = (
    (Waits.OTHER, later(r"torch/utils/data/|torch/distributed/checkpoint/|torch/serialization\.py")),
    (
        Waits.STORE,
        later(
            r"torch/distributed/(?:rendezvous|elastic/)|distributed_c10d\.py:(?:_store_based_barrier|init_process_group"
            r"|_new_process_group_helper|new_group|_new_group_with_tag|split_group)|:c10d::(?:TCP|Prefix|File)?Store"
        ),
    ),
    (
        Waits.COLLECTIVE,
        later(
            r"torch/distributed/|torch/nn/parallel/distributed\.py|deepspeed/comm/|pipeline_parallel/p2p_communication"
            r"|horovod/\w+/(?:\w+/)?(?:mpi_ops|functions|basics)\.py|jax/experimental/multihost_utils"
            r"|:(?:nccl[A-Z]\w+|c10d::|gloo::|P?MPI_[A-Z]\w+|ompi_coll|horovod::)"
        ),
    ),
    (
        Waits.DEVICE,
        later(
            r"torch/cuda/(?:__init__|streams|graphs)\.py|torch/autograd/(?:graph|__init__)\.py|torch/_tensor\.py:backward"
            r"|jax/.*:(?:block_until_ready|_value|__array__)$|:(?:cuda|cu|hip)[A-Z]\w*Synchronize|:torch::autograd::Engine"
        ),
    ),
)


def is_own(frame: Frame) -> bool:
    """Whether a frame is the program's own code: neither native, nor of an installed package or Python itself."""
    if _INSTALLED.search(frame.file) or _PACKAGES.match(frame.file) or frame.line == 0:
        return False
    if frame.file.startswith("/"):
        return True
    return frame.file.split("/", 1)[0].removesuffix(".py") not in sys.stdlib_module_names


def waits_for(frames: Sequence[Frame]) -> Waits:
    """What a thread waits for, by its innermost frames down to the program's own."""
    for frame in frames:
        place = f"{frame.file}:{frame.function}"
        for waits, pattern in _WAITS:
            if pattern.search(place):
                return waits
        if is_own(frame):
            break
    return Waits.OTHER
