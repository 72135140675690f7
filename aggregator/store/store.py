"""The store of one watched job.

    manifest.json, manifest.prev.json    which files count, and the streams when the first journal began
    NNNNNN.journal                       records in the order in which they came; the last one grows
    NNNNNN.parquet                       what the journal of that number held
    lock                                 who writes

Bytes go to the last journal. When it is full a new one is begun, what is before it becomes segments, and then a new
manifest says so. Until then, and if any of that fails, the old manifest and all journals are still right; and the new
manifest is right whatever is written to the new journal meanwhile. Bytes and positions are in the same records, so they
cannot part.
"""

from __future__ import annotations

import os
import re
from itertools import chain, count, takewhile
from typing import TYPE_CHECKING, Self

from aggregator.errors import InputError, OutputError
from aggregator.store.files import damaged, make_folder, sync_folder
from aggregator.store.journal import HOLE_LENGTH, MAX_PAYLOAD, Journal, Kind, Record
from aggregator.store.lock import Lock
from aggregator.store.manifest import Manifest, load_manifest, write_manifest
from aggregator.store.segments import ROW_BYTES, Segment, write_segment
from aggregator.store.streams import Stream, StreamMeta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SEGMENT_BYTES = 32 << 20
_OURS = re.compile(r"\d+\.(journal|parquet)|(\d+\.parquet|manifest\.json)\.tmp")


class StoreStalled(Exception):  # noqa: N818 - not a mistake but a state that passes
    """What was put in could not all be written, or a full journal not be sealed: the disk is full, say.

    Nothing is lost: what is not written is still in memory (`Store.backlog`), and the next flush tries again.
    """

    def __init__(self, errno: int | None, text: str) -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text


