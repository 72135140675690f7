"""Patterns that somebody else wrote, matched by RE2: its time is linear in the text, whatever the pattern.

Python's `re` may need longer than a lifetime for `(a+)+$`. Our own patterns are tested against texts that are made to
slow them down, and stay with `re`, which is there without 50 ms of imports.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class LinearPattern:
    """Searches as `re.Pattern` does.

    Args:
        pattern: in the syntax of RE2: no look-around, no back-references.

    Raises:
        ValueError: RE2 does not take it.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.search("")

    def search(self, text: str) -> str | None:
        """The text if the pattern is anywhere in it, else None."""
        found = pc.match_substring_regex(pa.array([text.encode(errors="replace").decode()]), self.pattern)
        return text if found[0].as_py() else None


def refusal(pattern: str) -> str | None:
    """Why RE2 does not take a pattern, or None."""
    try:
        LinearPattern(pattern)
    except ValueError as error:
        return str(error)
    return None
