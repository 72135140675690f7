# ruff: noqa: PLR2004 - positions, digits and the calendar are what this file is about
"""Reads the time stamps at the front of lines, on whole columns of bytes.

Every stamp but an epoch is found by its time of day: two colons three bytes apart between digits; what stands before
tells the form. `parsers.timestamps` reads the same forms one line at a time and is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from parsers.epochs import epoch_stamps
from parsers.kernel import COLON, WORD, Bools, Bytes, Ints, Lines, byte_class, equal_runs, read_digits, read_words

HEAD = 96
"""A stamp's time of day begins within so many bytes of the line; further in, a time is part of the message."""
SECOND = 1_000_000_000
DAY = 86_400
_LEVEL_LETTER = byte_class(b"VIWEFC")
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_CLOCK = np.uint64(int.from_bytes(b"00:00:00", "little"))
_SIXES, _UPPER, _ONES = (np.uint64(0x0101010101010101 * byte) for byte in (0x06, 0xF0, 0x01))
_BYTE = np.uint64(0xFF)
_DOT, _COMMA, _DASH, _SLASH, _SPACE, _PLUS = (np.uint8(ord(c)) for c in ".,-/ +")


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


def read_stamps(data: Bytes, lines: Lines) -> Stamps:
    """The first stamp of each line that has one within its first `HEAD` bytes."""
    at, row = lines.colons - 2, lines.colon_rows
    near = (at - lines.starts[row]).view(np.uint64) < HEAD
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


def _time_of_day(data: Bytes, at: Ints) -> tuple[Ints, Bools]:
    """Seconds since midnight of `HH:MM:SS`, worked out on all eight bytes at once."""
    word = read_words(data, at) ^ _CLOCK
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
    """The date before each time of day. Lines below each other mostly have the same: each is read once a run."""
    no = np.zeros(len(at), np.bool_)
    found = _Found(at, np.full(len(at), -1, np.int64), no, no.copy(), np.zeros(len(at), np.uint8))
    before = data[at - 1]
    separator = data[at - 4]
    spaced = before == _SPACE
    numeric = (separator == data[at - 7]) & ((separator == _DASH) | (separator == _SLASH))
    ymd = np.flatnonzero(numeric & (spaced | (before == ord("T"))))
    _read(data, found, ymd, _ymd, (-12, -8))
    rest = np.flatnonzero(spaced & (found.day < 0))
    _read(data, found, rest[(data[at[rest] - 6] == _SLASH) & (data[at[rest] - 9] == _SLASH)], _mdy, (-12, -8))
    _read(data, found, rest[(separator[rest] == _DASH) & (found.day[rest] < 0)], _short, (-8,))
    _read(data, found, rest[found.day[rest] < 0], _glog, (-8,))
    _read(data, found, rest[(separator[rest] == _SPACE) & (found.day[rest] < 0)], _named, (-8, 8))
    return found


def _read(data: Bytes, found: _Found, index: Ints, form: Callable[[Bytes, Ints], _Days], shifts: Sequence[int]) -> None:
    """Read the dates of one form; `shifts` lead to words that cover all bytes that it looks at."""
    if not len(index):
        return
    heads, run = equal_runs(data, found.at[index], *shifts)
    days = form(data, found.at[index[heads]])
    good = days.day[run] >= 0
    index, run = index[good], run[good]
    found.day[index], found.letter[index] = days.day[run], days.letter[run]
    # A form with a year may be followed by a zone.
    found.dated[index] = days.dated[run]
    found.zoned[index] = days.zoned


@dataclass(frozen=True, slots=True)
class _Days:
    """Dates of one form: days from the epoch, or -1."""

    day: Ints
    dated: Bools
    letter: Bytes
    zoned: bool = False


def _with_year_known(days: Ints) -> _Days:
    return _Days(days, np.ones(len(days), np.bool_), np.zeros(len(days), np.uint8), zoned=True)


def _ymd(data: Bytes, at: Ints) -> _Days:
    """`2026-03-01 `, `2026/03/01 `, `2026-03-01T`; `26/03/01 ` (Spark)."""
    year, full = read_digits(data, at - 11, 4)
    short, two = read_digits(data, at - 9, 2)
    month, a = read_digits(data, at - 6, 2)
    day, b = read_digits(data, at - 3, 2)
    full &= ~WORD[data[at - 12]]
    two &= ~full & ~WORD[data[at - 10]] & (data[at - 4] == _SLASH)
    return _with_year_known(_days(np.where(full, year, 2000 + short), month, day, (full | two) & a & b))


