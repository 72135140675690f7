"""What a watch has stored, as the files of a job: the same normaliser makes rows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.collect.folder import Folder
from aggregator.discover import Discovery, arrange
from aggregator.errors import InputError
from aggregator.live.arrangement import recall
from aggregator.live.place import run_folder
from aggregator.reference import newest_date
from aggregator.store import Store
from aggregator.utf16 import Utf8Decoder
from parsers.normalise import OpenChunks

if TYPE_CHECKING:
    from parsers.records import Source


@dataclass(frozen=True, slots=True)
class Stored:
    """The logs that a watch has stored, what reads them, and when the job ran (see `newest_date`)."""

    found: Discovery
    read: OpenChunks
    reference_ns: int | None


@contextmanager
def stored_logs(paths: Sequence[str], state_dir: Path | None) -> Iterator[Stored]:
    """What a watch of `paths` has stored; one that runs is not disturbed.

    What a file held before it was overwritten is a log of its own, `train.log~1`.

    Raises:
        InputError: there is no store.
    """
    root = Folder(paths).root
    folder = run_folder(paths, state_dir)
    if not folder.is_dir():
        raise InputError(
            "no watch of this has stored anything here", where=str(folder), help="denpex-agg watch, with the same paths"
        )
    with Store(folder, read_only=True) as store:
        files = []
        for stream in sorted(store.streams.values(), key=attrgetter("id")):
            file = recall(store, stream, stream.meta.path, _changed_ns(root / stream.meta.path))
            if file is not None:
                files.append((stream.id, file))
        sources = arrange([file for _, file in files])
        streams = {source.index: number for (number, _), source in zip(files, sources, strict=True)}

        def read(source: Source) -> Iterator[bytes]:
            decoder = Utf8Decoder()
            for data in store.read(streams[source.index]):
                yield decoder.decode(data)
            yield decoder.rest()

        def head(source: Source, size: int) -> bytes:
            return next(store.read(streams[source.index], size), b"")

        named = _named_apart(sorted(sources, key=attrgetter("index")))
        yield Stored(Discovery(None, paths[0], tuple(named), ()), read, newest_date(named, head, None))


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _named_apart(sources: Sequence[Source]) -> list[Source]:
    """Of sources of one name all but the newest get a number, the oldest the highest."""
    total: dict[str, int] = {}
    for source in sources:
        total[source.path] = total.get(source.path, 0) + 1
    named = []
    for source in sources:
        total[source.path] -= 1
        older = total[source.path]
        named.append(replace(source, path=f"{source.path}~{older}") if older else source)
    return named
