"""Compares a failure with the entries for its kind: which fits best, what speaks for it, and why the next one lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aggregator.catalogue.entries import Catalogue, Condition, Entry
from aggregator.catalogue.facts import Facts
from aggregator.catalogue.source import Finding, Sources, Told, look
from aggregator.verdict import Diagnosis
from parsers.records import Frame

_LEAST = 0.3
"""Score below which no entry is named."""
_SURE = 0.95
"""Score of an entry that the source confirms, at least."""
_CHECKS = 4


@dataclass(frozen=True, slots=True)
class Match:
    """One entry, held against the facts. `score` is 0 to 1; `excluded` says what rules it out, if anything does."""

    entry: Entry
    score: float
    matched: tuple[str, ...]
    against: tuple[str, ...]
    excluded: str | None


def compare(facts: Facts, entries: Iterable[Entry]) -> list[Match]:
    """All entries, best first; those that are ruled out last."""
    matches = [_match(entry, facts) for entry in entries]
    return sorted(matches, key=lambda match: (match.excluded is not None, -match.score, match.entry.id))


def _match(entry: Entry, facts: Facts) -> Match:
    excluded = next((f"not so: {c.says}" for c in entry.needs if c.met_by(facts) is None), None)
    if excluded is None:
        excluded = next(iter(_holding(entry.never, facts)), None)
    signs = [condition for condition in entry.signs if condition.met_by(facts) is not None]
    doubts = [condition for condition in entry.doubts if condition.met_by(facts) is not None]
    score = entry.base + sum(c.weight for c in signs) - sum(c.weight for c in doubts)
    return Match(
        entry, min(max(score, 0.0), 1.0), tuple(_holding((*entry.needs, *signs), facts)),
        tuple(_holding(doubts, facts)), excluded,
    )  # fmt: skip


def _holding(conditions: Iterable[Condition], facts: Facts) -> list[str]:
    """What the conditions that hold say."""
    found = [(condition, condition.met_by(facts)) for condition in conditions]
    return [condition.says.replace("{}", _shown(value)) for condition, value in found if value is not None]


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def diagnose(
    facts: Facts, catalogue: Catalogue, frames: Sequence[Frame] = (), sources: Sources | None = None
) -> Diagnosis | None:
    """The entry that fits best, with what speaks for and against it; None if none fits well enough.

    Args:
        facts: what is known of the failure.
        catalogue: the entries.
        frames: of the traceback, outermost first.
        sources: where the source that failed may be read; an entry that it refutes is passed over.
    """
    kinds = [str(kind) for kind in facts.get("kind")]
    matches = compare(facts, [entry for kind in kinds for entry in catalogue.of_kind(kind)])
    told = None
    refuted: list[Match] = []
    while matches and sources is not None:
        told = _seen(matches[0], frames, sources)
        if told is None or told.finding is Finding.CONFIRMED:
            break
        refuted.append(replace(matches.pop(0), excluded=f"{told.place}: {told.what}"))
        told = None
    if not matches or matches[0].excluded is not None or matches[0].score < _LEAST:
        return None
    rest = [*refuted, *matches[1:]]
    nearest = next((match for match in rest if match in refuted or match.excluded is None), rest[0] if rest else None)
    return _told(matches[0], nearest, facts, told, sources.unread if sources is not None else {})


def _seen(match: Match, frames: Sequence[Frame], sources: Sources) -> Told | None:
    if match.excluded is not None or not match.entry.source_check:
        return None
    return look(match.entry.source_check, frames, sources)


def _told(best: Match, nearest: Match | None, facts: Facts, told: Told | None, unread: Mapping[str, str]) -> Diagnosis:
    entry = best.entry
    unread_first = [f"the source by hand: {path} was not read: {why}" for path, why in unread.items()][:1]
    stack = next((str(name) for name in facts.get("stack") if name in entry.code), None)
    return Diagnosis(
        entry=entry.id, title=entry.title, root_cause=entry.cause, fix=entry.fix, verify=entry.verify,
        score=max(best.score, _SURE) if told is not None else best.score,
        status="confirmed" if told is not None else "supported" if best.matched else "kind-only",
        matched=(*best.matched, f"{told.place}: {told.what}") if told is not None else best.matched,
        against=best.against,
        check_next=(*unread_first, *entry.confirm[:_CHECKS], *(f"{r.entry}: {r.why}" for r in entry.related)),
        references=entry.references, node=entry.node, stack=stack, code=entry.code[stack] if stack else None,
        nearest=nearest.entry.id if nearest is not None else None,
        why_not_nearest=_why_not(nearest) if nearest is not None else None,
    )  # fmt: skip


def _why_not(match: Match) -> str | None:
    """What speaks against it; None if only less speaks for it."""
    return match.excluded or "; ".join(match.against) or None
