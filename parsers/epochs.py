# ruff: noqa: PLR2004 - positions and digits are what this file is about
"""Reads stamps that are seconds or milliseconds since 1970, on whole columns of bytes."""

from __future__ import annotations

import numpy as np

from parsers.kernel import COLON, Bools, Bytes, Ints, Lines, byte_class, read_digits

_DOT = np.uint8(ord("."))
_POWERS = np.array([10**exponent for exponent in range(9, -1, -1)], np.int64)
_EPOCH_WINDOW = 64
_QUOTE_OR_BLANK, _AFTER_EPOCH = byte_class(b' "'), byte_class(b". ]")
_KEY_ENDS = np.frombuffer(b"tsmemp", "<u2")
"""Last two letters of the JSON keys `ts`, `time` and `timestamp`."""


def epoch_stamps(data: Bytes, lines: Lines, stamped: Ints) -> tuple[Ints, Ints, Ints]:
    """Epochs at the start of a line, in brackets (UCX), or behind a time key of a JSON line.

    Rows in `stamped` have a stamp and are left alone. Returns rows, where their ten digits begin, and ns.
    """
    first = data[lines.starts]
    bare = (first == ord("1")) | ((first == ord("[")) & (data[lines.starts + 1] == ord("1")))
    json = first == ord("{")
    open_rows = bare | json
    open_rows[stamped] = False
    rows = np.flatnonzero(open_rows)
    at = _epoch_places(data, lines, rows, json[rows]) if len(rows) else rows
    rows, at = rows[at >= 0], at[at >= 0]
    return rows, at, _read_epochs(data, at)


def _epoch_places(data: Bytes, lines: Lines, rows: Ints, json: Bools) -> Ints:
    """Where the ten digits of each line's epoch stamp begin, -1 where it has none."""
    starts = lines.starts[rows]
    shift = np.arange(_EPOCH_WINDOW)
    window = data[np.minimum(starts[:, None] + shift, len(data) - 1)]
    inside = shift < (lines.ends[rows] - starts)[:, None]
    digit = ((window - np.uint8(48)) < 10) & inside
    span = _EPOCH_WINDOW - 14
    run = digit[:, :span].copy()
    for step in range(1, 10):
        run &= digit[:, step : span + step]
    run &= window[:, :span] == ord("1")
    run[:, 1:] &= ~digit[:, : span - 1]
    follows = digit[:, 10 : span + 10]
    millis = follows & digit[:, 11 : span + 11] & digit[:, 12 : span + 12] & ~digit[:, 13 : span + 13]
    run &= ~follows | millis
    place = run.argmax(axis=1)
    good = run.any(axis=1)
    at = starts + place
    # JSON: `"ts": 1772352000.5`, with or without the blank or quotes.
    key = at - 1
    for _ in range(2):
        key = key - _QUOTE_OR_BLANK[data[key]]
    letters = (data[key - 3] | 32).astype(np.uint16) | ((data[key - 2] | 32).astype(np.uint16) << 8)
    keyed = (data[key] == COLON) & (data[key - 1] == ord('"')) & np.isin(letters, _KEY_ENDS)
    fronted = (place == (data[starts] == ord("["))) & _AFTER_EPOCH[data[at + 10]]
    return np.where(good & np.where(json, keyed, fronted), at, -1)


def _read_epochs(data: Bytes, at: Ints) -> Ints:
    seconds, _ = read_digits(data, at, 10)
    millis, three = read_digits(data, at + 10, 3)
    fraction = np.zeros(len(at), np.int64)
    live = data[at + 10] == _DOT
    for step in range(9):
        digit = data[at + 11 + step] - np.uint8(48)
        live = live & (digit < 10)
        fraction += np.where(live, digit.astype(np.int64) * _POWERS[step + 1], 0)
    return seconds * 1_000_000_000 + np.where(three, millis * 1_000_000, fraction)
