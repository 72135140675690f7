"""Reads the time in front of a line: one small reader a printed form, by position, without `strptime`.

Times are int nanoseconds since the epoch. A form without a zone is taken as UTC and `Stamp.zoned` is False. A form
without a year, or without a date, is completed to the instant nearest to the reference of its `StampContext`, so that
`12-31 23:59` read in January falls into the year before. Every reader returns None for text that is not of its form
or names no real instant; none raises.
"""

from __future__ import annotations

from calendar import timegm
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

from parsers.records import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.records import Source

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
_CACHE_LIMIT: Final = 4096
"""Entries after which a cache starts anew: a hostile file may name each day and minute there is."""
_NO_YEAR: Final = 1972
"""Stands for the unknown year where there is no reference: a leap year, so that 29 February can be read."""
_STEPS: Final = tuple(10 ** (9 - digits) for digits in range(10))
"""Nanoseconds of one unit in the n-th digit after the point."""
_FRACTION_AT: Final = 19
_MONTHS: Final = {
    "Jan": 1,
    "Feb": 2,
    "Mar": 3,
    "Apr": 4,
    "May": 5,
    "Jun": 6,
    "Jul": 7,
    "Aug": 8,
    "Sep": 9,
    "Oct": 10,
    "Nov": 11,
    "Dec": 12,
}
_MAX_YEAR: Final = 2261
"""Signed 64-bit nanoseconds end in April 2262."""


