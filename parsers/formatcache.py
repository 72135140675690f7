"""Keeps the parsed message formats between runs: reading some twenty TOML files takes longer than a small job.

The cache is one JSON file in the user's cache folder, named by a digest of what it was made of. It holds no samples,
which only checks need. Anything wrong with it means reading the formats themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from parsers.lineformats import FORMATS_DIR, Format, Message, Prefix, Sample, load_formats
from parsers.records import Role

_LAYOUT = 1
"""Changes with the fields of the classes stored."""


def formats_for_reading() -> tuple[Format, ...]:
    """The shipped formats without the samples of their messages.

    Raises:
        FormatError: see `load_formats`.
    """
    place = _place()
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if stored := _thaw(json.loads(place.read_bytes())):
            return stored
    formats = load_formats()
    with suppress(OSError):
        _store(place, json.dumps([_freeze(fmt) for fmt in formats], separators=(",", ":")))
    return formats


def _place() -> Path:
    digest = hashlib.blake2b(str(_LAYOUT).encode(), digest_size=12)
    with os.scandir(FORMATS_DIR) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            status = entry.stat()
            digest.update(f"{entry.name}/{status.st_size}/{status.st_mtime_ns}/".encode())
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118 - Path.home raises where there is none
    return Path(base) / "denpex-agg" / f"formats-{digest.hexdigest()}.json"


def _store(place: Path, text: str) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in place.parent.glob("formats-*.json"):
        old.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(place)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _freeze(fmt: Format) -> dict[str, object]:
    return {
        "id": fmt.id,
        "title": fmt.title,
        "url": fmt.url,
        "prefixes": [asdict(prefix) for prefix in fmt.prefixes],
        "messages": [
            [
                message.id, message.role.value, message.pattern, message.keywords, message.kind, message.layer,
                message.phase, message.unless, message.ends_only, message.origin, message.priority,
            ]
            for message in fmt.messages
        ],
    }  # fmt: skip


def _thaw(raw: list[dict[str, object]]) -> tuple[Format, ...]:
    return tuple(
        Format(
            str(item["id"]), str(item["title"]), str(item["url"]),
            tuple(_prefix(prefix) for prefix in _rows(item["prefixes"])),
            tuple(_message(message) for message in _rows(item["messages"])),
        )
        for item in raw
    )  # fmt: skip


def _rows(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list was stored here")
    return value


def _prefix(raw: object) -> Prefix:
    if not isinstance(raw, dict):
        raise TypeError("an object was stored here")
    samples = tuple(Sample(**sample) for sample in raw.pop("samples"))
    return Prefix(**raw, samples=samples)


def _message(raw: object) -> Message:
    ident, role, pattern, keywords, kind, layer, phase, unless, ends_only, origin, priority = _rows(raw)
    return Message(
        str(ident), Role(str(role)), str(pattern), tuple(map(str, _rows(keywords))),
        _text(kind), _text(layer), _text(phase),
        tuple(map(str, _rows(unless))), bool(ends_only), (), (), str(origin), int(str(priority)),
    )  # fmt: skip


def _text(value: object) -> str | None:
    return None if value is None else str(value)
