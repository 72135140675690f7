"""Reads flight-recorder dumps: what one process of ProcessGroupNCCL knows of its latest collectives.

Dumps are pickles (written by PyTorch itself) or JSON (written by tools), versions 1.4 to 2.10. Keys are looked for by
presence, never by version. One file covers all process groups of a process. Source:
https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/FlightRecorder.hpp
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from parsers.records import Frame

MAX_ENTRIES = 200_000
MAX_FRAMES = 128
MAX_TENSORS = 8192
MAX_DIMENSIONS = 16
MAX_TEXT = 1024
_INT64 = 1 << 63


class EntryState(StrEnum):
    """How far an operation came. `scheduled` to `completed` without `started` is usual: start events are optional."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A process group: `ranks` are global, the position of one in it is its rank inside the group."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Last sequence numbers of one group in one process; -1 means none yet, None not told.

    `completed` counts a failed operation as completed soon after its time-out, and mixes in point-to-point numbers.
    """

    enqueued: int | None
    started: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded operation.

    `record_id` orders the operations of the process over all groups. `seq` counts the collectives of a group and is
    comparable over ranks. `pg_id` means something within this process only; `group` is the name that members share.
    `frames` are innermost first. Times are ns since the epoch by the host's clock, None where not recorded.
    """

    record_id: int
    pg_id: int
    group: str
    desc: str
    seq: int
    p2p_seq: int
    op_id: int
    name: str
    in_sizes: tuple[tuple[int, ...], ...]
    out_sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    state: EntryState
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    retired: bool
    timeout_ms: int | None
    is_p2p: bool
    frames: tuple[Frame, ...] = ()
    thread_name: str = ""


@dataclass(frozen=True, slots=True)
class FlightDump:
    """One file. `entries` are oldest first; `first_record_id` above 0 tells how many were overwritten."""

    rank: int | None
    version: str
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    status: Mapping[int, GroupStatus] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    first_record_id: int | None = None

    def config_of(self, group: str, desc: str = "") -> GroupConfig | None:
        """The configuration of a group by its name in the entries.

        The default group's is written without a name by some back ends: then the only nameless one is meant.
        """
        if group in self.groups:
            return self.groups[group]
        nameless = self.groups.get("")
        return nameless if nameless is not None and (group == "0" or desc == "default_pg") else None

    def status_of(self, group: str) -> GroupStatus | None:
        """The counters of a group, joined through the entries' `pg_id`; 0 is the default group in every process."""
        for entry in reversed(self.entries):
            if entry.group == group:
                return self.status.get(entry.pg_id)
        return self.status.get(0) if group in ("0", "") else None


def load_dump(data: bytes, rank: int | None) -> FlightDump:
    """Read one dump.

    Args:
        data: the file's bytes, decompressed.
        rank: the global rank told by the file's name; the dump itself does not say whose it is.

    Raises:
        UnsafePickle: a pickle that holds more than plain data.
        DamagedDump: cut off, malformed, or not a flight-recorder dump.
    """
    from parsers.safe_pickle import DamagedDump, load_json, load_pickle  # noqa: PLC0415 - few jobs have dumps

    raw = load_pickle(data) if data[:1] == b"\x80" else load_json(data)
    if not isinstance(raw, dict) or not any(key in raw for key in ("entries", "pg_status", "pg_config")):
        raise DamagedDump("not a flight-recorder dump: none of `entries`, `pg_config` and `pg_status` is in it")
    listed = raw.get("entries") or ()
    if not isinstance(listed, (list, tuple)):
        raise DamagedDump("not a flight-recorder dump: `entries` is not a list")
    reader = _EntryReader()
    entries = [entry for item in listed[-MAX_ENTRIES:] if (entry := reader.read(item)) is not None]
    if listed and not entries:
        raise DamagedDump("not a flight-recorder dump: none of its entries has a group and a sequence number")
    entries.sort(key=lambda entry: entry.record_id)
    return FlightDump(
        rank=rank if rank is not None else _int(raw.get("rank")),
        version=_text(raw.get("version")),
        groups=_groups(raw.get("pg_config")),
        status=_status(raw.get("pg_status")),
        entries=tuple(entries),
        first_record_id=entries[0].record_id if entries else None,
    )


T = TypeVar("T", bound=Hashable)


