"""Says of each stream whose words it holds, as discovery does of the files of a finished job."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from itertools import count, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from aggregator.collect.matching import base_of, is_older_part
from aggregator.diagnostics import tell_sources
from aggregator.discover import Discovery, File, arrange, look, remember
from aggregator.layouts import plain_name
from aggregator.opening import ReadNotes
from aggregator.reference import newest_date
from parsers.records import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.collect.collector import Collector
    from aggregator.collect.folder import Folder
    from aggregator.live.reducer import Reducer
    from aggregator.store import Store, Stream

_ENDS = 64 << 10
"""Bytes of both ends of a stream whose file is gone that are asked whose words they are."""


class Arranger:
    """Keeps a reducer's sources as the folder has them.

    Judged is what is in the folder, and what was removed while this watch ran. What a file held before it was cut or
    overwritten is stored and not judged: it may be the words of an earlier run.
    """

    def __init__(self, folder: Folder, store: Store, collector: Collector, reducer: Reducer) -> None:
        self.skipped: tuple[Skipped, ...] = ()
        self.known: set[int] = set()
        """The streams that there were at the last arrangement."""
        self.warnings: tuple[str, ...] = ()
        self.logs = 0
        """How many of them are judged."""
        self._folder = folder
        self._store = store
        self._collector = collector
        self._reducer = reducer
        self._long_gone: set[int] | None = None

    def arrange(self) -> None:
        """Tell the reducer which sources there are now."""
        if self._long_gone is None:
            here = {tail.stream.id for tail in self._collector.tails if tail.stream is not None}
            self._long_gone = self._store.streams.keys() - here
        notes = ReadNotes()
        files: list[tuple[int | None, File]] = list(self._there(notes))
        gone = self._gone({"/".join(file.parts) for _, file in files})
        for path, stream in gone.items():
            file = recall(self._store, stream, path)
            if file is not None:
                files.append((stream.id, file))
        rotated = [path for path, stream in gone.items() if path != stream.meta.path]
        more = f" and {len(rotated) - 1} more" if len(rotated) > 1 else ""
        self.warnings = (f"{rotated[0]}{more}: removed by rotation; judged by what was stored",) if rotated else ()
        sources = arrange([file for _, file in files])
        numbers = [number for number, _ in files]
        judged = {source.index for source in Discovery(None, "", tuple(sources), ()).logs}
        streams = {
            number: source
            for number, source in zip(numbers, sources, strict=True)
            if number is not None and source.index in judged
        }
        others = [
            source for number, source in zip(numbers, sources, strict=True) if number is None or number not in streams
        ]
        self.skipped = tuple(dict.fromkeys([*self._folder.notes.items, *notes.items, *self._damaged()]))
        self.known, self.logs = set(self._store.streams), len(streams)
        tell_sources(sources, self.skipped)
        ordered = sorted((source for source in sources if source.real is not None), key=attrgetter("index"))
        self._reducer.arrange(streams, others=others, skipped=self.skipped, reference_ns=newest_date(ordered))

    def _damaged(self) -> Iterable[Skipped]:
        for tail in self._collector.tails:
            if tail.archive is not None and (problem := tail.archive.problem()):
                yield Skipped(tail.shown, problem)

    def _there(self, notes: ReadNotes) -> Iterable[tuple[int | None, File]]:
        named = self._folder.named
        by_user, seen = frozenset(named), dict[tuple[int, int], str]()
        for tail in sorted(self._collector.tails, key=lambda tail: tail.shown):
            if not tail.gone:
                file = look(
                    tail.real, tail.shown, seen, notes, by_user=tail.real in by_user,
                    lone=len(named) == 1 and not os.path.isdir(named[0]),  # noqa: PTH112 - `named` are strings
                )  # fmt: skip
                if file is not None:
                    yield tail.stream.id if tail.stream is not None else None, file

    def _gone(self, names: set[str]) -> dict[str, Stream]:
        """By name, streams whose files were removed while this watch ran.

        Of each name the newest; but of rotated parts all, under the names that they would have got had none been
        removed.
        """
        followed = {tail.stream.id for tail in self._collector.tails if tail.stream is not None and not tail.gone}
        away = followed | (self._long_gone or set())
        streams = [stream for number, stream in sorted(self._store.streams.items()) if number not in away]
        gone = {stream.meta.path: stream for stream in streams if stream.meta.path not in names}
        taken = {stream.id for stream in gone.values()}
        left = [stream for stream in streams if stream.id not in taken and stream.meta.ended in {None, "removed"}]
        return gone | _renumbered([s for s in left if is_older_part(s.meta.path)], names | gone.keys())


def _renumbered(parts: Sequence[Stream], names: Collection[str]) -> dict[str, Stream]:
    """Rotated parts, oldest first, whose names others have now, under the next numbers that are free."""
    plain = {plain_name(name) for name in names}
    named: dict[str, Stream] = {}
    for stream in reversed(parts):
        free = (f"{base_of(stream.meta.path)}.{number}" for number in count(1))
        named[next(path for path in free if path not in plain and path not in named)] = stream
    return named


def recall(store: Store, stream: Stream, path: str, mtime_ns: int | None = None) -> File | None:
    """A stream as a file of discovery, by its bytes in the store alone.

    Args:
        store: where its bytes are.
        stream: which one.
        path: what it is called now.
        mtime_ns: when its file was written to last, if that is known.
    """
    head = b"".join(islice(store.read(stream.id, _ENDS), 1))
    return remember(path, head, stream.tail, size=stream.position, mtime_ns=mtime_ns)
