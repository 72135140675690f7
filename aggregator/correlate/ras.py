"""What NCCL's RAS service counts: how many operations each rank of a communicator has launched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from aggregator.correlate.evidence import MAX_WORLD, number
from aggregator.correlate.hangs import Suspect
from aggregator.correlate.stories import Story
from parsers.records import Signal

LAUNCHED = "nccl.ras.launched"
_LAUNCHED_ALL = "nccl.ras.launched_all"
_APART = 2
"""Lines of one warning are no further apart."""
_STRENGTH = 0.82


def size_communicators(signals: Iterable[Signal]) -> None:
    """Give each line of a warning the number of ranks that the warning speaks of: ranks are counted within those."""
    for warning in _warnings(signals):
        size = sum(_ranks_told(line) for line in warning)
        if size <= MAX_WORLD:
            for line in warning:
                line.fields["world_size"] = str(size)


def least_launched(signals: Sequence[Signal], stories: Mapping[int, Story], world: int | None) -> list[Suspect]:
    """The few ranks that have launched fewer operations than all others of the job, and tell of no waiting.

    The counts are of one moment: that some are behind proves nothing where the job went on, so others must have waited.
    """
    for warning in _warnings(signals):
        counts = [number(line.fields.get("enqueued")) or 0 for line in warning]
        most = max(counts)
        behind = [line for line, count in zip(warning, counts, strict=True) if count < most]
        ranks = tuple(sorted(line.rank for line in behind if line.rank is not None))
        size = sum(_ranks_told(line) for line in warning)
        if size != world or not ranks or len(ranks) != len(behind) or len(ranks) * 2 >= size:
            continue
        if any(rank in stories and stories[rank].spoke_of_trouble for rank in ranks):
            continue
        named = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
        least = min(counts)
        reason = f"NCCL's RAS counts {least} operations launched by {named}, {most} by the other {size - len(ranks)}"
        return [Suspect(ranks, "collective_timeout", reason, _STRENGTH, behind[0], size - len(ranks))]
    return []


def _warnings(signals: Iterable[Signal]) -> Iterator[list[Signal]]:
    """The lines of each warning that the ranks of a communicator have launched different numbers of operations."""
    warning: list[Signal] = []
    for signal in signals:
        if signal.signature not in {LAUNCHED, _LAUNCHED_ALL}:
            continue
        last = warning[-1] if warning else None
        if last is not None and (last.source != signal.source or signal.line - last.line > _APART):
            yield warning
            warning = []
        warning.append(signal)
    if warning:
        yield warning


def _ranks_told(line: Signal) -> int:
    return 1 if line.signature == LAUNCHED else number(line.fields.get("count")) or 0
