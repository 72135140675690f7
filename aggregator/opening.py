"""Opens the job's files: the only place that does, because their names and bytes are hostile.

Nothing here blocks or raises over a bad file. A link that appeared after discovery, a FIFO, a device, a truncated
archive, a compression bomb, a disk that answers EIO: each ends the stream where the bytes end and leaves a sentence in
`ReadNotes`, which every report lists. Offsets count the bytes that come out of here.
"""

from __future__ import annotations

import contextlib
import errno
import io
import lzma
import os
import stat
import zlib
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, Self

from aggregator import limits
from aggregator.firstbytes import compression_of
from aggregator.held import HeldFile
from aggregator.inflate import INFLATERS, Inflater
from aggregator.jsonarray import as_lines
from aggregator.utf16 import UTF16_NOTE, Utf8Decoder
from parsers.records import Skipped, Source, SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

STDIN_FD = 0
CHUNK = 1 << 20
_PIECE = 256 << 10
"""Bytes of compressed input, or of decompressed output, that are in memory at once."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a compressed file may unfold to.

    `total` is in bytes. Beyond `free` bytes no more than `ratio` bytes may come out for each that went in (deflate
    cannot exceed 1,032; the others can make terabytes out of kilobytes). Of a file that is not compressed and longer
    than `plain`, only the end is read.
    """

    plain: int | None = None
    total: int = 64 << 30
    free: int = 1 << 30
    ratio: int = 2_000

    def excess(self, went_in: int, came_out: int) -> str | None:
        """Why reading must stop here, or None."""
        if came_out > self.total:
            return f"stopped after {self.total} decompressed bytes"
        if came_out > self.free and came_out > self.ratio * max(went_in, 1):
            return f"stopped: unfolds to more than {self.ratio} times its size"
        return None


DEFAULT_BUDGET = Budget()


@dataclass(slots=True)
class ReadNotes:
    """What could not be read, in the order in which it was met; one note a path and reason."""

    items: list[Skipped] = field(default_factory=list)
    _known: set[Skipped] = field(default_factory=set, repr=False)

    def add(self, path: str, reason: str) -> None:
        """Notes that `path` was not, or not wholly, read."""
        note = Skipped(path, reason)
        if note not in self._known:
            self._known.add(note)
            self.items.append(note)


def open_regular(path: Path | str) -> int:
    """Descriptor of a regular file, never through a link and never blocking.

    Raises:
        OSError: it cannot be opened or is a link; without `errno`: it is no regular file, or not for us to read.
    """
    fd = os.open(path, _FLAGS)
    status = os.fstat(fd)
    is_regular = stat.S_ISREG(status.st_mode)
    reason = limits.refusal(status) if is_regular else f"not a regular file ({file_type(status.st_mode)})"
    if reason is None:
        return fd
    os.close(fd)
    raise OSError(reason)


def file_type(mode: int) -> str:
    """The kind of a file system entry in a word, from its `st_mode`."""
    names = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFLNK: "link"}
    names |= {stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFREG: "file"}
    return names.get(stat.S_IFMT(mode), "unknown kind")


@cache
def _seekable_stdin(fd: int) -> int:
    """Descriptor with the bytes of standard input from offset 0, so that they can be read more than once.

    A pipe is copied to a file without a name, which the system removes with the process.
    """
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.dup(fd)
    import tempfile  # noqa: PLC0415 - takes longer to import than a small job to read

    with tempfile.TemporaryFile() as spool:
        copied = 0
        while (piece := os.read(fd, _PIECE)) and copied < DEFAULT_BUDGET.total:
            spool.write(piece)
            copied += len(piece)
        spool.flush()
        return os.dup(spool.fileno())


