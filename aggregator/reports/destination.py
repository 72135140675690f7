"""Where a report goes: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, TextIO

from aggregator.errors import OutputError
from aggregator.streams import give_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIN_WIDTH, MAX_WIDTH = 40, 80


class ClosedPipeError(Exception):
    """Whoever read our standard output has gone (`| head`): nothing is left to say."""


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output, flushed at the end.

    Raises:
        ClosedPipeError: its reader has gone.
        OutputError: it cannot be written: it is closed, or the disk behind a redirection is full.
    """
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:
        give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise ClosedPipeError from None
        raise unwritable(error) from error


def unwritable(error: OSError) -> OutputError:
    """What to tell of standard output that cannot be written."""
    return OutputError(
        f"cannot write to standard output: {_reason(error)}", help="direct it to a place that can be written"
    )


def refuse_overwrite(path: Path, *, force: bool) -> None:
    """Fail before the work is done, not after it, where the file could not be written anyway.

    Raises:
        OutputError: `path` is a folder, its folder is missing, no file can have its name, or it is there and `force`
            is not given.
    """
    try:
        if path.is_dir():
            raise OutputError("the output is a folder", where=str(path), help="name a file in it")
        if not path.parent.is_dir():
            raise OutputError("the folder of the output does not exist", where=str(path), help="create it first")
    except OSError as error:  # a name that is too long
        raise OutputError(f"cannot write the output: {_reason(error)}", where=str(path)) from error
    if not force and os.path.lexists(path) and not _is_special(path):
        raise OutputError("the output exists already", where=str(path), help="add --force to replace it")


@contextlib.contextmanager
def replacing(path: Path, *, force: bool) -> Iterator[TextIO]:
    """A UTF-8 text file that takes the place of `path` when the block ends without an error.

    Devices and pipes are written straight. The temporary file is beside `path`, so that the rename stays in one file
    system, and is removed whatever happens.

    Raises:
        OutputError: see `refuse_overwrite`; or the disk is full, read-only, not ours.
    """
    refuse_overwrite(path, force=force)
    try:
        if _is_special(path):
            with path.open("w", encoding="utf-8") as out:
                yield out
            return
        temporary = path.with_name(f".{path.name[:100]}.{os.urandom(8).hex()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(temporary, flags, 0o666)  # the user's umask decides who may read it
        try:
            with open(descriptor, "w", encoding="utf-8") as out:  # noqa: PTH123 - a descriptor, not a path
                yield out
                out.flush()
                os.fsync(descriptor)
            _publish(temporary, path, force=force)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write the output: {_reason(error)}", where=str(path)) from error


def _publish(temporary: Path, path: Path, *, force: bool) -> None:
    if force:
        temporary.replace(path)
        return
    try:
        path.hardlink_to(temporary)  # unlike a rename, it refuses a file that appeared meanwhile
    except FileExistsError:
        raise OutputError("the output exists already", where=str(path), help="add --force to replace it") from None
    except OSError:  # a file system without hard links
        refuse_overwrite(path, force=False)
        temporary.replace(path)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def use_color(choice: str, out: TextIO) -> bool:
    """Whether to colour: the flag, then NO_COLOR, then FORCE_COLOR (both if not empty), then the terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return out.isatty() and os.environ.get("TERM") not in {None, "", "dumb", "unknown"}


def text_width(out: TextIO) -> int:
    """Characters a line: those of a narrow terminal, else 80."""
    if not out.isatty():
        return MAX_WIDTH
    return min(MAX_WIDTH, max(MIN_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns))


def has_screen(*, plain: bool) -> bool:
    """Whether to draw on the terminal: it is one, is able to, the extra is there, and nobody asked for plain lines."""
    if importlib.util.find_spec("textual") is None:
        return False
    able = os.environ.get("TERM") not in {None, "", "dumb", "unknown"}
    is_watched = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return not plain and able and is_watched
