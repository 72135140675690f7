"""Compares what the ranks of each process group did in their collectives. No clock is used, no I/O is done.

Complete(g, s) at any rank happens after enter(g, s) at every member. So the first collective that some members wait
in and others have not entered names the ones that lag; a rank that lags because it waits in another group passes the
blame on to that group. Prefers no name to a wrong one: `unknown` and `all_entered` carry no suspects.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from parsers.later import later

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Cause = Literal["laggard", "mismatch", "ahead", "not_started", "all_entered", "silent", "circle", "unknown"]

_PAIR_SIZE = 2
"""In a group of two, one against one decides nothing."""
# Their input sizes are equal over the members. Scatter, gather and all-to-all may differ by right.
_SAME_SIZE = later(r"allreduce|broadcast|reduce|allgather|reducescatter")
_ONE_SIDED = later(r"broadcast|reduce$|scatter|gather")
_P2P = later(r"send|recv\w*|coalesced|unknown|batch\w*")


@dataclass(frozen=True, slots=True)
class Pending:
    """The first collective of a group that a rank has entered and not finished.

    `sizes` is the number of input elements or whatever else is equal over the members, None where not told.
    `started` is None where the source does not tell kernels that run from kernels that wait for the stream. `order`
    is the position among the rank's own operations over all groups.
    """

    op: str
    seq: int
    sizes: str | None = None
    dtype: str | None = None
    started: bool | None = None
    order: int | None = None


@dataclass(frozen=True, slots=True)
class CollectiveState:
    """What one rank is known to have done in one group. Counters: -1 none yet, None not told."""

    rank: int
    group: str
    enqueued: int | None
    started: int | None
    completed: int | None
    pending: Pending | None
    entered_ns: int | None = None
    source: str = "status"


@dataclass(frozen=True, slots=True)
class HangFinding:
    """What is wrong in one group. `suspects` may be empty: then no rank is named.

    `waiting` are the ranks that wait inside the collective for the suspects, `strength` from 0 to 1.
    """

    cause: Cause
    group: str
    seq: int | None
    suspects: tuple[int, ...]
    waiting: tuple[int, ...]
    op: str | None
    reason: str
    strength: float


def clean(state: CollectiveState) -> CollectiveState:
    """Counters made comparable: -1 becomes 0, a `completed` above `enqueued` is uninitialised memory."""
    enqueued, started, completed = (
        None if value is None else max(0, value) for value in (state.enqueued, state.started, state.completed)
    )
    if state.pending is not None:
        enqueued = max(enqueued or 0, state.pending.seq)
        # A failed operation is counted as completed soon after its time-out.
        completed = None if completed is None else min(completed, state.pending.seq - 1)
    if completed is not None and enqueued is not None and completed > enqueued:
        completed = None
    return replace(state, enqueued=enqueued, started=started, completed=completed)


def merge(one: CollectiveState, two: CollectiveState) -> CollectiveState:
    """Two reports of the same rank: the furthest `enqueued`, the first operation that hangs."""
    pending = [state.pending for state in (one, two) if state.pending is not None]
    completed = [state.completed for state in (one, two) if state.completed is not None]
    later = max(one, two, key=lambda state: -1 if state.enqueued is None else state.enqueued)
    # Equal progress: the smaller `completed` was read before the time-out spoilt it.
    spoilt = one.enqueued == two.enqueued and completed
    merged = replace(
        later,
        completed=min(completed) if spoilt else later.completed,
        pending=min(pending, key=lambda item: (item.seq, item.op, item.sizes or ""), default=None),
        entered_ns=one.entered_ns if one.entered_ns is not None else two.entered_ns,
    )
    return clean(merged)


def operation(name: str) -> str:
    """An operation's name without its back end, for display."""
    return name.rpartition(":")[2].strip().lower()


def flat(name: str) -> str:
    """An operation's name as comparable over sources: `nccl:_all_gather_base` and `_ALLGATHER_BASE`."""
    return operation(name).replace("_", "")


def is_one_sided(name: str) -> bool:
    """Whether a member can finish an operation before the others have entered it."""
    return _ONE_SIDED.match(flat(name)) is not None


def _print(pending: Pending) -> tuple[str, ...]:
    """What must be equal over the members of a group."""
    op = flat(pending.op)
    return (op, pending.sizes or "", pending.dtype or "") if _SAME_SIZE.match(op) else (op, "?", "?")


