"""Ranks of files that tell them only beside their siblings: names that differ in one number."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aggregator import layouts
from aggregator.layouts import host_family, plain_name
from aggregator.opening import read_head, read_tail
from parsers.later import later
from parsers.records import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.discover import File

_TAIL = 64 << 10
_SEVERAL = 2
_TAG = re.compile(rb"^(?:\[[A-Za-z_]+\d+\]:)?\[rank(?P<rank>\d{1,7})\]:", re.MULTILINE)
_TAG_OR_FIELD = re.compile(
    rb"^(?:(?:\[[A-Za-z_]+\d+\]:)?\[rank|[\d:., TZ-]{0,40}\| {0,4}[rR]ank[ =:]{1,4})(?P<rank>\d{1,7})(?:\]:| {0,4}\|)",
    re.MULTILINE,
)
"""Besides PyTorch's tag the field of a logger that puts bars between them: `2026-01-02 03:04:05 | rank  3 | text`."""
_NCCL = re.compile(rb"^(?P<host>[A-Za-z][A-Za-z0-9_.-]{0,62}):\d{1,9}:\d{1,9} \[\d{1,3}\] ", re.MULTILINE)
SAMPLE = 64
"""Files of one family whose content is asked whether the family is what it seems."""
_STREAM_WORD = later(r"stdout|stderr|(?<![a-z])(?:out|err)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A file and the number in its path that tells it from its siblings."""

    file: File
    prefix: str
    number: int
    suffix: str


def rank_families(files: list[File]) -> set[str]:
    """Gives ranks to files that differ from their siblings in one number only; returns the hosts met in their names.

    `log.0` … `log.7` (srun -o log.%t), `tx-a.0.log` … `tx-b.7.log` (%N.%t), `node-b/out.3`. Numbers that go on over the
    hosts are global ranks, numbers that begin anew on each are local ones, and anything else is neither.
    """
    groups: dict[tuple[str, int], dict[str, list[_Slot]]] = {}
    for slot in _slots(files):
        group = groups.setdefault((slot.suffix, slot.prefix.count("/")), {})
        group.setdefault(slot.prefix, []).append(slot)
    hosts: set[str] = set()
    for by_prefix in groups.values():
        names = {prefix: layouts.host_part(prefix, of_rank=True) for prefix in by_prefix}
        spoken = len(set(names.values())) == len(names) > 1 and _say_their_host(by_prefix, names)
        if not spoken and (not host_family(set(names.values())) or len(set(names.values())) != len(names)):
            names = {prefix: layouts.host_part(prefix) for prefix in by_prefix}
        if spoken or (len(by_prefix) > 1 and host_family(set(names.values())) >= set(names.values())):
            hosts |= _over_hosts(by_prefix, names)
            continue
        numbers = [{slot.number for slot in slots} for slots in by_prefix.values()]
        overlap = sum(map(len, numbers)) > len(set().union(*numbers))
        folders = {prefix.rpartition("/")[0] for prefix in by_prefix}
        for prefix, slots in by_prefix.items():
            # The same numbers in folders that are neither hosts nor attempts: nobody can say what they count.
            if not (overlap and len(folders) > 1 and layouts.attempt_of(prefix) is None):
                _alone(prefix, slots, overlap=overlap)
    return hosts


def _slots(files: list[File]) -> Iterator[_Slot]:
    shapes: dict[tuple[str, ...], list[tuple[File, list[str]]]] = {}
    for file in files:
        if file.source.kind is SourceKind.LOG and file.source.layout == "plain" and file.parts != ("-",):
            path = "/".join((*file.parts[:-1], plain_name(file.parts[-1])))
            tokens = re.split(r"([0-9]+)", _STREAM_WORD.sub("", path))
            shapes.setdefault(tuple(tokens[::2]), []).append((file, tokens))
    for texts, members in shapes.items():
        places = range(1, 2 * len(texts) - 1, 2)
        numbers = {place: {int(tokens[place]) for _, tokens in members} for place in places}
        varying = [place for place in reversed(places) if len(numbers[place]) > 1] or list(places)[-1:]
        for place in [place for place in varying if layouts.from_zero(numbers[place])][:1] or varying[:1]:
            for file, tokens in members:
                yield _Slot(file, "".join(tokens[:place]), int(tokens[place]), "#".join(tokens[place + 1 :: 2]))


def _say_their_host(by_prefix: dict[str, list[_Slot]], names: dict[str, str]) -> bool:
    """Whether NCCL's lines in a file give the host of its name: then the siblings do so too (`vela`, `lyra`)."""
    if host_family(set(names.values())) >= set(names.values()):
        return False  # seen without opening a file
    slots = [slot for members in by_prefix.values() for slot in members]
    return any(
        said["host"].decode() == names[slot.prefix]
        for slot in slots[:SAMPLE]
        for said in _NCCL.finditer(_ends(slot.file))
    )


def _over_hosts(by_prefix: dict[str, list[_Slot]], names: dict[str, str]) -> set[str]:
    """Judges a family whose files are spread over the hosts in `names`; returns these if it is one."""
    numbers = [{slot.number for slot in slots} for slots in by_prefix.values()]
    together, slots = set[int]().union(*numbers), [slot for members in by_prefix.values() for slot in members]
    if any(layouts.NO_RANK.fullmatch(layouts.last_word(prefix)[0]) for prefix in by_prefix):
        return set()
    if sum(map(len, numbers)) == len(together) and layouts.from_zero(together) and not _contradicted(slots):
        _assign(slots, "rank", names)
    elif all(map(layouts.from_zero, numbers)):
        _assign(slots, "local_rank", names)
    else:
        return set()
    return set(names.values())


def _alone(prefix: str, slots: list[_Slot], *, overlap: bool) -> None:
    """Judges a family on one host, or on one that the names don't tell."""
    numbers = {slot.number for slot in slots}
    word, border, before = layouts.last_word(prefix)
    logs, names = {slot.file.parts for slot in slots}, {slot.file.parts[-1] for slot in slots}
    if not layouts.from_zero(numbers) or len(logs) > 2 * len(numbers):
        return
    if layouts.NO_RANK.fullmatch(word):
        if not overlap and _confirmed(slots):
            _assign(slots, "rank")
        return
    # `train-worker-0` is a pod, `worker-0` a process.
    named = layouts.RANK_WORD.fullmatch(word) and not (word and before and border == "-")
    if layouts.NODE_WORD.fullmatch(word):
        _assign(slots, "node_rank")
    elif layouts.LOCAL_WORD.fullmatch(word) or (prefix[-1:] in {"", "/"} and names <= {"stdout.log", "stderr.log"}):
        _assign(slots, "local_rank")
    elif named or (border[:1] in {".", "_"} and not overlap):
        if not _contradicted(slots):
            _assign(slots, "rank")
    elif not overlap and _confirmed(slots):
        _assign(slots, "rank")


def _assign(slots: list[_Slot], key: str, hosts: dict[str, str] | None = None) -> None:
    layout = {"rank": "rank-family", "local_rank": "local-family", "node_rank": "node-family"}[key]
    for slot in slots:
        told: dict[str, Any] = {key: slot.number, "layout": layout, "host": (hosts or {}).get(slot.prefix)}
        slot.file.source = replace(slot.file.source, **told)


def _contradicted(slots: list[_Slot]) -> bool:
    """Whether a file of the family holds the tag of another rank: then it is one file a node, or something else."""
    return any((tags := tags_of(slot.file)) and tags != {slot.number} for slot in slots[:SAMPLE])


def _confirmed(slots: list[_Slot]) -> bool:
    """Whether several files of the family hold the tag of the rank that their name tells, and none that of another."""
    tags = [(slot.number, found) for slot in slots[:SAMPLE] if (found := tags_of(slot.file, _TAG_OR_FIELD))]
    return len(tags) >= _SEVERAL and all(found == {number} for number, found in tags)


def tags_of(file: File, tag: re.Pattern[bytes] = _TAG) -> set[int]:
    """The ranks whose PyTorch tag (`[rank3]:`) stands at the front of lines, at both ends of the file."""
    return {int(found["rank"]) for found in tag.finditer(_ends(file))}


def _ends(file: File) -> bytes:
    """What stands at both ends of a file."""
    if file.ends is not None:
        return file.ends
    return read_head(file.source, _TAIL) + b"\n" + read_tail(file.source, _TAIL)
