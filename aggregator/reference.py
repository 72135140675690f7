"""Tells when a job ran, for stamps without a year: every stage completes them from the same instant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice

from aggregator.opening import read_head, read_tail
from parsers.records import Source, SourceKind
from parsers.timestamps import StampContext, read_stamp

_DATE = re.compile(rb"\b(20\d\d-[01]\d-[0-3]\d[T _][0-2]\d:[0-5]\d:[0-5]\d)")
_HEAD = 16 << 10
_FILES = 64


def newest_date(
    sources: Iterable[Source], head_of: Callable[[Source, int], bytes] = read_head,
    tail_of: Callable[[Source, int], bytes] | None = read_tail,
) -> int | None:  # fmt: skip
    """The newest full date at the heads of a job's first files, else at their tails, ns; None where there is none.

    `head_of` and `tail_of` give the first and last bytes of a source; without the latter only heads are asked.
    """
    texts = [*islice((s for s in sources if s.kind is not SourceKind.FLIGHT_RECORDER and s.path != "-"), _FILES)]
    for bytes_of in (head_of, tail_of):
        # Dates of one second are one date: a head may hold a hundred lines of it.
        dates = {date for s in texts if bytes_of is not None for date in _DATE.findall(bytes_of(s, _HEAD))}
        stamps = (read_stamp("iso", date.decode().replace("_", " "), StampContext()) for date in dates)
        if (newest := max((stamp.ns for stamp in stamps if stamp is not None), default=None)) is not None:
            return newest
    return None