def _mdy(data: Bytes, at: Ints) -> _Days:
    """`03/01/2026 `; the day comes first where the month cannot."""
    month, a = read_digits(data, at - 11, 2)
    day, b = read_digits(data, at - 8, 2)
    year, c = read_digits(data, at - 5, 4)
    swap = month > 12
    month, day = np.where(swap, day, month), np.where(swap, month, day)
    return _with_year_known(_days(year, month, day, a & b & c & ~WORD[data[at - 12]]))


def _short(data: Bytes, at: Ints) -> _Days:
    """`03-01 ` without a year (vLLM)."""
    month, a = read_digits(data, at - 6, 2)
    day, b = read_digits(data, at - 3, 2)
    alone = ~WORD[data[at - 7]] & (data[at - 7] != _DASH)
    days = _days(np.full(len(at), 1972), month, day, a & b & alone)
    return _Days(days, np.zeros(len(at), np.bool_), np.zeros(len(at), np.uint8))


def _glog(data: Bytes, at: Ints) -> _Days:
    """`E0301 ` and c10's `E301 `: the last two digits are the day."""
    month_day, four = read_digits(data, at - 5, 4)
    three_value, three = read_digits(data, at - 4, 3)
    long = four & _LEVEL_LETTER[data[at - 6]] & ~WORD[data[at - 7]]
    brief = three & ~long & _LEVEL_LETTER[data[at - 5]] & ~WORD[data[at - 6]]
    value = np.where(long, month_day, three_value)
    days = _days(np.full(len(at), 1972), value // 100, value % 100, long | brief)
    return _Days(days, np.zeros(len(at), np.bool_), np.where(long, data[at - 6], data[at - 5]))


_MONTH_NAMES = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_MONTH_KEYS, _MONTH_NUMBERS = np.array(
    sorted((int.from_bytes(name, "big"), number) for number, name in enumerate(_MONTH_NAMES, start=1)), np.int64
).T


def _month(data: Bytes, at: Ints) -> Ints:
    """Number of the month whose name is at each place, 0 where there is none."""
    key = (data[at].astype(np.int64) << 16) | (data[at + 1].astype(np.int64) << 8) | data[at + 2]
    place = np.minimum(np.searchsorted(_MONTH_KEYS, key), len(_MONTH_KEYS) - 1)
    return np.where(_MONTH_KEYS[place] == key, _MONTH_NUMBERS[place], 0)


def _named(data: Bytes, at: Ints) -> _Days:
    """`Mar  1 04:05:06 2026` (asctime), `Mar  1 04:05:06.123456` (syslog)."""
    month = _month(data, at - 7)
    tens = data[at - 3]
    padded = np.where(tens == _SPACE, 48, tens).astype(np.uint8) - np.uint8(48)
    ones = data[at - 2] - np.uint8(48)
    valid = (month > 0) & (padded < 10) & (ones < 10) & ~WORD[data[at - 8]]
    day = padded.astype(np.int64) * 10 + ones
    year, has_year = read_digits(data, at + 9, 4)
    has_year &= (data[at + 8] == _SPACE) & (year >= 1970) & (year < 2200) & ~WORD[data[at + 13]]
    days = _days(np.where(has_year, year, 1972), month, day, valid)
    return _Days(days, has_year, np.zeros(len(at), np.uint8))


def _decimals(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Nanoseconds that up to nine digits after a point stand for, and how many they are."""
    word = read_words(data, at) ^ (_ONES * np.uint64(48))
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
    hours, a = read_digits(data, place + 1, 2)
    colon = (data[place + 3] == COLON).astype(np.int64)
    minutes, b = read_digits(data, place + 3 + colon, 2)
    minutes = np.where(b, minutes, 0)
    follows = np.where(b, data[place + 5 + colon], data[place + 3])
    valid = a & ~WORD[follows] & (hours < 15) & (minutes < 60)
    seconds = hours * 3600 + minutes * 60
    zone[signed] = np.where(valid, np.where(data[place] == _DASH, -seconds, seconds), 0)
    return fraction, zone, at


def _with_epochs(data: Bytes, lines: Lines, stamps: Stamps) -> Stamps:
    """Add the epoch stamps of lines without another."""
    rows, at, ns = epoch_stamps(data, lines, stamps.row)
    if not len(rows):
        return stamps
    row = np.concatenate([stamps.row, rows])
    order = np.argsort(row, kind="stable")
    ns = np.concatenate([stamps.ns, ns])[order]
    dated = np.append(stamps.dated, np.ones(len(rows), np.bool_))[order]
    letter = np.append(stamps.letter, np.zeros(len(rows), np.uint8))[order]
    return Stamps(row[order], ns, dated, letter, np.append(stamps.end, at + 10)[order])
