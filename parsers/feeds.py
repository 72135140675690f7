"""Counts line feeds: by NumPy where it is loaded already, as importing it costs more than a small job takes."""

from __future__ import annotations

import sys

_SMALL = 4096


def count_feeds(data: bytes, start: int, stop: int) -> int:
    """How many line feeds are in `data[start:stop]`."""
    numpy = sys.modules.get("numpy")
    stop = min(stop, len(data))
    if numpy is None or stop - start < _SMALL:
        return data.count(b"\n", start, stop)
    return int(numpy.count_nonzero(numpy.frombuffer(data, numpy.uint8, stop - start, start) == ord("\n")))
