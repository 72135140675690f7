"""Log records that were exported as one JSON array, a line each.

So write `gcloud logging read --format=json` and the Logs Explorer (an array, the newest entry first:
https://cloud.google.com/logging/docs/view/logs-explorer-interface), and `aws logs filter-log-events` and
`get-log-events` (an object whose `events` are the array).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from parsers.json_records import TIME_KEYS, parse_record, without_lone_surrogates
from parsers.later import later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_BYTES: Final = 32 << 20
"""Of an array that is turned into lines: it is in memory as a whole, and takes several times that."""
_HEAD: Final = 8 << 10
_BEGINS: Final = later(rb'\s*(?:\{\s*"events"\s*:\s*)?\[\s*\{')
_TEXT: Final = later(rb'"(?:message|msg|log|textPayload)"\s*:')
_TIME: Final = later(rb'"(?:%b)"\s*:' % "|".join(TIME_KEYS).encode())


def begins_records(head: bytes) -> bool:
    """Whether a file that begins so may be such an export."""
    head = head[:_HEAD]
    return bool(_BEGINS.match(head)) and bool(_TEXT.search(head)) and bool(_TIME.search(head))


def as_lines(pieces: Iterator[bytes], tell: Callable[[str], None]) -> Iterator[bytes]:
    """The bytes of a file, with each record of an array on a line of its own, the oldest first; all else as it is.

    `tell` gets a sentence on what was done or could not be.
    """
    data = next(pieces, b"")
    if not begins_records(data):
        yield data
        yield from pieces
        return
    parts = [data]
    size = len(data)
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size > MAX_BYTES:
            tell("a JSON array of more than 32 MB: `jq -c '.[]'` makes lines of it, which are read")
            yield from parts
            yield from pieces
            return
    data = b"".join(parts)
    try:
        records = _records(data)
    except (ValueError, RecursionError):
        tell("a JSON array that is damaged or cut off: read as text")
        yield data
        return
    if records is None:
        yield data
        return
    newest_first = _is_newest_first(records)
    order = ", and from the last to the first, as the newest come first" if newest_first else ""
    tell(f"a JSON array: its lines are counted as one a record{order}")
    for record in reversed(records) if newest_first else records:
        yield json.dumps(record).encode() + b"\n"


def _records(data: bytes) -> list[object] | None:
    """The array's records; None if it holds others.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is too deep.
    """
    whole = json.loads(without_lone_surrogates(data.decode(errors="replace")))
    if isinstance(whole, dict):
        whole = whole.get("events")
    if not isinstance(whole, list) or not any(parse_record(json.dumps(record)) for record in whole[:8]):
        return None
    return whole


def _is_newest_first(records: list[object]) -> bool:
    ends = [record for record in (records[0], records[-1]) if isinstance(record, dict)]
    key = next((key for key in TIME_KEYS if all(key in record for record in ends)), None)
    times = [_when(str(record[key])) for record in ends if key is not None]
    return bool(times) and times[0] > times[-1]


def _when(text: str) -> tuple[int, str]:
    """What sorts stamps of one form: numbers by their value, and texts as they are."""
    return (int(text), "") if re.fullmatch(r"\d{1,20}", text) else (0, text)
