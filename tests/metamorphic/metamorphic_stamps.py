"""Finds and changes the times that lines of the sample runs carry.

Knows the forms that occur there: ISO and its relatives, glog and c10 (`W1201 20:29:42.124000`), and `ctime` of kernel
and Kubernetes. Year-less stamps are taken as of 2026; only differences matter.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

YEAR = 2026
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_ISO = r"(?P<iso>20\d\d-\d\d-\d\d[T _]\d\d:\d\d:\d\d)(?P<iso_frac>[.,]\d{1,9})?"
_GLOG = r"(?P<level>\b[IWEF])(?P<md>\d{3,4})(?P<gap> )(?P<hms>\d\d:\d\d:\d\d)(?P<frac>\.\d{6,9})"
_KERNEL = r"(?P<kday>[A-Z][a-z]{2}) (?P<kmon>[A-Z][a-z]{2}) (?P<kd>[ \d]\d) (?P<khms>\d\d:\d\d:\d\d) (?P<ky>20\d\d)"
_EVENT = r"(?P<eday>[A-Z][a-z]{2}), (?P<ed>\d\d) (?P<emon>[A-Z][a-z]{2}) (?P<ey>20\d\d) (?P<ehms>\d\d:\d\d:\d\d)"
STAMP = re.compile(f"{_ISO}|{_GLOG}|{_KERNEL}|{_EVENT}")
_C10_DIGITS = 10
"""Length of a dot and nine digits: c10's, which are not the fraction of its second."""


def _moment(found: re.Match[str]) -> datetime:
    if found["iso"]:
        text = found["iso"].replace("_", " ").replace("T", " ")
        return datetime.fromisoformat(text) + _fraction(found["iso_frac"])
    if found["md"]:
        month, day = int(found["md"][:-2]), int(found["md"][-2:])
        base = datetime.fromisoformat(f"{YEAR}-{month:02}-{day:02} {found['hms']}")
        return base if len(found["frac"]) == _C10_DIGITS else base + _fraction(found["frac"])
    if found["kmon"]:
        month = _MONTHS.index(found["kmon"]) + 1
        return datetime.fromisoformat(f"{found['ky']}-{month:02}-{int(found['kd']):02} {found['khms']}")
    month = _MONTHS.index(found["emon"]) + 1
    return datetime.fromisoformat(f"{found['ey']}-{month:02}-{found['ed']} {found['ehms']}")


def _fraction(text: str | None) -> timedelta:
    return timedelta(microseconds=int(text[1:].ljust(6, "0")[:6])) if text else timedelta()


def moment_of(line: str) -> datetime | None:
    """The first time that a line tells."""
    found = STAMP.search(line)
    return _moment(found) if found else None


def _written(found: re.Match[str], moment: datetime) -> str:
    micros = f"{moment.microsecond:06}"
    if found["iso"]:
        sep, frac = found["iso"][10], found["iso_frac"] or ""
        tail = frac[:1] + micros.ljust(9, "0")[: len(frac) - 1] if frac else ""
        return f"{moment:%Y-%m-%d}{sep}{moment:%H:%M:%S}{tail}"
    if found["md"]:
        tail = found["frac"] if len(found["frac"]) == _C10_DIGITS else "." + micros[: len(found["frac"]) - 1]
        month = f"{moment.month:02}" if len(found["md"]) > 3 else str(moment.month)
        return f"{found['level']}{month}{moment.day:02} {moment:%H:%M:%S}{tail}"
    if found["kmon"]:
        return f"{moment:%a} {_MONTHS[moment.month - 1]} {moment.day:2} {moment:%H:%M:%S %Y}"
    return f"{moment:%a}, {moment:%d} {_MONTHS[moment.month - 1]} {moment:%Y %H:%M:%S}"


def moved(line: str, shift: Callable[[datetime], timedelta]) -> str:
    """The line with each of its times moved by what `shift` says of it, in the form that it had."""

    def change(found: re.Match[str]) -> str:
        moment = _moment(found)
        return _written(found, moment + shift(moment))

    return STAMP.sub(change, line)


def cut_to_seconds(line: str) -> str:
    """Fractions taken away; glog always has one: its digits become zeros."""

    def change(found: re.Match[str]) -> str:
        if found["iso"]:
            return found["iso"]
        return found[0].replace(found["frac"], "." + "0" * (len(found["frac"]) - 1)) if found["md"] else found[0]

    return STAMP.sub(change, line)


def deleted(line: str) -> str:
    """The line without its times, and without the blank behind each."""
    return re.sub(f"(?:{STAMP.pattern}) ?", "", line)
