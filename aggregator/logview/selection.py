"""Which lines are asked for: what the options say, and the filter that it makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import polars as pl

from aggregator.correlate.evidence import MAX_WORLD
from aggregator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NS = 10**9
FIRST, LAST = -(1 << 62), 1 << 62
"""Keys of lines whose time nothing tells, before and behind all others. They are in no window of time."""
LEVELS = {
    "trace": 1, "debug": 5, "info": 9, "notice": 10, "warn": 13, "warning": 13, "error": 17, "critical": 21,
    "fatal": 21,
}  # fmt: skip
"""The least severity (OpenTelemetry's scale) that `--level` lets through."""
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d)")
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d)?")
_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for. None and empty mean no restriction; times are ns, on the hosts' common clock.

    `nodes` are names or patterns of the shell, `include` and `exclude` regular expressions: a line has one of the
    former and none of the latter. `level` is the least severity.
    """

    ranks: frozenset[int] | None = None
    nodes: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    level: int = 0

    def select(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are asked for. In a window of time, what belongs to the marked line is (column `near`)."""
        conditions = []
        if self.ranks is not None:
            conditions.append(pl.col("rank").is_in(sorted(self.ranks)))
        if self.nodes:
            hosts = frame["host"].unique().drop_nulls().to_list()
            conditions.append(pl.col("host").is_in([host for host in hosts if self.has_node(host)]))
        in_time = [pl.col("key") >= self.since] if self.since is not None else []
        in_time += [pl.col("key") <= self.until] if self.until is not None else []
        if in_time:
            in_time.append(pl.col("key").is_between(FIRST, LAST, closed="none"))
            conditions.append(pl.all_horizontal(in_time) | pl.col("near"))
        if self.level:
            conditions.append(pl.col("level") >= self.level)
        if self.include:
            conditions.append(pl.any_horizontal(pl.col("body").str.contains(pattern) for pattern in self.include))
        conditions += [~pl.col("body").str.contains(pattern) for pattern in self.exclude]
        return frame.filter(*conditions) if conditions else frame

    def has_node(self, host: str) -> bool:
        """Whether a host is one that is asked for, by its full name or the part before the first dot."""
        names = {host.lower(), host.lower().partition(".")[0]}
        return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in self.nodes)


def ranks_of(words: Sequence[str]) -> frozenset[int] | None:
    """The ranks of `0,3-7`; None if nothing is said.

    Raises:
        UsageError: it is no list of ranks.
    """
    ranks: set[int] = set()
    for part in (part.strip() for word in words for part in word.split(",")):
        found = _RANKS.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last >= MAX_WORLD:
            raise UsageError(f"not a list of ranks: {part!r}", help="numbers and ranges, such as --rank 0,3-7")
        ranks.update(range(first, last + 1))
    return frozenset(ranks) if words else None


def seconds(text: str) -> float:
    """A duration such as `30`, `90s`, `10m`, `2h`, in seconds.

    Raises:
        UsageError: it is none.
    """
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise UsageError(f"not a duration: {text!r}", help="seconds, or a number with s, m, h or d: 90s, 10m")
    return float(found[1]) * _UNITS_S[found[2] or ""]


def moment(text: str, started: int | None, ended: int | None) -> int:
    """A moment in ns: a stamp in ISO 8601 (UTC unless it says otherwise), a time of the job's day, or a duration before
    the job's last line.

    `started` and `ended` are the job's first and last moment, in ns.

    Raises:
        UsageError: it is none, or the job has no times.
    """
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        return _known(ended) - round(float(duration[1]) * _UNITS_S[duration[2]] * NS)
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        clock = None
    if clock is not None and ":" in text:
        return _on_the_day(clock, started, ended)
    try:
        when = datetime.fromisoformat(text)
        return _ns(when if when.tzinfo is not None else when.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        help_text = "2025-03-06T09:07:43, 09:07:43 on the job's day, or 10m before its last line; times are UTC"
        raise UsageError(f"not a time: {text!r}", help=help_text) from None


def _on_the_day(clock: time, started: int | None, ended: int | None) -> int:
    """The time of day as it was during the job; of the day of its last line if it was not."""
    clock = clock if clock.tzinfo is not None else clock.replace(tzinfo=UTC)
    last: date = (_EPOCH + timedelta(microseconds=_known(ended) // 1000)).date()
    found = _ns(datetime.combine(last, clock))
    earlier = found - 86400 * NS
    return earlier if found > _known(ended) and started is not None and earlier >= started else found


def _ns(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000


def _known(ended: int | None) -> int:
    if ended is None:
        raise UsageError("no line of the job has a time", help="give a whole stamp, such as 2025-03-06T09:07:43")
    return ended


def check_patterns(patterns: Iterable[str]) -> None:
    """Refuse regular expressions that are none; Rust's run in linear time.

    Raises:
        UsageError: one is none.
    """
    for pattern in patterns:
        try:
            pl.Series([""]).str.contains(pattern)
        except pl.exceptions.PolarsError as error:
            told = [line.removeprefix("error: ") for line in str(error).splitlines() if line.startswith("error: ")]
            why = f": {told[-1]}" if told else ""
            help_text = "the syntax is https://docs.rs/regex/latest/regex/#syntax; a backslash makes a sign mean itself"
            raise UsageError(f"not a regular expression: {pattern!r}{why}", help=help_text) from None
