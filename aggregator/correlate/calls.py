"""In which call each rank waited, as the traceback of its time-out or lost connection shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from aggregator.correlate.evidence import ints
from aggregator.correlate.group_states import is_one_sided
from aggregator.correlate.hangs import Suspect
from aggregator.correlate.stories import Story
from parsers.records import ExceptionInfo, Role, Signal

BACKWARD = "backward"
"""Where the frames end in the backward pass: DDP's reduction of gradients."""
_COLLECTIVES = ("/torch/distributed/distributed_c10d.py", "/torch/distributed/_functional_collectives.py")
_BLOCKING = "pt.gloo."
"""Signatures of the back end whose calls return when they are done: what raises is what it waited in."""
_LEAST = 3
"""Ranks that make a majority."""
_STRENGTH = 0.62


def call_of(exception: ExceptionInfo | None) -> str | None:
    """The collective that a traceback runs through, `backward` for gradients, as `allreduce`."""
    if exception is None:
        return None
    frames = (*exception.outer_frames, *exception.frames)
    name = next((frame.function for frame in reversed(frames) if frame.file.endswith(_COLLECTIVES)), None)
    if name is None and any("/torch/autograd/" in frame.file for frame in frames):
        name = BACKWARD
    return flat_name(name) if name else None


def flat_name(name: str) -> str:
    """`_ALLGATHER_BASE` and `all_gather_base` as one word."""
    return name.replace("_", "").lower()


def calls_apart(stories: Mapping[int, Story], world: int | None) -> list[Suspect]:
    """The few ranks that waited in another collective than most: they left the others' loop, or entered one of theirs.

    Only where every rank waited, and none of them for a rank that it names: else somebody may simply be missing.
    """
    waits = {rank: wait for rank, story in stories.items() if (wait := _wait_of(story)) is not None}
    if len(waits) < _LEAST or len(waits) != (world or len(stories)):
        return []
    by_call: dict[str, list[int]] = defaultdict(list)
    for rank, (_, call) in waits.items():
        by_call[call].append(rank)
    ordered = sorted(by_call.items(), key=lambda item: -len(item[1]))
    (common, most), rest = ordered[0], ordered[1:]
    few = sorted(rank for _, ranks in rest for rank in ranks)
    if not few or 2 * len(most) <= len(waits) or any(is_one_sided(call) for call in by_call):
        return []
    named = f"rank {few[0]} alone" if len(few) == 1 else "ranks " + ", ".join(map(str, few))
    reason = f"{named} waited in {rest[0][0]}; the other {len(most)} ranks in {common}"
    return [Suspect(tuple(few), "collective_mismatch", reason, _STRENGTH, waits[few[0]][0], len(most))]


def _wait_of(story: Story) -> tuple[Signal, str] | None:
    for signal in story.symptoms:
        if signal.role is Role.SYMPTOM and signal.signature.startswith(_BLOCKING):
            call = call_of(signal.exception)
            named = ints(signal.fields.get("peer_rank")) or ints(signal.fields.get("peer_ranks"))
            return (signal, call) if call is not None and not named else None
    return None
