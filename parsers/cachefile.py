"""Keeps what was made of our own files between runs, as JSON in the user's cache folder.

To read some dozen TOML files takes longer than a small job. A cache is named by what it was made of;
anything wrong with it means that it is made anew. Nobody else's files are cached.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")


def cached(
    name: str,
    files: Callable[[], Iterable[Path]],
    make: Callable[[], Any],
    thaw: Callable[[Any], Made],
    layout: int = 1,
) -> Made:
    """What `thaw` makes of what `make` gives: from the cache, if the files are as they were.

    Args:
        name: of the cache, without a dash.
        files: gives those that it is made of.
        make: gives values that JSON knows; what it raises is raised.
        thaw: makes what is wanted of them; what it raises of values from the cache is not.
        layout: changes with the form of what `make` gives.
    """
    place = None
    with suppress(Exception):  # not there, cut off, another's: whatever is wrong with it
        place = place_of(name, files(), layout)
        return thaw(json.loads(place.read_bytes()))
    made = json.dumps(make(), separators=(",", ":"))
    if place is not None:
        with suppress(OSError):
            _store(place, made)
    return thaw(json.loads(made))


def place_of(name: str, files: Iterable[Path], layout: int) -> Path:
    """Where the cache of files as they are now is, or would be: two installations do not replace each other's."""
    listed = sorted(files)
    stats = [file.stat() for file in listed]
    told = "/".join(
        f"{file.name}/{status.st_size}/{status.st_mtime_ns}" for file, status in zip(listed, stats, strict=True)
    )
    newest = max(status.st_mtime_ns for status in stats)
    # Sums, as hashlib takes longer to import than all of this.
    where, what = zlib.crc32(str(listed[0].parent).encode()), zlib.crc32(f"{layout}/{told}".encode())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118 - Path.home raises where there is none
    return Path(base) / "denpex-agg" / f"{name}-{where:08x}-{newest:x}{what:08x}.json"


def _store(place: Path, text: str) -> None:
    import tempfile  # noqa: PLC0415 - once, not in each run

    private_folder(place.parent)
    for old in place.parent.glob(f"{place.name.rpartition('-')[0]}-*.json"):
        old.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(place)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def private_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for its owner only: others could replace what is below."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(0o700, exist_ok=True)
