# ruff: noqa: PLR2004 - positions, digits and the calendar are what this file is about
"""Finds the lines of a chunk and the time stamps at their front, on whole columns of bytes.

The interface is narrow (a chunk's bytes in, columns out) so that a native kernel could take its place. Every stamp
but an epoch is found by its time of day: two colons three bytes apart between digits; what stands before tells the
form. `parsers.timestamps` reads the same forms one line at a time and is the reference.
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

HEAD = 96
"""A stamp's time of day begins within so many bytes of the line; further in, a time is part of the message."""
SECOND = 1_000_000_000
DAY = 86_400


def byte_class(members: bytes) -> Bools:
    """A table of 256: which bytes are among `members`."""
    table = np.zeros(256, np.bool_)
    table[list(members)] = True
    return table


WORD = byte_class((ascii_letters + digits).encode())
LEVEL_LETTER = byte_class(b"VIWEFC")
_SCAN_BLOCK = 1 << 18  # stays in the cache between the compare and the search
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_POWERS = np.array([10**exponent for exponent in range(9, -1, -1)], np.int64)
_CLOCK = np.uint64(int.from_bytes(b"00:00:00", "little"))
_SIXES, _UPPER, _ONES = (np.uint64(0x0101010101010101 * byte) for byte in (0x06, 0xF0, 0x01))
_BYTE = np.uint64(0xFF)
_COLON, _DOT, _COMMA, _DASH, _SLASH, _SPACE, _PLUS = (np.uint8(ord(c)) for c in ":.,-/ +")


