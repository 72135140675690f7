"""Kernel logs in local time beside logs of ranks in UTC, or the other way round: a machine's journal, say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from aggregator.correlate.evidence import NS, JobEvidence, precise
from aggregator.correlate.identity import Identity, stream_rank
from parsers.records import Role, Signal, SourceKind, Stamp

_ZONE_NS = 1800 * NS
_BEFORE_NS, _AFTER_NS = 60 * NS, 10 * NS
"""The kernel tells of a fault so long before, or after, the rank that it struck writes its last."""
_OUTSIDE_NS = 600 * NS
"""A kernel's word on a process or a GPU of the job stands no further from the time of the job's own lines."""
_FAULTS = frozenset({Role.ROOT, Role.EITHER, Role.EXTERNAL, Role.EXIT})


def set_zones(evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> list[str]:
    """Move the stamps of kernel logs into the zone of the other logs, where only another zone explains them.

    What a kernel tells of a rank's process or GPU cannot lie outside the time of the job. If it does, and such lines of
    one log stand just before the last words of their ranks, or a launcher's word on their ends, once a number of half
    hours is taken off, the same for all that do, that is the difference: of the other kernel logs, too, that tell
    nothing of a rank. Stamps that name their zone stay.

    Returns:
        What was moved, for the warnings of the verdict.
    """
    told: dict[int, list[Signal]] = defaultdict(list)
    for signal in signals:
        kernel = evidence.source(signal).kind is SourceKind.KERNEL
        if (
            kernel
            and signal.rank is not None
            and signal.role in _FAULTS
            and _is_local(signal.stamp)
            and precise(signal)
        ):
            told[signal.source].append(signal)
    if not told:
        return []
    last, span = _last_words(evidence, table)
    if not span:
        return []
    for signal in signals:
        if signal.role is Role.EXIT and signal.rank is not None and precise(signal) and signal.source not in told:
            last[signal.rank].append(signal.ns or 0)
    shifts: dict[int, int] = {}
    for source, named in told.items():
        moments = [(signal.ns, last[signal.rank]) for signal in named if signal.ns and signal.rank is not None]
        if any(span[0] - _OUTSIDE_NS <= ns <= span[1] + _OUTSIDE_NS for ns, _ in moments):
            continue
        zones = {found for ns, ends in moments for ended in ends if (found := _zones(ns, ended)) is not None}
        if len(zones) == 1:
            shifts[source] = zones.pop() * _ZONE_NS
    if len(set(shifts.values())) == 1:
        common = next(iter(shifts.values()))
        kernels = [source.index for source in evidence.sources if source.kind is SourceKind.KERNEL]
        shifts |= {source: common for source in kernels if source not in told}
    _move(evidence, signals, shifts)
    return [
        f"the clock of {evidence.sources[source].path} is {shift / 3600 / NS:+g} h from that of the ranks' logs, which"
        " was taken off"
        for source, shift in shifts.items()
        if source in told
    ]


def _is_local(stamp: Stamp | None) -> bool:
    return stamp is not None and not stamp.zoned and not stamp.boot


def _zones(ns: int, ended: int) -> int | None:
    """How many half hours lie between a kernel's line and the end of its rank; None if it is not a number of these."""
    zones = round((ns - ended + (_BEFORE_NS - _AFTER_NS) // 2) / _ZONE_NS)
    return zones if -_BEFORE_NS <= ns - ended - zones * _ZONE_NS <= _AFTER_NS else None


def _last_words(evidence: JobEvidence, table: Identity) -> tuple[dict[int, list[int]], tuple[int, int] | None]:
    """The last moments of each rank, and the first and the last of their logs, else of all but the kernel's, in ns.

    A scheduler's own words may be in the zone of the kernel's.
    """
    last: dict[int, list[int]] = defaultdict(list)
    moments: list[int] = []
    of_ranks: list[int] = []
    for source, key, activity in evidence.activities:
        own = [
            stamp.ns for stamp in (activity.first_stamp, activity.last_stamp) if stamp is not None and not stamp.boot
        ]
        if source.kind is SourceKind.KERNEL or not own:
            continue
        moments += own
        rank = stream_rank(source, key, table)
        if rank is not None:
            last[rank] = [max([*last[rank], *own])]
            of_ranks += own
    moments = of_ranks or moments
    return last, (min(moments), max(moments)) if moments else None


def _move(evidence: JobEvidence, signals: Iterable[Signal], shifts: dict[int, int]) -> None:
    for signal in signals:
        if signal.source in shifts and _is_local(signal.stamp):
            signal.stamp = _moved(signal.stamp, shifts[signal.source])
    for source, _, activity in evidence.activities:
        if source.index in shifts:
            activity.first_stamp = _moved(activity.first_stamp, shifts[source.index])
            activity.last_stamp = _moved(activity.last_stamp, shifts[source.index])


def _moved(stamp: Stamp | None, shift: int) -> Stamp | None:
    return stamp._replace(ns=stamp.ns - shift) if stamp is not None and _is_local(stamp) else stamp
