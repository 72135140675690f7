"""From verdict and suspicion to the state of a running job, in a word and a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aggregator.live.view import LiveState, RankHealth, RankState, Suspicion
from aggregator.reports import words
from aggregator.verdict import Failure, Outcome, Status, Verdict

_ENDED = frozenset({Outcome.FAILED, Outcome.CANCELLED})
_OF_WAITING = frozenset({"collective_timeout", "nccl_error", "network_error", "collective_mismatch"})
"""Kinds of failure that others report: the first to report is seldom the cause, and the rest come seconds later."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a verdict and a suspicion make together; `suspicion` is None unless the state is SUSPECT."""

    state: LiveState
    headline: str
    suspicion: Suspicion | None = None


def assess(
    verdict: Verdict | None, suspicion: Suspicion | None, *, now: int, is_any: bool, settled: bool = True
) -> Assessment:  # fmt: skip
    """The state of a job.

    Args:
        verdict: the newest one; None before there was reason to judge.
        suspicion: of ranks that keep the others waiting.
        now: ns UTC, since when a wait that only the verdict tells of is suspected.
        is_any: whether any line was read.
        settled: whether the verdict's first failure has stood for a while.
    """
    if verdict is None and is_any:
        return Assessment(LiveState.WAITING, "reading what has been written so far")
    if verdict is not None and verdict.outcome is Outcome.COMPLETED:
        return Assessment(LiveState.FINISHED, "the job has ended well")
    failure = verdict.first_failure if verdict is not None else None
    if verdict is not None and verdict.outcome in _ENDED:
        if failure is not None and failure.kind in _OF_WAITING and not settled:
            return Assessment(LiveState.FAILED, f"{words.kind_words(failure.kind)}: who caused it is not settled yet")
        return Assessment(LiveState.FAILED, failure_words(verdict.outcome, failure))
    if verdict is not None and verdict.outcome is Outcome.HUNG:
        told = failure_words(verdict.outcome, failure)
        reason = failure.reasons[0] if failure is not None and failure.reasons else told
        ranks = failure.ranks if failure is not None and failure.status is Status.IDENTIFIED else ()
        hosts = failure.hosts if failure is not None else ()
        return Assessment(LiveState.SUSPECT, told, Suspicion(ranks, hosts, reason, now))
    if suspicion is not None:
        return Assessment(LiveState.SUSPECT, suspicion_words(suspicion), suspicion)
    if not is_any:
        return Assessment(LiveState.WAITING, "no line has been written yet")
    return Assessment(LiveState.HEALTHY, "no sign of trouble")


def failure_words(outcome: Outcome, failure: Failure | None) -> str:
    """A failure in half a line."""
    if failure is None:
        return f"the job has {'been cancelled' if outcome is Outcome.CANCELLED else outcome.value}"
    if failure.status is Status.UNDETERMINED:
        who = "rank not told by the logs"
    elif not failure.ranks:
        who = "the job as a whole"
    else:
        who = ("one of " if failure.status is Status.AMBIGUOUS else "") + words.ranks_words(failure.ranks)
    where = f" ({', '.join(failure.hosts[:4])})" if failure.hosts and failure.ranks else ""
    phase = f" {words.PHASES[failure.phase]}" if failure.phase in words.PHASES else ""
    return f"first failure: {who}{where}: {words.kind_words(failure.kind)}{phase}"


def suspicion_words(suspicion: Suspicion) -> str:
    """A suspicion in a line."""
    if not suspicion.ranks:
        return suspicion.reason
    where = f" ({', '.join(suspicion.hosts[:4])})" if suspicion.hosts else ""
    return f"{words.ranks_words(suspicion.ranks)}{where}: {suspicion.reason}"


def colour_ranks(health: Iterable[RankHealth], verdict: Verdict | None, state: LiveState) -> tuple[RankHealth, ...]:
    """The ranks' health with what the verdict says of them, in order of ranks; ranks that nobody heard of too."""
    ranks = {item.rank: item for item in health}
    if verdict is None:
        return _ordered(ranks.values())
    for rank in (*verdict.job.ranks_seen, *verdict.job.ranks_missing):
        ranks.setdefault(rank, RankHealth(rank, RankState.UNKNOWN))
    if state is LiveState.FINISHED:
        return _ordered(replace(item, state=RankState.ENDED) for item in ranks.values())
    if state is LiveState.HEALTHY or state is LiveState.WAITING:
        return _ordered(ranks.values())
    victims = [item.rank for item in verdict.collateral if item.rank is not None]
    _mark(ranks, victims, RankState.VICTIM)
    if verdict.first_failure is not None:
        blamed = RankState.FAILED if state is LiveState.FAILED else RankState.SUSPECT
        _mark(ranks, verdict.first_failure.ranks, blamed)
    return _ordered(ranks.values())


def _mark(ranks: dict[int, RankHealth], marked: Sequence[int], state: RankState) -> None:
    for rank in marked:
        ranks[rank] = replace(ranks.get(rank) or RankHealth(rank, state), state=state)


def _ordered(health: Iterable[RankHealth]) -> tuple[RankHealth, ...]:
    return tuple(sorted(health, key=lambda item: item.rank))
