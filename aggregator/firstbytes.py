"""What a file is, by its first bytes: its name may lie."""

from __future__ import annotations

import re

_MAGIC = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def compression_of(head: bytes) -> str | None:
    """`gzip`, `bzip2`, `xz`, `zstd` by the first bytes of a file (its name may lie), else None."""
    if head[1:4] == b"*M\x18" and 0x50 <= head[0] <= 0x5F:  # noqa: PLR2004 - a skippable frame, as pzstd writes first
        return "zstd"
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


_TEXT_BYTES = bytes([*range(0x08, 0x0E), 0x1B, *range(0x20, 0x7F), *range(0x80, 0x100)])


def is_text(head: bytes) -> bool:
    """Whether the first bytes are a log's.

    Runs of NUL are holes of a sparse file; bytes above 127 may be any encoding.
    """
    solid = re.sub(rb"\0{4,}", b"", head) if b"\0\0\0\0" in head else head
    if not solid:
        return True
    odd = len(solid.translate(None, _TEXT_BYTES))
    high = 0 if solid.isascii() else len(solid) - len(solid.decode("utf-8", "ignore").encode())
    return solid.count(b"\0") * 100 < len(solid) and (odd + high) * 10 <= len(solid) * 3
