"""What entries of the catalogue may ask of a failure: named facts, each with the values that the run shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from aggregator.catalogue import growth, waiting
from aggregator.catalogue.growth import joined, memory_growth
from aggregator.catalogue.oom import Figures, read_figures
from aggregator.correlate.stories import marks_above
from parsers.records import Role

if TYPE_CHECKING:
    from aggregator.correlate.attempt import Judgement
    from aggregator.correlate.exits import Exit
    from aggregator.verdict import Collateral, Failure
    from parsers.records import Frame, Signal

Value = str | float
FIGURES = tuple(known.name for known in fields(Figures) if known.name != "pattern")
FACTS = {
    "kind": "kind of the first failure, as in the verdict",
    "phase": "phase, as in the verdict",
    "layer": "layer, as in the verdict",
    "status": "identified, ambiguous or undetermined",
    "exception": "type of the exception that was raised first, and of the last of its chain",
    "text": "the lines that the verdict cites of the first failure, and the exception's messages",
    "code": "source lines of its traceback",
    "details": "`name=value` of the fields (docs/formats.md) of the messages that were met of the first failure",
    "frames": "`file:function` of each frame of its traceback, outermost first",
    "leaf": "`file:function` of the innermost frame",
    "signatures": "message formats (docs/formats.md) that were met on the ranks that failed first, or on their hosts",
    "elsewhere": "message formats that were met on all other ranks",
    "met": "message formats that were met anywhere in the attempt",
    "collateral": "kinds of the other ranks' errors",
    "scope": "of a job of several ranks: `one`, `some` or `all` failed first; `host` too where they are one host's",
    "rank0": "`yes` where rank 0 is among those that failed first",
    "stack": "libraries in the traceback or the logs: pytorch, transformers, accelerate, lightning, deepspeed, …",
    "step": "the step at which it failed, a number",
    "steps_told": "how many different training steps the ranks had told of, a number",
    "trained": "training steps that the failed rank had told of before, a number",
    "evaluated": "batches that it had told of since its evaluation began, a number",
    "evaluating": "`yes` where the phase is evaluation, or it was computing after it had announced one",
    "announced": "the phase that it had announced last",
    "signal": "number of the signal that ended it",
    "exit_code": "its exit code",
    "xid": "number of the driver's Xid, as text",
    "asserted": "the lines in which kernels of the failed ranks' GPUs told of an assertion that failed",
    "oom": "what the figures of a CUDA OOM message show (`oom.Pattern`): giant, others, capped, fragmented, full, …",
    **dict.fromkeys((f"oom_{name}" for name in FIGURES), "a figure of the CUDA OOM message, GiB"),
    "oom_unaccounted": "what of the GPU is neither free nor told to be anyone's, by a CUDA OOM message's figures, GiB",
    "oom_other_rank": "the rank of this job that the other process in the CUDA OOM message is, a number",
    "ranks_on_gpu0": "how many ranks of one host name GPU 0 in their CUDA OOM messages, a number",
    "attempts": "how many attempts the job made, a number",
    "ib_status": "status numbers of failed InfiniBand or RoCE completions, as text",
    **growth.FACTS,
    **waiting.FACTS,
}
"""All facts, with what they are: the vocabulary of conditions."""

_STACKS = (
    ("transformers", re.compile(r"/transformers/|^hf\.")),
    ("accelerate", re.compile(r"/accelerate/")),
    ("lightning", re.compile(r"/(?:pytorch_)?lightning/|^pl\.")),
    ("deepspeed", re.compile(r"/deepspeed/|^ds\.")),
    ("megatron", re.compile(r"/megatron/|^megatron\.")),
    ("nemo", re.compile(r"/nemo/")),
    ("vllm", re.compile(r"/vllm/|^vllm\.")),
    ("ray", re.compile(r"/ray/|^ray\.")),
    ("pytorch", re.compile(r"/torch/|^pt\.|^te\.")),
)
_COMPLETIONS = ("nccl.ib.completion", "nccl.ib.receiver_not_ready", "nccl.ib.local_protection", "nccl.ib.flushed")
_BULKY = frozenset({"code", "lead", "exception"})
"""Fields of which other facts tell, or that are long."""
_LIMIT = 400
"""Values that one fact holds at most."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Values by name of the fact; a fact that is not known has none."""

    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def get(self, name: str) -> tuple[Value, ...]:
        """The values of one fact."""
        return self.values.get(name, ())


