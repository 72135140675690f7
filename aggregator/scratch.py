"""A folder for what does not fit in memory."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""What a disk answers that takes no more."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that its owner alone can read, and that is removed at the end of the block.

    Raises:
        OutputError: the disk that it is on takes no more.
    """
    import tempfile  # noqa: PLC0415 - takes longer to import than a small job to read

    folder = Path()
    try:
        with tempfile.TemporaryDirectory(prefix="denpex-") as name:
            folder = Path(name)
            yield folder
    except OSError as error:
        if folder.name and error.errno not in _FULL:  # without a name: it could not even be made
            raise
        raise _full(os.strerror(error.errno or 0), folder) from None
    except OutputError as error:
        if error.where is None or not Path(error.where).is_relative_to(folder):
            raise
        raise _full(error.what.rpartition(": ")[2], folder) from None


def _full(why: str, folder: Path) -> OutputError:
    return OutputError(
        f"temporary files cannot be written: {why}",
        where=str(folder.parent) if folder.name else None,
        help="free space there, or set TMPDIR to a folder that has some",
    )
