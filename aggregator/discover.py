"""Finds a job's files and says what each is: the first stage of every command.

Only names, places and a few bytes of each end are looked at. What is skipped is listed with its reason, so that a
report never looks more complete than it is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregator import kinds, layouts
from aggregator.errors import InputError
from aggregator.families import SAMPLE, rank_families, tags_of
from aggregator.firstbytes import compression_of, is_text
from aggregator.layouts import Hints, host_family, plain_name
from aggregator.opening import ReadNotes, read_head, read_raw
from aggregator.remote import is_url, local_path
from aggregator.utf16 import Utf8Decoder
from aggregator.walk import MAX_FILES, expand, walk
from parsers.records import Skipped, Source, SourceKind

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = 8 << 10
"""Bytes of a file that tell what it is."""
_TEXT = frozenset({SourceKind.LOG, SourceKind.KERNEL, SourceKind.STATUS})
_QUOTING = frozenset({"config", "script", "doc"})
"""Layouts of files that may hold any message without it having happened."""


_ALL_BUT_INDEX = attrgetter(*(field.name for field in fields(Source) if field.name != "index"))
"""`replace` takes three times as long, and a job may have a hundred thousand files."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files of a job, in the order in which they are read.

    `root` is what `Source.path` is relative to (None for standard input alone), `display` what the user called it.
    """

    root: Path | None
    display: str
    sources: tuple[Source, ...]
    skipped: tuple[Skipped, ...]

    @property
    def logs(self) -> list[Source]:
        """The sources whose lines are events: not dumps, nor files that may quote any line."""
        return [source for source in self.sources if source.kind in _TEXT and source.layout not in _QUOTING]


@dataclass(slots=True)
class File:
    """A source in the making: its index and what its siblings tell are still unknown."""

    parts: tuple[str, ...]
    source: Source
    ends: bytes | None = None
    """What stood at both ends of a file that is gone; None where the file itself can be asked."""
    hints: Hints = field(default_factory=lambda: Hints("plain"))
    age: tuple[str, int] = ("", 0)
    """The name that rotated parts share, and where this one stands among them, oldest first."""


def discover(paths: Sequence[str], *, max_files: int | None = None) -> Discovery:
    """Lists the sources under `paths`: folders, files, glob patterns, `-` for standard input.

    The result depends on names and bytes only, never on the order in which the file system tells them.

    Raises:
        InputError: a path does not exist or cannot be listed, a pattern matches nothing, or no log is left.
    """
    if any(map(is_url, paths)):
        from aggregator.remote.discovery import discover_urls  # noqa: PLC0415 - few jobs are behind URLs

        return discover_urls(paths, MAX_FILES if max_files is None else max_files)
    named, notes = expand([local_path(path) for path in paths]), ReadNotes()
    try:
        real = [Path(os.path.realpath(path)) for path in named if path != "-"]
    except OSError as error:
        raise InputError("the working folder is gone", where=error.filename, help="go to another one") from None
    root = Path(os.path.commonpath([p if p.is_dir() else p.parent for p in real])) if real else None
    files: list[File] = []
    if "-" in named:
        stdin = Source(0, "-", None, SourceKind.LOG, layout="stdin")
        kind, layout = kinds.kind_of("-", read_head(stdin, HEAD))
        files.append(File(("-",), replace(stdin, kind=kind, layout=layout or "stdin")))
    seen, by_user = dict[tuple[int, int], str](), frozenset(map(str, real))
    for path, shown in walk(real, root, notes, max_files):
        file = look(path, shown, seen, notes, by_user=path in by_user, lone=len(named) == 1)
        files += [file] if file is not None else []
    display = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    return discovery_of(root, display, files, notes)


def discovery_of(root: Path | None, display: str, files: Sequence[File], notes: ReadNotes) -> Discovery:
    """The discovery of a job that has these files.

    Raises:
        InputError: none of them is a log.
    """
    sources = tuple(sorted(arrange(files), key=attrgetter("index")))
    if all(source.layout in {"config", "script", "doc"} for source in sources):
        why = "; ".join(f"{note.path}: {note.reason}" for note in notes.items[:3]) or "there are no files"
        raise InputError("no log to read", where=display, help=f"name the job's log folder or files ({why})")
    return Discovery(root, display, sources, tuple(notes.items))


def arrange(files: Sequence[File]) -> list[Source]:
    """The sources of a job that has these files, in the order given; `index` is the place in the order of reading.

    What each name tells depends on its siblings: with a file more or less, the others may be somebody else's.
    """
    files = [File(file.parts, file.source, file.ends) for file in files]
    _rotations(files)
    _read_names(files)
    _moved_runs(files)
    _hosts(files, rank_families(files))
    order = sorted(files, key=lambda file: (layouts.natural(file.age[0]), file.age[1], file.parts))
    index = {id(file): number for number, file in enumerate(order)}
    return [Source(index[id(file)], *_ALL_BUT_INDEX(file.source)) for file in files]


def look(
    real: str, path: str, seen: dict[tuple[int, int], str], notes: ReadNotes, *, by_user: bool = False,
    lone: bool = False,
) -> File | None:  # fmt: skip
    """Opens a file for its first bytes; None, and a note, if it is no source.

    Args:
        real: where it is.
        path: what it is called: relative to the job folder, with forward slashes.
        seen: by device and inode, what was looked at before and how it was called.
        notes: takes the reason why it is no source.
        by_user: the user named the file itself.
        lone: the user named nothing else.
    """
    if reason := skip_reason(path, by_user=by_user):
        notes.add(path, reason)
        return None
    try:
        raw, status = read_raw(real, HEAD)
    except OSError as error:
        notes.add(path, error.strerror or str(error))
        return None
    if (first := seen.setdefault((status.st_dev, status.st_ino), path)) != path:
        notes.add(path, f"the same file as {first}")
        return None
    source = Source(0, path, Path(real), SourceKind.LOG, size=status.st_size, mtime_ns=status.st_mtime_ns)
    return looked(source, raw, notes, lone=lone and by_user)


def looked(source: Source, raw: bytes, notes: ReadNotes, *, lone: bool = False) -> File | None:
    """A file of which the first bytes are known as they are stored; None, and a note, if it is no source."""
    if codec := compression_of(raw):
        source = replace(source, compression=codec)
    head = read_head(source, HEAD) if codec or raw[:2] in {b"\xff\xfe", b"\xfe\xff"} else raw
    return _recognised(source, head, notes, lone=lone)


def remember(path: str, head: bytes, tail: bytes = b"", *, size: int, mtime_ns: int | None) -> File | None:
    """A file that is gone, as its bytes tell; None if it was no source. Its source's `real` is None.

    `head` and `tail` are the first and last (decompressed) bytes, up to 64 KiB of each: the more, the surer.
    """
    source = Source(0, path, None, SourceKind.LOG, size=size, mtime_ns=mtime_ns)
    if skip_reason(path) is not None:
        return None
    head = Utf8Decoder().decode(head)
    file = _recognised(source, head[:HEAD], ReadNotes())
    if file is not None:
        file.ends = head + b"\n" + tail
    return file


def skip_reason(path: str, *, by_user: bool = False) -> str | None:
    """Why a file of this name is not looked at, or None."""
    name = path.rpartition("/")[2]
    return "hidden file" if name.startswith(".") and not by_user else kinds.skip_reason(name)


def _recognised(source: Source, head: bytes, notes: ReadNotes, *, lone: bool = False) -> File | None:
    """What a file is, by its name and its first bytes; None, and a note, if it is no source."""
    parts = tuple(source.path.split("/"))
    kind, layout = kinds.kind_of(parts[-1], head)
    if lone and layout in {"config", "script", "doc", "table"}:
        kind, layout = SourceKind.LOG, None
    if head[257:262] == b"ustar":
        notes.add(source.path, "archive: unpack it first")
        return None
    if kind is not SourceKind.FLIGHT_RECORDER and not is_text(head):
        notes.add(source.path, "binary file")
        return None
    if kind is not SourceKind.LOG or layout is not None:
        source = replace(source, kind=kind, layout=layout or "plain")
    return File(parts, source)


def _rotations(files: list[File]) -> None:
    """Finds the old parts of a log, which stand before it and share its `group`.

    `log.1` is an old part only where `log` exists and `log.0` does not: ranks are numbered in the same way.
    """
    names = {(*file.parts[:-1], plain_name(file.parts[-1])) for file in files}
    for file in files:
        folder, found = file.parts[:-1], layouts.rotation(file.parts[-1])
        file.age = ("/".join(file.parts), 0)
        if found is None or (*folder, found[0]) not in names or (*folder, found[0] + ".0") in names:
            continue
        base, mark = found
        path = "/".join((*folder, base))
        digits = int(re.sub(r"\D", "", mark))
        file.age = (path, -digits if len(mark) <= 3 else digits - 10**15)  # noqa: PLR2004 - else it is a date
        file.source = replace(file.source, group=path)
        file.parts = (*folder, base)
    bases = {file.source.group for file in files}
    for file in files:
        if (path := "/".join((*file.parts[:-1], plain_name(file.parts[-1])))) in bases and file.source.group is None:
            file.age, file.source = (path, 0), replace(file.source, group=path)


def _read_names(files: list[File]) -> None:
    """Fills in what each name tells by itself."""
    for file in files:
        source, name = file.source, file.parts[-1]
        hints = layouts.read_name(file.parts)
        if source.kind is SourceKind.FLIGHT_RECORDER:
            file.source = replace(source, layout="flight-recorder", rank=kinds.dump_rank(name))
        elif source.kind in {SourceKind.LOG, SourceKind.ERROR_JSON}:
            told: dict[str, Any] = {}
            if hints is not None:
                file.hints = hints
                told = {key: value for key in _COPIED if (value := getattr(hints, key)) is not None}
            else:
                told["job_id"] = layouts.job_of(name)
            told.setdefault("attempt", layouts.attempt_of("/".join(file.parts)))
            told.setdefault("stream", layouts.stream_of(file.parts))
            if any(value is not None for value in told.values()):
                file.source = replace(source, **told)


def _moved_runs(files: list[File]) -> None:
    """Logs that NeMo moved into `run_<n>` beside its new ones are of earlier runs (exp_manager.py, check_resume)."""
    logs = [file for file in files if file.source.layout == "nemo-files"]
    in_use = {file.parts[:-1] for file in logs}
    moved: dict[tuple[str, ...], int] = {}
    for folder in in_use:
        if folder and folder[:-1] in in_use and (number := re.fullmatch(r"run_(\d{1,4})", folder[-1])):
            moved[folder] = int(number[1])
    for file in files if moved else ():
        folder = file.parts[:-1]
        newest = max((n for other, n in moved.items() if other[:-1] == folder), default=None)
        if folder in moved:
            file.source = replace(file.source, attempt=moved[folder])
        elif newest is not None:
            file.source = replace(file.source, attempt=newest + 1)


_COPIED = ("layout", "rank", "local_rank", "node_rank", "host", "stream", "attempt", "pid", "job_id", "group")


def _hosts(files: list[File], known: set[str]) -> None:
    """Gives each file the host that its name or a folder above it tells, `known` being those seen in rank families."""
    siblings: dict[tuple[str, ...], set[str]] = {}
    for file in files:
        for depth, folder in enumerate(_above(file)):
            siblings.setdefault((*file.parts[:depth], "/"), set()).add(folder)
        if name := _named_host(file):
            siblings.setdefault((*file.parts[:-1], file.source.kind, file.source.layout), set()).add(name)
    known = known.union(*map(host_family, siblings.values())) | {f.source.host for f in files if f.source.host}
    known |= {_named_host(file) for file in files if file.source.kind is SourceKind.KERNEL} - {""}
    for file in files:
        names = [_named_host(file), *reversed(_above(file))]
        if file.source.host is None and (host := next((name for name in names if name in known), None)):
            file.source = replace(file.source, host=host)
    claims: dict[tuple[str | int | None, ...], list[File]] = {}
    for file in files:
        if file.source.layout in {"rank-named", "submitit"} and file.source.rank is not None:
            place = None if file.source.host else file.parts[0] if len(file.parts) > 1 else ""
            claims.setdefault((file.source.attempt, place, file.source.layout), []).append(file)
    for named in claims.values():
        _doubt(named)


def _above(file: File) -> tuple[str, ...]:
    """The folders that may be named after a host: not torchrun's own, whose names are random."""
    group = file.hints.group
    return tuple(group.split("/")[:-1]) if group and file.hints.layout.startswith("torchrun") else file.parts[:-1]


