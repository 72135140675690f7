"""Regular expressions that are compiled when they are first asked for.

A small job needs a few dozen of our thousand patterns, and to compile the others takes longer than the job.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_ASKED = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split")


class _Later:
    """Stands for a pattern until one of its methods is asked for, and hands on to it from then on."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a pattern has
        made = re.compile(self.pattern, self._flags)
        for asked in _ASKED:
            setattr(self, asked, getattr(made, asked))  # found without a detour the next time
        return getattr(made, name)


def later(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but a mistake in the pattern shows when it is used."""
    return cast("re.Pattern[AnyStr]", _Later(pattern, flags))