class OpenFile(Protocol):
    """A file's bytes as they are, wherever it is."""

    @property
    def size(self) -> int:
        """In bytes, as far as is known now."""
        ...

    @property
    def key(self) -> tuple[int, int] | None:
        """Device and inode; None if it is not on this machine."""
        ...

    def read_at(self, size: int, place: int) -> bytes:
        """At most `size` bytes from `place` on; none at the end.

        Raises:
            OSError: they cannot be had.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class LocalFile:
    """A file of this machine, by its descriptor, which it takes over."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size(self) -> int:
        """See `OpenFile`."""
        return os.fstat(self._fd).st_size

    @property
    def key(self) -> tuple[int, int] | None:
        """See `OpenFile`."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def read_at(self, size: int, place: int) -> bytes:
        """By position: the descriptor of standard input may be shared."""
        return os.pread(self._fd, size, place)

    def close(self) -> None:
        """See `OpenFile`."""
        os.close(self._fd)


def open_file(source: Source) -> OpenFile:
    """The bytes of a source, of standard input if it is nowhere else.

    Raises:
        OSError: it cannot be opened, or is not for us to read; a file behind a URL tells that when it is read.
    """
    if source.held is not None:
        return HeldFile(source.held)
    if source.remote is not None:
        from aggregator.remote.files import RemoteFile  # noqa: PLC0415 - few jobs are behind URLs

        return RemoteFile(source.remote, source.size)
    return LocalFile(os.dup(_seekable_stdin(STDIN_FD)) if source.real is None else open_regular(source.real))


class SourceStream:
    """The decompressed bytes of one source, front to back. Close it, or use it in a `with`."""

    def __init__(self, source: Source, notes: ReadNotes, budget: Budget = DEFAULT_BUDGET, piece: int = _PIECE) -> None:
        self._path = source.path
        self._notes = notes
        self._budget = budget
        self._went_in = 0
        self._file: OpenFile | None = None
        self._rest = b""
        self._pieces: Iterator[bytes] = iter(())
        try:
            self._file = open_file(source)
            head = self._file.read_at(piece, 0)[:8] if source.remote else self._file.read_at(8, 0)
        except OSError as error:
            self._note(error)
            return
        pieces = self._decoded(head, piece)
        if source.kind is SourceKind.LOG:
            pieces = as_lines(pieces, lambda what: notes.add(source.path, what))
        self._pieces = self._guarded(pieces)

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        parts = [self._rest] if self._rest else []
        have = len(self._rest)
        while have < size and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            have += len(piece)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._rest = data[size:]
        return data[:size] if self._rest else data

    @property
    def key(self) -> tuple[int, int] | None:
        """Device and inode of the open file; None if it could not be opened."""
        return self._file.key if self._file is not None else None

    def close(self) -> None:
        """Gives the descriptor back; what was not read stays unread."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._pieces = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, error: Exception) -> None:
        text = str(error)
        if isinstance(error, OSError) and error.errno:
            text = "became a link" if error.errno == errno.ELOOP else os.strerror(error.errno)
        self._notes.add(self._path, text or type(error).__name__)

    def _guarded(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Passes pieces on; whatever fails below ends the stream with a note."""
        try:
            yield from pieces
        except (OSError, EOFError, MemoryError) as error:
            self._note(error)

    def _decoded(self, head: bytes, piece: int) -> Iterator[bytes]:
        codec = compression_of(head)
        if codec == "zstd":
            return self._utf8(self._budgeted(self._zstd()))
        if codec is not None:
            return self._utf8(self._budgeted(self._inflated(codec)))
        return self._utf8(self._raw(piece) if self._budget.plain is None else self._end(self._budget.plain, piece))

    def _end(self, limit: int, piece: int) -> Iterator[bytes]:
        if self._file is not None:
            if self._file.size > limit:
                self._notes.add(self._path, f"only its last {limit:,} bytes were read, and its lines are counted there")
            yield from limits.end_of(self._file, limit, piece)

    def _raw(self, piece: int = _PIECE) -> Iterator[bytes]:
        """The file as it is."""
        while self._file is not None and (data := self._file.read_at(piece, self._went_in)):
            self._went_in += len(data)
            yield data

    def _budgeted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        came_out = 0
        for piece in pieces:
            came_out += len(piece)
            if reason := self._budget.excess(self._went_in, came_out):
                self._notes.add(self._path, reason)
                return
            yield piece

    def _inflated(self, codec: str) -> Iterator[bytes]:
        """Members one after another, as `cat a.gz b.gz` and parallel compressors write them."""
        member: Inflater | None = None
        for raw in self._raw():
            data = raw
            while data or (member is not None and not member.needs_input):
                if member is None:
                    # Tapes and some tools pad with zeros; any other tail is refused by the next member's check.
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = INFLATERS[codec]()
                try:
                    piece = member.decompress(data, max_length=_PIECE)
                except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                    raise EOFError(f"the {codec} archive is damaged: read up to there") from error
                data = b""
                if piece:
                    yield piece
                if member.eof:
                    data, member = member.unused_data, None
        if member is not None:
            raise EOFError(f"the {codec} archive is cut off: read up to there")

    def _zstd(self) -> Iterator[bytes]:
        """Zstandard through Arrow, which drops a whole read when the archive is cut off.

        So after a failure the rest is read again in ever smaller steps, until nothing that can be had is lost.
        """
        import pyarrow as pa  # noqa: PLC0415 - costs 50 ms, needed for few jobs

        delivered = 0
        failure: OSError | None = None
        for step in (_PIECE, 1 << 10, 1):
            self._went_in = 0
            with pa.CompressedInputStream(pa.PythonFile(_RawFile(self), mode="r"), "zstd") as stream:
                try:
                    ahead = delivered
                    while ahead > 0:
                        ahead -= len(stream.read(min(ahead, _PIECE)))
                    while piece := stream.read(step):
                        delivered += len(piece)
                        yield piece
                except OSError as error:
                    failure = error
                else:
                    return
        cut_off = "runcated" in str(failure)
        raise EOFError(f"the zstd archive is {'cut off' if cut_off else 'damaged'}: read up to there")

    def _utf8(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        decoder = Utf8Decoder()
        for piece in pieces:
            data = decoder.decode(piece)
            if decoder.converts:
                self._notes.add(self._path, UTF16_NOTE)
            if data:
                yield data
        if data := decoder.rest():
            yield data


class _RawFile(io.RawIOBase):
    """The compressed bytes as the Python file that Arrow asks for; the descriptor stays the stream's."""

    def __init__(self, stream: SourceStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return next(self._stream._raw(size if size > 0 else _PIECE), b"")  # noqa: SLF001 - its other half


def read_chunks(
    source: Source, notes: ReadNotes, size: int = CHUNK, budget: Budget = DEFAULT_BUDGET
) -> Iterator[bytes]:
    """Yields the decompressed bytes of `source` in chunks of `size`, the last one shorter; none is empty."""
    with SourceStream(source, notes, budget, piece=size) as stream:
        while chunk := stream.read(size):
            yield chunk


def read_head(source: Source, size: int, notes: ReadNotes | None = None) -> bytes:
    """The first `size` decompressed bytes, or what there is."""
    with SourceStream(source, notes if notes is not None else ReadNotes(), piece=size) as stream:
        return stream.read(size)


def read_raw(path: Path | str, size: int) -> tuple[bytes, os.stat_result]:
    """The first `size` bytes as they are on disk, and the file's status.

    Raises:
        OSError: the file cannot be opened or read, or is no regular file.
    """
    fd = open_regular(path)
    try:
        return os.pread(fd, size, 0), os.fstat(fd)
    finally:
        os.close(fd)


def read_tail(source: Source, size: int) -> bytes:
    """The last `size` bytes of an uncompressed file as they are on disk; empty for any other."""
    if source.compression is not None or source.is_stdin:
        return b""
    try:
        with contextlib.closing(open_file(source)) as file:
            return file.read_at(size, max(file.size - size, 0))
    except OSError:
        return b""
