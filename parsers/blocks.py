"""What an assembled block says: its signals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from parsers.clip import clip
from parsers.later import later
from parsers.lineformats import Message
from parsers.multiline import Block, BlockKind, Place
from parsers.records import ExceptionInfo, Frame, Known, Role, Signal
from parsers.stacks import Stack, read_stack, show_stack
from parsers.torch_elastic import parse_traceback

Matcher = Callable[[str], list[tuple[Message, dict[str, str]]]]

PLAIN_EXCEPTION = "py.exception"
"""Signature of an uncaught exception that no message format knows."""
STACK_DUMP = "py.stack"
"""Signature of what a process was doing when its stacks were dumped. Its fields are those of `_stack_signals`."""

_LOCAL_KINDS = frozenset(
    {
        "storage_io",
        "disk_full",
        "host_oom",
        "checkpoint_corrupt",
        "data_error",
        "config_error",
        "import_error",
        "shm_exhausted",
    }
)
_SHUTDOWN_LEADS = ("Exception ignored in", "--- Logging error ---", "Exception ignored on", "Error in atexit")
_THREAD_LEAD = later(r"^(?:Exception in thread |Exception in threading)")
_WORKER_FRAME = later(r"torch/utils/data/_utils/(?:worker|fetch|collate)\.py$")
_CAUGHT_IN_WORKER = later(r"Caught \w+ in (?:DataLoader|pin memory)")
_FRAME = later(r'^(?:\s*|> )File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:,? in (?P<function>.+))?')
_FATAL = later(r"Fatal Python error: (?P<what>.+)")
_BOX_FIELD = later(r"^\s+(?P<name>time|host|rank|exitcode|error_file|traceback)\s*: ?(?P<value>.*)$")
_BOX_ENTRY = later(r"^\s*\[(?P<index>\d+)\]:\s*$")
_BOX_SECTIONS = {"Failures:": "other", "Root Cause": "root_cause"}
_BOX_RANK = later(r"^(?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_BOX_EXIT = later(r"^(?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")
_RAY_PROCESS = later(r"ray::\S{1,200} \(pid=(?P<pid>\d+), ip=(?P<ip>[0-9a-fA-F.:]+)")
_OF_RANK = later(r"\(RANK (?P<rank>\d{1,6})\)")
"""Behind the first line of what a rank had raised (torch.distributed.checkpoint.api.CheckpointException)."""
_SPAWNED = later(r"^-- Process (?P<index>\d{1,5}) terminated with the following error")
_CODE_LINES = 8
_CODE_CHARS = 160
_FRAME_KINDS = (
    (
        re.compile(r"torch/serialization\.py:_?(?:legacy_)?load$|safetensors/.*:(?:load_file|safe_open)$"),
        "checkpoint_corrupt",
    ),
    (re.compile(r":load_state_dict$|dcp/.*:load$|checkpoint/state_dict_loader\.py"), "checkpoint_corrupt"),
)
"""Reading a checkpoint fails in many ways; where it failed says what it was."""
_EXCEPTION_HEAD = later(r"^\s*(?P<type>[A-Za-z_][\w.]*)(?:: |:$|$)")


def block_signals(block: Block, match: Matcher, source: int) -> Iterator[Signal]:
    """The signals of one block. Identity and time are the caller's to complete."""
    if block.kind is BlockKind.BOX:
        yield from _box_signals(block, match, source)
    elif block.kind is BlockKind.FAULT:
        yield from _fault_signals(block, match, source)
        if "Aborted" in block.lines[0]:  # by its own watchdog, perhaps: then it tells where the process waited
            yield from _stack_signals(block, source, skip=1)
    elif block.kind is BlockKind.STACK:
        yield from _stack_signals(block, source)
    else:
        info = parse_traceback(block.lines)
        if info is not None:
            signal = exception_signal(
                info, match, source, _exception_place(block.lines, block.places, info), lead=block.lead
            )
            for process in (found for body in block.lines if (found := _RAY_PROCESS.search(body))):
                # Each hop of a Ray call is wrapped once more: the innermost, printed last, is where it was raised.
                signal.fields.update(pid=process["pid"], ip=process["ip"])
            if spawned := next((found for body in block.lines if (found := _SPAWNED.match(body))), None):
                signal.fields.setdefault("local_rank", spawned["index"])
            if by := _OF_RANK.fullmatch(block.lead):
                signal.fields["raised_by"] = by["rank"]
            code = _code_lines(block.lines)
            if code:
                signal.fields["code"] = code
            yield signal
        else:
            yield from _plain_signals(block, match, source)


