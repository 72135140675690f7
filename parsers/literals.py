"""Finds many literals in raw bytes at once.

Two engines give the same positions: hyperscan where its wheel is installed (x86-64), else Aho-Corasick automata in
packs small enough for their vectorised search. Which literal matched where is settled later, on the few lines hit:
so the engines need only agree on which lines hold any literal at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import ahocorasick_rs

# Above some 32 to 40 literals an automaton leaves its vectorised search and is four times slower; measured, see
# bench/README.md.
_PACK = 32


class LineFinder(Protocol):
    """Finds positions inside a buffer; each line that holds a literal has at least one position in it."""

    def positions(self, buffer: bytes) -> list[int]:
        """Offsets, ascending, of the last byte of matches."""
        ...


class PackedFinder:
    """Aho-Corasick in packs: portable."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        ordered = sorted(set(literals))
        self._packs = [
            ahocorasick_rs.BytesAhoCorasick(
                ordered[first : first + _PACK], matchkind=ahocorasick_rs.MatchKind.LeftmostFirst
            )
            for first in range(0, len(ordered), _PACK)
        ]

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        found = {end - 1 for pack in self._packs for _, _, end in pack.find_matches_as_indexes(buffer)}
        return sorted(found)


class FoldedFinder:
    """Whatever the case of letters: one automaton, over bytes that are alike but for the bit that makes letters small.

    A few other characters become alike too (`_` and DEL), so that there may be positions where no literal is.
    """

    def __init__(self, literals: Sequence[bytes]) -> None:
        self._automaton = ahocorasick_rs.BytesAhoCorasick(
            sorted({_folded(literal) for literal in literals}),
            matchkind=ahocorasick_rs.MatchKind.Standard,
            implementation=ahocorasick_rs.Implementation.DFA,
        )

    def positions(self, buffer: bytes) -> list[int]:
        """See `LineFinder`."""
        matches = self._automaton.find_matches_as_indexes(_folded(buffer), overlapping=True)
        return sorted({end - 1 for _, _, end in matches})


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
        return FoldedFinder(literals) if caseless else PackedFinder(literals)


class KeywordIndex:
    """Tells which of many keywords a short text holds (overlapping ones too)."""

    def __init__(self, keywords: Sequence[str]) -> None:
        self._automaton = ahocorasick_rs.AhoCorasick(list(keywords), matchkind=ahocorasick_rs.MatchKind.Standard)

    def found(self, text: str) -> frozenset[int]:
        """Indexes of the keywords that occur in `text`."""
        return frozenset([index for index, _, _ in self._automaton.find_matches_as_indexes(text, overlapping=True)])
