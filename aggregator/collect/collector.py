"""Follows many files at once: the only module that decides what the next bytes of a log are.

Listings and reads are the truth; hints about changed folders only make them happen sooner. Each read takes the last
bytes that are known along: if they are not where they were, the file was cut or written anew, and what is in it now
is another stream. Nothing here waits: whoever calls says what time it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aggregator.collect.files import Descriptors, Files, OsFiles
from aggregator.collect.matching import Contents, is_older_part
from aggregator.collect.newcomers import Listing, Newcomers
from aggregator.collect.tail import Tail
from aggregator.store.streams import TAIL_BYTES
from parsers.records import Skipped

if TYPE_CHECKING:
    from aggregator.collect.archive import Archive
    from aggregator.collect.folder import Folder, Found
    from aggregator.store import Store, Stream

TICK = 0.28
"""Seconds between two looks at a file that grows."""
TURN = 256 << 10
"""Bytes of one file that are read before the others have their turn."""
GLANCE = 64 << 10
"""The same at the first look of a tick: a buffer for a whole turn costs twenty times as much as one for a few lines."""
ROUND = 8 << 20
"""Bytes that one call of `poll` reads at most, but for one turn of each file."""
BACKLOG = 64 << 20
"""Bytes that wait for the store, beyond which nothing more is read."""
GRACE = 10.0
"""Seconds for which a file that is in the folder no more is followed after its last bytes."""
DOUBT = 2.0
"""Seconds for which a file on a remote file system must seem cut."""
_MOST_FAULTS = 6


@dataclass(slots=True)
class Tally:
    """What happened to the files. Bytes are those known to be lost: cut or removed before they were read."""

    truncations: int = 0
    rotations: int = 0
    unread_bytes: int = 0
    faults: int = 0


class Collector:
    """The files of one job. Call `scan` when files may have come or gone, `poll` at each tick."""

    def __init__(
        self, folder: Folder, store: Store, *, files: Files | None = None, descriptors: int = 1024, remote: bool = False
    ) -> None:  # fmt: skip
        """Begin where the store ended.

        Args:
            folder: which files there are.
            store: takes the bytes, and knows how far each file was read.
            files: the file system; the real one by default.
            descriptors: how many files may be open at once.
            remote: whether the folder is written to from other machines, so that sizes may be stale.
        """
        self.tally = Tally()
        self._folder = folder
        self._store = store
        self._files = files if files is not None else OsFiles()
        self._open = Descriptors(self._files, descriptors)
        self._remote = remote
        self._tails: dict[tuple[int, int], Tail] = {}
        self._listing = Listing()
        self._contents = Contents(store)
        self._newcomers = Newcomers(self._files, store, self._contents, self._listing, self._tails)
        asleep = [stream for stream in store.streams.values() if stream.meta.ended in {None, "removed"}]
        asleep.sort(key=lambda stream: stream.meta.ended is None)  # of those with one inode, what was there at the end
        self._asleep = {(stream.meta.device, stream.meta.inode): stream for stream in asleep}
        self._count = 0
        self._idle = TICK

    @property
    def wants_scan(self) -> bool:
        """Whether something was met that only a listing can explain."""
        return self._listing.wanted

    @property
    def tails(self) -> Iterable[Tail]:
        """The files that are followed, or passed over."""
        return self._tails.values()

    @property
    def open_files(self) -> int:
        """How many descriptors are in use."""
        return len(self._open)

    @property
    def skipped(self) -> list[Skipped]:
        """What is not, or not wholly, read, and why."""
        notes = list(self._folder.notes.items)
        for tail in self._tails.values():
            reason = tail.passed or tail.problem or (tail.archive.problem() if tail.archive is not None else None)
            if reason is not None:
                notes.append(Skipped(tail.shown, reason))
        return notes

    def close(self) -> None:
        """Gives all descriptors back."""
        for tail in self._tails.values():
            if tail.archive is not None:
                tail.archive.close()
        self._open.close_all()

    def scan(self, now: float) -> bool:
        """Lists the folder; tells whether files came, went or were renamed."""
        self._listing.wanted, self._listing.at = False, now
        listed: dict[tuple[int, int], Found] = {}
        for found in self._folder.list():
            listed.setdefault((found.status.st_dev, found.status.st_ino), found)
        changed = False
        for tail in list(self._tails.values()):
            there = listed.get(tail.key)
            if there is not None and self._is_it(tail, there):
                del listed[tail.key]
                changed |= self._met_again(tail, there, now)
            elif there is not None:
                self._let_go(tail)  # another file has its inode now
            elif tail.passed is not None:
                self._drop(tail)
                changed = True
            elif not tail.gone:
                tail.gone, tail.grown, tail.due, changed = True, now, now, True
        for key, found in sorted(listed.items(), key=lambda item: item[1].status.st_mtime_ns):
            self._meet(key, found, now)
            changed = True
        for stream in self._asleep.values():
            if stream.meta.ended is None and not self._contents.is_followed(stream):
                self._store.change(stream.id, replace(stream.meta, ended="removed"))
        # Idle files are looked at twice a second while they are few; thousands of them get half of one core's percent.
        self._idle = min(2.0, max(0.5, len(self._tails) / 7000))
        return changed

    def _is_it(self, tail: Tail, found: Found) -> bool:
        """Whether the file of another name is the one that is followed: inodes are used again at once."""
        if tail.shown == found.shown or self._open.find(tail.number) is not None:
            return True
        if tail.stream is None or tail.archive is not None:
            return (tail.size, tail.mtime_ns) == (found.status.st_size, found.status.st_mtime_ns)
        return self._holds(found, tail.stream, tail.generation)

    def _holds(self, found: Found, stream: Stream, generation: int | None) -> bool:
        """Whether a file that has a stream's inode still is the one that the stream was read from."""
        try:
            descriptor = self._files.open(found.real)
        except OSError:
            return True  # nobody can tell: whatever is read of it later is checked
        try:
            told = self._files.generation(descriptor)
            if None not in {told, generation} and told != generation:
                return False
            return stream.head.startswith(self._files.read(descriptor, len(stream.head), 0))
        except OSError:
            return True
        finally:
            self._files.close(descriptor)

    def _met_again(self, tail: Tail, found: Found, now: float) -> bool:
        before = (tail.shown, tail.gone, tail.passed)
        if (tail.size, tail.mtime_ns) != (found.status.st_size, found.status.st_mtime_ns):
            tail.due, tail.passed, tail.held_since = now, None, None
            if found.status.st_size < tail.size:
                self._lose(tail)
        tail.seen(found.real, found.shown, found.status)
        if tail.stream is not None and tail.stream.meta.path != tail.shown:
            self.tally.rotations += 1
            self._store.change(tail.stream.id, replace(tail.stream.meta, path=tail.shown))
            self._contents.add(tail.stream)
        return before != (tail.shown, tail.gone, tail.passed)

    def _meet(self, key: tuple[int, int], found: Found, now: float) -> None:
        self._count += 1
        status = found.status
        tail = Tail(self._count, found.real, found.shown, *key, status.st_size, status.st_mtime_ns, due=now, grown=now)
        self._tails[key] = tail
        self._contents.names.add(tail.shown)
        stream = self._asleep.pop(key, None)
        if stream is None or stream.meta.compressed or self._contents.is_followed(stream):
            return
        if self._holds(found, stream, stream.meta.generation):
            if stream.meta.path != tail.shown:
                self.tally.rotations += 1
            self._store.change(stream.id, replace(stream.meta, path=tail.shown, ended=None))
            tail.generation = stream.meta.generation
            self._follow(tail, stream)
        elif stream.meta.ended is None:
            self._store.change(stream.id, replace(stream.meta, ended="replaced"))

    def _follow(self, tail: Tail, stream: Stream) -> None:
        before = self._contents.follow(stream, tail)
        if before is not None:
            self._drop(before)

    def poll(self, now: float) -> list[tuple[int, bytes]]:
        """Reads what has come: (stream id, its next bytes), each piece handed to the store already."""
        arrived: list[tuple[int, bytes]] = []
        ready = [tail for tail in self._tails.values() if tail.due <= now and tail.passed is None]
        if any(tail.stream is None for tail in ready):
            # Logs before their copies, which then are known for what they are.
            ready.sort(key=lambda tail: tail.stream is None and is_older_part(tail.shown))
        room = ROUND
        while ready and room > 0 and self._store.backlog < BACKLOG:
            for tail in ready:
                if tail.dropped:
                    continue  # its content was found in another file meanwhile
                data = self._pull(tail, now)
                if data and tail.stream is not None:
                    arrived.append((tail.stream.id, data))
                room -= TURN if tail.busy else len(data)
            ready = [tail for tail in ready if tail.busy]
        return arrived

    @property
    def busy(self) -> bool:
        """Whether there is more to read than one call of `poll` took, and room for it in the store."""
        return self._store.backlog < BACKLOG and any(tail.busy for tail in self._tails.values())

    def _pull(self, tail: Tail, now: float) -> bytes:
        """The next bytes of a file, stored; and when to look at it again."""
        before = tail.stream
        try:
            data = self._pull_plain(tail, now) if tail.archive is None else self._pull_archive(tail, tail.archive, now)
        except OSError as error:
            self._fault(tail, error, now)
            return b""
        if tail.problem is not None:
            tail.problem, tail.faults = None, 0
        # What a rotated part holds instead is asked after all others have had their turn: it may be a copy of one.
        ended = before is not None and tail.stream is None
        tail.busy = ended or len(data) >= GLANCE - TAIL_BYTES or (tail.archive is not None and tail.archive.reading)
        if data:
            tail.grown, tail.wait = now, TICK
            self._open.used(tail.number)
        elif not tail.busy:
            tail.wait = min(max(tail.wait, TICK / 2) * 2, self._idle)
            if tail.gone and now - tail.grown >= GRACE:
                self._let_go(tail)
        tail.due = now if tail.busy else now + tail.wait
        return data

    def _pull_plain(self, tail: Tail, now: float) -> bytes:
        descriptor = self._open.find(tail.number)
        if descriptor is None:
            descriptor = self._reopen(tail, now)
            if descriptor is None:
                return b""
        stream = tail.stream
        if stream is None:
            stream = self._newcomers.take_up(tail, descriptor, now)
            if stream is None:
                if tail.passed is not None or tail.archive is not None:
                    self._open.close(tail.number)
                return b"" if tail.archive is None else self._pull_archive(tail, tail.archive, now)
            self._follow(tail, stream)
        overlap = len(stream.tail)
        data = self._files.read(descriptor, TURN if tail.busy else GLANCE, stream.position - overlap)
        if not data.startswith(stream.tail):
            short = len(data) < overlap
            if self._is_cut(tail, descriptor, short, now):
                if short:  # else what was listed may be of the new content
                    self._lose(tail)
                self.tally.truncations += 1
                self._end(tail, "truncated")
                tail.size = 0
                return self._pull_plain(tail, now) if not is_older_part(tail.shown) else b""
            return b""
        tail.shrunk_since = None
        return self._take(stream, data[overlap:])

    def _lose(self, tail: Tail) -> None:
        """What was listed and has not been read is gone."""
        if tail.archive is None and tail.held_since is None and tail.copy_of is None:
            self.tally.unread_bytes += max(tail.size - (tail.stream.position if tail.stream else 0), 0)

    def _take(self, stream: Stream, data: bytes) -> bytes:
        if data[:1] == b"\0" and data.count(0) == len(data):
            self._store.skip(stream.id, len(data))
        elif data:
            self._store.append(stream.id, data)
        return data

    def _is_cut(self, tail: Tail, descriptor: int, short: bool, now: float) -> bool:
        """Whether a file whose known bytes are not where they were has another content now."""
        stream = tail.stream
        if stream is None:
            return False
        if short and self._files.status(descriptor).st_size >= stream.position:
            return False  # a short read, or it was cut and has grown again meanwhile: the next look tells
        if self._remote and short:
            if tail.shrunk_since is None:
                tail.shrunk_since = now
            return now - tail.shrunk_since >= DOUBT
        return True

    def _reopen(self, tail: Tail, now: float) -> int | None:
        """A descriptor of the very file that the tail stands for; None while its name leads elsewhere.

        None as well if there is nothing new in it: where files are more than descriptors, most looks end here.
        """
        if tail.gone:
            self._lose(tail)
            self._let_go(tail)
            return None
        # Not what was written just now, as times are coarse; what a remote file system tells of a name may be old.
        is_quiet = now - tail.grown > GRACE and not self._remote
        if is_quiet and tail.stream is not None:
            there, known = self._files.look(tail.real), (*tail.key, tail.stream.position, tail.checked_ns)
            if (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns) == known:
                return None
        descriptor = self._open.open(tail.number, tail.real)
        status = self._files.status(descriptor)
        if (status.st_dev, status.st_ino) != tail.key:
            self._open.close(tail.number)
            self._listing.wanted = True
            return None
        tail.checked_ns = status.st_mtime_ns if is_quiet else None
        generation = self._files.generation(descriptor)
        stream = tail.stream
        if stream is not None:
            head = self._files.read(descriptor, len(stream.head), 0)
            if None not in {generation, tail.generation} and generation != tail.generation:
                self._end(tail, "replaced")
            elif head != stream.head and self._is_cut(tail, descriptor, len(head) < len(stream.head), now):
                self.tally.truncations += 1
                self._end(tail, "truncated")
        tail.generation = generation
        ended = stream is not None and tail.stream is None
        return None if ended and is_older_part(tail.shown) else descriptor

    def _pull_archive(self, tail: Tail, archive: Archive, now: float) -> bytes:
        """The next new bytes of a compressed file; what its stream has already is read over."""
        if tail.gone:
            archive.close()
            self._let_go(tail)
            return b""
        if tail.stream is not None and archive.stale:
            self._end(tail, "replaced")  # or written further, which the search will find
        if tail.stream is None:
            found = self._newcomers.take_up_archive(tail, archive, now)
            if found is not None:
                self._follow(tail, found)
        if tail.stream is None or not archive.changed:
            return b""
        data = archive.fresh(TURN, tail.stream.position)
        return self._take(tail.stream, data)

    def _end(self, tail: Tail, why: str) -> None:
        """The file holds another content from now on."""
        stream = tail.stream
        if stream is not None:
            self._store.change(stream.id, replace(stream.meta, ended=why))
            self._contents.leave(stream, tail)
        tail.stream, tail.checked_ns = None, None
        self._listing.wanted = True
        for other in self._tails.values():
            if other.stream is None:
                other.due = 0.0

    def _let_go(self, tail: Tail) -> None:
        """The file is gone for good."""
        stream = tail.stream
        self._drop(tail)
        if stream is not None:
            self._store.change(stream.id, replace(stream.meta, ended="removed"))
            self._asleep[tail.key] = stream

    def _drop(self, tail: Tail) -> None:
        self._open.close(tail.number)
        tail.busy, tail.dropped = False, True
        if self._tails.get(tail.key) is tail:
            del self._tails[tail.key]
        if tail.stream is not None:
            self._contents.leave(tail.stream, tail)

    def _fault(self, tail: Tail, error: OSError, now: float) -> None:
        """A read or an opening failed: once more, from the same position, after a while."""
        self._open.close(tail.number)
        self.tally.faults += 1
        tail.busy, tail.faults = False, min(tail.faults + 1, _MOST_FAULTS)
        tail.wait = TICK * 2**tail.faults
        tail.due = now + tail.wait
        tail.problem = error.strerror or str(error)
        if error.errno in {errno.ENOENT, errno.ESTALE, errno.ELOOP, None}:
            self._listing.wanted = True
