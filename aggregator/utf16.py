"""Text in UTF-16, as bytes of UTF-8."""

from __future__ import annotations

import codecs

_MARK = 2
UTF16_NOTE = "UTF-16, read as UTF-8: offsets count the converted bytes"
"""What every report says of such a file."""
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Utf8Decoder:
    """Turns UTF-16 with a byte order mark (PowerShell's `>`) into UTF-8, piece by piece, and leaves all else alone."""

    def __init__(self) -> None:
        self._begin = b""
        self._begun = False
        self._decoder: codecs.IncrementalDecoder | None = None

    @property
    def converts(self) -> bool:
        """Whether the bytes are UTF-16."""
        return self._decoder is not None

    def decode(self, data: bytes) -> bytes:
        """The next bytes; they may end anywhere."""
        if not self._begun:
            data = self._begin + data
            self._begun = len(data) >= _MARK
            if not self._begun:
                self._begin = data
                return b""
            name = _UTF16.get(data[:_MARK])
            if name is not None:
                self._decoder = codecs.getincrementaldecoder(name)(errors="replace")
                data = data[_MARK:]
        return data if self._decoder is None else self._decoder.decode(data).encode("utf-8", "replace")

    def rest(self) -> bytes:
        """What is added if there are no more bytes; more may be decoded nevertheless."""
        if not self._begun:
            return self._begin
        if self._decoder is None:
            return b""
        state = self._decoder.getstate()
        rest = self._decoder.decode(b"", final=True).encode("utf-8", "replace")
        self._decoder.setstate(state)
        return rest
