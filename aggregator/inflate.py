"""Decompressors of one interface, that of `bz2` and `lzma`: a bounded piece of output at a time."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Inflater(Protocol):
    """What bz2 and lzma have in common, and zlib is fitted to."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _Gzip:
    """One gzip member behind the interface of bz2 and lzma."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self._full = False
        """Whether the last call stopped at its limit, so that zlib may hold more although it took all input."""

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not (self._full or self._zlib.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        piece = self._zlib.decompress(self._zlib.unconsumed_tail + data, max(max_length, 0))
        self._full = len(piece) == max_length
        return piece


INFLATERS: dict[str, Callable[[], Inflater]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}
