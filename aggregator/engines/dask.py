"""Reads a job's logs by the workers of a Dask scheduler: one that runs, or one of our own whose workers are Slurm jobs.

A worker reads only what is the file that was found here: the same path, size and time of change. All else is given back
and read here, as is what a worker dies of more often than the scheduler allows: that costs time, never a line.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aggregator.errors import UsageError
from aggregator.opening import open_regular
from aggregator.parallel import heaps, read_apart, workers_for
from parsers.records import Source

if TYPE_CHECKING:
    from distributed import Client, Future

_log = logging.getLogger(__name__)

_PACKAGES = ("denpex-agg", "distributed")
"""What must be of one version on both sides; Python, too, up to its minor version."""
_ANSWER_S = 10
_WORKER_S = 30
"""For the first worker of a scheduler that runs already."""
_QUEUE_S = 600
"""For the first worker that Slurm has to start."""
_TOLD = 3
"""Files that are told by name."""
_one_reader = threading.Lock()
"""Threads of a worker take turns: the literal scanner has memory of its own, and Python's lock leaves them no more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ByScheduler:
    """The workers of the scheduler at an address such as `tcp://host:8786`."""

    address: str

    def __call__(self, read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source]) -> list[T]:
        """See `Engine`."""
        _library("distributed")
        with _client(self.address) as client:
            _await_worker(client, _WORKER_S, self.address)
            found = _read_there(client, read, sources)
        return _read_rest(read, sources, found)


@dataclass(frozen=True, slots=True)
class BySlurm:
    """So many workers, each a Slurm job; their partition, account and limits are those of `jobqueue.yaml`."""

    workers: int

    def __call__(self, read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source]) -> list[T]:
        """See `Engine`."""
        _library("distributed")
        jobqueue = _library("dask_jobqueue")
        cluster = self._cluster(jobqueue)
        with cluster:
            cluster.scale(jobs=self.workers)
            with _client(cluster) as client:
                _await_worker(client, _QUEUE_S, "the queue of Slurm")
                found = _read_there(client, read, sources, self.workers)
        return _read_rest(read, sources, found)

    @staticmethod
    def _cluster(jobqueue: Any) -> Any:  # noqa: ANN401 - the library has no types
        import dask  # noqa: PLC0415 - an optional extra

        least = {"cores": 1, "processes": 1, "memory": "1GB", "walltime": "00:30:00", "job_name": "denpex-agg"}
        unset = {
            key: value
            for key, value in least.items()
            if not dask.config.get(f"jobqueue.slurm.{key.replace('_', '-')}", None)
        }
        try:
            return jobqueue.SLURMCluster(**unset, python=sys.executable)
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"no Dask scheduler can be started: {error}", help="see docs/scale.md") from error


def _library(name: str) -> Any:  # noqa: ANN401 - a module
    """A library of the extra; it keeps its own log to itself, unless everything is asked for.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import dask  # noqa: PLC0415 - an optional extra

        if not _log.isEnabledFor(logging.DEBUG):
            dask.config.set({"logging": {"distributed": "critical", "distributed.client": "critical"}})
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"this engine needs {error.name}", help="pip install 'denpex-agg[dask]'") from None


@contextmanager
def _client(where: Any) -> Iterator[Client]:  # noqa: ANN401 - an address or a cluster
    from distributed import Client  # noqa: PLC0415 - an optional extra

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what differs between the two sides is told by us
        try:
            client = Client(where, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError("no Dask scheduler answers", where=str(where), help=f"is it running? ({error})") from None
    try:
        yield client
    finally:
        client.close(timeout=_ANSWER_S)


def _await_worker(client: Client, seconds: float, where: str) -> None:
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError:
        raise UsageError(f"no worker came within {seconds} s", where=where, help="or --engine local") from None
    ours = _versions()
    for address, told in client.get_versions(packages=_PACKAGES)["workers"].items():
        theirs = told["packages"]
        python = ".".join(theirs["python"].split(".")[:2])
        for name, version in ours.items():
            there = python if name == "python" else theirs.get(name)
            if there != version:
                raise UsageError(
                    f"the worker has {f'{name} {there}' if there else f'no {name}'}, and {version} runs here",
                    where=address, help="install the same versions on both sides",
                )  # fmt: skip


def _versions() -> dict[str, str]:
    """What must be the same on both sides."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _read_there(
    client: Client, read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source], expected: int = 1
) -> dict[int, T]:
    """What the workers have read, by the index of the source; so many are expected to come."""
    ours, found, given_back = _versions(), dict[int, T](), list[str]()
    threads = max(sum(client.nthreads().values()), expected)
    tasks = heaps([source for source in sources if source.is_shared], threads)
    _log.info("%d tasks for %d threads of Dask's workers", len(tasks), threads)
    futures = [(task, client.submit(_read_task, read, task, ours, pure=False)) for task in tasks]
    for task, future in futures:
        told: list[tuple[T] | tuple[()]] | None = _result(future)
        if told is None:
            _log.warning("workers were lost over %d files: they are read here", len(task))
            continue
        for source, (result,) in ((source, one) for source, one in zip(task, told, strict=True) if one):
            found[source.index] = result
        given_back += [source.path for source, one in zip(task, told, strict=True) if not one]
    if given_back:
        names = ", ".join(sorted(given_back)[:_TOLD]) + (" ..." if len(given_back) > _TOLD else "")
        _log.warning("%d files are not the same for Dask's workers, and are read here: %s", len(given_back), names)
    return found


def _result(future: Future) -> list[tuple[T] | tuple[()]] | None:
    """What a worker has read; None if it, or the scheduler, was lost."""
    from distributed import KilledWorker  # noqa: PLC0415 - an optional extra

    try:
        told: list[tuple[T] | tuple[()]] = future.result()
    except (KilledWorker, CancelledError, OSError):
        return None
    return told


def _read_rest(read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source], found: dict[int, T]) -> list[T]:
    """All results in order; what no worker has read is read here."""
    rest = [source for source in sources if source.index not in found]
    workers = workers_for(rest)
    results = read(rest) if workers <= 1 else read_apart(read, rest, workers)
    found = {**found, **dict(zip((source.index for source in rest), results, strict=True))}
    return [found[source.index] for source in sources]


def _read_task(
    read: Callable[[Sequence[Source]], list[T]], task: Sequence[Source], ours: dict[str, str]
) -> list[tuple[T] | tuple[()]]:
    """Runs in a worker: for each source what was read, or nothing if it is not the one that was found."""
    if _versions() != ours:  # a worker that came later than the others
        return [()] * len(task)
    with _one_reader:
        same = [source for source in task if _is_here(source)]
        found = dict(zip((source.index for source in same), read(same), strict=True))
    return [(found[source.index],) if source.index in found else () for source in task]


def _is_here(source: Source) -> bool:
    """Whether this machine has the same file; its times may be cut to seconds on the way."""
    if source.real is None:
        return source.remote is not None
    with suppress(OSError):
        fd = open_regular(source.real)
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        second = 1_000_000_000
        return (status.st_size, status.st_mtime_ns // second) == (source.size, (source.mtime_ns or 0) // second)
    return False
