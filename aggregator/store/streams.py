"""What the store knows of each stream: the content of one file from its first byte."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from operator import attrgetter

HEAD_BYTES = 1024
TAIL_BYTES = 512


@dataclass(frozen=True, slots=True)
class StreamMeta:
    """Which file a stream is the content of. A file that is truncated or replaced begins a new stream."""

    path: str
    """The last known name, relative to the job folder, with forward slashes."""
    device: int
    inode: int
    generation: int | None
    """The inode's `i_generation`, where the file system tells it."""
    compressed: bool = False
    """Its bytes come from an archive, decompressed."""
    ended: str | None = None
    """Why it will not grow: `truncated`, `replaced` or `removed`; None while it may."""

    def to_json(self) -> bytes:
        """A JSON object of all fields. Names that are not UTF-8 survive as the lone surrogates that `os` gives."""
        return json.dumps(as_dict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> StreamMeta:
        """The reverse of `to_json`."""
        return cls(**json.loads(data))


_NAMES = tuple(field.name for field in fields(StreamMeta))
_values = attrgetter(*_NAMES)


def as_dict(meta: StreamMeta) -> dict[str, object]:
    """The fields by name; ten times as fast as `dataclasses.asdict`, which copies deeply."""
    return dict(zip(_NAMES, _values(meta), strict=True))


@dataclass(slots=True)
class Stream:
    """One stream. Offsets and lengths are bytes; a skipped hole counts as NUL bytes."""

    id: int
    meta: StreamMeta
    position: int = 0
    """Bytes taken so far, those not yet written included."""
    head: bytes = b""
    """Its first bytes, up to `HEAD_BYTES`."""
    tail: bytes = b""
    """Its last bytes, up to `TAIL_BYTES`."""

    def grow(self, data: bytes) -> None:
        """Count bytes in that follow."""
        if len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        size = len(data)
        self.tail = (self.tail + data if size < TAIL_BYTES else data)[-TAIL_BYTES:]
        self.position += size

    def grow_hole(self, length: int) -> None:
        """Count a run of NUL bytes in, however long."""
        shown = min(length, HEAD_BYTES)
        self.grow(bytes(shown))
        self.position += length - shown
