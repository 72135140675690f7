"""Reads what torchrun's workers leave behind: `error.json`, and Python tracebacks as text.

Sources: https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/errors/error_handler.py
and https://github.com/python/cpython/blob/main/Lib/traceback.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parsers.clip import clip
from parsers.later import later
from parsers.records import ExceptionInfo, Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ERROR_JSON = 16 << 20
MAX_MESSAGE = 4096
MAX_LINE = 1 << 16
MAX_LINES = 20_000
MAX_FRAMES = 500
"""Innermost frames that are kept of one traceback."""
_MAX_SECONDS = 1 << 33

_NAME = r"[^\W\d]\w*"
# `ray.exceptions.RayTaskError(KeyError): …`, `__main__.main.<locals>.Odd: …`, `KeyboardInterrupt`
_RAISED = later(rf"({_NAME}(?:\.(?:{_NAME}|<locals>))*(?:\({_NAME}(?:\.{_NAME})*\))?)(?::(?: (.*))?)?", re.DOTALL)
_ERROR_NAME = later(r"(?:Error|Exception|Interrupt)$")
_HEADER = later(r"(?:Exception Group |(Original ))?Traceback \(most recent call last\):\s*$")
# loguru points at the frame that caught the exception.
_FRAME = later(r'( *|> )File "([^"]{0,4096})", line (\d{1,9})(?:, in (.{1,500}))?\s*$')
_LINK = later(
    "During handling of the above exception, another exception occurred:"
    "|The above exception was the direct cause of the following exception:"
)
# Where the C++ part of a message begins: its frames are not worth the room.
_CPP = later(r"Exception raised from .{0,1000}\(most recent call first\):|frame #\d+: |C\+\+ CapturedTraceback:")
_GROUP_HEAD = later(r"\s*\+ (Exception Group Traceback \(most recent call last\):)\s*$")
_GROUP_MEMBER = later(r"\s*\+[-+]+ (\d+|\.\.\.) -+\s*$")
_GROUP_END = later(r"\s*\+-+\s*$")
_GROUP_LINE = later(r"\s*\| ?(.*)$", re.DOTALL)
_QUOTES = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class ErrorFile:
    """One worker's `error.json`.

    `type` is as the writer named it (without its module), empty where the message names none. `timestamp_ns` is the
    wall clock of the exception in whole seconds, as ns since the epoch. The root cause's file is copied to the
    launcher's own error file, so the same content may appear twice.
    """

    type: str
    message: str
    exception: ExceptionInfo | None
    timestamp_ns: int | None
    error_code: int | None


def read_error_json(data: bytes) -> ErrorFile | None:
    """Read an `error.json`; None if it is damaged, too large, or something else.

    Form A has an object under `message` (`message`, `extraInfo`, perhaps `errorCode`), form B a text, with
    `timestamp` beside it.
    """
    from parsers.safe_pickle import DamagedDump, load_json  # noqa: PLC0415 - few jobs have such files

    try:
        raw = load_json(data, MAX_ERROR_JSON)
    except DamagedDump:
        return None
    if not isinstance(raw, dict):
        return None
    inner = raw.get("message")
    body = inner if isinstance(inner, dict) else raw
    text = body.get("message")
    if not isinstance(text, str):
        return None
    extra = body.get("extraInfo")
    extra = extra if isinstance(extra, dict) else body
    stack = extra.get("py_callstack")
    # Some writers leave the exception's own line out of the stack: it is the message then.
    lines = stack.split("\n") if isinstance(stack, str) else []
    raised = _RAISED.fullmatch(text[:MAX_LINE]) if ":" in text[:MAX_LINE].partition("\n")[0] else None
    return ErrorFile(
        type=raised[1] if raised else "",
        message=clip((raised[2] or "") if raised else text, MAX_MESSAGE),
        exception=parse_traceback(lines) or parse_traceback([*lines, *text.split("\n")]),
        timestamp_ns=_timestamp(extra.get("timestamp", raw.get("timestamp"))),
        error_code=_code(body.get("errorCode", extra.get("errorCode"))),
    )


def _timestamp(raw: object) -> int | None:
    """Seconds since the epoch, as text or a number, in ns."""
    if isinstance(raw, str):
        found = re.fullmatch(r"\s*(\d{1,11})(?:\.(\d{1,30}))?\s*", raw, re.ASCII)
        if found is None or int(found[1]) > _MAX_SECONDS:
            return None
        return int(found[1]) * 10**9 + int((found[2] or "")[:9].ljust(9, "0"))
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 < raw < _MAX_SECONDS:
        return None
    return raw * 10**9 if isinstance(raw, int) else int(raw * 1000) * 10**6


def _code(raw: object) -> int | None:
    if isinstance(raw, str) and re.fullmatch(r"-?[0-9]{1,9}", raw):
        return int(raw)
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None


def parse_traceback(lines: Sequence[str]) -> ExceptionInfo | None:
    """Read the traceback in a block of lines whose tags have been stripped.

    Handles chains, DataLoader's "Original Traceback" and other tracebacks inside messages, exception groups (the
    first member is followed to the root), and blocks indented as in the launcher's failure box. `root_type`,
    `root_message` and `frames` are the exception's own where nothing precedes it. None if no frame or no exception
    line is found; nothing raises.
    """
    reader = _Reader()
    for raw in lines[:MAX_LINES]:
        if not reader.feed(clip(raw.rstrip("\r\n"), MAX_LINE)):
            break
    reader.finish()
    return reader.result()


@dataclass(slots=True)
class _Raised:
    """One exception of a block, in printing order.

    `inside` marks one printed inside the message of the exception before it, or as the first member of a group;
    `last` one that may be the last of the whole chain; `bare` one right below the header: its frames were not kept.
    """

    inside: bool
    last: bool
    type: str = ""
    frames: list[Frame] = field(default_factory=list)
    message: list[str] = field(default_factory=list)
    room: int = MAX_MESSAGE
    cut: bool = False
    bare: bool = False

    def text(self) -> str:
        lines = list(self.message)
        while lines and (not lines[-1].strip() or lines[-1].strip() in _QUOTES):
            lines.pop()
        return clip("\n".join(lines), MAX_MESSAGE)


class _Reader:
    """State machine over the lines of one block."""

    def __init__(self) -> None:
        self.raised: list[_Raised] = []
        self.now: _Raised | None = None
        self.base = 0
        self.linked = False
        self.grouped = False
        self.member = False
        self.doubted: tuple[str, list[str]] | None = None

    def feed(self, line: str) -> bool:
        """Take one line; False once the block is over."""
        if found := _GROUP_HEAD.match(line):
            self.grouped, self.member = True, False
            return self._header(found[1], found.start(1))
        if self.grouped:
            if found := _GROUP_MEMBER.match(line):
                self._begin(inside=found[1] == "1", last=False)
                self.member = True
                return True
            if _GROUP_END.match(line):
                self.finish()
                return True
            if found := _GROUP_LINE.match(line):
                return self._plain(found[1])
            self.member = False
        return self._plain(line)

    def _plain(self, line: str) -> bool:
        if found := _HEADER.search(line):
            if found.start() == 0 or not line[: found.start()].strip() or self._announces(line[: found.start()]):
                return self._header(line[found.start() :], found.start())
        elif _LINK.match(line.strip()):
            self.finish()
            self.linked = True
            return True
        if self.now is None:
            return self._orphan(line)
        if self.now.type:
            return self._message_line(line)
        self._frame_line(line)
        return True

    def _announces(self, before: str) -> bool:
        """Whether a header after other text on its line is meant: a box's label, or the start of a message."""
        if before.strip() == "traceback :":
            return True
        found = _RAISED.fullmatch(self._unindented(before))
        if found is None or self.now is None or self.now.type or not self.now.frames:
            return False
        self.now.type = found[1]
        return True

    def _header(self, header: str, indent: int) -> bool:
        now = self.now
        if now is not None and not now.type:
            # Frames without an exception (cut off, or a group's member that has a traceback): start again.
            now.frames.clear()
            self.base = indent
            return True
        inside = now is not None and (header.startswith("Original") or self._leads_in(now))
        if self.raised and not self.linked and not inside:
            return now is None and self.grouped  # an unrelated traceback follows
        self._begin(inside=inside, last=not inside and not self.member, base=indent)
        return True

    def _leads_in(self, now: _Raised) -> bool:
        """Whether the message so far introduces a traceback: `… with the following error:`, an opening quote."""
        tail = next((line.strip() for line in reversed(now.message) if line.strip()), "")
        return not tail or tail.endswith(":") or tail in _QUOTES

    def _orphan(self, line: str) -> bool:
        """A line outside any traceback: frames may begin without a header, anything else is passed over."""
        if _FRAME.match(line) and (not self.raised or self.linked):
            self._begin(inside=False, last=not self.member)
            self._frame_line(line)
        return True

    def _begin(self, *, inside: bool, last: bool, base: int = 0) -> None:
        self.finish()
        self.now = _Raised(inside, last)
        self.raised.append(self.now)
        self.base = base
        self.linked = False

    def finish(self) -> None:
        """Close the current exception. A line that was taken back is its own after all if no better one came."""
        if self.now is not None and not self.now.type and self.doubted is not None:
            self.now.type, self.now.message = self.doubted
        self.now = self.doubted = None

    def _unindented(self, line: str) -> str:
        return line[self.base :] if not line[: self.base].strip() else line

    def _frame_line(self, line: str) -> None:
        now = self.now
        if now is None:
            return
        if found := _FRAME.match(line):
            if not now.frames:
                self.base = max(0, len(found[1]) - 2)
            now.frames.append(Frame(found[2], int(found[3]), (found[4] or "").rstrip()))
            del now.frames[:-MAX_FRAMES]
            return
        raised = _RAISED.fullmatch(self._unindented(line).rstrip())
        if raised is not None:
            now.type = raised[1]
            now.message = [raised[2] or ""]
            now.bare = not now.frames and _ERROR_NAME.search(now.type) is not None

    def _message_line(self, line: str) -> bool:
        now = self.now
        if now is None:
            return True
        found = _FRAME.match(line)
        if found is not None and found[4] and len(found[1]) == self.base + 2:
            if "(" in now.type:  # Ray prints the remote frames after the local exception, without a header
                self._begin(inside=True, last=False, base=self.base)
                self._frame_line(line)
                return True
            if len(now.message) == 1 and now.frames and not now.cut:
                # A line of another writer between two frames looked like the exception.
                self.doubted = self.doubted or (now.type, now.message)
                now.type, now.message = "", []
                self._frame_line(line)
                return True
        if self.base and line.strip() and line[: self.base].strip():
            return False  # the indented block of a failure box is over
        line = self._unindented(line)
        now.cut = now.cut or _CPP.match(line) is not None
        if not now.cut and now.room > 0:
            now.message.append(line)
            now.room -= len(line) + 1
        return True

    def result(self) -> ExceptionInfo | None:
        """What the block says, or None."""
        raised = [item for item in self.raised if item.type]
        last = next((item for item in reversed(raised) if item.last), raised[-1] if raised else None)
        if last is None or not any(item.frames or item.bare for item in raised):
            return None
        root = raised[0]
        for item in raised[1:]:
            if not item.inside:
                break
            root = item
        return ExceptionInfo(
            type=last.type,
            message=last.text(),
            frames=tuple(root.frames),
            root_type=root.type,
            root_message=root.text(),
            outer_frames=() if root is last else tuple(last.frames),
        )
