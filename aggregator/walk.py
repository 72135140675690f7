"""Lists the regular files under what a user named, without following links out of the job or into loops."""

from __future__ import annotations

import glob
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from aggregator.errors import InputError
from aggregator.opening import ReadNotes, file_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_FILES = 200_000
MAX_DEPTH = 32
NamedFile: TypeAlias = tuple[str, str]
"""Where a file is, and what it is called: relative to the job folder, with forward slashes, printable."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something on the way; `mode` is its type as `st_mode` tells it, None where it has not been looked at."""

    path: str
    shown: str
    mode: int | None


def expand(paths: Sequence[str]) -> list[str]:
    """What the user's arguments name: patterns are replaced by what they match, `-` stays.

    Raises:
        InputError: there is no such path, a pattern matches nothing, or standard input is closed.
    """
    if "-" in paths and sys.stdin is None:
        raise InputError("standard input is closed", where="-", help="name a file, or give the log to standard input")
    named: dict[str, None] = {}
    for path in paths:
        matches = [path]
        if path != "-" and not os.path.lexists(path):
            # Path.glob takes no absolute pattern.
            matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []  # noqa: PTH207
        if not matches:
            what = "the pattern matches nothing" if glob.has_magic(path) else "no such file or folder"
            raise InputError(what, where=path, help="give a job's log folder, its files, or - for standard input")
        named.update(dict.fromkeys(matches))
    return list(named)


def walk(
    named: Sequence[Path], root: Path | None, notes: ReadNotes, max_files: int | None = None
) -> Iterator[NamedFile]:
    """Yields regular files, sorted, links last. Linked folders are not entered: no loops.

    Raises:
        InputError: a path that the user named cannot be looked at.
    """
    if root is None:
        return
    most = MAX_FILES if max_files is None else max_files
    links, met, by_user = list[NamedFile](), set[str](), frozenset(map(str, named))
    stack = [_Entry(str(path), _printable(_below(path, root)), None) for path in reversed(named)]
    while stack:
        entry = stack.pop()
        path, shown = entry.path, entry.shown
        try:
            mode = os.lstat(path).st_mode if entry.mode is None else entry.mode
            if stat.S_ISDIR(mode):
                stack += _listed(path, "" if path == str(root) else shown, notes, by_user=path in by_user)
        except OSError as error:
            if path in by_user:
                raise InputError("cannot be read", where=path, help=error.strerror) from error
            notes.add(shown, error.strerror or str(error))
            continue
        if len(met) >= most:
            notes.add(shown, f"limit of {most} files: this one and what follows was not looked at")
            break
        if stat.S_ISLNK(mode):
            links.append((path, shown))
        elif stat.S_ISREG(mode) and path not in met:
            met.add(path)
            yield path, shown
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            notes.add(shown, f"not a regular file ({file_type(mode)}); pipe it in as -")
    yield from _linked(links, root, met, notes)


def _below(path: Path, root: Path) -> str:
    return path.name if path == root else str(path.relative_to(root))


def _printable(name: str) -> str:
    """Bytes of a name that are no UTF-8 become escapes."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def _linked(links: list[NamedFile], root: Path, met: set[str], notes: ReadNotes) -> Iterator[NamedFile]:
    """The files behind links that stay inside the job folder and are not listed by themselves."""
    for link, shown in links:
        try:
            target = os.path.realpath(link)
        except OSError:
            notes.add(shown, "a link that went while the folder was listed")
            continue
        if not Path(target).is_relative_to(root):
            notes.add(shown, "link that leads out of the job folder")
        elif target in met or not Path(target).is_file():
            notes.add(shown, "link to something that is listed by itself, or is missing")
        else:
            met.add(target)
            yield target, shown


def generated_folder(name: str) -> bool:
    """Whether a folder of this name holds no logs."""
    return name.startswith(".") or name in {"__pycache__", "node_modules", "site-packages"}


def _listed(path: str, shown: str, notes: ReadNotes, *, by_user: bool) -> list[_Entry]:
    """What a folder holds, last first; nothing, and a note, for one that holds no logs."""
    name = path.rpartition("/")[2]
    hidden = generated_folder(name)
    if not by_user and (hidden or shown.count("/") >= MAX_DEPTH):
        notes.add(shown + "/", "hidden or generated folder" if hidden else "too deep")
        return []
    front, above = path.rstrip("/") + "/", f"{shown}/" if shown else ""
    with os.scandir(path) as entries:
        found = sorted(((entry.name, _mode(entry)) for entry in entries), reverse=True)
    return [_Entry(front + name, above + _printable(name), mode or None) for name, mode in found]


def _mode(entry: os.DirEntry[str]) -> int:
    """The type that the listing itself tells, without asking for each file's status; 0 for anything unusual."""
    try:
        if entry.is_file(follow_symlinks=False):
            return stat.S_IFREG
        return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else 0
    except OSError:
        return 0