class _EntryReader:
    """Turns dicts into entries. Equal parts are kept once: a ring repeats the same few stacks and sizes."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Hashable] = {}
        self.stacks: dict[Hashable, tuple[Frame, ...]] = {}

    def read(self, raw: object) -> Entry | None:
        """None where the item is no entry: it has neither a sequence number nor a group."""
        if not isinstance(raw, dict):
            return None
        seq = _int(raw.get("collective_seq_id", raw.get("seq_id")))
        pg_id = _int(raw.get("pg_id"))
        pair = raw.get("process_group")
        named = isinstance(pair, (list, tuple)) and len(pair) > 0
        if seq is None or (pg_id is None and not named):
            return None
        # Version 1.4 names no group; its counter of groups is equal over ranks that created the same ones.
        names = [_text(part) for part in pair[:2]] if isinstance(pair, (list, tuple)) and named else [str(pg_id)]
        name = self._once(_text(raw.get("profiling_name")))
        return Entry(
            record_id=_int(raw.get("record_id", raw.get("id"))) or 0,
            pg_id=-1 if pg_id is None else pg_id,
            group=self._once(names[0]),
            desc=self._once(names[1] if len(names) > 1 else ""),
            seq=seq,
            p2p_seq=_int(raw.get("p2p_seq_id")) or 0,
            op_id=_int(raw.get("op_id")) or 0,
            name=name,
            in_sizes=self._once(_sizes(raw.get("input_sizes"))),
            out_sizes=self._once(_sizes(raw.get("output_sizes"))),
            dtypes=self._once(_texts(raw.get("input_dtypes"))),
            state=_state(raw.get("state")),
            created_ns=_time(raw.get("time_created_ns")),
            started_ns=_time(raw.get("time_discovered_started_ns")),
            completed_ns=_time(raw.get("time_discovered_completed_ns")),
            retired=raw.get("retired") is True,
            timeout_ms=_int(raw.get("timeout_ms")),
            is_p2p=_is_p2p(raw.get("is_p2p"), name),
            frames=self._frames(raw.get("frames")),
            thread_name=self._once(_text(raw.get("thread_name"))),
        )

    def _frames(self, raw: object) -> tuple[Frame, ...]:
        if not isinstance(raw, (list, tuple)):
            return ()
        parts = tuple(
            (item.get("filename"), item.get("line"), item.get("name"))
            for item in raw[:MAX_FRAMES]
            if isinstance(item, dict)
        )
        try:
            known = self.stacks.get(parts)
        except TypeError:
            return ()  # a frame holds a list or a dict
        if known is None:
            known = tuple(
                self._once(Frame(_text(file), _int(line) or 0, _text(function))) for file, line, function in parts
            )
            self.stacks[parts] = known
        return known

    def _once(self, value: T) -> T:
        kept = self.known.setdefault(value, value)
        return kept if isinstance(kept, type(value)) else value


_P2P = re.compile(r":?(?:send|recv)\b")


def _is_p2p(raw: object, name: str) -> bool:
    return raw if isinstance(raw, bool) else _P2P.search(name) is not None


def _int(raw: object) -> int | None:
    """A number, or the text of one: JSON dumps write counters as text. None for anything else, NaN included."""
    if type(raw) is int and -_INT64 <= raw < _INT64:
        return raw
    if isinstance(raw, str):
        raw = int(raw) if re.fullmatch(r"[+-]?[0-9]{1,19}", raw) else None
    if isinstance(raw, float):
        raw = int(raw) if raw.is_integer() else None
    if isinstance(raw, bool) or not isinstance(raw, int):
        return None
    return raw if -_INT64 <= raw < _INT64 else None


def _time(raw: object) -> int | None:
    """Ns since the epoch; a missing time is None in pickles and 0 in JSON."""
    number = _int(raw)
    return number if number is not None and number > 0 else None


def _text(raw: object) -> str:
    return raw[:MAX_TEXT] if isinstance(raw, str) else str(number) if (number := _int(raw)) is not None else ""


def _texts(raw: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in raw[:MAX_TENSORS]) if isinstance(raw, (list, tuple)) else ()


def _sizes(raw: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(raw, (list, tuple)):
        return ()
    shapes = (item if isinstance(item, (list, tuple)) else (item,) for item in raw[:MAX_TENSORS])
    return tuple(tuple(_int(size) or 0 for size in shape[:MAX_DIMENSIONS]) for shape in shapes)


def _state(raw: object) -> EntryState:
    return EntryState(raw) if isinstance(raw, str) and raw in list(EntryState) else EntryState.UNKNOWN


def _ranks(raw: object) -> tuple[int, ...]:
    """`"[0, 1, 2]"`, text that looks like a list, or a list."""
    items: Sequence[object] = ()
    if isinstance(raw, str):
        items = re.findall(r"[0-9]{1,9}", raw[: 16 << 20])
    elif isinstance(raw, (list, tuple)):
        items = raw
    return tuple(number for item in items if (number := _int(item)) is not None and number >= 0)


def _groups(raw: object) -> dict[str, GroupConfig]:
    if not isinstance(raw, dict):
        return {}
    groups = {}
    for key, item in raw.items():
        if isinstance(item, dict):
            name = _text(item.get("name", key))
            groups[name] = GroupConfig(name, _text(item.get("desc")), _ranks(item.get("ranks")))
    return groups


def _status(raw: object) -> dict[int, GroupStatus]:
    if not isinstance(raw, dict):
        return {}
    found = {}
    for key, item in raw.items():
        pg_id = _int(key)
        if isinstance(item, dict) and pg_id is not None:
            found[pg_id] = GroupStatus(
                *(_int(item.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed"))
            )
    return found