@dataclass(frozen=True, slots=True)
class Lines:
    """Columns of a chunk's lines: `[start, end)` without the line end."""

    starts: Ints
    ends: Ints
    controls: Ints
    """Positions of NUL, escape, and of carriage returns that do not end a line."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """The stamps of a chunk, at most one a line, by line.

    `ns` is UTC (or the writer's local time taken as UTC). Where `dated` is False the year is missing and `ns` counts
    from the start of 1972, a leap year: see `with_year`. `letter` is the level letter of glog and c10 lines, else 0.
    `end` is where the digits end in the chunk.
    """

    row: Ints
    ns: Ints
    dated: Bools
    letter: Bytes
    end: Ints


@dataclass(frozen=True, slots=True)
class _Found:
    """Candidates while they are parsed: `at` is where the time of day begins, `day` counts from the epoch (or -1)."""

    at: Ints
    day: Ints
    zoned: Bools
    """Whether the form may be followed by a zone."""
    dated: Bools
    letter: Bytes


def scan(data: Bytes, size: int) -> tuple[Lines, Ints]:
    """Lines of `data[:size]`, which ends with a line feed, and the places where a time of day may stand."""
    found = []
    for start in range(0, size, _SCAN_BLOCK):
        block = data[start : min(size, start + _SCAN_BLOCK)]
        colons = data[start : start + len(block) + 3] == _COLON
        mask = block < np.uint8(32)
        mask |= colons[:-3] & colons[3:]
        found.append(np.flatnonzero(mask) + start)
    at = np.concatenate(found) if found else np.empty(0, np.int64)
    kind = data[at]
    feeds = at[kind == 10]
    starts = np.empty_like(feeds)
    if len(feeds):
        starts[0] = 0
        starts[1:] = feeds[:-1] + 1
    ends = feeds - ((data[feeds - 1] == 13) & (feeds > starts))
    odd = (kind == 0) | (kind == 13) | (kind == 27)
    controls = at[odd]
    controls = controls[~((data[controls] == 13) & (data[controls + 1] == 10))]
    return Lines(starts, ends, controls), at[kind == _COLON]


def read_stamps(data: Bytes, lines: Lines, colons: Ints) -> Stamps:
    """The first stamp of each line that has one within its first `HEAD` bytes."""
    at = colons - 2
    row = np.searchsorted(lines.starts, at, side="right") - 1
    near = (at >= 0) & (at - lines.starts[row] < HEAD)
    at, row = at[near], row[near]
    seconds, valid = _time_of_day(data, at)
    at, row, seconds = at[valid], row[valid], seconds[valid]
    found = _dates(data, at)
    keep = found.day >= 0
    keep &= _first(row, keep)
    row, seconds = row[keep], seconds[keep]
    found = _Found(found.at[keep], found.day[keep], found.zoned[keep], found.dated[keep], found.letter[keep])
    fraction, zone, end = _fraction_and_zone(data, found)
    stamps = Stamps(row, (found.day * DAY + seconds - zone) * SECOND + fraction, found.dated, found.letter, end)
    return _with_epochs(data, lines, stamps)


def with_year(ns: Ints, reference: Ints) -> Ints:
    """Complete stamps that count from the start of 1972 with the year that brings them nearest to `reference`.

    Both in ns. As `timestamps.StampContext` does it; 29 February goes to the nearest year that has one.
    """
    months = ns.astype("datetime64[ns]").astype("datetime64[M]")
    within = ns - months.astype("datetime64[ns]").astype(np.int64)
    month = months.astype(np.int64) % 12
    years = reference.astype("datetime64[ns]").astype("datetime64[Y]").astype(np.int64)
    leap_day = (month == 1) & (within >= 28 * DAY * SECOND)
    reach = 8 if leap_day.any() else 1
    best = np.zeros(len(ns), np.int64)
    distance = np.full(len(ns), np.iinfo(np.int64).max)
    for shift in sorted(range(-reach, reach + 1), key=abs):
        year = years + shift
        first = (year * 12 + month).astype("datetime64[M]").astype("datetime64[ns]").astype(np.int64)
        stamp = first + within
        # The day decides, not the time of day: two years are equally near at most for the middle of the year.
        away = np.abs(stamp // (DAY * SECOND) * (DAY * SECOND) - reference)
        gregorian = year + 1970
        leap = (gregorian % 4 == 0) & ((gregorian % 100 != 0) | (gregorian % 400 == 0))
        nearer = (away < distance) & (leap | ~leap_day)
        best = np.where(nearer, stamp, best)
        distance = np.where(nearer, away, distance)
    return best


def _first(row: Ints, keep: Bools) -> Bools:
    """Which of the kept candidates is the first of its line."""
    index = np.flatnonzero(keep)
    first = np.zeros(len(row), np.bool_)
    rows = row[index]
    fresh = np.ones(len(rows), np.bool_)
    fresh[1:] = rows[1:] != rows[:-1]
    first[index[fresh]] = True
    return first


def _digits(data: Bytes, at: Ints, count: int) -> tuple[Ints, Bools]:
    """The number of `count` digits at each place, and whether they are digits."""
    value = np.zeros(len(at), np.int64)
    valid = np.ones(len(at), np.bool_)
    for shift in range(count):
        digit = data[at + shift] - np.uint8(48)
        valid &= digit < 10
        value = value * 10 + digit
    return value, valid


def _words(data: Bytes, at: Ints) -> npt.NDArray[np.uint64]:
    """The eight bytes from each place on as a number, the first one lowest; `at` is not negative."""
    windows = np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,))
    return windows[at]


def _time_of_day(data: Bytes, at: Ints) -> tuple[Ints, Bools]:
    """Seconds since midnight of `HH:MM:SS`, worked out on all eight bytes at once."""
    word = _words(data, at) ^ _CLOCK
    # Each byte is now the value of its digit, and zero for a colon, or has one of its upper four bits set.
    valid = (((word + _SIXES) | word) & _UPPER) == 0
    pairs = word * np.uint64(10) + (word >> np.uint64(8))
    hour, minute, second = ((pairs >> np.uint64(shift) & _BYTE).astype(np.int64) for shift in (0, 24, 48))
    after = data[at + 8] - np.uint8(48)
    valid &= (hour < 24) & (minute < 60) & (second < 61) & (after > 9)
    return hour * 3600 + minute * 60 + second, valid


def _days(year: Ints, month: Ints, day: Ints, valid: Bools) -> Ints:
    """Days from the epoch, -1 where there is no such date."""
    valid = valid & (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1970) & (year < 2200)
    month = np.where(valid, month, 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    valid &= (day <= _MONTH_DAYS[month]) & (leap | (month != 2) | (day < 29))
    months = (np.where(valid, year, 1970) - 1970) * 12 + month - 1
    first: Ints = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(valid, first + day - 1, -1)


def _dates(data: Bytes, at: Ints) -> _Found:
    """The date before each time of day."""
    no = np.zeros(len(at), np.bool_)
    found = _Found(at, np.full(len(at), -1, np.int64), no, no.copy(), np.zeros(len(at), np.uint8))
    before = data[at - 1]
    separator = data[at - 4]
    spaced = before == _SPACE
    numeric = (separator == data[at - 7]) & ((separator == _DASH) | (separator == _SLASH))
    ymd = np.flatnonzero(numeric & (spaced | (before == ord("T"))))
    _read_ymd(data, found, ymd)
    rest = np.flatnonzero(spaced & (found.day < 0))
    _read_mdy(data, found, rest[(data[at[rest] - 6] == _SLASH) & (data[at[rest] - 9] == _SLASH)])
    _read_short(data, found, rest[(separator[rest] == _DASH) & (found.day[rest] < 0)])
    _read_glog(data, found, rest[found.day[rest] < 0])
    _read_named(data, found, rest[(separator[rest] == _SPACE) & (found.day[rest] < 0)])
    return found


def _put(found: _Found, index: Ints, days: Ints, *, dated: bool = False) -> None:
    good = days >= 0
    index = index[good]
    found.day[index] = days[good]
    found.zoned[index] = found.dated[index] = dated


def _read_ymd(data: Bytes, found: _Found, index: Ints) -> None:
    """`2026-03-01 `, `2026/03/01 `, `2026-03-01T`; `26/03/01 ` (Spark)."""
    at = found.at[index]
    year, full = _digits(data, at - 11, 4)
    short, two = _digits(data, at - 9, 2)
    month, a = _digits(data, at - 6, 2)
    day, b = _digits(data, at - 3, 2)
    full &= ~WORD[data[at - 12]]
    two &= ~full & ~WORD[data[at - 10]] & (data[at - 4] == _SLASH)
    _put(found, index, _days(np.where(full, year, 2000 + short), month, day, (full | two) & a & b), dated=True)


def _read_mdy(data: Bytes, found: _Found, index: Ints) -> None:
    """`03/01/2026 `; the day comes first where the month cannot."""
    at = found.at[index]
    month, a = _digits(data, at - 11, 2)
    day, b = _digits(data, at - 8, 2)
    year, c = _digits(data, at - 5, 4)
    swap = month > 12
    month, day = np.where(swap, day, month), np.where(swap, month, day)
    _put(found, index, _days(year, month, day, a & b & c & ~WORD[data[at - 12]]), dated=True)


def _read_short(data: Bytes, found: _Found, index: Ints) -> None:
    """`03-01 ` without a year (vLLM)."""
    at = found.at[index]
    month, a = _digits(data, at - 6, 2)
    day, b = _digits(data, at - 3, 2)
    alone = ~WORD[data[at - 7]] & (data[at - 7] != _DASH)
    _put(found, index, _days(np.full(len(at), 1972), month, day, a & b & alone))


def _read_glog(data: Bytes, found: _Found, index: Ints) -> None:
    """`E0301 ` and c10's `E301 `: the last two digits are the day."""
    at = found.at[index]
    month_day, four = _digits(data, at - 5, 4)
    three_value, three = _digits(data, at - 4, 3)
    long = four & LEVEL_LETTER[data[at - 6]] & ~WORD[data[at - 7]]
    brief = three & ~long & LEVEL_LETTER[data[at - 5]] & ~WORD[data[at - 6]]
    value = np.where(long, month_day, three_value)
    days = _days(np.full(len(at), 1972), value // 100, value % 100, long | brief)
    found.letter[index] = np.where(days >= 0, np.where(long, data[at - 6], data[at - 5]), 0)
    _put(found, index, days)


_MONTH_NAMES = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH_KEYS, _MONTH_NUMBERS = np.array(
    sorted((int.from_bytes(name, "big"), number) for number, name in enumerate(_MONTH_NAMES, start=1)), np.int64
).T


def _month(data: Bytes, at: Ints) -> Ints:
    """Number of the month whose name is at each place, 0 where there is none."""
    key = (data[at].astype(np.int64) << 16) | (data[at + 1].astype(np.int64) << 8) | data[at + 2]
    place = np.minimum(np.searchsorted(_MONTH_KEYS, key), len(_MONTH_KEYS) - 1)
    return np.where(_MONTH_KEYS[place] == key, _MONTH_NUMBERS[place], 0)


def _read_named(data: Bytes, found: _Found, index: Ints) -> None:
    """`Mar  1 04:05:06 2026` (asctime), `Mar  1 04:05:06.123456` (syslog)."""
    at = found.at[index]
    month = _month(data, at - 7)
    tens = data[at - 3]
    padded = np.where(tens == _SPACE, 48, tens).astype(np.uint8) - np.uint8(48)
    ones = data[at - 2] - np.uint8(48)
    valid = (month > 0) & (padded < 10) & (ones < 10) & ~WORD[data[at - 8]]
    day = padded.astype(np.int64) * 10 + ones
    year, has_year = _digits(data, at + 9, 4)
    has_year &= (data[at + 8] == _SPACE) & (year >= 1970) & (year < 2200) & ~WORD[data[at + 13]]
    days = _days(np.where(has_year, year, 1972), month, day, valid)
    _put(found, index, days)
    found.dated[index] = has_year


def _decimals(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Nanoseconds that up to nine digits after a point stand for, and how many they are."""
    word = _words(data, at) ^ (_ONES * np.uint64(48))
    other = (((word + _SIXES) | word) & _UPPER) >> np.uint64(4)
    for shift in (2, 1):
        other |= other >> np.uint64(shift)
    other &= _ONES
    # All ones in the bytes below the first that is no digit.
    mask = (other & (~other + np.uint64(1))) - np.uint64(1)
    digits = ((mask & _ONES) * _ONES >> np.uint64(56)).astype(np.int64)
    word &= mask
    value = np.zeros(len(at), np.int64)
    for shift in range(8):
        value = value * 10 + ((word >> np.uint64(8 * shift)) & _BYTE).astype(np.int64)
    ninth = data[at + 8] - np.uint8(48)
    long = (digits == 8) & (ninth < 10)
    return value * 10 + np.where(long, ninth, 0), digits + long


def _fraction_and_zone(data: Bytes, found: _Found) -> tuple[Ints, Ints, Ints]:
    """Of what follows the time of day: fraction in ns, offset from UTC in seconds, and where the fraction ends."""
    at = found.at + 8
    fraction = np.zeros(len(at), np.int64)
    zone = np.zeros(len(at), np.int64)
    width = np.zeros(len(at), np.int64)
    dotted = np.flatnonzero((data[at] == _DOT) | (data[at] == _COMMA))
    value, digits = _decimals(data, at[dotted] + 1)
    # The nine digits of a c10 stamp are the monotonic clock's: the stamp is good to a second.
    monotonic = (found.letter[dotted] > 0) & (digits == 9)
    fraction[dotted] = np.where(monotonic, 0, value)
    width[dotted] = np.where(digits > 0, digits + 1, 0)
    at = at + width
    signed = np.flatnonzero(found.zoned & ((data[at] == _PLUS) | (data[at] == _DASH)))
    place = at[signed]
    hours, a = _digits(data, place + 1, 2)
    colon = (data[place + 3] == _COLON).astype(np.int64)
    minutes, b = _digits(data, place + 3 + colon, 2)
    minutes = np.where(b, minutes, 0)
    follows = np.where(b, data[place + 5 + colon], data[place + 3])
    valid = a & ~WORD[follows] & (hours < 15) & (minutes < 60)
    seconds = hours * 3600 + minutes * 60
    zone[signed] = np.where(valid, np.where(data[place] == _DASH, -seconds, seconds), 0)
    return fraction, zone, at


_EPOCH_WINDOW = 64
_QUOTE_OR_BLANK, _AFTER_EPOCH = byte_class(b' "'), byte_class(b". ]")
_KEY_ENDS = np.frombuffer(b"tsmemp", "<u2")
"""Last two letters of the JSON keys `ts`, `time` and `timestamp`."""


def _with_epochs(data: Bytes, lines: Lines, stamps: Stamps) -> Stamps:
    """Add the epoch stamps: at the start of a line, in brackets (UCX), or behind a time key of a JSON line."""
    if not len(lines.starts):
        return stamps
    first = data[lines.starts]
    bare = (first == ord("1")) | ((first == ord("[")) & (data[lines.starts + 1] == ord("1")))
    json = first == ord("{")
    open_rows = bare | json
    open_rows[stamps.row] = False
    rows = np.flatnonzero(open_rows)
    if not len(rows):
        return stamps
    at = _epoch_places(data, lines, rows, json[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    ns = _read_epochs(data, at)
    row = np.concatenate([stamps.row, rows])
    order = np.argsort(row, kind="stable")
    ns = np.concatenate([stamps.ns, ns])[order]
    dated = np.append(stamps.dated, np.ones(len(rows), np.bool_))[order]
    letter = np.append(stamps.letter, np.zeros(len(rows), np.uint8))[order]
    return Stamps(row[order], ns, dated, letter, np.append(stamps.end, at + 10)[order])


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
    keyed = (data[key] == _COLON) & (data[key - 1] == ord('"')) & np.isin(letters, _KEY_ENDS)
    fronted = (place == (data[starts] == ord("["))) & _AFTER_EPOCH[data[at + 10]]
    return np.where(good & np.where(json, keyed, fronted), at, -1)


def _read_epochs(data: Bytes, at: Ints) -> Ints:
    seconds, _ = _digits(data, at, 10)
    millis, three = _digits(data, at + 10, 3)
    fraction = np.zeros(len(at), np.int64)
    live = data[at + 10] == _DOT
    for step in range(9):
        digit = data[at + 11 + step] - np.uint8(48)
        live = live & (digit < 10)
        fraction += np.where(live, digit.astype(np.int64) * _POWERS[step + 1], 0)
    return seconds * SECOND + np.where(three, millis * 1_000_000, fraction)
