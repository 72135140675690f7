"""The file of verdicts: lines of JSON, appended by any number of processes at once.

A line is added with one write under a lock, in well under a millisecond and without a library. When the file is full it
becomes the older one, and the one before that goes: between one and two times `FULL` bytes stay, thousands of
verdicts, which are read faster than a Parquet reader is imported.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aggregator.errors import UsageError
from aggregator.history.record import DamagedRecordError, NewerRecordError, Record, from_line, record_of, to_line
from aggregator.live.place import state_home
from aggregator.verdict import Verdict
from parsers.cachefile import private_folder

CURRENT, OLDER, DAMAGED, _LOCK = "verdicts.jsonl", "verdicts.older.jsonl", "damaged.jsonl", "lock"
FULL = 2 << 20
"""Bytes of one file."""
_PATIENCE_S = 1.0
"""So long a command waits for others that write."""
_POLL_S = 0.005
_NO_FLOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_SWITCH = "DENPEX_HISTORY"
_OFF = frozenset({"0", "false", "no", "off"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Contents:
    """What is kept, oldest first, and what is wrong with it, in sentences."""

    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()


def home() -> Path:
    """The folder of the history.

    Raises:
        UsageError: there is no home folder.
    """
    return state_home(None) / "history"


def remember(paths: Sequence[str], verdict: Verdict) -> None:
    """Keep a verdict on a job's files. Whatever hinders is only logged: the verdict itself matters more.

    Nothing is kept of standard input, nor with `DENPEX_HISTORY=0`, nor by root in somebody else's home.
    """
    if "-" in paths or os.environ.get(_SWITCH, "").strip().lower() in _OFF:
        return
    try:
        folder = home()
        if os.geteuid() == 0 and _owner(folder) != 0:
            return
        append(folder, to_line(record_of(paths, verdict, time.time_ns())))
    except (OSError, UsageError) as error:
        _log.info("this verdict is not kept for `denpex-agg history`: %s", error)


def append(folder: Path, line: bytes) -> None:
    """Add a line.

    Raises:
        OSError: it cannot be written, or others do not stop writing.
    """
    private_folder(folder)
    with _locked(folder):
        path = folder / CURRENT
        with suppress(FileNotFoundError):
            if path.stat().st_size + len(line) > FULL:
                path.replace(folder / OLDER)
        descriptor = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a line that was torn: the next one begins anew
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        finally:
            os.close(descriptor)


def read(folder: Path) -> Contents:
    """All that is kept. Damaged lines are set aside in a file of their own, so that they are told of once."""
    records: list[Record] = []
    problems: list[str] = []
    with _locked(folder, must=False):
        for name in (OLDER, CURRENT):
            try:
                data = (folder / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{folder / name} cannot be read: {error.strerror}")
                continue
            found, damaged, newer = _parsed(data)
            records += found
            if newer:
                problems.append(f"{newer} verdicts in {folder / name} are of a newer version, and not shown")
            if damaged:
                problems.append(_set_aside(folder, name, data, damaged))
    return Contents(tuple(records), tuple(problems))


def clear(folder: Path) -> None:
    """Forget everything.

    Raises:
        OSError: a file cannot be removed.
    """
    with _locked(folder, must=False):
        for name in (OLDER, CURRENT, DAMAGED):
            (folder / name).unlink(missing_ok=True)


def _parsed(data: bytes) -> tuple[list[Record], list[bytes], int]:
    """Records, damaged lines, and the number of lines of newer versions."""
    records, damaged, newer = [], [], 0
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            records.append(from_line(line))
        except NewerRecordError:
            newer += 1
        except DamagedRecordError:
            damaged.append(line)
    return records, damaged, newer


def _set_aside(folder: Path, name: str, data: bytes, damaged: list[bytes]) -> str:
    """Move damaged lines to their own file; returns what to tell."""
    told = f"{len(damaged)} damaged lines in {folder / name}"
    bad = set(damaged)
    try:
        descriptor = _open(folder / DAMAGED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with open(descriptor, "ab") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(b"\n".join(damaged) + b"\n")
        fresh = folder / f"{name}.tmp"
        with open(_open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.writelines(line + b"\n" for line in data.split(b"\n") if line and line not in bad)
        fresh.replace(folder / name)
    except OSError as error:
        return f"{told} are passed over; they cannot be set aside: {error.strerror}"
    return f"{told} were set aside in {DAMAGED}"


@contextmanager
def _locked(folder: Path, *, must: bool = True) -> Iterator[None]:
    """Alone with the files; without `must` go on even if that cannot be had."""
    try:
        descriptor = _open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    except OSError:
        if must:
            raise
        yield
        return
    try:
        _take(descriptor, folder, must=must)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path, *, must: bool) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                if must:
                    raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock", str(folder)) from None
                return
            time.sleep(_POLL_S)
        except OSError as error:
            if error.errno in _NO_FLOCK:  # a file system without locks: a line that tears is set aside by readers
                return
            raise
        else:
            return


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _owner(folder: Path) -> int:
    """Whose the folder is, or the nearest one above it that exists."""
    for path in (folder, *folder.parents):
        with suppress(FileNotFoundError):
            return path.stat().st_uid
    return 0
