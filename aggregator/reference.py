"""Tells when a job ran, for stamps without a year: every stage completes them from the same instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice

from aggregator.opening import read_head
from parsers.records import Source, SourceKind
from parsers.timestamps import StampContext, read_stamp

_DATE = re.compile(rb"\b(20\d\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-5]\d)")
_HEAD = 16 << 10
_FILES = 64


def newest_date(sources: Iterable[Source], head_of: Callable[[Source, int], bytes] = read_head) -> int | None:
    """The newest full date at the heads of a job's first files, ns; None where there is none.

    `head_of` gives the first bytes of a source.
    """
    newest: int | None = None
    texts = (s for s in sources if s.kind is not SourceKind.FLIGHT_RECORDER and s.path != "-")
    for source in islice(texts, _FILES):
        # Dates of one second are one date: a head may hold a hundred lines of it.
        for date in set(_DATE.findall(head_of(source, _HEAD))):
            stamp = read_stamp("iso", date.decode(), StampContext())
            if stamp is not None and (newest is None or stamp.ns > newest):
                newest = stamp.ns
    return newest
