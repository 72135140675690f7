"""Compares verdicts with the truth, and adds up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aggregator.verdict import Status, Verdict
from simulation.world import Truth, World

CONFIDENT = 0.6
"""A wrong name given with at least this confidence is false blame."""


class Grade(StrEnum):
    """How good an answer is, best first."""

    RIGHT = "right"
    """Exactly the ranks that began it are identified; of a job where nothing failed, that it is so."""
    PARTLY = "partly"
    """Some of several guilty ranks are identified, and no other."""
    AMBIGUOUS = "ambiguous"
    """Not decided, the guilty ones are among the candidates."""
    UNDETERMINED = "undetermined"
    """No rank is named."""
    UNSURE = "wrong, unsure"
    """Wrong ranks, as ambiguous or with a confidence below `CONFIDENT`."""
    BLAME = "FALSE BLAME"
    """Wrong ranks, identified, with confidence."""
    CRASH = "crash"
    """No verdict: the program failed."""


def grade(verdict: Verdict, truth: Truth) -> Grade:
    """The grade of one verdict."""
    failure = verdict.first_failure
    nobody = failure is None or failure.status is Status.UNDETERMINED or not (failure.ranks or failure.hosts)
    outside = not truth.ranks and failure is not None and not failure.ranks and failure.kind in truth.kinds
    if nobody or outside or failure is None:
        innocent = not truth.ranks and verdict.outcome in truth.outcomes
        return Grade.RIGHT if innocent else Grade.UNDETERMINED
    named = frozenset(failure.ranks)
    if failure.status is Status.AMBIGUOUS:
        return Grade.AMBIGUOUS if named & truth.ranks else Grade.UNSURE
    if truth.ranks and named == truth.ranks:
        return Grade.RIGHT
    if truth.ranks and (named < truth.ranks if named else frozenset(failure.hosts) == truth.hosts):
        return Grade.PARTLY if named else Grade.RIGHT
    return Grade.BLAME if failure.confidence >= CONFIDENT else Grade.UNSURE


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """Of the hosts other than the reference: how many offsets were given, and how many hold the true one."""

    hosts: int = 0
    known: int = 0
    inside: int = 0
    width: float = 0.0
    """Sum of the uncertainties given, s."""
    error: float = 0.0
    """Largest error of an offset, s."""

    def __add__(self, other: ClockCheck) -> ClockCheck:
        return ClockCheck(
            self.hosts + other.hosts, self.known + other.known, self.inside + other.inside, self.width + other.width,
            max(self.error, other.error),
        )  # fmt: skip


def check_clocks(verdict: Verdict, world: World, at: float) -> ClockCheck:
    """Compare the clocks of a verdict with what they showed at `at`."""
    numbers = {name: number for number, name in enumerate(world.hosts)}
    rows = {numbers[clock.host]: clock for clock in verdict.clocks if clock.host in numbers}
    reference = next((number for number, clock in rows.items() if clock.method == "reference"), None)
    if reference is None or len(world.hosts) == 1:
        return ClockCheck(hosts=len(world.hosts) - 1)
    total = ClockCheck(hosts=len(world.hosts) - 1)
    for number, clock in rows.items():
        if number == reference or clock.uncertainty_s is None:
            continue
        true = world.shown(reference, at) - world.shown(number, at)
        error = abs(clock.offset_s - true)
        total += ClockCheck(0, 1, error <= clock.uncertainty_s, clock.uncertainty_s, error)
    return total


@dataclass(frozen=True, slots=True)
class Result:
    """One simulated job, judged."""

    scenario: str
    world: World
    truth: Truth
    grade: Grade
    outcome: bool
    """Whether the outcome is right."""
    kind: bool
    clocks: ClockCheck
    seconds: float
    verdict: Verdict | None
    folder: str
    error: str = ""


def named(result: Result) -> str:
    """What the verdict said, in a line."""
    if result.verdict is None:
        return result.error
    failure = result.verdict.first_failure
    if failure is None:
        return f"{result.verdict.outcome}, nothing failed"
    ranks = list(failure.ranks[:6]) + (["…"] if len(failure.ranks) > 6 else [])
    return f"{result.verdict.outcome}, {failure.status} {ranks} {failure.kind} at {failure.confidence:.2f}"
