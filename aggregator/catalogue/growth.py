"""What a job keeps from step to step: the memory that its own lines tell, and the line that joins what was stored."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from parsers.later import later
from parsers.records import Signal

FACTS = {
    "memory_growth": "by how much the memory that its last step lines tell rose, per cent; 0 where it did not steadily",
    "joined": "the line of its own code that failed, where it joins stored outputs or gathers those of all ranks",
}

_MEMORY = later(
    r"(?<![\w.])(?P<label>(?:[a-z]+\d{0,2}[ _./-]){0,3}?(?:mem(?:ory)?|vram|alloc(?:ated)?)"
    r"(?:[ _./-]?(?:alloc(?:ated)?|used|usage|gpu|cuda|peak|max|reserved|[gm]i?b)){0,3})"
    r"[\"']?\s?(?:[(\[](?P<before>[kmgt]i?b)[)\]])?[\"']?\s{0,2}[:=]?\s{0,6}"
    r"(?P<value>\d{1,15}(?:\.\d{1,6})?)\s?(?P<unit>[kmgt](?:i?b)?|bytes)?(?![\w.]|\s?%)",
    re.IGNORECASE,
)
"""A figure of GPU memory in a line of a step: `mem=31.0G`, `max mem: 9311`, `gpu_mem (MB) 40112`."""
_NOT_OF_THE_GPU = later(
    r"(?:^|[\W_])(?:cpu|host|ram|rss|sys\w*|free|avail\w*|total|limit|frac\w*|pinned|shared)", re.IGNORECASE
)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_LAST, _LEAST = 8, 5
"""Figures that are looked at, and that a rise is told from."""
_EXCUSED = 1
"""Of so many figures as are looked at, one may fall back."""
_ONE_JUMP = 0.6
"""Share of the rise that may come at once: more is a spike."""

_JOIN = r"\b(?:cat|concat|concatenate|[hvd]?stack|row_stack)\(\s*"
_JOINS_STORED = (
    later(rf"{_JOIN}(?:tensors\s*=\s*)?(?:tuple\(|list\(|\*)?[A-Za-z_][\w.]*(?:\[[^\]]*\])?\)?\s*[,)]"),
    later(rf"{_JOIN}(?:$|[^\n]{{0,120}}\bfor\b)"),
    later(rf"(?P<held>[\w.\[\]'\"]{{1,60}})\s*=\s*[^\n]{{0,60}}{_JOIN}[\[(]\s*(?P=held)\s*,"),
    later(
        r"\[\s*torch\.(?:zeros|empty|ones)(?:_like)?\([^\n]{0,100}\bfor\b[^\n]{0,40}\brange\([^\n]{0,40}(?:world|size)"
    ),
)
"""One name is joined, each item of a loop, what is held already with something new; or each rank gets a buffer."""
_INSIDE = later(r"/torch/nn/modules/module\.py:|:forward$|/torch/utils/data/|collate|/transformers/generation/")
"""Where joining is what a model or a loader does with one batch."""


def joined(places: Sequence[str], code: Sequence[str]) -> list[str]:
    """The fact of this name, from the places (`file:function`) and source lines of a traceback, innermost last."""
    if not code or any(_INSIDE.search(place) for place in places):
        return []
    return [code[-1]] if any(pattern.search(code[-1]) for pattern in _JOINS_STORED) else []


def memory_growth(marks: Sequence[Signal]) -> float | None:
    """The fact of this name, from marks of progress in their order."""
    series: dict[str, dict[str, float]] = defaultdict(dict)
    for place, mark in enumerate(marks):
        for label, value in _figures(mark.text).items():
            series[label].setdefault(mark.fields.get("step", f"mark {place}"), value)
    longest = max(series.values(), key=len, default={})
    return _rise([*longest.values()][-_LAST:])


def _figures(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for match in _MEMORY.finditer(text):
        label = match["label"].lower()
        if not _NOT_OF_THE_GPU.search(label):
            unit = (match["unit"] or match["before"] or "").lower()
            found.setdefault(label, float(match["value"]) * 1024.0 ** _POWERS.get(unit[:1], 0))
    return found


def _rise(figures: Sequence[float]) -> float | None:
    if len(figures) < _LEAST:
        return None
    steps = [later - earlier for earlier, later in pairwise(figures)]
    whole = figures[-1] - figures[0]
    falls = sum(step <= 0 for step in steps)
    excused = _EXCUSED if len(figures) == _LAST else 0
    if falls > excused or whole <= 0 or max(steps) > _ONE_JUMP * whole or figures[0] <= 0:
        return 0.0
    return round(100 * whole / figures[0], 1)
