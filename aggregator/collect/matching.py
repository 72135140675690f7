"""Tells whether a new file holds content that is known: a rotated copy, a compressed part, a synchronised log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aggregator.layouts import plain_name, rotation
from aggregator.store.streams import TAIL_BYTES

if TYPE_CHECKING:
    from aggregator.collect.tail import Tail
    from aggregator.store import Store, Stream, StreamMeta

STRONG = 1024
"""Bytes that two files must have in common before one is taken for the other because of its name alone: ranks print
the same banner, and so does a job that is started again."""


def base_of(shown: str) -> str:
    """`run/train.log` for `run/train.log.2.gz`: what rotated parts have in common."""
    folder, slash, name = shown.rpartition("/")
    plain = plain_name(name)
    found = rotation(plain)
    return folder + slash + (found[0] if found else plain)


def is_older_part(shown: str) -> bool:
    """Whether a name is that of a rotated or compressed part."""
    return base_of(shown) != shown


def moved(meta: StreamMeta, tail: Tail) -> StreamMeta:
    """A stream's description once its content is followed in this file."""
    return replace(
        meta, path=tail.shown, device=tail.device, inode=tail.inode, generation=tail.generation,
        compressed=tail.archive is not None, ended=None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """A file begins with a stream's bytes, or, if it is `covered`, the stream with all of the file's."""

    stream: Stream
    covered: bool


@dataclass(slots=True)
class Candidate:
    """A stream that a file may begin with, or be the beginning of; `position` is how far it was known then."""

    stream: Stream
    position: int
    fits: bool = False


class Contents:
    """All streams of a store, by what their names have in common, and the file in which each is followed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owner: dict[int, Tail] = {}
        self._by_base: defaultdict[str, dict[int, Stream]] = defaultdict(dict)
        self.names: set[str] = set()
        """All that were met, those of files without a stream too."""
        for stream in store.streams.values():
            self.add(stream)

    def add(self, stream: Stream) -> None:
        """A stream has begun, or has another name."""
        self.names.add(stream.meta.path)
        self._by_base[base_of(stream.meta.path)][stream.id] = stream

    def follow(self, stream: Stream, tail: Tail) -> Tail | None:
        """It is followed in this file from now on; gives the one in which it was until now."""
        before = self._owner.get(stream.id)
        self._owner[stream.id] = tail
        tail.stream = stream
        self.add(stream)
        return before

    def leave(self, stream: Stream, tail: Tail) -> None:
        """It is not followed in this file any more."""
        if self._owner.get(stream.id) is tail:
            del self._owner[stream.id]

    def is_followed(self, stream: Stream) -> bool:
        """Whether it is followed in a file that is in the folder."""
        owner = self._owner.get(stream.id)
        return owner is not None and not owner.gone

    def alike(self, tail: Tail, head: bytes) -> Iterator[Stream]:
        """Streams that a file of this name and these first bytes may hold, the longest first.

        Ranks are numbered as rotated parts are: `log.1` is a part of `log` only where `log` is known, `log.0` not.
        """
        base, plain = base_of(tail.shown), plain_name(tail.shown)
        is_rank = plain != base and (base not in self.names or base + ".0" in self.names)
        for stream in sorted(self._by_base.get(base, {}).values(), key=lambda stream: -stream.position):
            common = min(len(head), len(stream.head))
            if not common or head[:common] != stream.head[:common]:
                continue
            if tail.archive is not None and (stream.meta.device, stream.meta.inode) == tail.key:
                yield stream  # whatever it is called now
            elif (not is_rank or plain_name(stream.meta.path) == plain) and self._may_hold(tail, stream):
                yield stream

    def _may_hold(self, tail: Tail, stream: Stream) -> bool:
        if stream.meta.path != tail.shown or tail.gone:  # the name of a file that is gone may be another's by now
            return is_older_part(tail.shown)
        if tail.archive is not None:
            return True
        # The same name, another file: synchronised from elsewhere, mounted anew; or the log of another run.
        mounted_anew = stream.meta.inode == tail.inode and stream.meta.device != tail.device
        return not self.is_followed(stream) and (stream.position > STRONG or mounted_anew)

    def last(self, stream: Stream, end: int) -> bytes:
        """The last bytes of a stream before `end`, as many as of its tail."""
        if end >= stream.position:
            return stream.tail
        window, left = b"", end
        for data in self._store.read(stream.id):
            window = (window + data[:left])[-TAIL_BYTES:]
            left -= len(data)
            if left <= 0:
                break
        return window

    def choose(self, tail: Tail, size: int, candidates: Iterable[Candidate]) -> Match | None:
        """What a file of `size` bytes is taken for: the stream with most in common; of equal ones, one not followed.

        A short one that has nothing of its own may be a copy, or the log of another run that printed the same banner;
        but the archive of a file that is still there is a copy.
        """
        best, most = None, (0, False)
        made_of = plain_name(tail.shown) if tail.archive is not None else None
        for candidate in candidates:
            followed, position = self.is_followed(candidate.stream), candidate.position
            strong = size > STRONG or (followed and candidate.stream.meta.path == made_of)
            common = (min(size, position), not followed)
            if candidate.fits and common > most and (size >= position or followed or strong):
                best = Match(candidate.stream, strong and size <= position and (followed or size < position))
                most = common
        return best
