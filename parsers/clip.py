"""Cuts text to a length without leaving half a word: half of a secret would be known to nobody as one."""

from __future__ import annotations

import re

_HALF_WORD = re.compile(r"[\w+/=.:~-]{1,200}\Z")


def clip(text: str, limit: int) -> str:
    """The first `limit` characters at most, less the last 200 of a word that the cut would go through."""
    if len(text) <= limit:
        return text
    cut = text[:limit]
    return _HALF_WORD.sub("", cut) if not text[limit].isspace() else cut
