# ruff: noqa: PLR2004 - positions and digits are what this file is about
"""Finds the lines of a chunk, and in them the places worth a second look, on whole columns of bytes.

The interface is narrow (a chunk's bytes in, columns out) so that a native kernel could take its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_letters, digits
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

FEED, RETURN = 10, 13
COLON = np.uint8(ord(":"))
_SCAN_BLOCK = 1 << 18  # stays in the cache between the compare and the search


def byte_class(members: bytes) -> Bools:
    """A table of 256: which bytes are among `members`."""
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


WORD = byte_class((ascii_letters + digits).encode())
FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Masks that keep so many of the bytes that `read_words` gives."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Columns of a chunk's lines: `[start, end)` without the line end; and what is in them."""

    starts: Ints
    ends: Ints
    controls: Ints
    """Positions of NUL, escape, and of carriage returns that do not end a line."""
    control_rows: Ints
    """The line of each."""
    colons: Ints
    """Positions of colons that another one follows three bytes later: a time of day may stand there."""
    colon_rows: Ints


def scan(data: Bytes, size: int) -> Lines:
    """Lines of `data[:size]`, which ends with a line feed."""
    found = []
    for start in range(0, size, _SCAN_BLOCK):
        block = data[start : min(size, start + _SCAN_BLOCK)]
        colons = data[start : start + len(block) + 3] == COLON
        mask = block < np.uint8(32)
        mask |= colons[:-3] & colons[3:]
        found.append(np.flatnonzero(mask) + start)
    at = np.concatenate(found) if found else np.empty(0, np.int64)
    kind = data.take(at)
    ending = kind == FEED
    # Each place is in the line that the next line feed ends.
    row = np.cumsum(ending)
    feeds = at.take(np.flatnonzero(ending))  # `take` is twice as fast as a mask
    starts = np.empty_like(feeds)
    if len(feeds):
        starts[0] = 0
        starts[1:] = feeds[:-1] + 1
    returned = (data.take(feeds - 1) == RETURN) & (feeds > starts)
    odd = np.flatnonzero((kind == 0) | (kind == RETURN) | (kind == 27))
    if returned.any():
        odd = odd[(kind[odd] != RETURN) | (data[at[odd] + 1] != FEED)]
    colon = np.flatnonzero(kind == COLON)
    return Lines(starts, feeds - returned, at.take(odd), row.take(odd), at.take(colon), row.take(colon))


def read_digits(data: Bytes, at: Ints, count: int) -> tuple[Ints, Bools]:
    """The number of `count` digits at each place, and whether they are digits."""
    value = np.zeros(len(at), np.int64)
    valid = np.ones(len(at), np.bool_)
    for shift in range(count):
        digit = data[at + shift] - np.uint8(48)
        valid &= digit < 10
        value = value * 10 + digit
    return value, valid


def read_words(data: Bytes, at: Ints) -> npt.NDArray[np.uint64]:
    """The eight bytes from each place on as a number, the first one lowest."""
    windows = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))
    return windows[at]


def equal_runs(data: Bytes, at: Ints, *shifts: int) -> tuple[Ints, Ints]:
    """Places that follow each other and have the same eight bytes at each shift are a run.

    Returns the index of the first place of each run, and for each place the number of its run: what is worked out
    for the firsts is spread with it.
    """
    fresh = np.zeros(len(at), np.bool_)
    fresh[:1] = True
    for shift in shifts:
        words = read_words(data, at + shift)
        fresh[1:] |= words[1:] != words[:-1]
    return np.flatnonzero(fresh), np.cumsum(fresh) - 1
