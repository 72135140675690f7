"""How far the writers of a log have come, read from its last lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parsers.records import Role
from parsers.scan import StreamKey, stream_key
from parsers.skim import shortened

if TYPE_CHECKING:
    from parsers.lexicon import Lexicon
    from parsers.lineformats import Message
    from parsers.prefixes import PrefixStripper

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Mark:
    """One writer: its last line, prefixes stripped, and the last step that it told, None if it told none."""

    key: StreamKey
    text: str
    step: int | None = None


def newest_marks(
    backwards: Iterable[bytes],
    stripper: PrefixStripper,
    lexicon: Lexicon,
    likely: Mapping[StreamKey, Message],
) -> list[Mark]:
    """One mark a writer, in the order of `backwards`: lines, the last one first.

    `likely` holds, by the writers that have told steps before, what told the last one: it is tried before others, and
    reading stops where each of them has told one again.
    """
    marks: dict[StreamKey, Mark] = {}
    lacking = set(likely)
    for raw in backwards:
        origin = stripper.strip(shortened(raw).decode(errors="replace").rstrip("\r").rpartition("\r")[2])
        key = stream_key(origin)
        mark = marks.get(key)
        if mark is not None and mark.step is not None:
            continue
        step = _step(lexicon, origin.body, likely.get(key))
        marks[key] = Mark(key, mark.text if mark is not None else origin.body, step)
        if step is not None and key in lacking:
            lacking.remove(key)
            if not lacking:
                break
    return list(marks.values())


def tells_a_step(data: bytes, lexicon: Lexicon) -> bool:
    """Whether a line tells, even with its prefixes, how far its writer has come; the last lines are asked first."""
    lines = (shortened(raw).decode(errors="replace").rpartition("\r")[2] for raw in reversed(data.split(b"\n")))
    return any(message.role is Role.PROGRESS for line in lines for message, _ in lexicon.match(line))


def _step(lexicon: Lexicon, body: str, likely: Message | None) -> int | None:
    for message, fields in lexicon.match(body, likely):
        step = fields.get("step", "")
        if message.role is Role.PROGRESS and step.isdecimal() and len(step) <= _MAX_DIGITS:
            return int(step)
    return None
