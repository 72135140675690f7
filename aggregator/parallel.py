"""Reads a job's logs on all cores: one process a core, some files at a time.

What a process of ours dies of (the kernel's memory killer, an impatient admin) costs time, never a line: its files are
read again here.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from parsers.records import Source

if TYPE_CHECKING:
    import multiprocessing.context
    from concurrent.futures import Future, ProcessPoolExecutor

_log = logging.getLogger(__name__)

WORTH_IT = 32 << 20
"""Bytes of logs from which on the start of processes pays."""
_SHARES = 8
"""How many tasks a process gets at least: files differ in what they take."""
_TASK = 64 << 20
"""Bytes of logs in a task, at most, but for a file that is longer itself."""
_UNSAFE = ("polars", "pyarrow")
"""Libraries with threads of their own, which a fork would cut off in the middle of something."""

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h: the signal that a process gets when its parent has ended."""

T = TypeVar("T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_for(sources: Sequence[Source]) -> int:
    """How many processes are worth their start for these files: 1 is this one alone."""
    apart = [source for source in sources if source.is_shared]
    if len(apart) < 2 or sum(source.size for source in apart) < WORTH_IT:  # noqa: PLR2004 - one file is not divided
        return 1
    return min(cores(), len(apart))


def read_apart(read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source], workers: int) -> list[T]:
    """What `read` gives for each source, in their order, read by so many processes.

    `read` must be picklable and depend on nothing but what it is given. What only this process has is read here.
    """
    import multiprocessing  # noqa: PLC0415 - takes as long to import as a small job to read
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - as above

    here = [source for source in sources if not source.is_shared]
    tasks = heaps([source for source in sources if source.is_shared], workers)
    results = dict(zip((source.index for source in here), read(here), strict=True))
    executor = ProcessPoolExecutor(workers, mp_context=_context(), initializer=_begin)
    try:
        with no_garbage():
            for task, future in [(task, _submitted(executor, read, task)) for task in tasks]:
                found = _result(future)
                if found is None:
                    _log.info("a reading process was killed: %d files are read again", len(task))
                    found = read(task)
                results.update(zip((source.index for source in task), found, strict=True))
    except BaseException:
        for process in multiprocessing.active_children():  # an interrupt must not wait for what is being read
            process.kill()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
    return [results[source.index] for source in sources]


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Do not look for garbage where millions of objects come and stay: they would be looked through again and again."""
    was_looked_for = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_looked_for:
            gc.enable()


def _submitted(
    executor: ProcessPoolExecutor, read: Callable[[Sequence[Source]], list[T]], task: Sequence[Source]
) -> Future[list[T]] | None:
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - as above

    try:
        return executor.submit(read, task)
    except BrokenProcessPool:
        return None


def _result(future: Future[list[T]] | None) -> list[T] | None:
    """What a process has read; None if it, or another of the pool, was killed."""
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - as above

    try:
        return future.result() if future is not None else None
    except BrokenProcessPool:
        return None


def heaps(sources: Sequence[Source], workers: int) -> list[list[Source]]:
    """Files in heaps of about one size, the longest first: whoever begins with them ends in time."""
    room = min(_TASK, sum(source.size for source in sources) // (workers * _SHARES) + 1)
    tasks: list[list[Source]] = []
    left = 0
    for source in sorted(sources, key=lambda source: -source.size):
        if source.size > left or not tasks:
            tasks.append([])
            left = room
        tasks[-1].append(source)
        left -= source.size
    return tasks


def _context() -> multiprocessing.context.BaseContext:
    """Forks where that is safe: it is a hundred times faster than a new interpreter."""
    import multiprocessing  # noqa: PLC0415 - as above

    alone = threading.active_count() == 1 and not any(name in sys.modules for name in _UNSAFE)
    return multiprocessing.get_context("fork" if alone and sys.platform == "linux" else "spawn")


def _begin() -> None:
    """A worker leaves Ctrl-C to its parent, ends by SIGTERM as any process does, and does not outlive its parent."""
    gc.enable()  # forked while the parent does without; what is parsed may leave some
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - as above

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
