"""The journal: records in the order in which they came, each with a checksum of its own.

A file is a header (`_HEADER`: magic, version, CRC-32 of both) and records (`_RECORD`: CRC-32 of all that follows,
length of the payload, kind, stream, offset; then the payload). All numbers are little-endian.
"""

from __future__ import annotations

import errno
import os
import struct
import weakref
import zlib
from array import array
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from aggregator.store.files import VERSION, check_version, open_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_PAYLOAD = 1 << 20
"""Bytes of a record. A length beyond it is damage, so that no damaged length takes memory."""
_MAGIC = b"denpexjl"
_HEADER = struct.Struct("<8sII")
_RECORD = struct.Struct("<IIBqq")
_CHECKED = struct.Struct("<IBqq")
"""A record but for its checksum."""
_CRC_BYTES = 4


class Kind(IntEnum):
    """What a record says of its stream."""

    META = 0
    """The payload is the whole `StreamMeta` as JSON; offset 0."""
    DATA = 1
    """The payload are the bytes at the offset."""
    HOLE = 2
    """The payload is a length (`HOLE_LENGTH`): so many NUL bytes are at the offset."""


HOLE_LENGTH = struct.Struct("<q")


class Record(NamedTuple):
    """One record. `kind` is a `Kind`; `offset` is bytes from the stream's start."""

    kind: int
    stream: int
    offset: int
    payload: bytes


class Journal:
    """One file of records. `size` is bytes of it that are good.

    Kept in memory: where each DATA record is (24 bytes each), because streams lie mixed in the file. The descriptor is
    closed with the last reference, so that whoever still reads may go on when the file is gone.

    Args:
        path: named by the journal's number.
        flags: of `os.open`.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self.number = int(path.stem)
        self.size = 0
        self._descriptor = open_private(path, flags)
        weakref.finalize(self, os.close, self._descriptor)
        self._buffer = bytearray()
        self._places: dict[int, array[int]] = {}

    @property
    def backlog(self) -> int:
        """Bytes that are not yet written."""
        return len(self._buffer)

    @property
    def has_data(self) -> bool:
        """Whether any stream has bytes here."""
        return bool(self._places)

    def replay(self, apply: Callable[[Record], bool]) -> bool:
        """Give all good records to `apply`, in order, up to the first that is torn, damaged or refused by it.

        Returns whether there was no such record. Call it once, before anything is put in.

        Raises:
            OutputError: a newer version wrote it.
            OSError: the file cannot be read.
        """
        with open(self._descriptor, "rb", buffering=1 << 20, closefd=False) as file:
            if not self._check_header(file.read(_HEADER.size)):
                return False
            self.size = _HEADER.size
            while head := file.read(_RECORD.size):
                record = _read_record(head, file)
                if record is None or not apply(record):
                    return False
                if record.kind == Kind.DATA:
                    self._note(record.stream, record.offset, len(record.payload))
                self.size += _RECORD.size + len(record.payload)
        return True

    def cut(self) -> None:
        """Make the file what is good of it, a header at least: ready to be written."""
        os.ftruncate(self._descriptor, self.size)
        if not self.size:
            header = _HEADER.pack(_MAGIC, VERSION, 0)[:-_CRC_BYTES]
            _write_all(self._descriptor, header + zlib.crc32(header).to_bytes(_CRC_BYTES, "little"), 0)
            self.size = _HEADER.size

    def put(self, kind: Kind, stream: int, offset: int, payload: bytes) -> None:
        """Add a record to what `write` will write. The payload has at most `MAX_PAYLOAD` bytes."""
        size = len(payload)
        if kind == Kind.DATA:
            self._note(stream, offset, size)
        checked = _CHECKED.pack(size, kind, stream, offset)
        crc = zlib.crc32(payload, zlib.crc32(checked))
        self._buffer += crc.to_bytes(_CRC_BYTES, "little")
        self._buffer += checked
        self._buffer += payload

    def write(self, *, sync: bool) -> None:
        """Write what was put in; with `sync`, to the disk itself.

        Raises:
            OSError: the file is as before, as far as that can be, and nothing is taken from memory.
        """
        try:
            _write_all(self._descriptor, self._buffer, self.size)
            if sync:
                os.fdatasync(self._descriptor)
        except OSError:
            with suppress(OSError):  # what is beyond `size` will be written over
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(self._buffer)
        self._buffer.clear()

    def pieces(self, stream: int) -> Iterator[tuple[int, bytes]]:
        """The bytes of a stream with their offsets, ascending; those not yet written too."""
        for offset, place, length in self._places_of(stream):
            yield offset, self._read(place, length)

    def rows(self, limit: int) -> Iterator[tuple[int, int, bytes]]:
        """All bytes that are written as (stream, offset, bytes), sorted; the whole file is in memory meanwhile.

        What is contiguous is joined to at most `limit` bytes.
        """
        written = self._read_all()
        for stream in sorted(self._places):
            start, joined = 0, bytearray()
            for offset, place, length in self._places_of(stream):
                if joined and (offset != start + len(joined) or len(joined) + length > limit):
                    yield stream, start, bytes(joined)
                    joined.clear()
                if not joined:
                    start = offset
                joined += written[place : place + length]
            yield stream, start, bytes(joined)

    def _places_of(self, stream: int) -> Iterator[tuple[int, int, int]]:
        """Offset in the stream, place in the file and length of each of its pieces, ascending."""
        places = iter(self._places.get(stream, array("q")))
        return zip(places, places, places, strict=True)

    def _note(self, stream: int, offset: int, length: int) -> None:
        place = self.size + len(self._buffer) + _RECORD.size
        places = self._places.get(stream)
        if places is None:
            places = self._places[stream] = array("q")
        places.extend((offset, place, length))

    def _read(self, place: int, length: int) -> bytes:
        if place >= self.size:
            return bytes(self._buffer[place - self.size : place - self.size + length])
        return os.pread(self._descriptor, length, place)

    def _read_all(self) -> memoryview:
        view, done = memoryview(bytearray(self.size)), 0
        while done < self.size:
            got = os.preadv(self._descriptor, [view[done:]], done)
            if not got:
                raise OSError(errno.EIO, "a journal has become shorter")
            done += got
        return view

    def _check_header(self, header: bytes) -> bool:
        if len(header) < _HEADER.size:
            return False
        magic, version, crc = _HEADER.unpack(header)
        if magic != _MAGIC or crc != zlib.crc32(header[:-_CRC_BYTES]):
            return False
        check_version(version, self.path)
        return True


def _write_all(descriptor: int, data: bytes | bytearray, place: int) -> None:
    """Write all of it: a disk that is nearly full takes a part at first.

    Raises:
        OSError: it could not all be written.
    """
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done : done + MAX_PAYLOAD], place + done)


def _read_record(head: bytes, file: BinaryIO) -> Record | None:
    """The record that begins with `head`; None if it is torn or damaged."""
    if len(head) < _RECORD.size:
        return None
    crc, length, kind, stream, offset = _RECORD.unpack(head)
    if length > MAX_PAYLOAD:
        return None
    payload = file.read(length)
    if len(payload) < length or crc != zlib.crc32(payload, zlib.crc32(head[_CRC_BYTES:])):
        return None
    return Record(kind, stream, offset, payload)
