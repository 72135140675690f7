"""Facts of a hang: in what the ranks waited, for how long, and what those that they waited for did meanwhile."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aggregator.correlate.calls import BACKWARD, call_of, flat_name
from aggregator.correlate.group_states import is_one_sided
from parsers.later import later
from parsers.records import Role, Signal, StampQuality

if TYPE_CHECKING:
    from aggregator.correlate.stories import Story
    from aggregator.verdict import Failure

_NOTICES = ("pt.fr.", "pt.desync.", "pt.store.")
"""Lines that only pass on that somebody timed out."""
_LATER = ("evaluation", "checkpoint", "shutdown")
"""Phases that come after a loop over batches."""
_REPEATED = (".batch", ".bar", ".bracket")
_KINDS = frozenset({"collective_timeout", "deadlock"})
_MISMATCH = "collective_mismatch"
_DIGITS = 15
"""Of a number in a log that is taken for one."""
_MARGIN_NS, _DAY_NS = 10_000_000_000, 86_400_000_000_000
_DONE = later(
    r"\b(?:epoch|training)\b.{0,40}\b(?:done|finished|complete[d]?|ended)\b|\bend of (?:epoch|training|data)\b"
    r"|\b(?:data ?loader|iterator|inputs?|data|batches)\b.{0,30}\bexhausted\b"
    r"|\b(?:no more|ran out of) (?:data|batches)\b",
    re.IGNORECASE,
)
"""A last line that says that the loop over batches is over."""

FACTS = {
    "waiting": "who waited in a collective: `all` ranks, `rank0` alone, all `others` than rank 0; `same` or `apart`: "
    "in one operation, or in different ones where one was due; `shapes`: in one operation, with different shapes; "
    "`groups`: in more than one process group",
    "waited_op": "operations that were waited in, as `allreduce`, `barrier`, `broadcast`, `allgatherbase`; "
    "`backward` for gradients",
    "waited_seq": "the least sequence number of a collective that was waited in",
    "waiting_frames": "`file:function` of each frame of the tracebacks of ranks that waited",
    "timeout_s": "the shortest time-out after which a rank gave up waiting, seconds",
    "left": "what a rank that others waited for went on to without them: `finished`, evaluation, checkpoint, shutdown; "
    "`loop` where it waits in a call of its own while most reduce gradients; `inputs` where a check says that its "
    "inputs were exhausted",
    "last_line": "the last line that a rank which failed first wrote",
    "busy": "`yes` where a rank that others waited for told of progress or of a phase while they waited",
    "others_trained": "most training steps that one of the other ranks had told of, a number",
    "first_of_host": "`yes` where each rank that failed first, or that alone did not wait, is the first of its host",
}


def waiting_facts(
    failure: Failure, signals: Sequence[Signal], stories: Mapping[int, Story], world_size: int | None
) -> dict[str, Iterable[str | float | None]]:
    """The facts of `FACTS`, as far as the run tells them."""
    failed = set(failure.ranks)
    waits = [s for s in signals if s.kind in _KINDS and s.role is Role.SYMPTOM and not s.signature.startswith(_NOTICES)]
    if failure.kind != _MISMATCH:  # there, those that differ wait too
        waits = [signal for signal in waits if signal.rank not in failed or signal.rank is None]
    first = [stories[rank] for rank in sorted(failed) if rank in stories]
    others = [story for rank, story in stories.items() if rank not in failed]
    ops = {op for signal in waits if (op := _operation(signal)) is not None}
    compared = [signal.fields for signal in signals if signal.kind == _MISMATCH]
    ops |= {flat_name(named[name]) for named in compared for name in ("op", "peer_op") if name in named}
    raised = [signal.exception for signal in waits if signal.exception is not None]
    told = [frame for exception in raised for frame in (*exception.outer_frames, *exception.frames)]
    outside = _out_of_step(
        [*waits, *(s for s in signals if waits and s.kind == "network_error" and s.role is Role.SYMPTOM)]
    )
    heard = sum(1 for rank, story in stories.items() if rank and (story.progress or story.phases))
    late = failed or ({*stories} - {signal.rank for signal in waits} if waits else set())
    return {
        "waiting": [
            *_who(waits, failure, ops, outside, heard, world_size or len(stories)),
            *_how(waits, failure, ops, _groups(waits, signals)),
        ],
        "waited_op": sorted(ops),
        "waited_seq": [min(seqs)] if (seqs := [n for s in waits if (n := _number(s, "seq")) is not None]) else [],
        "waiting_frames": dict.fromkeys(f"{frame.file}:{frame.function}" for frame in told),
        "timeout_s": [min(spans)] if (spans := [span for s in waits if (span := _timeout(s)) is not None]) else [],
        "left": [*_left(first, others), *_left_loop(outside, signals)],
        "last_line": [story.last_text for story in first if story.last_text],
        "busy": ["yes"] if _busy(first, waits) else [],
        "others_trained": [max((len(story.progress) for story in others), default=0)] if others else [],
        "first_of_host": ["yes"] if late and all(_is_first(rank, stories) for rank in late) else [],
    }


def _who(
    waits: Sequence[Signal], failure: Failure, ops: set[str], outside: set[int], heard: int, world: int
) -> list[str]:
    ranks = {signal.rank for signal in waits if signal.rank is not None}
    alone = failure.kind == _MISMATCH and failure.ranks == (0,) and len(ops) > 1
    if world > 2 and (alone or outside == {0} or (ranks == {0} and 2 * heard >= world)):  # noqa: PLR2004 - most
        return ["rank0"]
    if not failure.ranks and world > 1 and len(ranks) >= world:
        return ["all"]
    return ["others"] if world > 1 and 0 not in ranks and len(ranks) == world - 1 else []


def _out_of_step(waits: Sequence[Signal]) -> set[int]:
    """Ranks that waited, or lost a peer, in a call of their own while most reduced gradients."""
    calls: dict[tuple[int | None, int], str] = {}
    for number, signal in enumerate(waits):
        if (op := _operation(signal)) is not None:
            calls[signal.rank, 0 if signal.rank is not None else number] = op
    outside = [rank for (rank, _), op in calls.items() if op != BACKWARD]
    return {rank for rank in outside if rank is not None} if 2 * len(outside) < len(calls) else set()


def _groups(waits: Sequence[Signal], signals: Sequence[Signal]) -> list[str]:
    """The kind of process group of each wait, as far as it is told: groups of one kind share a description.

    Where no line names groups, collectives that all members must enter and that lie more than one apart are not of one
    group: who waits in the later one has had the answer of all in those between.
    """
    named = [(s, s.fields.get("pg_desc") or s.fields.get("pg", "")) for s in signals]
    told = {(signal.rank, signal.fields.get("seq")): group for signal, group in named if group}
    groups = [told.get((signal.rank, signal.fields.get("seq")), "") for signal in waits]
    if not any(groups):
        numbers = [_number(signal, "seq") if not is_one_sided(_operation(signal) or "") else None for signal in waits]
        least = min((number for number in numbers if number is not None), default=0)
        groups = ["" if n is None else "of the least number" if n <= least + 1 else "of others" for n in numbers]
    return groups


def _how(waits: Sequence[Signal], failure: Failure, ops: set[str], groups: Sequence[str]) -> list[str]:
    found = []
    by_number: dict[tuple[str, str], set[str]] = defaultdict(set)
    for signal, group in zip(waits, groups, strict=True):
        numbered = "seq" in signal.fields
        if (op := _operation(signal)) is not None and (numbered or not failure.ranks):
            by_number[group, signal.fields.get("seq", "")].add(op)
    if failure.kind == _MISMATCH or any(len(some) > 1 for some in by_number.values()):
        found.append("apart")
        found += ["shapes"] if failure.kind == _MISMATCH and len(ops) == 1 else []
    elif len(ops) == 1 and len({signal.rank for signal in waits}) > 1:
        found.append("same")
    calls = {(_operation(signal), signal.fields.get("seq")) for signal in waits}
    apart = len({*groups} - {""}) > 1 and len(calls) > 1  # one call in all of them is one step of one program
    return [*found, "groups"] if apart or failure.kind == "deadlock" else found


def _operation(signal: Signal) -> str | None:
    name = signal.fields.get("op")
    return flat_name(name) if name else call_of(signal.exception)


def _number(signal: Signal, name: str) -> int | None:
    told = signal.fields.get(name, "")
    return int(told) if told.isdecimal() and len(told) < _DIGITS else None


def _timeout(signal: Signal) -> float | None:
    told = _number(signal, "timeout_ms")
    return None if told is None else told / 1000


def _left(failed: Sequence[Story], others: Sequence[Story]) -> list[str]:
    """What ranks went on to, of which the others, who tell of such things too or of their steps, say nothing."""
    found = []
    heard = [story for story in others if story.progress or story.phases]
    if not heard:
        return []
    done = any(story.success or _DONE.search(story.last_text[:1000]) for story in failed)
    done = done or any(item.code == 0 for story in failed for item in story.exits)
    if done and not any(story.success for story in heard):
        found.append("finished")
    for phase in _LATER if any(story.rank for story in failed) else ():  # rank 0 is often the only one to tell
        mine = max((_told_of(story, phase) for story in failed), default=0)
        if mine > max(_told_of(story, phase) for story in heard):
            found.append(phase)
    return found


def _left_loop(outside: set[int], signals: Sequence[Signal]) -> list[str]:
    found = ["loop"] if outside and 0 not in outside else []
    return [*found, "inputs"] if any(signal.signature.startswith("pt.join.") for signal in signals) else found


def _told_of(story: Story, phase: str) -> int:
    return sum(1 for signal in story.phases if signal.phase == phase and not signal.signature.endswith(_REPEATED))


def _busy(failed: Sequence[Story], waits: Sequence[Signal]) -> bool:
    """Whether a mark of life lies after the moment at which the others began to wait."""
    begun = [start for signal in waits if (start := _begun(signal)) is not None]
    ended: dict[int, int] = {}
    for signal in waits:
        ended[signal.source] = min(signal.offset, ended.get(signal.source, signal.offset))
    for story in failed:
        for mark in (*story.progress, *story.phases):
            if mark.offset > ended.get(mark.source, mark.offset):
                return True
            if (
                begun
                and mark.quality is StampQuality.OWN
                and mark.ns is not None
                and _MARGIN_NS < mark.ns - max(begun) < _DAY_NS
            ):
                return True
    return False


def _begun(signal: Signal) -> int | None:
    span = _number(signal, "ran_ms" if "ran_ms" in signal.fields else "timeout_ms")
    if span is None or signal.ns is None or signal.quality is not StampQuality.OWN:
        return None
    return signal.ns - span * 1_000_000


def _is_first(rank: int, stories: Mapping[int, Story]) -> bool:
    host = stories[rank].host if rank in stories else None
    return rank == min((other for other, story in stories.items() if story.host == host), default=rank)
