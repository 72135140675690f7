"""Stored rows are the written rows, whatever is done to the files and to the collector.

Random writers, rotations, kills and restarts over real files, against a plain model of what was written.

A *content* is what one file was made to hold from its first byte on. Whatever happens, each content must be stored
once: as one stream that is a prefix of it, and that reaches at least as far as what was on disk when the collector
last looked. What cannot be told apart is excused, and no more: of a file that holds nothing but the beginning of
another one, up to `STRONG` bytes may be stored twice or not by themselves.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from aggregator.collect.collector import GRACE, Collector
from aggregator.collect.folder import Folder
from aggregator.collect.matching import STRONG
from aggregator.collect.newcomers import HOLD
from aggregator.store import Store
from parsers.normalise import normalise
from parsers.records import Source, SourceKind

NAMES = ("rank0.log", "rank1.log", "node-a/out.log")
BANNER = b"torch 2.9.0 | world size 4 | starting ...\n"
"""Every log begins with it: what is known of a file must not rest on its first line alone."""
WORDS = ("step", "loss 0.25", "épreuve", "日本語", "\x1b[31mred\x1b[0m", "x" * 300, "")
GENERATIONS = 3
STEP = 3.0
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CHANGES = itertools.count(10**18, 10**9)
APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND

names = st.sampled_from(NAMES)
flags = st.booleans()


def stamp(file: Path | int) -> None:
    """A time of its own for each change: those of the system are too coarse for a job that is over in milliseconds."""
    now = next(CHANGES)
    os.utime(file, ns=(now, now))


@dataclass(eq=False)
class Content:
    """`seen` bytes were on disk when the collector looked; `copied` once a part of it may be stored twice."""

    data: bytes = b""
    seen: int = 0
    copied: bool = False


@dataclass(eq=False)
class File:
    """A file as a writer has it open."""

    path: Path
    descriptor: int
    content: Content = field(default_factory=Content)

    def put(self, data: bytes) -> None:
        os.write(self.descriptor, data)
        stamp(self.descriptor)
        self.content.data += data


class Job(RuleBasedStateMachine):
    """The job, the collector under test, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.lines, self.lives = 100.0, 0, 0
        self.open: dict[str, File] = {}
        self.late: list[File] = []
        """Files that were renamed or removed, of writers that have not noticed."""
        self.contents: list[Content] = []
        self.on_disk: dict[Path, tuple[Content, int | None]] = {}
        """What each file holds, and how much of it; None is all, as it grows."""
        self.stores: list[Store] = []
        self.collector: Collector | None = None

    @initialize(descriptors=st.sampled_from([1, 2, 1000]), segment=st.sampled_from([1000, 32 << 20]), disk=flags)
    def begin(self, descriptors: int, segment: int, disk: bool) -> None:
        """On a disk, most file systems use inodes again and number their generations; in memory they do neither."""
        self.base = Path(tempfile.mkdtemp(prefix="denpex-machine-", dir=None if disk else IN_MEMORY))
        self.logs = self.base / "logs"
        (self.logs / "node-a").mkdir(parents=True)
        self.descriptors, self.segment = descriptors, segment
        self.states = Path(tempfile.mkdtemp(prefix="denpex-machine-", dir=IN_MEMORY))
        self._start(self.states / "0")

    def _start(self, folder: Path) -> None:
        self.state = folder
        self.store = Store(folder, segment_bytes=self.segment)
        self.stores.append(self.store)
        self.collector = Collector(Folder([str(self.logs)]), self.store, descriptors=self.descriptors)

    def teardown(self) -> None:
        if self.collector is None:
            return
        try:
            self._settle()
            self._check()
        finally:
            for file in [*self.open.values(), *self.late]:
                os.close(file.descriptor)
            self.collector.close()
            for store in self.stores:
                store.close()
            shutil.rmtree(self.base)
            shutil.rmtree(self.states)

    # Writers.

    @rule(name=names, words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=30))
    def write(self, name: str, words: list[str]) -> None:
        file = self._opened(name)
        for word in words:
            file.put(self._line(word))

    @rule(name=names, cut=st.integers(1, 60))
    def tear(self, name: str, cut: int) -> None:
        """The next bytes go on in the middle of the line, or of a character."""
        self._opened(name).put(self._line("épreuve 日本語 torn")[:cut])

    @precondition(lambda self: self.late)
    @rule(data=st.data(), done=flags)
    def write_late(self, data: st.DataObject, done: bool) -> None:
        file = data.draw(st.sampled_from(self.late))
        file.put(self._line("late"))
        if done:
            os.close(file.descriptor)
            self.late.remove(file)

    def _line(self, text: str) -> bytes:
        self.lines += 1
        return f"[rank0] {self.lines} {text}\n".encode()

    def _opened(self, name: str, banner: bytes = BANNER) -> File:
        if name not in self.open:
            path = self.logs / name
            self.open[name] = File(path, os.open(path, APPENDING, 0o644))
            self._renew(self.open[name], banner)
        return self.open[name]

    def _renew(self, file: File, data: bytes) -> None:
        """The file holds another content now, to which something is written."""
        file.content = Content()
        self.contents.append(file.content)
        self.on_disk[file.path] = (file.content, None)
        file.put(data)

    # What is done to files.

    @precondition(lambda self: self.open)
    @rule(data=st.data(), stays=flags)
    def rotate_by_rename(self, data: st.DataObject, stays: bool) -> None:
        """As logrotate's `create`; the writer may go on in the renamed file until it reopens."""
        file = self._pick(data)
        part = self._make_room(file.path)
        file.path.rename(part)
        self.on_disk[part] = self.on_disk.pop(file.path)
        self._opened(self._close(file, stays=stays), b"")

    @precondition(lambda self: self.open)
    @rule(data=st.data(), looks=st.tuples(flags, flags), between=flags, words=st.integers(0, 40))
    def rotate_by_copy(self, data: st.DataObject, looks: tuple[bool, bool], between: bool, words: int) -> None:
        """As logrotate's `copytruncate`; what is written between copy and cut exists nowhere afterwards."""
        file = self._pick(data)
        part = self._make_room(file.path)
        shutil.copyfile(file.path, part)
        stamp(part)
        self.on_disk[part] = (file.content, len(file.content.data))
        if looks[0]:
            self.look()
        if between:
            file.content.copied = True
            file.put(self._line("neither copied nor kept"))
        if looks[1]:
            self.look()
        self._cut(file, 0, words)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), words=st.integers(0, 40))
    def truncate(self, data: st.DataObject, words: int) -> None:
        """The file may have grown beyond what was read of it before the collector looks again."""
        self._cut(self._pick(data), 0, words)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), left=st.integers(1, 3000), words=st.integers(0, 40))
    def truncate_not_wholly(self, data: st.DataObject, left: int, words: int) -> None:
        file = self._pick(data)
        self._cut(file, min(left, len(file.content.data)), words)

    def _cut(self, file: File, size: int, words: int) -> None:
        left = file.content.data[:size]
        os.truncate(file.path, size)
        if size < len(file.content.data):
            self._renew(file, b"")
            file.content.data = left
        for _ in range(words):
            file.put(self._line("after the cut"))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), stays=flags, again=flags)
    def delete(self, data: st.DataObject, stays: bool, again: bool) -> None:
        """The next file may get the same name and inode at once.

        One always comes where there are rotated parts: without it, `log.1` and `log.2` may be those of ranks.
        """
        file = self._pick(data)
        file.path.unlink()
        del self.on_disk[file.path]
        parts = f"{file.path}."
        name = self._close(file, stays=stays)
        if again or any(str(path).startswith(parts) for path in self.on_disk):
            self._opened(name).put(self._line("begun again"))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        """Another file takes the name, as editors do it."""
        name, _ = self._take_over(data)
        self._renew(self.open[name], BANNER + self._line("another file"))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), more=flags)
    def synchronise(self, data: st.DataObject, more: bool) -> None:
        """A newer copy takes the place of the last, as rsync does it."""
        name, file = self._take_over(data)
        fresh = self.open[name]
        fresh.content = file.content
        self.on_disk[fresh.path] = (fresh.content, None)
        fresh.content.copied = True
        os.write(fresh.descriptor, fresh.content.data)
        stamp(fresh.descriptor)
        if more:
            fresh.put(self._line("synchronised"))

    def _take_over(self, data: st.DataObject) -> tuple[str, File]:
        file = self._pick(data)
        name = self._close(file, stays=False)
        fresh = self.base / "fresh"
        self.open[name] = File(file.path, os.open(fresh, APPENDING, 0o644))
        fresh.rename(file.path)
        return name, file

    @precondition(lambda self: any(path.suffix == ".1" for path in self.on_disk))
    @rule(data=st.data(), cuts=st.lists(st.integers(1, 400), max_size=3), look=flags)
    def compress(self, data: st.DataObject, cuts: list[int], look: bool) -> None:
        """As logrotate does it: the archive grows, then the plain file is removed."""
        part = data.draw(st.sampled_from(sorted(path for path in self.on_disk if path.suffix == ".1")))
        for file in [file for file in self.late if file.path == part]:
            os.close(file.descriptor)
            self.late.remove(file)
        packed = Path(f"{part}.gz")
        self._forget(packed)
        archive = gzip.compress(part.read_bytes(), 1)
        for cut in sorted(cuts):
            packed.write_bytes(archive[:cut])
            stamp(packed)
            self.look()
        packed.write_bytes(archive)
        stamp(packed)
        if look:
            self.look()
        part.unlink()
        content, size = self.on_disk.pop(part)
        self.on_disk[packed] = (content, len(content.data) if size is None else size)

    def _make_room(self, path: Path) -> Path:
        """Shifts the older generations; each keeps whatever suffix it has."""
        for suffix in ("", ".gz"):
            self._forget(Path(f"{path}.{GENERATIONS}{suffix}"))
            for number in range(GENERATIONS - 1, 0, -1):
                part = Path(f"{path}.{number}{suffix}")
                if part in self.on_disk:
                    older = Path(f"{path}.{number + 1}{suffix}")
                    part.rename(older)
                    self.on_disk[older] = self.on_disk.pop(part)
                    for file in self.late:
                        file.path = older if file.path == part else file.path
        return Path(f"{path}.1")

    def _forget(self, path: Path) -> None:
        """A rotated part is removed only when the collector has had its time with it."""
        if path in self.on_disk:
            self._settle()
            path.unlink()
            del self.on_disk[path]

    def _pick(self, data: st.DataObject) -> File:
        return self.open[data.draw(st.sampled_from(sorted(self.open)))]

    def _close(self, file: File, *, stays: bool) -> str:
        name = str(file.path.relative_to(self.logs))
        del self.open[name]
        if stays:
            parts = [path for path, (content, _) in self.on_disk.items() if content is file.content]
            file.path = parts[0] if parts else Path("removed")
            self.late.append(file)
        else:
            os.close(file.descriptor)
        return name

    # The collector.

    @rule()
    def look(self) -> None:
        self._step(listed=True)
        for content, size in self.on_disk.values():
            content.seen = max(content.seen, len(content.data) if size is None else size)

    @rule()
    def glance(self) -> None:
        """A tick between two listings."""
        self._step(listed=False)

    def _step(self, *, listed: bool, flush: bool = True) -> None:
        self.now += STEP
        if listed:
            self.collector.scan(self.now)
        self.collector.poll(self.now)
        if self.collector.wants_scan and listed:
            self.collector.scan(self.now)
            self.collector.poll(self.now)
        if flush:
            self.store.flush()

    @rule(flush=flags, listed=flags)
    def kill(self, flush: bool, listed: bool) -> None:
        """As `kill -9`: what was not flushed is lost, nothing is closed in order."""
        self._step(listed=listed, flush=flush)
        self.lives += 1
        copy = self.states / str(self.lives)
        shutil.copytree(self.state, copy)
        self.collector.close()
        self._start(copy)

    @rule()
    def restart(self) -> None:
        self.collector.close()
        self.store.close()
        self._start(self.state)

    def _settle(self) -> None:
        for _ in range(2 + int(max(HOLD, GRACE) / STEP)):
            self.look()

    # What must hold.

    def _check(self) -> None:
        streams = {number: b"".join(self.store.read(number)) for number in self.store.streams}
        self._check_rows(list(streams.values()))
        left = list(self.contents)
        for stream in sorted(streams.values(), key=len, reverse=True):
            fitting = [content for content in left if content.data.startswith(stream)]
            if not fitting and self._is_excused(stream):
                continue
            assert fitting, f"stored, but never written, or stored twice: {stream!r}"
            # The one that needs it most, of those for which it is enough.
            content = max(fitting, key=lambda content: (content.seen <= len(stream), content.seen))
            if content.seen > len(stream) and self._is_excused(stream):
                continue
            left.remove(content)
            assert content.seen <= len(stream), f"stored to {len(stream)} of {content.seen}: {stream!r}"
        for content in left:
            seen = content.data[: content.seen]
            known = not seen or any(stream.startswith(seen) for stream in streams.values())
            assert known, f"seen, but not stored: {seen!r}"

    def _is_excused(self, stream: bytes) -> bool:
        return len(stream) <= STRONG and any(
            content.copied and content.data.startswith(stream) for content in self.contents
        )

    def _check_rows(self, streams: list[bytes]) -> None:
        """Of what the store gives, in pieces that tear lines and characters, each line becomes one row."""
        sources = [Source(number, f"{number}.log", None, SourceKind.LOG) for number in range(len(streams))]
        rows = normalise(sources, lambda source: self.store.read(source.index, 1000))
        made = [at for batch in rows for at in batch.column("offset").to_pylist()]
        written = [line.start() for data in streams for line in re.finditer(rb"[^\n]*\n|[^\n]+\Z", data)]
        assert made == written


RUNS = int(os.environ.get("DENPEX_MACHINE_RUNS", "2000"))
"""Random runs; by hand ten times as many."""

TestJob = pytest.mark.timeout(1800)(Job.TestCase)
TestJob.settings = settings(
    max_examples=RUNS, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