def _plain_signals(block: Block, match: Matcher, source: int) -> Iterator[Signal]:
    """The messages of lines that began as a traceback and are none: its frames were lost, or are elsewhere."""
    for body, place in zip(block.lines, block.places, strict=True):
        for message, fields in match(body):
            yield Signal(
                message.id, message.role, source, place.line, place.offset, clip(body, 4096), message.kind,
                message.layer, message.phase, fields=fields,
            )  # fmt: skip


def exception_signal(
    info: ExceptionInfo, match: Matcher, source: int, place: Place, *, lead: str = "", text: str = ""
) -> Signal:
    """The signal of a traceback: role and kind by the first exception of its chain that a format knows.

    A chain is judged by its beginning: what was raised while handling it does not change who failed. Only where the
    beginning is of no known kind does a later link give the kind.
    """
    role, kind, signature = Role.ROOT, "python_exception", PLAIN_EXCEPTION
    layer: str | None = "software"
    phase: str | None = None
    fields: dict[str, str] = {}
    links = [f"{info.root_type}: {info.root_message}"]
    if (info.type, info.message) != (info.root_type, info.root_message):
        links.append(f"{info.type}: {info.message}")
    for number, link in enumerate(links):
        found = _judged(match(link), link)
        if found is None or (number > 0 and found[0].role is not Role.ROOT):
            continue
        message, named = found
        role, phase = message.role, message.phase or phase
        if kind == "python_exception":
            layer, signature, kind = message.layer, message.id, message.kind or kind
        fields.update(named)
        if role is not Role.EITHER:
            break
    if role is Role.EITHER and kind in _LOCAL_KINDS:
        role = Role.ROOT  # uncaught, and of a kind that no peer can cause
    fields["exception"] = info.root_type or info.type
    worker = bool(_CAUGHT_IN_WORKER.search(info.message)) or any(_WORKER_FRAME.search(f.file) for f in info.frames)
    if worker:
        fields["worker"] = "1"
        if kind == "python_exception" and role is Role.ROOT:
            kind = "data_error"
    elif kind == "python_exception" and role is Role.ROOT:
        kind = _kind_of_stack(info) or kind
    if lead.startswith(_SHUTDOWN_LEADS):
        role = Role.CONTEXT
    elif _THREAD_LEAD.match(lead):
        fields["thread"] = "1"
    if lead:
        fields["lead"] = clip(lead, 200)
    shown = text or f"{info.type}: {info.message}".split("\n", 1)[0]
    if info.root_type and (worker or "RayTaskError" in info.type):  # the place is that of the remote exception
        shown = f"{info.root_type}: {info.root_message}".split("\n", 1)[0]
    return Signal(
        signature,
        role,
        source,
        place.line,
        place.offset,
        clip(shown, 4096),
        kind,
        layer,
        phase,
        fields=fields,
        exception=info,
    )


def _code_lines(lines: Sequence[str]) -> str:
    """The source lines that a traceback shows, innermost last, as far as they are short."""
    code = [
        line.strip()
        for above, line in pairwise(lines)
        if _FRAME.match(above) and line.startswith("    ") and not _FRAME.match(line)
    ]
    return "\n".join(clip(line, _CODE_CHARS) for line in code[-_CODE_LINES:])


def _kind_of_stack(info: ExceptionInfo) -> str | None:
    """What the innermost library frame was about, where an exception of a general type says no more."""
    for frame in reversed(info.frames):
        for pattern, kind in _FRAME_KINDS:
            if pattern.search(f"{frame.file}:{frame.function}"):
                return kind
    return None


def _judged(hits: list[tuple[Message, dict[str, str]]], link: str) -> tuple[Message, dict[str, str]] | None:
    """The message that says what an exception is; advice further down in its text says nothing."""
    for message, fields in hits:
        if message.role in {Role.IDENTITY, Role.PROGRESS, Role.PHASE, Role.STATE, Role.SUCCESS}:
            continue
        if message.role is not Role.CONTEXT or message.match(link.split("\n", 1)[0]) is not None:
            return message, fields
    return None


def _exception_place(lines: Sequence[str], places: Sequence[Place], info: ExceptionInfo) -> Place:
    """The line of the root exception, where it can be found, else of the last line."""
    for wanted in (info.root_type, info.type):
        for body, place in zip(lines, places, strict=True):
            head = _EXCEPTION_HEAD.match(body)
            if wanted and head is not None and head["type"] == wanted:
                return place
    return places[-1]