def _named_host(file: File) -> str:
    if file.source.kind is SourceKind.KERNEL:
        return kinds.kernel_host(file.parts)
    return file.hints.around or (layouts.file_host(file.parts[-1]) if file.source.layout == "plain" else "")


def _doubt(named: list[File]) -> None:
    """Takes back global ranks that the names claim and something else denies.

    `rank_0.log` in the folder of each host is a local rank, whatever it is called. And who starts one torchrun a node
    often calls the node's number a rank: then the tags inside are those of other ranks.
    """
    by_host: dict[str, set[int]] = {}
    for file in named:
        if file.source.host is not None:
            by_host.setdefault(file.source.host, set()).add(file.source.rank or 0)
    if sum(map(len, by_host.values())) > len(set[int]().union(*by_host.values())):
        local = all(0 in ranks for ranks in by_host.values())
        for file in named:
            told = file.source.rank if local else None
            file.source = replace(file.source, rank=None, local_rank=told, layout="local-named")
        return
    family = {file.source.rank for file in named}
    for file in named[:SAMPLE]:
        tags = tags_of(file)
        # One tag of a sibling may be quoted or forged text; several, or one that no sibling has, are other ranks'.
        foreign = file.source.rank not in tags and (len(tags) > 1 or not tags <= family)
        if tags and (foreign or len(named) == 1 < len(tags)):
            for other in named:
                other.source = replace(other.source, rank=None, layout="rank-denied")
            return
