"""What was pasted or dropped, as the files of a job. It is in memory, and never anywhere else.

Archives are hostile: their links are not followed, names that lead out are not read, and what unfolds to too much is
refused as a whole.
"""

from __future__ import annotations

import calendar
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol, TypeVar, cast

from aggregator.discover import Discovery, discovery_of, looked, skip_reason
from aggregator.errors import InputError
from aggregator.opening import Budget, ReadNotes, SourceStream, read_head
from aggregator.walk import generated_folder
from parsers.records import Source, SourceKind

if TYPE_CHECKING:
    from aggregator.discover import File

BUDGET = Budget(total=512 << 20, free=64 << 20, ratio=200)
"""What an upload may unfold to. Logs shrink to a tenth or a fiftieth; of what shrinks more, little is let in."""
MOST_ENTRIES = 20_000
PASTED = "-"
"""The name of what has none: it is judged as what comes by standard input."""
_PIECE = 256 << 10
_HEAD = 512
_MOST_NAME = 255
_NS_PER_S = 1_000_000_000
_LATEST_S = 1 << 32
_DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError,
)  # fmt: skip
"""What the libraries raise of archives that are damaged, encrypted or of a kind that they do not know."""


_Info = TypeVar("_Info")


class TooMuchError(InputError):
    """It is larger than what is taken."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Allowance:
    """What one upload may still unfold to, all its files together."""

    def __init__(self, name: str, went_in: int) -> None:
        self._name = name
        self._went_in = went_in
        self._came_out = 0

    def read(self, stream: _Readable, size: int) -> bytes:
        """As the stream's own.

        Raises:
            TooMuchError: it is too much.
        """
        data = stream.read(size)
        self._came_out += len(data)
        if reason := BUDGET.excess(self._went_in, self._came_out):
            raise TooMuchError(reason, where=self._name, help="unpack it, and run denpex-agg postmortem on the folder")
        return data


@dataclass(frozen=True, slots=True)
class _Metered:
    """A stream within an allowance."""

    stream: _Readable
    allowance: _Allowance

    def read(self, size: int) -> bytes:
        return self.allowance.read(self.stream, size)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file in an archive; `opened` gives its bytes."""

    path: str
    mtime_ns: int | None
    opened: Callable[[], _Readable]


def discover_upload(name: str, data: bytes, changed_s: float | None = None) -> Discovery:
    """The files of an upload: those of an archive, or the one that it is.

    Args:
        name: of the file, without folders; empty if text was pasted.
        data: its bytes.
        changed_s: when it was last changed, seconds since the epoch, where that is known.

    Raises:
        InputError: no log is in it.
        TooMuchError: it unfolds to too much, or holds too many files.
    """
    notes = ReadNotes()
    held = Source(0, file_name(name), None, SourceKind.LOG, size=len(data), mtime_ns=_ns(changed_s), held=data)
    if not name:
        held = replace(held, layout="stdin")
    entries = _entries(held, notes)
    if entries is not None:
        return discovery_of(None, held.path, list(_files(held, entries, notes)), notes)
    if reason := skip_reason(held.path, by_user=True):
        raise InputError(reason, where=held.path)
    file = looked(held, data[: _HEAD << 4], notes, lone=True)
    return discovery_of(None, held.path if name else "pasted text", [] if file is None else [file], notes)


def file_name(name: str) -> str:
    """The last part of what a browser calls a file; `-` if it does not call it anything."""
    return _printable(name.replace("\\", "/").rpartition("/")[2].replace("\0", ""))[:_MOST_NAME] or PASTED


