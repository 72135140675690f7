"""Finds many literals in raw bytes at once.

Two engines give the same positions: Aho-Corasick automata, and hyperscan where its wheel is installed (x86-64). What
searches fastest takes longest to be made, so small jobs do without it. Which literal matched where is settled later,
on the few lines hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import ahocorasick_rs

# Bytes from which on the engine for much data pays. Of 2,083 literals hyperscan's tables are made in 40 ms and search
# a MB in 1.1, a table of all bytes in 40 and 2.9; the automaton that is made first takes 5 and 4.0.
_MUCH = 16_000_000


class LineFinder(Protocol):
    """Finds positions inside a buffer; each line that holds a literal has at least one position in it."""

    def positions(self, buffer: bytes) -> list[int]:
        """Offsets, ascending, of the last byte of matches."""
        ...


class AutomatonFinder:
    """One Aho-Corasick automaton: portable. With a table for each byte it is made later, and searches faster."""

    def __init__(self, literals: Sequence[bytes], *, table: bool = False) -> None:
        forms = ahocorasick_rs.Implementation
        self._automaton = ahocorasick_rs.BytesAhoCorasick(
            sorted(set(literals)),
            matchkind=ahocorasick_rs.MatchKind.Standard,
            implementation=forms.DFA if table else forms.ContiguousNFA,
        )

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        return [end - 1 for _, _, end in self._automaton.find_matches_as_indexes(buffer, overlapping=True)]


class StagedFinder:
    """Searches with what is made in no time, and once there is much to search with the fastest engine installed."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._literals = literals
        self._engine: LineFinder = AutomatonFinder(literals)
        self._is_fastest = False
        self._searched = 0

    def expect(self, size: int) -> None:
        """Prepare for so many bytes to come."""
        if not self._is_fastest and self._searched + size >= _MUCH:
            self._is_fastest = True
            self._engine = line_finder(self._literals)

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        self.expect(len(buffer))
        self._searched += len(buffer)
        return self._engine.positions(buffer)


class FoldedFinder:
    """Whatever the case of letters: one automaton, over bytes that are alike but for the bit that makes letters small.

    A few other characters become alike too (`_` and DEL), so that there may be positions where no literal is.
    """

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._automaton = AutomatonFinder([_folded(literal) for literal in literals], table=True)

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        return self._automaton.positions(_folded(buffer))


def _folded(data: bytes) -> bytes:
    import numpy as np  # noqa: PLC0415 - what only scans for literals as they are needs no arrays

    return (np.frombuffer(data, np.uint8) | np.uint8(0x20)).tobytes()


class HyperscanFinder:
    """Hyperscan: three times as fast, x86-64 only (extra `fast`)."""

    def __init__(self, literals: Sequence[bytes], *, caseless: bool = False) -> None:
        import hyperscan  # noqa: PLC0415 - an optional extra

        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        ordered = sorted(set(literals))
        self._database.compile(
            expressions=ordered, ids=list(range(len(ordered))), elements=len(ordered), literal=True,
            flags=[hyperscan.HS_FLAG_CASELESS if caseless else 0] * len(ordered),
        )  # fmt: skip
        self._scratch = hyperscan.Scratch(self._database)
        self._database.scratch = self._scratch

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        ends: list[int] = []
        append = ends.append

        def matched(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append(end - 1)

        self._database.scan(buffer, match_event_handler=matched)
        ends.sort()
        return ends


def line_finder(literals: Sequence[bytes], *, caseless: bool = False) -> LineFinder:
    """The fastest engine installed; `caseless` takes ASCII letters of both cases for the same."""
    try:
        return HyperscanFinder(literals, caseless=caseless)
    except ImportError:
        return FoldedFinder(literals) if caseless else AutomatonFinder(literals, table=True)


class KeywordIndex:
    """Tells which of many keywords a short text holds (overlapping ones too)."""

    def __init__(self, keywords: Sequence[str]) -> None:
        self._automaton = ahocorasick_rs.AhoCorasick(list(keywords), matchkind=ahocorasick_rs.MatchKind.Standard)

    def found(self, text: str) -> frozenset[int]:
        """Indexes of the keywords that occur in `text`."""
        return frozenset([index for index, _, _ in self._automaton.find_matches_as_indexes(text, overlapping=True)])