def _fault_signals(block: Block, match: Matcher, source: int) -> Iterator[Signal]:
    first = block.lines[0]
    fatal = _FATAL.search(first)
    frames: list[Frame] = []
    current = False
    for body in block.lines[1:]:
        if body.startswith(("Current thread", "Stack (most recent")):
            current = True
        elif body.startswith("Thread 0x"):
            current = False
        elif current and (found := _FRAME.match(body)):
            frames.append(Frame(found["file"], int(found["line"]), (found["function"] or "").strip()))
    frames.reverse()
    what = fatal["what"].strip() if fatal else first
    info = ExceptionInfo(f"Fatal Python error: {what}", "", tuple(frames), f"Fatal Python error: {what}", "")
    for message, fields in match(first):
        if message.kind is not None or message.role is not Role.CONTEXT:
            yield Signal(
                message.id, message.role, source, block.place.line, block.place.offset, clip(first, 4096), message.kind,
                message.layer, message.phase, fields=fields, exception=info,
            )  # fmt: skip
            return


def _stack_signals(block: Block, source: int, skip: int = 0) -> Iterator[Signal]:
    """Where the main thread of a dump stands: `stack` (innermost first), `waits`, and whose process it is.

    A DataLoader's worker is its parent's: `pid` is the parent's where that is told, `worker_pid` its own. The first
    `skip` lines of the block are none of the dump.
    """
    lines = block.lines[skip:]
    stack = read_stack(lines, "" if skip else block.lead)
    if stack is None:
        return
    place = block.places[skip + stack.shown]
    fields = {"stack": show_stack(stack.frames), "waits": str(stack.waits), **_stack_owner(stack)}
    yield Signal(
        STACK_DUMP, Role.STATE, source, place.line, place.offset, clip(lines[stack.shown], 4096), fields=fields
    )


def _stack_owner(stack: Stack) -> dict[str, str]:
    told = {"rank": stack.rank, "local_rank": stack.local_rank, "pid": stack.pid}
    if stack.worker:
        told |= {"worker": 1, "worker_pid": stack.pid, "pid": stack.parent}
    return {name: str(value) for name, value in told.items() if value is not None}


@dataclass(slots=True)
class _Entry:
    """One rank's part of a box, as it is read. `shown` is its exit code's line."""

    fields: dict[str, str] = field(default_factory=dict)
    shown: str = ""
    place: Place | None = None
    trace: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


def _box_signals(block: Block, match: Matcher, source: int) -> Iterator[Signal]:
    section = "other"
    entry = _Entry()
    in_trace = False
    for body, where in zip(block.lines, block.places, strict=True):
        found = _BOX_ENTRY.match(body)
        if found or body.startswith(("-----", *_BOX_SECTIONS)):
            yield from _box_entry(entry, section, match, source)
            entry, in_trace = _Entry(), False
            section = next((name for head, name in _BOX_SECTIONS.items() if body.startswith(head)), section)
            if found:
                entry.fields["index"] = found["index"]
            continue
        pair = _BOX_FIELD.match(body)
        if pair and not in_trace:
            in_trace = pair["name"] == "traceback"
            _box_field(entry, pair["name"], pair["value"].strip(), body, where)
        elif in_trace:
            entry.trace.append(body.removeprefix("  "))
            entry.places.append(where)
    yield from _box_entry(entry, section, match, source)


def _box_field(entry: _Entry, name: str, value: str, body: str, where: Place) -> None:
    if name == "rank" and (found := _BOX_RANK.match(value)):
        entry.fields["rank"], entry.fields["local_rank"] = found["rank"], found["local"]
    elif name == "exitcode" and (found := _BOX_EXIT.match(value)):
        entry.fields["exit_code"], entry.fields["pid"] = found["code"], found["pid"]
        entry.shown, entry.place = body.strip(), where
    elif name == "traceback":
        entry.trace, entry.places = [value], [where]
    else:
        entry.fields[name] = value


def _box_entry(entry: _Entry, section: str, match: Matcher, source: int) -> Iterator[Signal]:
    fields, place = entry.fields, entry.place
    if place is None or "rank" not in fields:
        return
    signal = Signal(
        "te.box", Role.EXIT, source, place.line, place.offset, entry.shown, fields={**fields, "section": section}
    )
    signal.rank_how = Known.EXIT
    yield signal
    info = parse_traceback(entry.trace) if entry.trace and entry.trace[0].startswith("Traceback") else None
    if info is not None:
        where = _exception_place(entry.trace, entry.places, info)
        told = exception_signal(info, match, source, where)
        told.fields.update(box_rank=fields["rank"], box_time=fields.get("time", ""), box_host=fields.get("host", ""))
        yield told