def names(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 1, 2`, shortened after eight."""
    listed = sorted(ranks)
    shown = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")  # noqa: PLR2004
    return f"rank {shown}" if len(listed) == 1 else f"ranks {shown}"


def verb(ranks: Sequence[int], one: str, many: str) -> str:
    """The ranks with the verb in the right number."""
    return f"{names(ranks)} {one if len(ranks) == 1 else many}"


class GroupStates:
    """The members of one process group, compared. `members` is None where they are not known."""

    def __init__(
        self, name: str, states: Mapping[int, CollectiveState], members: frozenset[int] | None, title: str = ""
    ) -> None:
        self.name = name
        self.states = states = dict(sorted(states.items()))
        self.members = members
        self.size = len(members or states)
        self.missing = sorted((members or frozenset()) - set(states))
        self.pending = {rank: state.pending for rank, state in states.items() if state.pending is not None}
        self.reach = {rank: state.enqueued for rank, state in states.items() if state.enqueued is not None}
        self.where = f"group {title or name}" if title or name else "the default group"

    def findings(self) -> list[HangFinding]:
        """What is to be said about this group; empty if nothing hangs in it."""
        from_log = any(state.source != "dump" for state in self.states.values())
        if from_log and any(_P2P.fullmatch(operation(pending.op)) for pending in self.pending.values()):
            return []  # log lines mix the counters of collectives and of point-to-point operations
        return self._by_operations() if self.pending else self._by_counters()

    def _by_operations(self) -> list[HangFinding]:
        stuck = max(pending.seq for pending in self.pending.values())
        at = {rank: pending for rank, pending in self.pending.items() if pending.seq == stuck}
        earlier = sorted(set(self.pending) - set(at))
        behind = sorted(rank for rank, reach in self.reach.items() if reach < stuck)
        op = Counter(pending.op for pending in at.values()).most_common(1)[0][0]
        if (found := self._mismatch(stuck, at)) is not None:
            return [found]
        if earlier:
            return self._stuck_earlier(stuck, op, sorted(at), earlier, behind)
        if behind:
            return self._behind(stuck, op, sorted(at), behind)
        if self.missing:
            return [self._silent(stuck, op, sorted(at))]
        return [self._all_here(stuck, op, at)]

    def _by_counters(self) -> list[HangFinding]:
        """From counters alone, none of which tells an operation."""
        completed = {
            rank: state.completed
            for rank, state in self.states.items()
            if state.enqueued is not None and state.completed is not None and state.completed < state.enqueued
        }
        if completed:
            stuck = 1 + min(completed.values())
        elif len(set(self.reach.values())) > 1:
            # The time-out itself spoils the completed counts; the last collective entered stays true.
            stuck = 1 + min(self.reach.values())
        else:
            return []
        behind = sorted(rank for rank, reach in self.reach.items() if reach < stuck)
        waiting = sorted(rank for rank, reach in self.reach.items() if reach >= stuck)
        if behind:
            return self._behind(stuck, None, waiting, behind, trust=0.75)
        if self.missing:
            return [self._silent(stuck, None, waiting)]
        reason = f"every reporting member entered collective {stuck} of {self.where}; the operations are not told"
        return [self._finding("unknown", stuck, (), waiting, None, reason, 0.2)]

    def _mismatch(self, stuck: int, at: Mapping[int, Pending]) -> HangFinding | None:
        prints = {rank: _print(pending) for rank, pending in at.items()}
        # A field that only some sources tell is not compared.
        for place in (1, 2):
            if any(item[place:] and not item[place] for item in prints.values()):
                prints = {rank: (*item[:place], "?", *item[place + 1 :]) for rank, item in prints.items()}
        shown = {
            rank: " ".join(filter(None, (operation(item.op), item.sizes and f"of {item.sizes} elements", item.dtype)))
            for rank, item in at.items()
        }
        return self.disagreement(stuck, prints, shown)

    def disagreement(
        self, seq: int, prints: Mapping[int, tuple[str, ...]], shown: Mapping[int, str]
    ) -> HangFinding | None:
        """A mismatch at `seq`: the minority is the culprit where more than half of the members agree."""
        counts = Counter(prints.values())
        if len(counts) <= 1:
            return None
        common, votes = counts.most_common(1)[0]
        odd = sorted(rank for rank, item in prints.items() if item != common)
        agreeing = sorted(set(prints) - set(odd))
        if votes * 2 <= self.size or self.size <= _PAIR_SIZE:
            reason = (
                f"collective {seq} of {self.where} differs: {shown[agreeing[0]]} on {names(agreeing)}, "
                f"{shown[odd[0]]} on {names(odd)}; no majority of its {self.size} members decides"
            )
            return self._finding("mismatch", seq, (), sorted(prints), None, reason, 0.4)
        reason = (
            f"collective {seq} of {self.where} is {shown[odd[0]]} on {names(odd)}, "
            f"{shown[agreeing[0]]} on {len(agreeing)} of its {self.size} members"
        )
        return self._finding("mismatch", seq, odd, agreeing, shown[agreeing[0]].split(" ")[0], reason, 0.85)

    def _stuck_earlier(
        self, stuck: int, op: str, at: list[int], earlier: list[int], behind: list[int]
    ) -> list[HangFinding]:
        """Some wait in a collective that others have finished: told apart from one-sided operations."""
        first = min(self.pending[rank].seq for rank in earlier)
        idle = sorted(rank for rank in behind if rank not in earlier and self.reach[rank] < first)
        if idle:
            return self._behind(first, self.pending[earlier[0]].op, sorted(self.pending), idle)
        one_sided = any(is_one_sided(self.pending[rank].op) for rank in earlier)
        # Two further on, all have entered the one between: who waits there is in another group that no line names.
        if not one_sided and behind == earlier and len(at) > len(earlier) and stuck - first == 1:
            reason = (
                f"{verb(earlier, 'is', 'are')} still in collective {first} of {self.where}, "
                f"which the {len(at)} members that wait in {stuck} have finished"
            )
            return [self._finding("laggard", stuck, earlier, at, op, reason, 0.6)]
        reason = f"members of {self.where} wait in different collectives, {first} to {stuck}: none is clearly behind"
        return [self._finding("unknown", stuck, (), sorted(self.pending), op, reason, 0.2)]

    def _behind(
        self, stuck: int, op: str | None, waiting: list[int], behind: list[int], trust: float = 1.0
    ) -> list[HangFinding]:
        # Nobody can have finished what these have not entered: whoever entered it waits, whatever its state says.
        waiting = sorted({*waiting, *(rank for rank, reach in self.reach.items() if reach >= stuck)})
        what = f"{operation(op)} {stuck}" if op else f"collective {stuck}"
        reach = max(self.reach[rank] for rank in behind)
        if len(waiting) == 1 and self.size > _PAIR_SIZE and len(behind) == self.size - 1:
            reason = (
                f"{names(waiting)} alone entered {what} of {self.where}; "
                f"the other {len(behind)} members stopped at {reach}"
            )
            return [self._finding("ahead", stuck, waiting, (), op, reason, 0.5 * trust)]
        # The counter of newer versions moves only after the call returns: "lags", never "did not call".
        reason = f"{verb(waiting, 'waits', 'wait')} in {what} of {self.where}; {verb(behind, 'lags', 'lag')} at {reach}"
        if self.missing:
            reason += f", and nothing is known of {names(self.missing)}"
        if len(behind) * 2 > self.size:
            return [self._finding("unknown", stuck, (), waiting, op, f"{reason}: too many to name one", 0.25)]
        strength = 0.9 if all(self.states[rank].source == "dump" for rank in behind) else 0.75
        strength -= 0.15 if self.size <= _PAIR_SIZE or self.members is None else 0
        strength -= 0.15 if len(behind) > 1 and len(behind) * 4 > self.size else 0
        strength -= 0.25 if self.missing else 0
        found = [self._finding("laggard", stuck, behind, waiting, op, reason, strength * trust)]
        if self.missing and (silent := self._silent(stuck, op, waiting)).suspects:
            found.append(silent)
        return found

    def _silent(self, stuck: int, op: str | None, waiting: list[int]) -> HangFinding:
        what = f"{operation(op)} {stuck}" if op else f"collective {stuck}"
        reason = (
            f"{verb(waiting, 'waits', 'wait')} in {what} of {self.where}; "
            f"{verb(self.missing, 'is a member and tells', 'are members and tell')} nothing of it"
        )
        # Half of the files may simply not be here.
        if len(self.missing) > 1 and len(self.missing) * 2 >= self.size:
            return self._finding("unknown", stuck, (), waiting, op, f"{reason}: too many to name one", 0.2)
        strength = 0.65 if len(waiting) > 1 and len(self.missing) * 4 <= self.size else 0.5
        return self._finding("silent", stuck, self.missing, waiting, op, reason, strength)

    def _all_here(self, stuck: int, op: str, at: Mapping[int, Pending]) -> HangFinding:
        here = sorted(at)
        held = sorted(rank for rank, pending in at.items() if pending.started is False)
        runs = sorted(rank for rank, pending in at.items() if pending.started)
        what = f"{operation(op)} {stuck} of {self.where}"
        if held and len(held) < len(runs):
            reason = (
                f"all {len(here)} members entered {what}; it runs on {names(runs)} and was never started on "
                f"{names(held)}"
            )
            return self._finding("not_started", stuck, held, runs, op, reason, 0.6)
        if self.members is None or len(here) < len(self.members):
            done = sorted(set(self.states) - set(here))
            tail = f", which {verb(done, 'has', 'have')} entered as well" if done else "; its members are not known"
            return self._finding("unknown", stuck, (), here, op, f"{verb(here, 'waits', 'wait')} in {what}{tail}", 0.2)
        reason = f"all {len(here)} members entered {what} alike: none is missing"
        return self._finding("all_entered", stuck, (), here, op, reason, 0.5)

    def _finding(
        self,
        cause: Cause,
        seq: int,
        suspects: Sequence[int],
        waiting: Sequence[int],
        op: str | None,
        reason: str,
        strength: float,
    ) -> HangFinding:
        return HangFinding(cause, self.name, seq, tuple(suspects), tuple(waiting), op, reason, round(strength, 3))