@dataclass(frozen=True, slots=True)
class Scene:
    """One judged attempt, of which facts are taken. `attempts` is how many the job made."""

    failure: Failure
    judgement: Judgement
    signals: Sequence[Signal]
    collateral: Sequence[Collateral]
    world_size: int | None
    attempts: int = 1


def facts_of(scene: Scene) -> Facts:
    """All that is known of the first failure of an attempt."""
    failure = scene.failure
    told = [signal for lead in scene.judgement.leads for signal in (lead.signal, *lead.support) if signal is not None]
    main = scene.judgement.leads[0].signal if scene.judgement.leads else None
    near = [signal for signal in scene.signals if _is_near(signal, failure)]
    found: dict[str, Iterable[Value | None]] = {
        "kind": [failure.kind],
        "phase": [failure.phase],
        "layer": [failure.layer],
        "status": [failure.status.value],
        "text": [failure.message, *(item.text for item in failure.evidence), *_messages(told)],
        "code": (line for signal in told for line in signal.fields.get("code", "").split("\n") if line),
        "details": dict.fromkeys(
            f"{name}={value}" for signal in told for name, value in signal.fields.items() if name not in _BULKY
        ),
        "signatures": sorted({signal.signature for signal in (*near, *told)}),
        "elsewhere": sorted({signal.signature for signal in scene.signals} - {signal.signature for signal in near}),
        "collateral": sorted({item.kind for item in scene.collateral}),
        "scope": _scope(scene),
        "rank0": ["yes"] if 0 in failure.ranks else [],
        "step": [failure.step],
        "signal": sorted({item.signum for item in _ends(scene) if item.signum is not None}),
        "exit_code": sorted({item.code for item in _ends(scene) if item.code is not None}),
        "xid": sorted({signal.fields["xid"] for signal in (*near, *told) if "xid" in signal.fields}),
        "asserted": dict.fromkeys(s.text for s in (*told, *near) if s.kind == "cuda_device_assert"),
        "steps_told": [len({s.fields.get("step") for s in scene.signals if s.role is Role.PROGRESS} - {None})],
        "attempts": [scene.attempts],
        "met": sorted({signal.signature for signal in (*scene.signals, *told)}),
        "ib_status": sorted(
            {s.fields["status"] for s in scene.signals if s.signature in _COMPLETIONS and "status" in s.fields}
        ),
        **waiting.waiting_facts(failure, scene.signals, scene.judgement.stories, scene.world_size),
        **_of_traceback(main),
        **_of_story(scene, main),
        **_of_memory(scene, told),
    }
    frames = [str(frame) for frame in found.get("frames", ())]
    found["stack"] = _stacks(frames, scene.signals)
    values = {name: tuple(value for value in some if value is not None)[:_LIMIT] for name, some in found.items()}
    return Facts({name: some for name, some in values.items() if some})


def _is_near(signal: Signal, failure: Failure) -> bool:
    if signal.rank is not None:
        return signal.rank in failure.ranks
    return signal.host is None or not failure.hosts or signal.host in failure.hosts


def _messages(signals: Sequence[Signal]) -> Iterable[str]:
    for signal in signals:
        yield signal.text
        if signal.exception is not None:
            yield signal.exception.root_message
            yield signal.exception.message


def _ends(scene: Scene) -> list[Exit]:
    ranks = set(scene.failure.ranks)
    return [item for item in scene.judgement.exits if item.rank in ranks]


def _scope(scene: Scene) -> list[str]:
    ranks = set(scene.failure.ranks)
    world = scene.world_size or len(scene.judgement.stories)
    if not ranks or world == 1:
        return []
    scope = ["one" if len(ranks) == 1 else "all" if len(ranks) >= world else "some"]
    hosts = {story.host for rank, story in scene.judgement.stories.items() if rank in ranks}
    if len(ranks) > 1 and len(hosts) == 1 and None not in hosts:
        there = {rank for rank, story in scene.judgement.stories.items() if story.host in hosts}
        scope += ["host"] if there <= ranks and len(there) < world else []
    return scope


