"""The manifest: which files make up the store, and what was known of each stream when the first journal began.

    {"crc32": "89abcdef", "manifest": {"version": 1, "first_journal": …, "kept_journal": …, "segments": […],
     "streams": [{"meta": {…}, "position": …, "head": "…", "tail": "…"}, …]}}

`head` and `tail` are Latin-1: one character a byte. The checksum is of the inner object, byte for byte.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator.store.files import VERSION, check_version, damaged, replacing, sync_folder
from aggregator.store.streams import Stream, StreamMeta, as_dict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CURRENT = "manifest.json"
_PREVIOUS = "manifest.prev.json"
_FRAME = b'{"crc32": "%08x", "manifest": %b}\n'
_BODY = slice(len(_FRAME % (0, b"")) - 2, -2)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files make up the store.

    The journals from `first_journal` on are not in segments; those from `kept_journal` on are kept, because the
    manifest before this one still needs them.
    """

    first_journal: int
    kept_journal: int
    segments: tuple[int, ...]
    """The numbers of the journals that have become segments."""


def load_manifest(folder: Path, *, mend: bool) -> tuple[Manifest, list[Stream]] | None:
    """The newest good manifest and its streams; None if the folder holds no store.

    With `mend`, a previous manifest takes the place of one that is damaged.

    Raises:
        OutputError: a newer version wrote it; or both manifests are unusable but there is data.
        OSError: a manifest cannot be read.
    """
    for name in (_CURRENT, _PREVIOUS):
        path = folder / name
        try:
            found = _decode(path)
        except FileNotFoundError:
            continue
        if found is not None:
            if mend and name == _PREVIOUS:
                path.replace(folder / _CURRENT)
            return found
    if any(path.suffix in {".journal", ".parquet"} for path in folder.glob("*")):
        raise damaged("neither its manifest nor the one before can be used", folder / _CURRENT)
    return None


def write_manifest(folder: Path, manifest: Manifest, streams: Iterable[Stream]) -> None:
    """Replace the manifest; the one before becomes the previous one.

    Raises:
        OSError: either manifest may then be the newest on the disk.
    """
    body = {
        "version": VERSION,
        "first_journal": manifest.first_journal,
        "kept_journal": manifest.kept_journal,
        "segments": manifest.segments,
        "streams": [
            {
                "meta": as_dict(stream.meta),
                "position": stream.position,
                "head": stream.head.decode("latin-1"),
                "tail": stream.tail.decode("latin-1"),
            }
            for stream in streams
        ],
    }
    current = folder / _CURRENT
    with replacing(current) as file:
        file.write(_framed(json.dumps(body, separators=(",", ":")).encode()))
        file.flush()  # before the old one gives up its name: a disk is full more often than it breaks
        with suppress(FileNotFoundError):
            current.replace(folder / _PREVIOUS)
    sync_folder(folder)


def _framed(body: bytes) -> bytes:
    return _FRAME % (zlib.crc32(body), body)


def _decode(path: Path) -> tuple[Manifest, list[Stream]] | None:
    """What a manifest says; None if it is damaged at any byte."""
    data = path.read_bytes()
    if data != _framed(data[_BODY]):
        return None
    body = json.loads(data[_BODY])
    check_version(body["version"], path)
    streams = [
        Stream(
            number,
            StreamMeta(**item["meta"]),
            item["position"],
            item["head"].encode("latin-1"),
            item["tail"].encode("latin-1"),
        )
        for number, item in enumerate(body["streams"])
    ]
    return Manifest(body["first_journal"], body["kept_journal"], tuple(body["segments"])), streams
