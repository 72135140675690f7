"""Joins facts that a report spreads over lines: a pod's description, a launcher's closing block, a rank's section."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aggregator.correlate.evidence import number
from aggregator.correlate.ras import size_communicators
from parsers.records import Known, Role, Signal, Stamp, StampQuality

_BLOCK_FAMILIES = ("mpi.", "hvd.", "hydra.")
_BLOCK_LINES = 8
"""Lines of one closing block, or of one container's state, are no further apart."""
_NS = 1_000_000_000
_FAULTS = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM})
_LAUNCHERS_OWN = frozenset({"composer.block"})
_SECTIONS = _LAUNCHERS_OWN | {"section.head"}
_CLOSES = re.compile(r"[-=#*] ?end ", re.IGNORECASE)
_OF_BARRIER = frozenset({"jax.barrier.absent", "jax.task.listed"})
_BARRIER_SIGNALS = 4
_SENT_LINES = 100
"""A traceback that was sent back begins right below the worker's name, and is no longer."""
_SECTION_RANKS = 2
"""Sections of so many ranks make a file one that others were put into: one alone may be a program's own heading."""
_OBJECT = re.compile(r"(?:^|\s)[Pp]od/(?P<pod>[a-z0-9][a-z0-9.-]{0,252})\s")
"""What an event is about, as `kubectl get events` lists it."""
_YAML_STEP, _JSON_STEP = 2, 4
"""How much deeper than `kind` the keys of `metadata` stand in what kubectl prints."""


@dataclass(slots=True)
class _Pod:
    """The pod that a report of Kubernetes is at."""

    name: str | None = None
    awaited: int | None = None
    """Columns that `kind: Pod` is indented, until the pod's name has been read."""
    ended: tuple[Stamp, int] | None = None
    """When its last container ended, and the line that says so."""
    succeeded: bool = False


def join_sections(signals: Iterable[Signal]) -> list[Signal]:
    """Signals with the facts of their section filled in; lines that only completed another are dropped."""
    kept: list[Signal] = []
    pod = _Pod()
    source = -1
    for signal in signals:
        if signal.source != source:
            source, pod = signal.source, _Pod()
        if signal.signature.startswith("k8s."):
            if not _described(signal, kept, pod):
                continue
        elif _completes(signal, kept):
            continue
        if signal.signature in _OF_BARRIER:
            _of_barrier(signal, kept)
        if signal.exception is not None and kept and _is_sent_back(kept[-1], signal):
            signal.fields["raised_by"] = kept[-1].fields["peer_rank"]
        kept.append(signal)
    _own_sections(kept)
    size_communicators(kept)
    return kept


def _is_sent_back(above: Signal, signal: Signal) -> bool:
    """Whether a traceback is the one that a worker sent to its caller, who prints it below the worker's name."""
    return (
        above.signature == "pt.rpc.remote"
        and (above.source, above.rank, above.stream) == (signal.source, signal.rank, signal.stream)
        and signal.line - above.line <= _SENT_LINES
    )


def _of_barrier(signal: Signal, kept: Sequence[Signal]) -> None:
    """The tasks listed below a barrier that timed out are those that it waited for."""
    for other in reversed(kept[-_BARRIER_SIGNALS:]):
        if other.source == signal.source and other.signature.startswith("jax.barrier") and other.kind is not None:
            signal.kind, signal.layer, signal.phase = other.kind, other.layer, other.phase
            return


def _described(signal: Signal, kept: list[Signal], pod: _Pod) -> bool:
    """Give a line of a pod's description its pod; tells whether the line is worth keeping."""
    if signal.signature == "k8s.object":
        pod.name, pod.awaited, pod.ended, pod.succeeded = None, _indent(signal), None, False
        return False
    if signal.signature == "k8s.object_name":
        step = _JSON_STEP if '"name"' in signal.text else _YAML_STEP
        if pod.awaited is None or _indent(signal) - pod.awaited != step:
            return False
        signal.signature, signal.fields["pod"] = "k8s.pod", signal.fields.pop("name")
    if signal.signature == "k8s.pod":
        pod.name, pod.awaited, pod.ended, pod.succeeded = signal.fields.get("pod"), None, None, False
    elif (object_of := _OBJECT.search(signal.text)) is not None:
        signal.fields.setdefault("pod", object_of["pod"])
    elif pod.name is not None:
        signal.fields.setdefault("pod", pod.name)
        pod.succeeded = pod.succeeded or signal.signature == "k8s.succeeded"
        if signal.role is Role.EXIT and pod.succeeded:
            return False  # of a start before the last
        if signal.signature == "k8s.container_time":
            _finished(signal, kept, pod)
        elif signal.role is Role.EXIT and pod.ended is not None and signal.line - pod.ended[1] <= _BLOCK_LINES:
            signal.stamp, signal.quality = pod.ended[0], StampQuality.OWN
    return True


def _indent(signal: Signal) -> int:
    """Columns before a line's first word; a list's dash counts as blank."""
    return len(signal.text) - len(signal.text.lstrip(" -"))


def _own_sections(signals: Sequence[Signal]) -> None:
    """What stands in a rank's section of a file is that rank's, unless it says otherwise itself."""
    heads: dict[int, set[int]] = defaultdict(set)
    for signal in signals:
        if signal.signature in _SECTIONS and (rank := _section_rank(signal)) is not None:
            heads[signal.source].add(rank)
    current: tuple[int, int] | None = None
    for signal in signals:
        if signal.signature in _SECTIONS:
            rank = _section_rank(signal)
            sure = signal.signature in _LAUNCHERS_OWN or len(heads[signal.source]) >= _SECTION_RANKS
            closes = _CLOSES.search(signal.text) is not None
            current = None if rank is None or closes or not sure else (signal.source, rank)
        elif current is not None and current[0] == signal.source and _takes(signal):
            signal.rank, signal.rank_how = current[1], Known.TAG


def _takes(signal: Signal) -> bool:
    return signal.rank is None and signal.role is not Role.EXIT


def _section_rank(signal: Signal) -> int | None:
    return number(signal.fields.get("rank") or signal.fields.get("banner_rank"))


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


def _finished(signal: Signal, kept: list[Signal], pod: _Pod) -> None:
    """When a container ended, given to the lines that say how: `describe` has them above, YAML on both sides."""
    text = signal.fields.get("finished")
    stamp = signal.stamp if signal.quality is StampQuality.OWN else None
    if text:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - brings sockets, for what few logs tell

        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return
        stamp = Stamp(int(moment.timestamp()) * _NS, zoned=True)
    if stamp is None:
        return
    pod.ended = (stamp, signal.line)
    for other in reversed(kept):
        if other.source != signal.source or other.fields.get("pod") != pod.name:
            break
        if other.role is Role.EXIT:
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
