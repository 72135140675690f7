"""Tells at once which of the lines that have just been written may change what is thought of a job."""

from __future__ import annotations

from parsers.lexicon import Lexicon, default_lexicon
from parsers.prefixes import PrefixStripper
from parsers.records import Role
from parsers.skim import shortened
from parsers.timestamps import StampContext

_URGENT = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM, Role.TEARDOWN, Role.EXIT, Role.EXTERNAL, Role.SUCCESS})
_PARSED = 50


def urgent_lines(data: bytes, lexicon: Lexicon | None = None, *, parsed: int = _PARSED) -> list[int]:
    """Where in `data` lines begin that tell a fault, an end, or an act from outside, or may begin a block that does.

    `data` may be lines of many files. Of the lines that hold a literal of such a message the first `parsed` are looked
    at closely; all beyond count as urgent unread, so that the time taken is bounded.
    """
    lexicon = lexicon if lexicon is not None else default_lexicon()
    stripper = PrefixStripper(lexicon.prefixes, StampContext())
    found: list[int] = []
    end = 0
    for hit in lexicon.finder.positions(data):
        if hit < end:
            continue
        start = data.rfind(b"\n", end, hit) + 1 or end
        end = data.find(b"\n", hit) + 1 or len(data)
        text = shortened(data[start:end]).decode(errors="replace").rstrip("\r\n")
        if lexicon.begins_block(lexicon.scanned(text)):
            found.append(start)
        elif any(message.role in _URGENT for message in lexicon.candidates(text)):
            parsed -= 1
            if parsed < 0 or any(m.role in _URGENT for m, _ in lexicon.match(stripper.strip(text).body)):
                found.append(start)
    return found
