"""The inner lines of a private key, which nothing but their place between its first line and its last gives away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aggregator.safe import mark
from parsers.later import later

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "PRIVATE KEY"
"""In the first and in the last line of every such block."""
_BEGIN = later(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = later(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LONG = later(r"(?<![A-Za-z0-9+/])(?P<secret>[A-Za-z0-9+/]{30,}={0,2})[\"',\\]{0,3}\s*$")
_SHORT = later(r"(?:^|[\s\]>:|])(?P<secret>[A-Za-z0-9+/]{2,}={0,2})[\"',\\]{0,3}\s*$")
"""The last line of a key is as short as what was left."""
_NO_DIGITS = str.maketrans("", "", "0123456789")
MOST_LINES = 400
"""Lines of a log among which those of one key lie: a key of 16,384 bits has 200, other ranks may print between them."""


class KeyBlock:
    """Follows the lines of one log, and finds those that are the inside of a key."""

    def __init__(self) -> None:
        self._left = 0
        self._front: str | None = None
        """What was in front of the last full line of the key, less its numbers."""

    @classmethod
    def before(cls, lines: Sequence[str]) -> KeyBlock:
        """As it is before the first of some lines, inside a key if that ends in them and did not begin there."""
        block = cls()
        first = next((line for line in lines if _BEGIN.search(line) or _END.search(line)), "")
        if first and not _BEGIN.search(first):
            block._left = MOST_LINES
        return block

    @property
    def is_open(self) -> bool:
        """Whether the next line may be the inside of a key."""
        return self._left > 0

    def masked(self, line: str) -> str:
        """The next line without the piece of a key that is in it; the same object if there is none."""
        span = self._secret(line)
        return line if span is None else f"{line[: span[0]]}{mark('private-key', line[slice(*span)])}{line[span[1] :]}"

    def _secret(self, line: str) -> tuple[int, int] | None:
        """Where in the next line a piece of a key is."""
        if MARK in line:
            begun, ended = _last(_BEGIN, line), _last(_END, line)
            if begun != ended:
                self._left = MOST_LINES if begun > ended else 0
                self._front = None
                return None
        if self._left == 0:
            return None
        self._left -= 1
        found = _LONG.search(line)
        if found is not None:
            self._front = _without_numbers(line[: found.start("secret")])
        else:
            found = _SHORT.search(line)
            if found is None or _without_numbers(line[: found.start("secret")]) != self._front:
                return None
        return found.span("secret")


def _without_numbers(front: str) -> str:
    return front.translate(_NO_DIGITS)


def _last(pattern: re.Pattern[str], line: str) -> int:
    return max((found.start() for found in pattern.finditer(line)), default=-1)
