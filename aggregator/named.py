"""Is what the user named there, and what a command wants?"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from aggregator.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def require_folder(path: Path) -> None:
    """Go on only with a folder.

    Raises:
        InputError: it is none, in words.
    """
    mode = _mode(path, "folder")
    if not stat.S_ISDIR(mode):
        raise InputError(f"not a folder but a {_kind(mode)}", where=str(path), help="name the folder that it is in")


def require_file(path: Path, instead: str) -> None:
    """Go on only with a regular file; `instead` says what to do with a folder.

    Raises:
        InputError: it is none, in words.
    """
    mode = _mode(path, "file")
    if stat.S_ISDIR(mode):
        raise InputError("a folder, not a file", where=str(path), help=instead)
    if not stat.S_ISREG(mode):
        raise InputError(f"not a regular file but a {_kind(mode)}", where=str(path), help="give a stream by `-`")


def _mode(path: Path, wanted: str) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"no such {wanted}", where=str(path)) from None
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from None


def _kind(mode: int) -> str:
    from aggregator.opening import file_type  # noqa: PLC0415 - brings what unpacks archives

    return file_type(mode)
