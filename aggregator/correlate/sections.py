"""Joins facts that a report spreads over lines: a pod's description, a launcher's closing block."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import parsedate_to_datetime

from parsers.records import Role, Signal, Stamp, StampQuality

_BLOCK_FAMILIES = ("mpi.", "hvd.", "hydra.")
_BLOCK_LINES = 8
"""Lines of one closing block are no further apart."""
_NS = 1_000_000_000
_FAULTS = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM})


def join_sections(signals: Iterable[Signal]) -> list[Signal]:
    """Signals with the facts of their section filled in; lines that only completed another are dropped."""
    kept: list[Signal] = []
    pod: str | None = None
    source = -1
    for signal in signals:
        if signal.source != source:
            source, pod = signal.source, None
        if signal.signature == "k8s.pod":
            pod = signal.fields.get("pod")
        elif signal.signature.startswith("k8s.") and pod is not None:
            signal.fields.setdefault("pod", pod)
            if signal.signature == "k8s.container_time":
                _finished(signal, kept, pod)
        elif _completes(signal, kept):
            continue
        kept.append(signal)
    return kept


def drop_echoes(signals: Iterable[Signal]) -> list[Signal]:
    """Without the faults of no known rank that stand, with their rank, in another file too.

    A launcher's merged output repeats what the rank's own file has; the same line counts once.
    """
    found = list(signals)
    owned: dict[tuple[str, str], set[int]] = {}
    for signal in found:
        if signal.rank is not None and signal.role in _FAULTS:
            owned.setdefault(_print_of(signal), set()).add(signal.source)
    return [
        signal
        for signal in found
        if signal.rank is not None
        or signal.role not in _FAULTS
        or not owned.get(_print_of(signal), set()) - {signal.source}
    ]


def _print_of(signal: Signal) -> tuple[str, str]:
    exception = signal.exception
    if exception is not None:
        return signal.signature, f"{exception.root_type}: {exception.root_message}"
    return signal.signature, signal.text.split("] ")[-1].strip()


def _finished(signal: Signal, kept: list[Signal], pod: str) -> None:
    """When a container ended, given to the lines that say how."""
    text = signal.fields.get("finished")
    stamp = signal.stamp if signal.quality is StampQuality.OWN else None
    if text:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return
        stamp = Stamp(int(moment.timestamp()) * _NS, zoned=True)
    for other in reversed(kept):
        if other.source != signal.source or other.fields.get("pod") != pod:
            break
        if other.role is Role.EXIT and stamp is not None:
            other.stamp, other.quality = stamp, StampQuality.OWN


def _completes(signal: Signal, kept: list[Signal]) -> bool:
    """Whether a line only adds to the exit report a few lines above it."""
    if signal.role not in {Role.EXIT, Role.CONTEXT, Role.IDENTITY} or not kept:
        return False
    family = next((name for name in _BLOCK_FAMILIES if signal.signature.startswith(name)), None)
    if family is None:
        return False
    for other in reversed(kept[-4:]):
        near = other.source == signal.source and 0 <= signal.line - other.line <= _BLOCK_LINES
        if (
            near
            and other.role is Role.EXIT
            and other.signature.startswith(family)
            and other.signature != signal.signature
        ):
            shared = other.fields.keys() & signal.fields.keys() - {"level", "logger", "tag_task"}
            if all(other.fields[name] == signal.fields[name] for name in shared):
                other.fields.update(signal.fields)
                return signal.role is Role.EXIT
    return False
