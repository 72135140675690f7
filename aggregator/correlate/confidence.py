"""How sure a verdict is: how often one that rests on the same basis was right.

`bench/calibrate.py` counts that on labelled runs and prints `MEASURED` anew.
"""

from __future__ import annotations

from enum import StrEnum


class Basis(StrEnum):
    """What a decision rests on."""

    OWN_FAULT = "a fault that one rank alone reports of itself"
    FIRST_FAULT = "the earliest of several faults"
    ONE_CAUSE = "several ranks that failed of one cause"
    ATTRIBUTED = "a fault whose rank follows from how the processes ended"
    CRASH = "how the process ended"
    NODE = "the scheduler's word on a node"
    OUTSIDE = "the scheduler's or a user's act"
    WAITED_FOR = "strong signs of the rank that others waited for"
    PERHAPS_WAITED_FOR = "some signs of the rank that others waited for"
    SILENT_END = "the first end that the launcher saw, without a word of the rank"
    PERHAPS_ECHO = "an error that may be an echo"
    OPEN_ORDER = "faults that nothing puts in order"
    OPEN_WAIT = "signs that point to several ranks"
    OPEN_END = "ends that nothing puts in order"
    NO_RANK = "a fault that no line ties to a rank"
    ONLY_WAITING = "only the errors of ranks that waited"


MEASURED: dict[Basis, tuple[int, int]] = {}
"""Verdicts that named the right ranks, or were rightly left open, and all verdicts, by basis."""

_PRIOR = 0.8
_PRIOR_WEIGHT = 2
"""What is held of a basis before it was ever seen, and the number of runs that this counts for."""


def confidence(basis: Basis) -> float:
    """The probability, 0 to 1, that a verdict of this basis is right; kept off 1 while few runs have been seen."""
    right, seen = MEASURED.get(basis, (0, 0))
    return round((right + _PRIOR * _PRIOR_WEIGHT) / (seen + _PRIOR_WEIGHT), 2)
