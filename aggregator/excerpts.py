"""The lines of a log around one of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from aggregator.opening import ReadNotes, read_chunks
from parsers.records import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.records import Source

_MOST = 256 << 20
"""Bytes that are read of a file to find a line in it; of larger ones nothing is quoted."""
_LINE = 4096
"""Bytes of a line that are kept."""
_TEXT = frozenset({SourceKind.LOG, SourceKind.KERNEL, SourceKind.STATUS})


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of one file, the first of them number `first` (from 1), as they were logged: not safe to show."""

    file: str
    first: int
    lines: tuple[str, ...]


def read_excerpt(source: Source, line: int, before: int, after: int) -> Excerpt | None:
    """`before` lines above line number `line`, itself, and `after` below it; None if there is no such line."""
    if source.kind not in _TEXT:
        return None
    first = max(line - before, 1)
    wanted = islice(_lines_from(source, first), line + after - first + 1)
    found = tuple(text.decode("utf-8", "replace") for text in wanted)
    return Excerpt(source.path, first, found) if len(found) > line - first else None


def _lines_from(source: Source, first: int) -> Iterator[bytes]:
    """Lines from number `first` on, without their ends; of long ones the beginning."""
    number, rest, size = 1, b"", 0
    for chunk in read_chunks(source, ReadNotes()):
        size += len(chunk)
        if size > _MOST:
            return
        ends = chunk.count(b"\n")
        if number + ends < first:  # nothing of it is asked for: its lines are counted only
            number += ends
            rest = chunk[chunk.rfind(b"\n") + 1 :][:_LINE] if ends else (rest + chunk)[:_LINE]
            continue
        *whole, last = (rest + chunk).split(b"\n")
        for text in whole:
            if number >= first:
                yield text[:_LINE].rstrip(b"\r")
            number += 1
        rest = last[:_LINE]
    if rest and number >= first:
        yield rest.rstrip(b"\r")
