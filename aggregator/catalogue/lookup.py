"""Finds the entry that a person means, who may know its id, its title or a part of either."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import chain

from aggregator.catalogue.entries import Entry
from aggregator.errors import InputError

_MOST = 5
"""Suggestions at the most."""


def entry_of(asked: str, entries: Sequence[Entry]) -> Entry:
    """The entry of this id or title, in upper or lower case, with spaces or dashes.

    Raises:
        InputError: there is none; names those that may be meant.
    """
    wanted = _plain(asked)
    for entry in entries:
        if wanted in {_plain(entry.id), _plain(entry.title)}:
            return entry
    near = _near(wanted, entries) if wanted else []
    help_text = f"perhaps {' or '.join(near)}" if near else "`denpex-agg catalogue list` names them all"
    raise InputError(f"no entry {asked[:80]!r}", help=help_text)


def _near(wanted: str, entries: Sequence[Entry]) -> list[str]:
    """Ids that begin with it; that have it, or its words, in id or title; that are spelled alike."""
    ids = {_plain(entry.id): entry.id for entry in entries}
    texts = {entry.id: f"{_plain(entry.id)} {_plain(entry.title)}" for entry in entries}
    words = wanted.split()
    found = chain(
        (entry for plain, entry in ids.items() if plain.startswith(wanted)),
        (entry for entry, text in texts.items() if wanted in text),
        (ids[plain] for plain in difflib.get_close_matches(wanted[:200], ids, n=3)),
        (entry for entry, text in texts.items() if all(word in text for word in words)),
    )
    return list(dict.fromkeys(found))[:_MOST]


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
