"""Where a job's logs are read: by the processes of this machine, or by the workers of a Dask scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

if TYPE_CHECKING:
    from parsers.records import Source

LOCAL = "local"
_DASK = re.compile(r"dask://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+):(?P<port>\d{1,5})", re.ASCII)
_SLURM = re.compile(r"dask-slurm(?::(?P<workers>[1-9]\d{0,3}))?", re.ASCII)
_SLURM_WORKERS = 4
_LAST_PORT = 65_535

T = TypeVar("T")


class Engine(Protocol):
    """Reads sources elsewhere."""

    def __call__(self, read: Callable[[Sequence[Source]], list[T]], sources: Sequence[Source]) -> list[T]:
        """What `read` gives for each source, in their order: the same, whoever reads.

        `read` must be picklable and depend on nothing but what it is given.

        Raises:
            UsageError: the engine is not there, or has another version of the program.
        """
        ...


def engine_of(word: str) -> Engine | None:
    """The engine that `--engine` names, started when it is called; None for this machine.

    Raises:
        typer.BadParameter: it names none.
    """
    if word == LOCAL:
        return None
    if (found := _DASK.fullmatch(word)) and 0 < int(found["port"]) <= _LAST_PORT:
        from aggregator.engines.dask import ByScheduler  # noqa: PLC0415 - few jobs need it

        return ByScheduler(f"tcp://{found['host']}:{found['port']}")
    if found := _SLURM.fullmatch(word):
        from aggregator.engines.dask import BySlurm  # noqa: PLC0415 - as above

        return BySlurm(int(found["workers"] or _SLURM_WORKERS))
    raise typer.BadParameter(f"{word!r} is none of {LOCAL}, dask://HOST:PORT, dask-slurm, dask-slurm:WORKERS")


def _known(word: str) -> str:
    engine_of(word)
    return word


EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="ENGINE", parser=_known,
                 help="Who reads: local, dask://HOST:PORT, dask-slurm[:WORKERS]."),
]  # fmt: skip
