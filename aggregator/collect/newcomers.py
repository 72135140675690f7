"""Decides whose content a file holds that has no stream yet: something new, or a known stream under another name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator import kinds
from aggregator.collect.archive import Archive
from aggregator.collect.matching import Candidate, Contents, moved
from aggregator.firstbytes import compression_of, is_text
from aggregator.layouts import plain_name
from aggregator.store import StreamMeta
from parsers.records import SourceKind

if TYPE_CHECKING:
    from aggregator.collect.files import Files
    from aggregator.collect.tail import Tail
    from aggregator.store import Store, Stream

HOLD = 5.0
"""Seconds for which a file that may be a copy is watched before it counts as a log of its own."""
HEAD = 8 << 10
_PIECE = 256 << 10
_FEW = 16
"""Bytes that are too few to call a file binary: a character may be torn."""


@dataclass(slots=True)
class Listing:
    """The last listing of the folder: when it was, and whether something was met that only another can explain."""

    at: float = 0.0
    wanted: bool = True


class Newcomers:
    """Takes up the files of one job."""

    def __init__(
        self, files: Files, store: Store, contents: Contents, listing: Listing, tails: Mapping[tuple[int, int], Tail]
    ) -> None:
        self._files = files
        self._tails = tails
        self._store = store
        self._contents = contents
        self._listing = listing

    def take_up(self, tail: Tail, descriptor: int, now: float) -> Stream | None:
        """Decides by the bytes of a plain file which stream it goes on with; None while that is open.

        Raises:
            OSError: it cannot be read.
        """
        head = self._files.read(descriptor, HEAD, 0)
        if not head:
            return None
        if compression_of(head):
            tail.archive = Archive(tail)
            return None
        reason = _no_log(tail.shown, head)
        if reason is not None:
            tail.passed = reason if len(head) >= _FEW else None
            return None
        status = self._files.status(descriptor)
        size, state = status.st_size, (status.st_size, status.st_mtime_ns)
        if tail.copy_of is not None and tail.copy_state == state and self._covers(tail.copy_of, size):
            return None
        found = self._settle(tail, size, self._plain(tail, descriptor, head, size), now)
        tail.copy_state = state
        return found

    def _plain(self, tail: Tail, descriptor: int, head: bytes, size: int) -> Iterator[Candidate]:
        for stream in self._contents.alike(tail, head):
            end = min(size, stream.position)
            last = self._contents.last(stream, end)
            yield Candidate(stream, stream.position, self._files.read(descriptor, len(last), end - len(last)) == last)

    def _covers(self, stream: Stream, size: int) -> bool:
        return size < stream.position or (size == stream.position and self._contents.is_followed(stream))

    def take_up_archive(self, tail: Tail, archive: Archive, now: float) -> Stream | None:
        """The same for a compressed file."""
        if tail.copy_of is not None and not archive.changed and self._covers(tail.copy_of, archive.position):
            return None
        plain = self._plain_form(tail)
        if plain is not None and (plain.busy or _is_undecided(plain)):
            return None  # what it is made of is read first
        if archive.changed:
            if not archive.search(_PIECE, self._contents):
                return None
            tail.passed, tail.held_since = _no_log(tail.shown, archive.head), None
        if tail.passed is not None or not archive.head:
            return None
        if archive.problem() is not None and (plain is not None or self._held(tail, now)):
            return None  # it is being written
        if any(map(self._has_gone_on, archive.candidates)):
            archive.again()
            return None
        stream = self._settle(tail, archive.position, archive.candidates, now)
        if stream is not None and stream.position < archive.position:
            archive.again()
        return stream

    def _has_gone_on(self, candidate: Candidate) -> bool:
        """Whether a stream that nobody follows has more now than when a file was held against it."""
        stream = candidate.stream
        return candidate.fits and candidate.position != stream.position and not self._contents.is_followed(stream)

    def _plain_form(self, tail: Tail) -> Tail | None:
        """The file in the folder that a compressed one was made of."""
        plain = plain_name(tail.shown)
        if plain not in self._contents.names:
            return None
        return next((other for other in self._tails.values() if other.shown == plain and not other.gone), None)

    def _settle(self, tail: Tail, size: int, candidates: Iterable[Candidate], now: float) -> Stream | None:
        """A file goes on with what is known; or with something new, if that is followed elsewhere and stays there."""
        match = self._contents.choose(tail, size, candidates)
        tail.copy_of = match.stream if match is not None and match.covered else None
        if tail.copy_of is not None:
            return None
        if match is not None and self._contents.is_followed(match.stream):
            if self._held(tail, now):
                return None
            match = None
        tail.held_since = None
        if match is None:
            compressed = tail.archive is not None
            return self._store.begin(
                StreamMeta(tail.shown, tail.device, tail.inode, tail.generation, compressed=compressed)
            )
        self._store.change(match.stream.id, moved(match.stream.meta, tail))
        return match.stream

    def _held(self, tail: Tail, now: float) -> bool:
        """Whether to wait for what a listing will tell of the file that this one may be a copy of."""
        if tail.held_since is None:
            tail.held_since = now
        self._listing.wanted |= now - tail.held_since >= HOLD > self._listing.at - tail.held_since
        return self._listing.at - tail.held_since < HOLD


def _is_undecided(tail: Tail) -> bool:
    """Whether it has bytes, and nobody knows yet whose."""
    return tail.size > 0 and tail.stream is None and tail.copy_of is None and tail.passed is None


def _no_log(shown: str, head: bytes) -> str | None:
    """Why a file with these first bytes is not followed, or None."""
    kind, _ = kinds.kind_of(shown.rpartition("/")[2], head)
    if kind in {SourceKind.FLIGHT_RECORDER, SourceKind.ERROR_JSON}:
        return "read as a whole"
    if head[257:262] == b"ustar":
        return "archive: unpack it first"
    return None if is_text(head) else "binary file"
