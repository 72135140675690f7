"""How the end of every other rank follows from the first failure. Every claim cites a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.correlate.evidence import NS, JobEvidence
from aggregator.correlate.exits import Ending
from aggregator.correlate.narrate import cite, ranges
from aggregator.correlate.stories import Story
from aggregator.verdict import Collateral, Failure, Status
from parsers.clip import clip
from parsers.records import Role, Signal, StampQuality

_MOST_UNSEEN = 1024
"""Ranks without a line that are listed: `ranks_missing` has them all, and one line can claim a hundred thousand."""
_LONGEST = 120
"""Characters of a list of ranks."""


def collateral(
    evidence: JobEvidence,
    stories: Mapping[int, Story],
    first: Failure | None,
) -> tuple[Collateral, ...]:
    """Every other rank and how its end follows from the first failure."""
    if first is None:
        return ()
    rows: list[Collateral] = []
    unseen = 0
    blamed = set(first.ranks)
    cause = _cause(first.ranks, outside=first.status is Status.IDENTIFIED)
    for rank, story in sorted(stories.items()):
        if rank in blamed:
            continue
        row = _consequence(rank, story, evidence, first, cause)
        if row is None:
            continue
        unseen += row.time is None and not row.evidence and not story.last_text
        if unseen <= _MOST_UNSEEN or row.evidence or story.last_text:
            rows.append(row)
    return tuple(rows)


def _cause(ranks: Sequence[int], *, outside: bool) -> str:
    """Who failed first, for a sentence that every other rank has."""
    if not ranks:
        return "the job" if outside else "a rank that is not known"
    shown = ranges(ranks)
    if len(shown) > _LONGEST:
        return f"{len(ranks):,} ranks"
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _consequence(rank: int, story: Story, evidence: JobEvidence, first: Failure, cause: str) -> Collateral | None:
    faults = story.faults
    if faults:
        signal = faults[0]
        after = ""
        if (
            first.time is not None
            and signal.ns is not None
            and signal.quality is StampQuality.OWN
            and signal.ns > first.time
        ):
            after = f" {(signal.ns - first.time) / NS:.0f} s later"
        because = _because(signal, cause) + after
        return Collateral(
            rank=rank, kind=signal.kind or "unknown", message=clip(signal.text.strip(), 600),
            because=because, host=story.host,
            time=signal.ns if signal.quality is StampQuality.OWN else None,
            evidence=(cite(evidence, signal, because),),
        )  # fmt: skip
    item = next((e for e in story.exits if e.ending is not Ending.CLEAN), None)
    if item is not None:
        because = f"stopped ({item.told}) after the failure of {cause}"
        return Collateral(
            rank=rank, kind="killed", message=clip(item.report.text.strip(), 600),
            because=because, host=story.host or item.host,
            time=item.ns, evidence=(cite(evidence, item.report, because),),
        )  # fmt: skip
    if story.teardown:
        signal = story.teardown[0]
        because = f"stopped by its launcher after the failure of {cause}"
        return Collateral(
            rank=rank, kind="killed", message=clip(signal.text.strip(), 600), because=because, host=story.host,
            evidence=(cite(evidence, signal, because),),
        )  # fmt: skip
    return Collateral(
        rank=rank, kind="killed", message=clip(story.last_text, 600) or "no output", host=story.host,
        time=story.last_ns,
        because=f"printed no error; its output ends with the job, after the failure of {cause}",
    )  # fmt: skip


def _because(signal: Signal, cause: str) -> str:
    kind = signal.kind or "unknown"
    if kind == "collective_timeout":
        return f"timed out waiting for {cause}"
    if kind in {"network_error", "nccl_error", "ib_error"}:
        return f"lost its connections when {cause} went away"
    if kind == "rendezvous_failure":
        return f"could not set up or keep its process group without {cause}"
    if signal.role is Role.ROOT:
        return f"failed by itself, but after {cause}"
    return f"follows from the failure of {cause}"