def _entries(held: Source, notes: ReadNotes) -> Iterator[_Entry] | None:
    """The files in an archive; None if it is none."""
    data, allowance = held.held or b"", _Allowance(held.path, held.size)
    if data[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return _zipped(held, data, allowance, notes)
    return _tarred(held, allowance, notes) if read_head(held, _HEAD)[257:262] == b"ustar" else None


def _zipped(held: Source, data: bytes, allowance: _Allowance, notes: ReadNotes) -> Iterator[_Entry]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _DAMAGE as error:
        raise InputError(f"not a zip that can be read: {error}", where=held.path, help="zip the folder anew") from None
    with archive:
        for info in _few(archive.infolist(), held):
            if info.filename.endswith("/"):  # its own `is_dir` fails where there is no name
                continue
            on_windows = info.create_system == 0
            path = _printable(info.filename.replace("\\", "/") if on_windows else info.filename)
            if stat.S_ISLNK(info.external_attr >> 16):
                notes.add(path, "a link in an archive: not followed")
            elif info.flag_bits & 1:
                notes.add(path, "encrypted")
            else:
                seconds = None
                with suppress(ValueError):  # a date that no calendar has
                    seconds = calendar.timegm((*info.date_time, 0, 0, 0))
                yield _Entry(path, _ns(seconds), partial(_unzipped, archive, info, allowance))


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, allowance: _Allowance) -> _Metered:
    return _Metered(archive.open(info), allowance)


def _tarred(held: Source, allowance: _Allowance, notes: ReadNotes) -> Iterator[_Entry]:
    with SourceStream(held, notes) as unfolded:
        stream = cast("IO[bytes]", _Metered(unfolded, allowance))  # of a file, tarfile calls `read` alone
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for info in _few(archive, held):
                path = _printable(info.name)
                if info.isreg():
                    content = cast("IO[bytes]", archive.extractfile(info))  # None for what is no file
                    # Metered once more: a sparse file unfolds to more than its archive.
                    yield _Entry(path, _ns(info.mtime), partial(_Metered, content, allowance))
                elif not info.isdir():
                    notes.add(path, "a link or device in an archive: not followed")


def _few(entries: Iterable[_Info], held: Source) -> Iterator[_Info]:
    """What an archive lists.

    Raises:
        TooMuchError: that does not end.
    """
    for number, entry in enumerate(entries):
        if number >= MOST_ENTRIES:
            raise TooMuchError(f"more than {MOST_ENTRIES:,} entries", where=held.path, help="pack the logs alone")
        yield entry


def _files(held: Source, entries: Iterator[_Entry], notes: ReadNotes) -> Iterator[File]:
    """The sources in an archive. A top folder of the archive's own name is the job folder."""
    found: dict[str, Source] = {}
    try:
        for entry in entries:
            if reason := "two files of this name" if entry.path in found else _reason_to_skip(entry.path):
                notes.add(entry.path, reason)
                continue
            data = _content(entry, notes)
            found[entry.path] = Source(
                0, entry.path, None, SourceKind.LOG, size=len(data), mtime_ns=entry.mtime_ns, held=data
            )
    except _DAMAGE as error:
        notes.add(held.path, f"damaged, read up to there: {error}")
    tops = {path.partition("/")[0] for path in found}
    job = f"{tops.pop()}/" if len(tops) == 1 else "/"
    is_named_alike = held.path.startswith(f"{job[:-1]}.") and all(path.startswith(job) for path in found)
    for path, source in found.items():
        named = replace(source, path=path.removeprefix(job)) if is_named_alike else source
        file = looked(named, (source.held or b"")[: _HEAD << 4], notes)
        if file is not None:
            yield file


def _content(entry: _Entry, notes: ReadNotes) -> bytes:
    """A file's bytes, as far as they can be had."""
    pieces = []
    try:
        stream = entry.opened()
        while piece := stream.read(_PIECE):
            pieces.append(piece)
    except _DAMAGE as error:
        notes.add(entry.path, f"damaged, read up to there: {error}")
    return b"".join(pieces)


def _reason_to_skip(path: str) -> str | None:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path or not parts[-1]:
        return "a name that leads out of the archive: not read"
    if any(map(generated_folder, parts[:-1])):
        return "hidden or generated folder"
    return skip_reason(path)


def _ns(seconds: float | None) -> int | None:
    """Of a moment that may be any number."""
    return int(seconds * _NS_PER_S) if seconds is not None and 0 < seconds < _LATEST_S else None


def _printable(name: str) -> str:
    """Bytes of a name that are no UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
