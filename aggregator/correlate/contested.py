"""What a first failure rests on and anybody could have written: where a line was found outranks what it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aggregator.correlate.evidence import ints
from parsers.records import Role, Signal

if TYPE_CHECKING:
    from aggregator.correlate.evidence import JobEvidence
    from aggregator.correlate.identity import Identity
    from aggregator.correlate.leads import Lead
    from aggregator.verdict import Failure

CONTESTED = 0.6
"""How sure a verdict is at most that rests on such a line. A judgement: no labelled job has one."""
_OTHERS_WORD = frozenset({Role.EXIT, Role.EXTERNAL})
"""What launchers and schedulers say, which a rank's own file has only where the rank or its node's daemon wrote it."""
_MOST = 3


def contest(
    failure: Failure, leads: Sequence[Lead], evidence: JobEvidence, signals: Sequence[Signal], table: Identity
) -> tuple[Failure, list[str]]:
    """The failure, less sure if it rests on a line that its place speaks against; and what to tell of it."""
    first = failure.evidence[:1]
    place = (first[0].file, first[0].line) if first else None
    proofs = [signal for signal in signals if (evidence.source(signal).path, signal.line) == place]
    proofs += [lead.signal for lead in leads if lead.signal is not None and lead.ranks == failure.ranks][:1]
    reasons = list(dict.fromkeys([*_misnamed(proofs), *_unbacked(proofs, failure, signals, table)]))
    if reasons:
        failure = replace(failure, confidence=min(failure.confidence, CONTESTED), reasons=(*failure.reasons, *reasons))
    return failure, [*reasons, *_elsewhere(failure, evidence, signals, table)]


def _misnamed(proofs: Iterable[Signal]) -> Iterator[str]:
    """The proof calls itself another rank's."""
    for proof in proofs:
        told = proof.fields.get("conflict_rank")
        if told is not None:
            yield f"the line that shows it calls itself rank {told}, and was found in what rank {proof.rank} wrote"


def _unbacked(proofs: Iterable[Signal], failure: Failure, signals: Sequence[Signal], table: Identity) -> Iterator[str]:
    """A launcher's or the scheduler's word is in files of ranks only, and one failed by itself that is not blamed."""
    for proof in proofs:
        owner = table.rank_of_source.get(proof.source)
        if owner is None or proof.role not in _OTHERS_WORD or owner in failure.ranks:
            continue
        if any(s.role is proof.role and s.source not in table.rank_of_source and _names(s, failure) for s in signals):
            continue
        faults = {s.rank for s in signals if s.role is Role.ROOT and s.rank is not None} - {*failure.ranks}
        if faults:
            who = (
                "the scheduler is said to have done"
                if proof.role is Role.EXTERNAL
                else "a launcher is said to have seen"
            )
            names = ", ".join(f"rank {rank}" for rank in sorted(faults)[:_MOST])
            yield (
                f"what {who} is told in the file of rank {owner} only, which its program can write too; a fault of its "
                f"own is told by {names}"
            )


def _names(word: Signal, failure: Failure) -> bool:
    """Whether a launcher's or the scheduler's word is of the ranks that are blamed."""
    told = {word.rank, *ints(word.fields.get("tasks")), *ints(word.fields.get("ranks"))}
    return word.role is Role.EXTERNAL or not told.isdisjoint(failure.ranks)


def _elsewhere(failure: Failure, evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> list[str]:
    """Ends of others that a rank's own file tells, and that the verdict did not follow."""
    told: dict[tuple[int, str], str] = {}
    for signal in signals:
        owner = table.rank_of_source.get(signal.source)
        named = signal.fields.get("rank") or signal.fields.get("task")
        if signal.role is not Role.EXIT or owner is None or named is None or not named.isdecimal():
            continue
        if int(named) != owner and int(named) not in failure.ranks:
            told.setdefault((owner, named), f"{evidence.source(signal).path}:{signal.line}")
    return [
        f"{place}: a launcher's report in the file of rank {owner} names rank {named}: a program can print it, and it "
        "was not followed"
        for (owner, named), place in list(told.items())[:_MOST]
    ]
