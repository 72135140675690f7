"""Files of the store: for their owner only, and on the disk before they take their names."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from aggregator.errors import OutputError
from parsers.cachefile import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = 1
"""Of manifests and journals. To be raised whenever an older program would misread what a newer one writes."""


def check_version(version: int, path: Path) -> None:
    """Refuse what a newer program has written.

    Raises:
        OutputError: `version` is above `VERSION`.
    """
    if version > VERSION:
        raise OutputError(
            f"the store was written by a newer version (its format is {version}, this version reads {VERSION})",
            where=str(path),
            help="use the newer denpex-agg, or another state folder",
        )


def damaged(what: str, path: Path) -> OutputError:
    """The error for files that the store needs and that cannot be used."""
    return OutputError(
        f"the store is damaged: {what}",
        where=str(path),
        help="use another state folder, or remove this one to read the logs anew",
    )


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter, whatever the umask; one that exists becomes such a folder."""
    if not folder.exists():
        private_folder(folder)
        sync_folder(folder.parent)
    folder.chmod(0o700)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file; one that `os.O_CREAT` creates is for its owner only, whatever the umask."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if flags & os.O_CREAT:
        os.fchmod(descriptor, 0o600)
    return descriptor


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path`, whole and on the disk, when the block ends without an error.

    Its name is on the disk only after `sync_folder`.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