@dataclass(frozen=True, slots=True)
class StampContext:
    """What completes a stamp that does not tell all of itself.

    `reference_ns` is an instant near the log in UTC: that of `Source.reference_ns`, or a dated line
    of the same job. None if nothing is known: year-less stamps then get the year 1972, and the right order among
    themselves only. The caches belong to the reference; make a new context for another one.
    """

    reference_ns: int | None = None
    written_ns: int | None = None
    """When the log was last written to, where that is known and no line tells a date: a time alone is of that day."""
    minutes: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Text up to the minute -> ns since the epoch, in the forms that are frequent."""
    days: dict[int, int] = field(default_factory=dict, repr=False, compare=False)
    """month * 100 + day -> ns of its midnight, in the year nearest to the reference."""


def context_of(source: Source, reference_ns: int | None = None) -> StampContext:
    """What completes the stamps of a file: `reference_ns`, a date that its job tells, else its own age."""
    if reference_ns:
        return StampContext(reference_ns)
    return StampContext(source.reference_ns, source.mtime_ns)


def read_stamp(form: str, text: str, context: StampContext) -> Stamp | None:
    """Read `text`, all of which is a stamp, as the form `form` of `lineformats.STAMP_FORMS`.

    Returns:
        The stamp with the resolution of the printed digits, or None if the text is not of that form.

    Raises:
        KeyError: there is no such form.
    """
    try:
        return READERS[form](text, context)
    except (ValueError, IndexError, OverflowError):
        return None


def _two(text: str) -> int:
    """Two digits as a number.

    Raises:
        ValueError: they are anything else; `int` alone takes ` 5`, `+5` and `5_0`.
    """
    if not (len(text) == 2 and text.isdecimal()):  # noqa: PLR2004 - the name says it
        raise ValueError(text)
    return int(text)


def _clock(text: str) -> int:
    """`HH:MM:SS` as ns since midnight; second 60 is a leap second."""
    hour, minute, second = _two(text[:2]), _two(text[3:5]), _two(text[6:8])
    if hour > 23 or minute > 59 or second > 60 or text[2] != ":" or text[5] != ":":  # noqa: PLR2004 - a clock
        raise ValueError(text)
    return (hour * 3600 + minute * 60 + second) * SECOND


def _fraction(text: str) -> tuple[int, int]:
    """Digits after the point as (ns, resolution in ns); no digits are whole seconds."""
    if not text:
        return 0, SECOND
    step = _STEPS[len(text)]
    if not text.isdecimal():
        raise ValueError(text)
    return int(text) * step, step


def _zone(text: str) -> int:
    """`Z`, `UTC`, `+01:00`, `-0730` as ns east of UTC."""
    if text in {"Z", " UTC", "UTC", "z"}:
        return 0
    sign, digits = text[0], text[1:].replace(":", "")
    if sign not in "+-":
        raise ValueError(text)
    hours, minutes = _two(digits[:2]), _two(digits[2:]) if len(digits) > 2 else 0  # noqa: PLR2004 - `+01` is a zone
    offset = (hours * 60 + minutes) * MINUTE
    return -offset if sign == "-" else offset


def _midnight(year: int, month: int, day: int) -> int:
    if not 1 <= year <= _MAX_YEAR:
        raise ValueError(year)
    return timegm(date(year, month, day).timetuple()) * SECOND


def _year_of(ns: int) -> int:
    return date.fromordinal(max(1, min(date(1970, 1, 1).toordinal() + ns // DAY, date.max.toordinal()))).year


def _nearest_day(month: int, day: int, context: StampContext) -> int:
    """Midnight of that day in the year that brings it nearest to the reference."""
    key = month * 100 + day
    found = context.days.get(key)
    if found is not None:
        return found
    reference = context.reference_ns
    if reference is None:
        found = _midnight(_NO_YEAR, month, day)
    else:
        year = _year_of(reference)
        choices = []
        # Eight years on each side: 29 February may be that far away (1896 to 1904).
        for candidate in sorted(range(year - 8, year + 9), key=lambda other: abs(other - year)):
            try:
                choices.append(_midnight(candidate, month, day))
            except ValueError:
                continue
        found = min(choices, key=lambda ns: abs(ns - reference))
    context.days[key] = found
    return found


def _minute(text: str, context: StampContext) -> int:
    """`2031-02-03 04:05`, with any of ` T_` between and `-` or `/` in the date; cached."""
    year, separator = text[:4], text[4]
    if not year.isdecimal() or separator not in "-/" or text[7] != separator or text[10] not in " T_":
        raise ValueError(text)
    ns = _midnight(int(year), _two(text[5:7]), _two(text[8:10])) + _clock(text[11:16] + ":00")
    return _remember(text, ns, context)


def _remember(text: str, ns: int, context: StampContext) -> int:
    if len(context.minutes) >= _CACHE_LIMIT:
        context.minutes.clear()
    context.minutes[text] = ns
    return ns


def _iso(text: str, context: StampContext) -> Stamp | None:
    minute = context.minutes.get(text[:16])
    if minute is None:
        minute = _minute(text[:16], context)
    second = text[17:19]
    if text[16] != ":" or not second.isdecimal() or len(second) != 2 or second > "60":  # noqa: PLR2004 - `SS`
        return None
    ns = minute + int(second) * SECOND
    length = len(text)
    if length == _FRACTION_AT:
        return Stamp(ns)
    if text[_FRACTION_AT] in ".,":
        if (digits := text[20:]).isdecimal():
            step = _STEPS[length - 20]
            return Stamp(ns + int(digits) * step, step)
        end = 20
        while end < length and text[end].isdecimal():
            end += 1
        fraction, step = _fraction(text[20:end])
    else:
        end, fraction, step = _FRACTION_AT, 0, SECOND
    if end == length:
        return None  # a point without digits
    return Stamp(ns + fraction - _zone(text[end:]), step, zoned=True)


def _glog(text: str, context: StampContext) -> Stamp | None:
    """`0203 04:05:06.789000`; the fraction may be missing."""
    minute = context.minutes.get(text[:10])
    if minute is None:
        minute = _yearless_minute(text[:4], text[4:10], context)
    second = text[11:13]
    if text[10] != ":" or not second.isdecimal() or second > "60" or text[13:14] not in {"", "."}:
        return None
    fraction, step = _fraction(text[14:])
    return Stamp(minute + int(second) * SECOND + fraction, step, year_known=False)


def _c10(text: str, context: StampContext) -> Stamp | None:
    """`203 04:05:06` or `1003 18:37:01`: the month is not padded, the last two digits are the day.

    A fraction is no part of it: it is that of the monotonic clock.
    """
    minute = context.minutes.get(text[:-3])
    if minute is None:
        minute = _yearless_minute(text[:-9], text[-9:-3], context)
    second = text[-2:]
    if text[-3] != ":" or not second.isdecimal() or second > "60":
        return None
    return Stamp(minute + int(second) * SECOND, year_known=False)


def _yearless_minute(date_text: str, clock: str, context: StampContext) -> int:
    """`203` or `0203` and ` 04:05`; cached."""
    if clock[0] != " ":
        raise ValueError(clock)
    ns = _nearest_day(_two(date_text[:-2].zfill(2)), _two(date_text[-2:]), context) + _clock(clock[1:] + ":00")
    return _remember(date_text + clock, ns, context)


def _yearless(day: int, rest: str) -> Stamp | None:
    """Completes a day with ` HH:MM:SS` and a fraction."""
    if rest[0] != " " or (len(rest) > 9 and rest[9] not in ".,"):  # noqa: PLR2004 - position of the point
        return None
    fraction, step = _fraction(rest[10:])
    return Stamp(day + _clock(rest[1:9]) + fraction, step, year_known=False)


def _month_day(text: str) -> tuple[int, int]:
    """`Feb  3` or `Feb 03`."""
    month = _MONTHS.get(text[:3])
    if month is None or text[3] != " ":
        raise ValueError(text)
    return month, _two(text[4:6].replace(" ", "0"))


def _asctime(text: str, context: StampContext) -> Stamp | None:
    """`Tue Feb  3 04:05:06 2031`; the name of the week day is not compared."""
    month, day = _month_day(text[4:10])
    year = text[20:]
    if text[3] != " " or text[10] != " " or text[19] != " " or not (len(year) == 4 and year.isdecimal()):  # noqa: PLR2004 - columns of the form
        return None
    del context
    return Stamp(_midnight(int(year), month, day) + _clock(text[11:19]))


def _syslog(text: str, context: StampContext) -> Stamp | None:
    return _yearless(_nearest_day(*_month_day(text[:6]), context), text[6:])


def _short(text: str, context: StampContext) -> Stamp | None:
    """`02-03 04:05:06`."""
    if text[2] not in "-/":
        return None
    return _yearless(_nearest_day(_two(text[:2]), _two(text[3:5]), context), text[5:])


def _us(text: str, context: StampContext) -> Stamp | None:
    """`10/07/2020 09:22:10`, `10/07/2020 | 09:22:10`: month, day, year; a year of two digits is one of this century."""
    date_text, _, clock = text.replace(" | ", " ", 1).partition(" ")
    month, day, year = date_text.split("/")
    return _iso(f"{'20' if len(year) == len(day) else ''}{year}-{month}-{day} {clock}", context)


def _clock_only(text: str, context: StampContext) -> Stamp | None:
    """`09:22:10`, on the day that brings it nearest to when the log was written, else to the reference."""
    if len(text) > 8 and text[8] not in ".,":  # noqa: PLR2004 - position of the point
        return None
    fraction, step = _fraction(text[9:])
    ns = _clock(text[:8]) + fraction
    reference = context.written_ns if context.written_ns is not None else context.reference_ns
    if reference is not None:
        midnight = reference // DAY * DAY
        ns = min((midnight + shift + ns for shift in (-DAY, 0, DAY)), key=lambda at: abs(at - reference))
    return Stamp(ns, step, year_known=False)


def _split_number(text: str) -> tuple[int, int, int]:
    """`123.456` as (whole, ns of the fraction, resolution in ns)."""
    whole, point, digits = text.partition(".")
    if not whole.isdecimal() or (point and not digits):
        raise ValueError(text)
    fraction, step = _fraction(digits[:9])
    return int(whole), fraction, step


def _epoch(text: str, context: StampContext) -> Stamp | None:
    """Seconds since the epoch; milli-, micro- or nanoseconds where the number is too large for seconds."""
    del context
    whole, fraction, step = _split_number(text)
    for limit, unit in ((10**11, SECOND), (10**14, 10**6), (10**17, 1000), (2**63, 1)):
        if whole < limit:
            ns = whole * unit + fraction * unit // SECOND
            return Stamp(ns, max(1, step * unit // SECOND), zoned=True)
    return None


def _boot(text: str, context: StampContext) -> Stamp | None:
    """Seconds since boot."""
    del context
    whole, fraction, step = _split_number(text)
    if whole > 2**33:
        return None
    return Stamp(whole * SECOND + fraction, step, year_known=False, boot=True)


READERS: Final[dict[str, Callable[[str, StampContext], Stamp | None]]] = {
    "iso": _iso,
    "slash": _iso,
    "elastic": _iso,
    "glog": _glog,
    "c10": _c10,
    "asctime": _asctime,
    "syslog": _syslog,
    "epoch": _epoch,
    "boot": _boot,
    "short": _short,
    "us": _us,
    "clock": _clock_only,
}
"""Form -> reader. A reader may raise ValueError, IndexError or OverflowError for text that is not of its form."""
