"""Lists the files under URLs: the first stage, as `discover` does it for the files of this machine."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from aggregator.discover import HEAD, Discovery, discovery_of, looked, skip_reason
from aggregator.errors import InputError, UsageError
from aggregator.opening import ReadNotes
from aggregator.remote import is_url, shown
from aggregator.remote.files import FileSystem, file_system, guarded, heads
from aggregator.walk import generated_folder
from parsers.records import Remote, Source, SourceKind

_AT_ONCE = 256
"""Files whose heads are asked for together."""
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
"""Where file systems tell of the last change."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A file of a listing: its path in the file system, what it is called, its size in bytes, its time in ns."""

    path: str
    shown: str
    size: int
    mtime_ns: int | None


def discover_urls(urls: Sequence[str], max_files: int) -> Discovery:
    """The sources under URLs of one file system: folders, files, patterns.

    Raises:
        InputError: there is nothing, or it cannot be listed.
        UsageError: they are of several file systems, or among paths; a library is missing.
    """
    if not all(map(is_url, urls)) or len({_reached(url)[0] for url in urls}) > 1:
        help_text = "one run for each; or copy the files into one folder"
        raise UsageError("a job's files must be in one place: all on this machine, or all behind URLs of one server",
                         where=shown(urls[0]), help=help_text)  # fmt: skip
    notes = ReadNotes()
    named = {path: info for url in urls for path, info in _named(url).items()}
    root = posixpath.commonpath([path if _is_folder(info) else posixpath.dirname(path) for path, info in named.items()])
    found = _listed(urls[0], named, root, notes, max_files)
    lone, by_user = len(named) == 1, {path for path, info in named.items() if not _is_folder(info)}
    files = []
    while some := list(islice(found, _AT_ONCE)):
        full = [one.path for one in some if one.size]  # a range of an empty file is an error
        told = dict(zip(full, heads(urls[0], full, HEAD), strict=True))
        for one in some:
            raw = told.get(one.path, b"")
            if isinstance(raw, str):
                notes.add(one.shown, raw)
                continue
            source = Source(
                0, one.shown, None, SourceKind.LOG,
                size=one.size, mtime_ns=one.mtime_ns, remote=Remote(urls[0], one.path),
            )  # fmt: skip
            file = looked(source, raw, notes, lone=lone and one.path in by_user)
            files += [file] if file is not None else []
    display = shown(urls[0]) if len(urls) == 1 else f"{shown(urls[0])} and {len(urls) - 1} more"
    return discovery_of(None, display, files, notes)


def _reached(url: str) -> tuple[FileSystem, str]:
    try:
        return file_system(url)
    except OSError as error:
        raise InputError(f"cannot be read: {error}", where=shown(url)) from None


def _named(url: str) -> dict[str, dict[str, Any]]:
    """What a URL names, as its server tells of it."""
    path = _reached(url)[1]

    def ask(fs: FileSystem) -> dict[str, dict[str, Any]]:
        if any(mark in path for mark in "*["):
            return dict(fs.glob(path, detail=True))
        return {path.rstrip("/") or path: fs.info(path)}

    try:
        named = guarded(url, ask)
    except OSError as error:
        raise InputError(f"cannot be read: {error}", where=shown(url)) from None
    if not named:
        raise InputError("the pattern matches nothing", where=shown(url))
    return named


def _is_folder(info: dict[str, Any]) -> bool:
    return info.get("type") == "directory"


def _listed(
    url: str, named: dict[str, dict[str, Any]], root: str, notes: ReadNotes, max_files: int
) -> Iterator[_Found]:
    met = set[str]()
    for top, info in sorted(named.items()):
        try:
            entries = guarded(url, partial(_below, top)) if _is_folder(info) else {top: info}
        except OSError as error:
            raise InputError(f"cannot be listed: {error}", where=shown(url)) from None
        for path, told in sorted(entries.items()):
            name = path[len(root) :].lstrip("/") or posixpath.basename(path)
            if path in met:
                continue
            if reason := _reason_to_skip(name, told, by_user=path == top):
                notes.add(name, reason)
                continue
            if len(met) >= max_files:
                notes.add(name, f"limit of {max_files} files: this one and what follows was not looked at")
                return
            met.add(path)
            yield _Found(path, name, int(told["size"]), _time_of(told))


def _below(folder: str, fs: FileSystem) -> dict[str, dict[str, Any]]:
    return dict(fs.find(folder, detail=True))


def _reason_to_skip(name: str, told: dict[str, Any], *, by_user: bool) -> str | None:
    if told.get("type") != "file" or not isinstance(told.get("size"), int | float):
        return f"not a file whose size the server tells ({told.get('type')})"
    if any(generated_folder(part) for part in name.split("/")[:-1]):
        return "hidden or generated folder"
    return skip_reason(name, by_user=by_user)


def _time_of(told: dict[str, Any]) -> int | None:
    """When a file was last changed, ns; file systems tell it in several ways, or not."""
    value = next((told[name] for name in _TIMES if told.get(name) is not None), None)
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        seconds = value.timestamp() if isinstance(value, datetime) else float(value) if value is not None else None
    except ValueError:
        return None
    return None if seconds is None else int(seconds * 1_000_000_000)
