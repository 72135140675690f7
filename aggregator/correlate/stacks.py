"""Who stands where: of ranks whose stacks were dumped, the few that are not where the others wait.

A stack proves where a process was, not whose fault it is. Where most main threads wait in a collective, in the
backward engine or for the GPU, the rank that is elsewhere is the one that has not arrived.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aggregator.correlate.hangs import Suspect
from aggregator.correlate.leads import Lead
from parsers.blocks import STACK_DUMP
from parsers.records import ExceptionInfo, Frame, Role, Signal
from parsers.stacks import Waits, is_own, shown_frames

_ALONE, _SEVERAL = 0.8, 0.6
"""Strength of a reading that leaves one rank, and of one that leaves more or compares two collectives."""
_LEAST = 3
"""Ranks that make a majority."""
_PAIRWISE = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "_communicate", "_p2p_ops", "wait"})
"""Ranks that pass data along a pipeline stand at different ones of these by nature."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where one rank's main thread stood in its last dump. Frames are innermost first."""

    rank: int
    signal: Signal
    frames: tuple[Frame, ...]
    worker: Signal | None

    @property
    def waits(self) -> str:
        return self.signal.fields["waits"]

    @property
    def own(self) -> Frame:
        """The innermost frame of the program's own, else the innermost."""
        return next((frame for frame in self.frames if is_own(frame)), self.frames[0])

    @property
    def call(self) -> str:
        """The library's function that the program called, through which it waits."""
        above = self.frames[0]
        for frame in self.frames:
            if is_own(frame):
                break
            above = frame
        return above.function


def known_from_stacks(lead: Lead) -> bool:
    """Whether a lead comes from a dump of stacks."""
    return lead.signal is not None and lead.signal.signature == STACK_DUMP


def stood_since(signals: Sequence[Signal]) -> list[int]:
    """When the last words before each dump were written, in ns: since then at most its process stood still."""
    return [s.ns for s in signals if s.signature == STACK_DUMP and s.ns is not None]


def stack_suspects(signals: Sequence[Signal]) -> list[Suspect]:
    """The ranks that do not stand where the others wait, if the dumps show it."""
    standing = _standings(signals)
    if len(standing) < 2:  # noqa: PLR2004 - nothing to compare
        return []
    return _elsewhere(standing) or _another_collective(standing)


def _standings(signals: Sequence[Signal]) -> list[_Standing]:
    """Each rank's last dump; dumps that a rank of the same file worked on after are no standstill."""
    moved: dict[int, int] = {}
    for signal in signals:
        if signal.role in {Role.PROGRESS, Role.SUCCESS}:
            moved[signal.source] = max(moved.get(signal.source, -1), signal.offset)
    last: dict[int, Signal] = {}
    workers: dict[int, Signal] = {}
    for signal in signals:
        if signal.signature != STACK_DUMP or signal.rank is None or signal.offset < moved.get(signal.source, -1):
            continue
        shelf = workers if "worker" in signal.fields else last
        known = shelf.get(signal.rank)
        if known is None or not _earlier(signal, known):
            shelf[signal.rank] = signal
    found = []
    for rank, signal in sorted(last.items()):
        frames = shown_frames(signal.fields["stack"])
        if frames:
            found.append(_Standing(rank, signal, frames, workers.get(rank)))
    return found


def _earlier(one: Signal, other: Signal) -> bool:
    if one.source == other.source:
        return one.offset < other.offset
    return one.ns is not None and other.ns is not None and one.ns < other.ns


def _elsewhere(standing: Sequence[_Standing]) -> list[Suspect]:
    """Ranks that are busy with something else while most wait for them."""
    waiting = [one for one in standing if one.waits != Waits.OTHER]
    others = [one for one in standing if one.waits == Waits.OTHER]
    if not waiting or not others:
        return []
    pair = len(standing) == 2  # noqa: PLR2004 - of two, the one that waits waits for the other
    if not pair and len(others) * 3 > len(standing):
        return []
    alone = len(others) == 1 and not pair
    where, count = Counter(_what(one) for one in waiting).most_common(1)[0]
    told = "; ".join(f"rank {one.rank} is in {_place(one)}" for one in others[:4])
    reason = f"stacks of {len(standing)} ranks: {len(waiting)} wait{'s' if len(waiting) == 1 else ''}"
    reason += f" in {where}" if count == len(waiting) else f", most in {where}"
    return [_suspect(others, f"{reason}; {told}", "collective_timeout", _ALONE if alone else _SEVERAL)]


def _another_collective(standing: Sequence[_Standing]) -> list[Suspect]:
    """One rank that waits in another collective, called from another place, than all others."""
    if len(standing) < _LEAST or any(one.waits != Waits.COLLECTIVE or one.call in _PAIRWISE for one in standing):
        return []
    places: dict[tuple[str, str, int], list[_Standing]] = defaultdict(list)
    for one in standing:
        places[one.call, one.own.file, one.own.line].append(one)
    if len(places) != 2:  # noqa: PLR2004 - all but one at the same place
        return []
    odd, most = sorted(places.values(), key=len)
    if len(odd) != 1 or odd[0].call == most[0].call:
        return []
    reason = f"stacks of {len(standing)} ranks: {len(most)} wait in {_what(most[0])} called at {_named(most[0].own)}; "
    reason += f"rank {odd[0].rank} alone waits in {_what(odd[0])} called at {_named(odd[0].own)}"
    return [_suspect(odd, reason, "collective_mismatch", _SEVERAL)]


def _suspect(ranks: Sequence[_Standing], reason: str, kind: str, strength: float) -> Suspect:
    first = ranks[0]
    # As a copy: the stack of a rank that was merely looked at is no exception of the job's.
    stack = ExceptionInfo("", "", frames=(first.own,), outer_frames=tuple(reversed(first.frames)))
    signal = replace(first.signal, exception=stack, layer="software")
    return Suspect(tuple(one.rank for one in ranks), kind, reason, strength, signal)


def _what(one: _Standing) -> str:
    return one.call if not is_own(one.frames[0]) else _named(one.frames[0])


def _place(one: _Standing) -> str:
    place = _named(one.own)
    worker = shown_frames(one.worker.fields["stack"]) if one.worker is not None else ()
    if worker:
        deepest = next((frame for frame in worker if is_own(frame)), worker[0])
        place += f", its DataLoader worker in {worker[0].function}, called at {_named(deepest)}"
    return place


def _named(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
