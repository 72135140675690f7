"""Copies the files of a job to a folder, masked and without names, in little memory whatever their lines are."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.keyblocks import MOST_LINES, KeyBlock
from aggregator.opening import ReadNotes, read_chunks
from aggregator.pipeline import RECORDS
from aggregator.sharing.anonymise import Anonymiser, hosts_of
from parsers.chunks import Chunk, Packer
from parsers.safe_pickle import DamagedDump, load_json, load_pickle

if TYPE_CHECKING:
    from aggregator.case import Case
    from parsers.records import Source

NOTE = "BUNDLE.md"
"""A file beside the copies, so none of them has this name."""
_MASK = re.compile(r"\[(?P<kind>[a-z-]+):(?P<hash>[0-9a-f]{4})\]")
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_LONGEST_NAME = 255
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Which lines: so many around each that a signal came from, and so many of both ends of a file."""

    around: int
    ends: int


class _Numbers:
    """Masks get numbers in the order in which they are met: their hashes differ from run to run."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], int] = {}

    def settle(self, text: str) -> str:
        return _MASK.sub(self._numbered, text) if "[" in text else text

    def _numbered(self, found: re.Match[str]) -> str:
        number = self._given.setdefault((found["kind"], found["hash"]), len(self._given) + 1)
        return f"[{found['kind']}:{number:04x}]"


class Copier:
    """Writes the sources of a case to a folder, masked and without names.

    Raises:
        RuntimeError: the job was read without its evidence.
    """

    def __init__(self, case: Case, *, redact: bool) -> None:
        if case.judged is None:
            raise RuntimeError("the job was read without its evidence")
        self._sources = [source for source in case.judged.evidence.sources if source.real is not None]
        self._redact = redact
        self._lines: dict[int, set[int]] = defaultdict(set)
        for signal in case.judged.evidence.signals():
            self._lines[signal.source].add(signal.line)
        for attempt in case.verdict.attempts:
            told = attempt.first_failure.evidence if attempt.first_failure is not None else ()
            paths = {source.path: source.index for source in self._sources}
            for item in (*told, *(proof for row in attempt.collateral for proof in row.evidence)):
                if item.file in paths:
                    self._lines[paths[item.file]].add(item.line)
        self._counts: dict[int, int] = {}
        self._names = Anonymiser(hosts_of(case), self._counted())

    def _counted(self) -> Iterator[str]:
        """All lines; once they are read, their number is known."""
        for source in self._sources:
            number = 0
            for number, line in enumerate(_lines_of(source), 1):  # noqa: B007 - the last one counts
                yield line
            self._counts[source.index] = number

    def copy(self, folder: Path, keep: Keep | None) -> tuple[int, int]:
        """Writes all files; the number of lines that were kept, and of those that there are."""
        numbers = _Numbers()
        kept = total = 0
        targets = _targets([numbers.settle(self._names.name(self._mask(source.path))) for source in self._sources])
        for source, name in zip(self._sources, targets, strict=True):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.kind in RECORDS:
                target.write_text(numbers.settle(self._record(source)), encoding="utf-8")
            else:
                wanted = self._wanted(source, keep)
                told = (numbers.settle(self._names.text(line)) for line in self._told(source, wanted))
                with target.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
                    out.writelines(f"{line}\n" for line in told)
                kept, total = kept + len(wanted), total + self._counts[source.index]
            if source.mtime_ns is not None:  # tells the year of stamps without one
                os.utime(target, ns=(source.mtime_ns, source.mtime_ns))
        return kept, total

    def _wanted(self, source: Source, keep: Keep | None) -> Collection[int]:
        lines = self._counts[source.index]
        if keep is None:
            return range(lines)
        wanted = {*range(min(keep.ends, lines)), *range(max(lines - keep.ends, 0), lines)}
        for line in self._lines[source.index]:
            wanted.update(range(max(line - 1 - keep.around, 0), min(line + keep.around, lines)))
        return wanted

    def _told(self, source: Source, wanted: Collection[int]) -> Iterator[str]:
        """Those of the lines that are wanted, masked."""
        lines = _lines_of(source)
        first = list(islice(lines, MOST_LINES))
        block = KeyBlock.before(first)
        for number, line in enumerate(chain(first, lines)):
            whole = block.masked(line) if self._redact else line
            if number in wanted:
                yield self._mask(whole)

    def _mask(self, text: str) -> str:
        return safe.mask(text) if self._redact else text

    def _record(self, source: Source) -> str:
        data = b"".join(read_chunks(source, ReadNotes()))
        try:
            value = load_pickle(data) if data[:1] == b"\x80" else load_json(data)
        except DamagedDump:
            return ""
        return json.dumps(self._names.value(_masked(value) if self._redact else value))


def _masked(value: object, name: str = "") -> object:
    """A value of JSON, masked as if it stood behind its name in a line: `password` tells what its text is."""
    if isinstance(value, str):
        before = safe.mask(f"{name}=") if name else ""
        return safe.mask(f"{name}={value}").removeprefix(before) if name else safe.mask(value)
    if isinstance(value, dict):
        return {safe.mask(key) if isinstance(key, str) else key: _masked(item, str(key)) for key, item in value.items()}
    return [_masked(item, name) for item in value] if isinstance(value, list | tuple) else value


def _targets(names: Iterable[str]) -> list[str]:
    """Names of files that can all be in one folder: none that is too long, twice there, or also a folder's."""
    short = ["/".join(map(_shortened, name.split("/"))) for name in names]
    folders = {str(parent) for name in short for parent in PurePosixPath(name).parents}
    taken = {NOTE, *folders}
    targets = []
    for name in short:
        path = PurePosixPath(name)
        numbered = (str(path.with_name(f"{number}-{path.name[-200:]}")) for number in count(2))
        target = next(each for each in chain((_COMPRESSED.sub("", name), name), numbered) if each not in taken)
        taken.add(target)
        targets.append(target)
    return targets


def _shortened(part: str) -> str:
    raw = os.fsencode(part)
    if len(raw) <= _LONGEST_NAME:
        return part
    half = _LONGEST_NAME // 2
    return os.fsdecode(raw[:half] + raw[-half:])


def _lines_of(source: Source) -> Iterator[str]:
    """The lines of a text, without their ends; bytes that are no UTF-8 come out again as they were.

    Of a line beyond all measure both ends are told, as in an export.
    """
    packer = Packer()
    packer.begin(source)
    blocks = (packer.feed(block) for block in read_chunks(source, ReadNotes()))
    for chunk in chain(chain.from_iterable(blocks), _rest(packer)):
        for line in chunk.data[: chunk.size].removesuffix(b"\n").split(b"\n"):
            yield line.decode("utf-8", "surrogateescape")


def _rest(packer: Packer) -> Iterator[Chunk]:
    yield from packer.end()
    yield from packer.flush()
