"""The arithmetic of CUDA's out-of-memory message: where the memory went, as far as its figures tell.

Source of the forms: c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.0 to 2.13. Figures are rounded to two decimals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,4})?) (\w+)")
GIB = float(1 << 30)
_DRIVER = 0.6 * GIB
"""What the driver keeps for itself of each GPU, at most."""


class Pattern(StrEnum):
    """What the figures of one message show. The first that fits, in this order."""

    GIANT = "giant"
    """One request for more than half of the GPU, or than all that could be free."""
    OTHERS = "others"
    """Other processes hold what was asked for."""
    CAPPED = "capped"
    """A limit of the process's own, below the GPU's memory."""
    FRAGMENTED = "fragmented"
    """The allocator has as much reserved and unused as was asked for, in pieces."""
    POOLS = "pools"
    """CUDA graphs keep much of it in pools of their own."""
    OUTSIDE = "outside"
    """Much is held by this process outside PyTorch's allocator."""
    FULL = "full"
    """PyTorch's own tensors fill the GPU."""
    UNTOLD = "untold"
    """The message has no figures, or they do not show it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One message's figures in GiB; None where it does not tell."""

    requested: float | None = None
    capacity: float | None = None
    free: float | None = None
    allocated: float | None = None
    """By tensors of PyTorch."""
    unallocated: float | None = None
    """Reserved by PyTorch's allocator, and in no tensor."""
    outside: float | None = None
    """Held by this process outside PyTorch: context, communication buffers, other libraries."""
    others: float | None = None
    """Held by other processes."""
    private: float | None = None
    allowed: float | None = None
    pattern: Pattern = Pattern.UNTOLD


def read_figures(fields: Mapping[str, str]) -> Figures:
    """What the named groups of a message (`pt.oom.*`) tell."""
    need, capacity, free, allocated = (size(fields.get(name)) for name in ("need", "capacity", "free", "allocated"))
    unallocated, reserved = size(fields.get("unallocated")), size(fields.get("reserved"))
    in_use, other = size(fields.get("in_use")), size(fields.get("other_in_use"))
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(reserved - allocated, 0.0)
    if in_use is None and other is not None and allocated is not None and other >= allocated:
        in_use = other  # in a container its own process has a number that it does not know
    outside = others = None
    if in_use is not None and allocated is not None and unallocated is not None:
        outside = max(in_use - allocated - unallocated, 0.0)
    if in_use is not None and capacity is not None and free is not None:
        others = max(capacity - free - in_use, 0.0)
        others = others if others >= _DRIVER else 0.0
    figures = Figures(
        _gib(need), _gib(capacity), _gib(free), _gib(allocated), _gib(unallocated), _gib(outside), _gib(others),
        _gib(size(fields.get("private"))), _gib(size(fields.get("allowed"))),
    )  # fmt: skip
    return replace(figures, pattern=_pattern(figures))


def _gib(value: float | None) -> float | None:
    return None if value is None else value / GIB


def size(text: str | None) -> float | None:
    """Bytes of `2.00 GiB`; None where it is no size."""
    found = _SIZE.fullmatch(text.strip()) if text else None
    unit = _UNITS.get(found[2]) if found else None
    return float(found[1]) * unit if found and unit else None


def _pattern(f: Figures) -> Pattern:
    if f.requested is None or f.capacity is None:
        return Pattern.UNTOLD
    need, capacity, free = f.requested, f.capacity, f.free or 0.0
    outside, others = f.outside or 0.0, f.others or 0.0
    if need > capacity - outside or need >= capacity / 2:
        return Pattern.GIANT
    if others >= max(1.0, 0.05 * capacity) and need <= free + others:
        return Pattern.OTHERS
    if f.allocated is None or f.unallocated is None:
        return Pattern.UNTOLD
    idle, tensors = f.unallocated, f.allocated
    in_order = (
        (Pattern.CAPPED, f.allowed is not None and tensors + idle + need > f.allowed),
        (
            Pattern.FRAGMENTED,
            idle >= max(need, 0.02 * capacity) or (idle >= max(1.0, 0.1 * capacity) and idle + free >= need),
        ),
        (Pattern.POOLS, f.private is not None and f.private >= 0.2 * tensors),
        (Pattern.OUTSIDE, outside >= max(3.0, 0.08 * capacity)),
        (Pattern.FULL, tensors >= 0.85 * (capacity - others - outside)),
    )
    return next((pattern for pattern, holds in in_order if holds), Pattern.UNTOLD)
