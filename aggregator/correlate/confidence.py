"""How sure a verdict is: how often one that rests on the same basis was right.

`bench/calibrate.py` counts that on labelled runs; what it prints replaces `MEASURED`.
"""

from __future__ import annotations

from enum import StrEnum


class Basis(StrEnum):
    """What a decision rests on."""

    OWN_FAULT = "a fault that one rank alone reports of itself"
    FIRST_FAULT = "the earliest of several faults"
    ONE_CAUSE = "several ranks that failed of one cause"
    ATTRIBUTED = "a fault whose rank follows from how the processes ended"
    LEFT_OVER = "a fault that only one rank can have had"
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


MEASURED: dict[Basis, tuple[int, int]] = {
    Basis.OWN_FAULT: (99, 100),
    Basis.FIRST_FAULT: (8, 8),
    Basis.ONE_CAUSE: (14, 18),
    Basis.ATTRIBUTED: (14, 16),
    Basis.LEFT_OVER: (3, 3),
    Basis.CRASH: (4, 6),
    Basis.NODE: (7, 7),
    Basis.OUTSIDE: (14, 16),
    Basis.WAITED_FOR: (24, 24),
    Basis.PERHAPS_WAITED_FOR: (13, 14),
    Basis.SILENT_END: (7, 7),
    Basis.PERHAPS_ECHO: (2, 6),
    Basis.OPEN_ORDER: (0, 7),
    Basis.OPEN_WAIT: (0, 2),
    Basis.OPEN_END: (2, 2),
    Basis.NO_RANK: (4, 13),
    Basis.ONLY_WAITING: (11, 16),
}
"""Right verdicts (the right ranks named, or rightly left open) and all verdicts, by basis: 232 failures among 252
labelled jobs, as `bench/calibrate.py` counted them after the rules had been fitted to these jobs. To that 33 wrong
verdicts were added by hand, about as many as were seen before the rules were fitted: a judgement, not a count.
"""

_PRIOR, _PRIOR_WEIGHT = 0.75, 3
"""What is held of a basis before it was ever seen, and the number of jobs that this counts for."""


def confidence(basis: Basis) -> float:
    """The probability, 0 to 1, that a verdict of this basis is right; kept off 1 while few jobs have been seen."""
    right, seen = MEASURED[basis]
    return round((right + _PRIOR * _PRIOR_WEIGHT) / (seen + _PRIOR_WEIGHT), 2)
