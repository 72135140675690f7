"""Says of each stream whose words it holds, as discovery does of the files of a finished job."""

from __future__ import annotations

import os
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from aggregator.discover import Discovery, File, arrange, look, remember
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
        names = {"/".join(file.parts) for _, file in files}
        for stream in self._gone(names):
            file = recall(self._store, stream)
            if file is not None:
                files.append((stream.id, file))
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

    def _gone(self, names: set[str]) -> Iterable[Stream]:
        """Streams whose files were removed while this watch ran: of each name the newest."""
        newest: dict[str, Stream] = {}
        followed = {tail.stream.id for tail in self._collector.tails if tail.stream is not None and not tail.gone}
        for stream in self._store.streams.values():
            if stream.id not in followed and stream.meta.path not in names and stream.id not in (self._long_gone or ()):
                newest[stream.meta.path] = stream
        return newest.values()


def recall(store: Store, stream: Stream, mtime_ns: int | None = None) -> File | None:
    """A stream as a file of discovery, by its bytes in the store alone; `mtime_ns` is when it was last written to."""
    head = b"".join(islice(store.read(stream.id, _ENDS), 1))
    return remember(stream.meta.path, head, stream.tail, size=stream.position, mtime_ns=mtime_ns)