def _of_traceback(main: Signal | None) -> dict[str, Iterable[Value | None]]:
    exception = main.exception if main is not None else None
    if exception is None:
        return {}
    frames = [*exception.outer_frames, *exception.frames]
    places = [place_of(frame) for frame in frames]
    code = main.fields.get("code", "") if main is not None else ""
    return {
        "joined": joined(places, [line for line in code.split("\n") if line]),
        "exception": [name for name in dict.fromkeys((exception.root_type, exception.type)) if name],
        "frames": places,
        "leaf": places[-1:],
    }


def place_of(frame: Frame) -> str:
    """How facts name a frame."""
    return f"{frame.file}:{frame.function}"


def _of_story(scene: Scene, main: Signal | None) -> dict[str, Iterable[Value | None]]:
    phases, steps = _marks(scene, main)
    announced = phases[-1] if phases else None
    in_evaluation = announced is not None and announced.phase == "evaluation"
    still = in_evaluation and not any(_follows(step, announced) for step in steps)
    evaluating = scene.failure.phase == "evaluation" or (still and scene.failure.phase in {"forward", "unknown"})
    batches = [signal for signal in phases if signal.phase == "evaluation" and "step" in signal.fields]
    return {
        "trained": [len(steps)],
        "announced": [announced.phase if announced is not None else None],
        "evaluated": [len(batches)] if in_evaluation else [],
        "evaluating": ["yes"] if evaluating else [],
        "memory_growth": [memory_growth(batches if evaluating else steps)],
    }


def _marks(scene: Scene, main: Signal | None) -> tuple[list[Signal], list[Signal]]:
    """Phases and steps that were told before the failure: by its rank, else where it stands."""
    story = scene.judgement.stories.get(scene.failure.ranks[0]) if scene.failure.ranks else None
    if story is None:
        told = marks_above(main, scene.signals) if main is not None else []
        return [s for s in told if s.role is Role.PHASE], [s for s in told if s.role is Role.PROGRESS]
    return (
        [signal for signal in story.phases if not _follows(signal, main)],
        [signal for signal in story.progress if not _follows(signal, main)],
    )


def _follows(signal: Signal, main: Signal | None) -> bool:
    return main is not None and signal.source == main.source and signal.offset > main.offset


def _of_memory(scene: Scene, told: Sequence[Signal]) -> dict[str, Iterable[Value | None]]:
    main = next((signal for signal in told if signal.kind == "cuda_oom" and "need" in signal.fields), None)
    if scene.failure.kind != "cuda_oom":
        return {}
    figures = read_figures(main.fields if main is not None else {})
    on_first: dict[str | None, set[int]] = {}
    for rank, story in scene.judgement.stories.items():
        if any(signal.kind == "cuda_oom" and signal.fields.get("gpu") == "0" for signal in story.roots):
            on_first.setdefault(story.host, set()).add(rank)
    other = main.fields.get("other_pid") if main is not None else None
    owners = {
        signal.rank for signal in scene.signals
        if signal.rank is not None and other is not None and other in (str(signal.pid), signal.fields.get("pid"))
    }  # fmt: skip
    numbers = {f"oom_{name}": [getattr(figures, name)] for name in FIGURES}
    return {
        "oom": [figures.pattern.value], "ranks_on_gpu0": [max(map(len, on_first.values()), default=0)],
        "oom_other_rank": sorted(owners - set(scene.failure.ranks)),
        "oom_unaccounted": [_unaccounted(figures)], **numbers,
    }  # fmt: skip


def _unaccounted(figures: Figures) -> float | None:
    if figures.capacity is None or figures.free is None or figures.allocated is None:
        return None
    told = (figures.free, figures.allocated, figures.unallocated, figures.outside, figures.others)
    return max(figures.capacity - sum(part for part in told if part is not None), 0.0)


def _stacks(frames: Sequence[str], signals: Sequence[Signal]) -> list[str]:
    signatures = {signal.signature for signal in signals if signal.role is not Role.CONTEXT}
    return [name for name, pattern in _STACKS if any(pattern.search(text) for text in (*frames, *signatures))]
