"""The words of the reports: kinds, phases, numbers, moments and ranges as a person would say them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aggregator.verdict import NS_PER_S, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KINDS = {
    "cuda_oom": "CUDA out of memory",
    "host_oom": "host out of memory",
    "shm_exhausted": "shared memory exhausted",
    "gpu_ecc": "GPU memory (ECC) error",
    "gpu_lost": "GPU lost",
    "nvlink_error": "NVLink error",
    "gpu_xid": "GPU error (Xid)",
    "cuda_illegal_access": "CUDA illegal memory access",
    "cuda_device_assert": "CUDA device-side assert",
    "cuda_error": "CUDA error",
    "ib_error": "InfiniBand error",
    "network_error": "network error",
    "rendezvous_failure": "rendezvous failure",
    "nccl_error": "NCCL error",
    "collective_timeout": "collective timeout",
    "collective_mismatch": "collective mismatch",
    "deadlock": "deadlock",
    "python_exception": "uncaught Python exception",
    "import_error": "import error",
    "segfault": "segmentation fault",
    "abort": "abort",
    "killed": "killed",
    "bus_error": "bus error",
    "dataloader_worker_died": "DataLoader worker died",
    "data_error": "bad data",
    "nan_loss": "NaN loss",
    "disk_full": "disk full",
    "storage_io": "storage I/O error",
    "checkpoint_corrupt": "corrupt checkpoint",
    "time_limit": "time limit reached",
    "preempted": "preempted",
    "cancelled": "cancelled",
    "node_failure": "node failure",
    "config_error": "configuration error",
    "unknown": "failure of unknown kind",
}

PHASES = {
    "init": "during start-up",
    "data_loading": "while loading data",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer step",
    "communication": "in a collective",
    "evaluation": "in evaluation",
    "checkpoint": "at a checkpoint",
    "shutdown": "at shutdown",
}

_ASCII = str.maketrans({"…": "...", "±": "+/-"})
_LATER = re.compile(r",? \d[\d.,]* (?:ms|s|min|h) later$")
_MINUTES_FROM_S = 7200
_HOURS_FROM_S = 3 * 86400


def kind_words(kind: str) -> str:
    """A kind in words; an unknown one with its underscores opened."""
    return KINDS.get(kind, kind.replace("_", " "))


def confidence_words(confidence: float) -> str:
    """A calibrated probability in words, with the number."""
    for floor, word in ((0.95, "very high"), (0.8, "high"), (0.6, "fair"), (0.4, "low")):
        if confidence >= floor:
            return f"{word} ({confidence:.2f})"
    return f"very low ({confidence:.2f})"


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks as `0-12, 14, 16-63`, ordered and without repeats."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def ranks_words(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 4`."""
    listed = sorted(set(ranks))
    return f"{'rank' if len(listed) == 1 else 'ranks'} {rank_ranges(listed)}"


def one_of(ranks: Sequence[int], shown: str) -> str:
    """What is said of an ambiguous verdict; `shown` are its ranks as they are to be shown."""
    if len(ranks) == 1:
        return f"{shown}, or something that the logs do not name"
    return f"one of {shown}, which one the logs do not settle"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `12,000 lines`; `many` where the plural is not formed with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def moment(ns: int | None, resolution_ns: int = NS_PER_S) -> str | None:
    """A moment as `2026-03-04 12:03:04.120Z`."""
    text = iso_time(ns, resolution_ns)
    return text.replace("T", " ") if text else None


def period(started: int | None, ended: int | None, resolution_ns: int = NS_PER_S) -> str:
    """`2026-03-04 11:03:04Z to 12:13:04Z`, with the second date where it is another; empty unless both are known."""
    first, last = moment(started, resolution_ns), moment(ended, resolution_ns)
    if first is None or last is None:
        return ""
    day, _, time = last.partition(" ")
    return f"{first} to {time if first.startswith(day) else last}"


def span_words(seconds: float) -> str:
    """A length of time to the precision that matters: `40 ms`, `2.5 s`, `600 s`, `150 min`, `80 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds >= _HOURS_FROM_S:
        return f"{seconds / 3600:.0f} h"
    if seconds >= _MINUTES_FROM_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


def lateness(times: Iterable[int | None], start: int | None) -> str:
    """How much later than `start` (ns) the known `times` are: `600 s later`, `2 to 600 s later`; empty if unknown."""
    known = [time for time in times if time is not None]
    if start is None or not known:
        return ""
    first, last = ((time - start) / NS_PER_S for time in (min(known), max(known)))
    if last < 0:
        return ""  # clocks that disagree: the reasons tell, a number would mislead
    low, high = span_words(max(first, 0.0)), span_words(last)
    if first <= 0 and last == 0:
        return "at the same moment"
    if low == high:
        return f"{high} later"
    same_unit = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return f"{low.rpartition(' ')[0] if same_unit else low} to {high} later"


def without_lateness(reason: str) -> str:
    """A reason without `600 s later` at its end, so that reasons that differ in nothing else are told once."""
    return _LATER.sub("", reason)


def fit(text: str, encoding: str | None) -> str:
    """The text as `encoding` can carry it: ASCII where that is not UTF-8, with escapes for what ASCII lacks."""
    if is_utf8(encoding):
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def is_utf8(encoding: str | None) -> bool:
    """Whether a stream of that encoding carries any text; None is one in memory, which does."""
    return encoding is None or encoding.lower().replace("-", "").replace("_", "") == "utf8"
