"""`denpex-agg slurm-epilog`: what the command line says, and which of its forms must never fail."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = "slurm-epilog"
FILES = Path(__file__).with_name("files")
_BY_HAND = frozenset({"--check-config", "--install-help", "--print", "--help", "-h"})


def is_epilog(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of Slurm's epilog, and not one of those that an admin types."""
    words = [word.partition("=")[0] for word in arguments if word != "--debug"]
    return words[:1] == [NAME] and _BY_HAND.isdisjoint(words)


def without_failing(work: Callable[[], int]) -> int:
    """Does something and gives 0, whatever comes of it: a node whose epilog fails is taken out of service."""
    with suppress(Exception):
        work()
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)  # what a full disk has left in a buffer would be an error at the very end
    return 0


def with_logs_of_jobs(words: Sequence[str]) -> list[str]:
    """Paths as they stand; for a word that is a job's id and no path, the paths of that job's logs.

    Raises:
        InputError: Slurm does not tell of the job, or it has no logs.
    """
    from aggregator.slurm.lookup import is_job_id, logs_of  # noqa: PLC0415 - brings reading in

    return [path for word in words for path in (logs_of(word) if is_job_id(word) and not lexists(word) else [word])]


def slurm_epilog(
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings, if not /etc/denpex-agg/slurm.toml.")
    ] = None,
    check_config: Annotated[
        bool, typer.Option("--check-config", help="Only say whether the settings are sound.")
    ] = False,
    comment: Annotated[
        bool, typer.Option("--comment", help="Wait for the report and print one line of it, for AdminComment.")
    ] = False,
    install_help: Annotated[bool, typer.Option("--install-help", help="Say how to install it.")] = False,
    print_file: Annotated[
        str | None, typer.Option("--print", metavar="FILE", help="Print a file that comes with it, such as epilog.sh.")
    ] = None,
) -> None:
    """Judge a job as it ends: run by Slurm's Epilog, or at the end of a batch script.

    It reads as the job's user, ends in time, tells the system's log, and always ends with 0.

    \b
    Examples:
      denpex-agg slurm-epilog --install-help
      denpex-agg slurm-epilog --check-config
      denpex-agg slurm-epilog --print epilog.sh > /etc/slurm/epilog.d/50-denpex.sh
    """
    if install_help:
        _print(_shipped("install.txt"))
    elif print_file is not None:
        _print(_shipped(print_file))
    elif check_config:
        from aggregator.slurm.config import DEFAULT_PATH, load_config  # noqa: PLC0415 - each form needs little

        load_config(config)
        place = Path(config or DEFAULT_PATH)
        _print(f"{place}: sound\n" if place.exists() else f"{place}: not there, all settings are the defaults\n")
    else:
        from aggregator.slurm import epilog  # noqa: PLC0415 - as above

        environment, path = dict(os.environ), None if config is None else str(Path(config).absolute())
        if comment:
            _print(epilog.comment(environment, path))
        else:
            epilog.run(environment, path)


def _shipped(name: str) -> str:
    names = sorted(path.name for path in FILES.iterdir() if path.is_file())
    if name not in names:
        raise UsageError(f"there is no file {name}", help=f"one of {', '.join(names)}")
    return (FILES / name).read_text(encoding="utf-8").replace("@PYTHON@", sys.executable)


def _print(text: str) -> None:
    """Straight to the descriptor: what a closed output leaves in a buffer would be an error at the very end."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        raise InputError(f"cannot write to standard output: {error.strerror}") from None
