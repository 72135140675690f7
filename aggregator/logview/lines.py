"""Rows as lines: for people, as they were logged, or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from aggregator import safe
from aggregator.eventlines import ISO, as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLORS = (33, 208, 36, 170, 75, 142, 99, 167, 44, 130, 108, 205)
"""Of the 256 that terminals have: readable on light and dark."""
_GREY = 245
_ERROR, _WARNING = 17, 13
_RED, _YELLOW, _BOLD, _REVERSE = "31", "33", "1", "1;7"
_LABEL = 20
"""Characters of a file's name, or a host's, in front of a line."""
_MARK = "> "
_NO_MARK = " " * len(_MARK)
_WORDS = "[first failure]"
_STAMP = len("2025-03-06T09:07:43.120Z~")
COLUMNS = (
    *("rank", "host", "path", "line", "ts", "time", "ts_quality"),
    *("stream", "severity", "level", "logger", "body", "first"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """How lines look. `ranks`, `files` and `hosts` are those of the job: they tell how wide the prefix is."""

    prefix: bool = True
    timestamps: bool = False
    color: bool = False
    ranks: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class TextLines:
    """A line with its rank and host in front; that of the first failure has a sign and words."""

    def __init__(self, look: Look) -> None:
        self._look = look
        labels = [*(f"rank {rank}" for rank in look.ranks), *(_name(file) for file in look.files)]
        self._fronts: dict[tuple[int | None, str | None, str], str] = {}
        self._label_width = max(map(len, labels), default=0)
        self._host_width = max((len(safe.show(host, _LABEL)) for host in look.hosts), default=0)

    def __call__(self, frame: pl.DataFrame) -> Iterator[str]:
        stamps = _stamps() if self._look.timestamps else pl.lit(None)
        rows = frame.select("rank", "host", "path", "level", "first", "body", stamps.alias("stamp"))
        for rank, host, path, level, is_first, body, stamp in rows.iter_rows():
            front = self._front(rank, host, path) if self._look.prefix else ""
            if stamp is not None:
                front += f"{stamp} "
            text = safe.show(body or "")
            if is_first:
                yield f"{_MARK}{front}{self._styled(_WORDS, _REVERSE)} {self._styled(text, _BOLD)}\n"
                continue
            if self._look.color and level >= _WARNING:
                text = self._styled(text, _RED if level >= _ERROR else _YELLOW)
            yield f"{_NO_MARK}{front}{text}\n"

    def _front(self, rank: int | None, host: str | None, path: str) -> str:
        known = self._fronts.get((rank, host, path))
        if known is not None:
            return known
        text = f"{_name(path) if rank is None else f'rank {rank}':<{self._label_width}}"
        if self._host_width:
            text += f" {'-' if host is None else safe.show(host, _LABEL):<{self._host_width}}"
        color = _GREY if rank is None else _COLORS[rank % len(_COLORS)]
        self._fronts[rank, host, path] = text = self._styled(f"{text} |", f"38;5;{color}") + " "
        return text

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._look.color and text else text


def raw_lines(frame: pl.DataFrame) -> Iterator[str]:
    """The lines alone; control characters are symbols."""
    return (f"{safe.show(body or '')}\n" for body in frame["body"].to_list())


def json_lines(frame: pl.DataFrame) -> Iterator[str]:
    """An object a line, with the names of the EVENTS table, `ts_common` and `first_failure`."""
    named = frame.select(
        pl.col("ts").dt.strftime(ISO), _moment().dt.strftime(ISO).alias("ts_common"),
        pl.col("ts_quality").cast(pl.String), "rank", "host", "stream", "severity", "logger", "body", "path", "line",
        pl.col("first").alias("first_failure"),
    )  # fmt: skip
    return (f"{as_json(row)}\n" for row in named.iter_rows(named=True))


def _moment() -> pl.Expr:
    return pl.col("time").cast(pl.Datetime("ns", "UTC"))


def _name(path: str) -> str:
    return safe.show(path.rpartition("/")[2], _LABEL)


def _stamps() -> pl.Expr:
    """The common time to the millisecond, `~` behind it where it is not the line's own; as wide where there is none."""
    own = pl.when(pl.col("ts_quality").cast(pl.String) == "own").then(pl.lit(" ")).otherwise(pl.lit("~"))
    text = _moment().dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ") + own
    return text.fill_null(f"{'-':<{_STAMP}}")