class Store:
    """The streams of one job: their bytes, exactly as read, and what is known of them. For one thread.

    A reader (`read_only`) sees what was written when it was opened; it needs no lock, and a writer may go on meanwhile.
    `segment_bytes` is how large a journal grows before its bytes are sorted and compressed.

    Raises:
        InputError: a reader finds no store, or may not read it.
        OutputError: another writer holds it, it cannot be created, it is damaged, or a newer version wrote it.
    """

    def __init__(self, folder: Path, *, read_only: bool = False, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._lock: Lock | None = None
        self._segments: list[Segment] = []
        self._journals: list[Journal] = []
        self.streams: dict[int, Stream] = {}
        """By id. Ids count from 0 and are never used again."""
        try:
            if read_only:
                self._recover()
            else:
                make_folder(folder)
                self._lock = Lock(folder)
                self._recover()
                self._make_writable()
        except OSError as error:
            self._let_go()
            kind = InputError if read_only else OutputError
            raise kind(f"the store cannot be opened: {error.strerror or error}", where=str(folder)) from error
        except BaseException:
            self._let_go()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def backlog(self) -> int:
        """Bytes put in that are not yet written."""
        return self._journals[-1].backlog if self._journals else 0

    def begin(self, meta: StreamMeta) -> Stream:
        """Begin a stream; as all that is put in, it is kept from the next flush on."""
        stream = Stream(len(self.streams), meta)
        self.streams[stream.id] = stream
        self._journals[-1].put(Kind.META, stream.id, 0, meta.to_json())
        return stream

    def change(self, stream_id: int, meta: StreamMeta) -> None:
        """Replace what is known of a stream's file."""
        stream = self.streams[stream_id]
        if meta != stream.meta:
            stream.meta = meta
            self._journals[-1].put(Kind.META, stream_id, 0, meta.to_json())

    def append(self, stream_id: int, data: bytes) -> None:
        """Add bytes at the stream's position."""
        stream, journal = self.streams[stream_id], self._journals[-1]
        while data:
            part = data[:MAX_PAYLOAD]  # no copy where that is all
            journal.put(Kind.DATA, stream_id, stream.position, part)
            stream.grow(part)
            data = data[MAX_PAYLOAD:]

    def skip(self, stream_id: int, length: int) -> None:
        """Add a run of NUL bytes at the stream's position without storing them."""
        stream = self.streams[stream_id]
        self._journals[-1].put(Kind.HOLE, stream_id, stream.position, HOLE_LENGTH.pack(length))
        stream.grow_hole(length)

    def flush(self, *, sync: bool = False) -> None:
        """Write what was put in: it survives the end of this process; with `sync`, the loss of power as well.

        Does nothing in a reader.

        Raises:
            StoreStalled: not all of it could be done. The next flush tries again.
        """
        if self._lock is None:
            return
        try:
            self._journals[-1].write(sync=sync)
            self._lock.touch()
            if self._journals[-1].size >= self._segment_bytes:
                self._seal()
        except OSError as error:
            text = f"the store cannot be written: {error.strerror or error}"
            raise StoreStalled(error.errno, text) from error

    def read(self, stream_id: int, size: int = 1 << 20) -> Iterator[bytes]:
        """All bytes of a stream, from 0 to its position at the call, in chunks of `size` (the last one may be shorter).

        Raises:
            OutputError: a segment is damaged or gone.
        """
        end = self.streams[stream_id].position
        parts: list[Segment | Journal] = [*self._segments, *self._journals]
        pieces = chain.from_iterable(part.pieces(stream_id) for part in parts)
        return _cut(_without_holes(pieces, end), size)

    def close(self) -> None:
        """Flush to the disk and let the next writer in. To call it again does nothing.

        Raises:
            StoreStalled: the last bytes could not be written. They are lost, and so are their positions.
        """
        try:
            self.flush(sync=True)
        finally:
            self._let_go()

    def _journal(self, number: int) -> Path:
        return self._folder / f"{number:06}.journal"

    def _segment(self, number: int) -> Path:
        return self._folder / f"{number:06}.parquet"

    def _recover(self) -> None:
        """Take the state from the newest good manifest, and from the journals after it up to the first damage."""
        while True:
            self._manifest, streams = self._load_manifest()
            self._segments = [Segment(self._segment(number)) for number in self._manifest.segments]
            missing = [segment.path for segment in self._segments if not segment.path.exists()]
            # All are opened before the first is read: one that is followed by another does not grow any more.
            self._journals = list(self._open_journals())
            # Else a writer has sealed or begun anew meanwhile, or files are lost for good.
            if (self._journals and not missing) or self._load_manifest()[0] == self._manifest:
                break
        if missing:
            raise damaged("a segment is missing", missing[0])
        self.streams = {stream.id: stream for stream in streams}
        for index, journal in enumerate(self._journals):
            if not journal.replay(self._apply):
                del self._journals[index + 1 :]

    def _load_manifest(self) -> tuple[Manifest, list[Stream]]:
        found = load_manifest(self._folder, mend=self._lock is not None)
        if found is None and self._lock is None:
            raise InputError("there is no store", where=str(self._folder))
        if found is None:
            found = Manifest(first_journal=0, kept_journal=0, segments=()), []
            for _ in range(2):  # the second makes the first its previous one
                write_manifest(self._folder, *found)
        return found

    def _open_journals(self) -> Iterator[Journal]:
        flags = os.O_RDWR if self._lock else os.O_RDONLY
        for number in count(self._manifest.first_journal):
            try:
                yield Journal(self._journal(number), flags)
            except FileNotFoundError:
                return

    def _make_writable(self) -> None:
        if self._journals:
            self._journals[-1].cut()
        else:
            self._begin_journal(self._manifest.first_journal)
        self._remove_unneeded()
        sync_folder(self._folder)

    def _apply(self, record: Record) -> bool:
        """Take a record of a journal in; False if it does not fit what is known, which is damage."""
        stream = self.streams.get(record.stream)
        if record.kind == Kind.META:
            meta = StreamMeta.from_json(record.payload)
            if stream is not None:
                stream.meta = meta
            elif record.stream == len(self.streams):
                self.streams[record.stream] = Stream(record.stream, meta)
            else:
                return False
            return True
        if stream is None or record.offset != stream.position:
            return False
        if record.kind == Kind.DATA:
            stream.grow(record.payload)
        else:
            stream.grow_hole(*HOLE_LENGTH.unpack(record.payload))
        return True

    def _begin_journal(self, number: int) -> None:
        journal = Journal(self._journal(number), os.O_RDWR | os.O_CREAT)
        journal.cut()
        self._journals.append(journal)

    def _seal(self) -> None:
        """Begin a new journal and make segments of all before it.

        Raises:
            OSError: nothing is lost; all journals are sealed together when the new one is full.
        """
        full = list(self._journals)
        full[-1].write(sync=True)
        self._begin_journal(full[-1].number + 1)
        new = [
            write_segment(self._segment(journal.number), journal.rows(ROW_BYTES))
            for journal in full
            if journal.has_data
        ]
        sync_folder(self._folder)
        segments = [*self._segments, *new]
        manifest = Manifest(
            first_journal=self._journals[-1].number,
            kept_journal=self._manifest.first_journal,
            segments=tuple(segment.number for segment in segments),
        )
        write_manifest(self._folder, manifest, self.streams.values())
        self._manifest, self._segments = manifest, segments
        self._journals = self._journals[-1:]
        self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        """Remove files of ours that neither the manifest nor the one before it needs."""
        journals = range(self._manifest.kept_journal, self._journals[-1].number + 1)
        needed = {self._journal(number).name for number in journals}
        needed |= {segment.path.name for segment in self._segments}
        for path in self._folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in needed:
                path.unlink()

    def _let_go(self) -> None:
        self._journals = []
        if self._lock:
            self._lock.release()
            self._lock = None


def _without_holes(pieces: Iterable[tuple[int, bytes]], end: int) -> Iterator[bytes]:
    """The bytes up to `end`, with NUL bytes where pieces leave a gap."""
    at = 0
    for offset, data in chain(takewhile(lambda piece: piece[0] < end, pieces), [(end, b"")]):
        while at < offset:
            nuls = bytes(min(offset - at, ROW_BYTES))
            yield nuls
            at += len(nuls)
        yield data
        at += len(data)


def _cut(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in chunks of `size`."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
