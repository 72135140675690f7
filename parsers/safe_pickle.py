"""Loads pickles and JSON of unknown origin: plain data only, bounded in memory, depth and time.

A flight-recorder dump is a pickle, and a pickle is a program. The opcodes are interpreted once over stand-ins that
know only depth and size; whatever is not needed to write plain data is refused there, before anything is built. The
real unpickler then runs on bytes that are known to be harmless, and still may not look up a single name.
Opcodes: https://github.com/python/cpython/blob/main/Lib/pickletools.py
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from typing import NoReturn

from parsers.json_records import without_lone_surrogates

MAX_BYTES = 256 << 20
MAX_DEPTH = 64
MAX_NODES = 50_000_000
"""Values visited when every shared reference is followed: 302 bytes can unfold to 2**30."""
MAX_OPCODES = 20_000_000
MAX_VALUES = 4_000_000
"""Values that take memory of their own; also the height of the stack. A ring of 20,000 entries with 25 frames each
has 1.5 million values and 8 million opcodes."""
MAX_JSON_CONTAINERS = 4_000_000
MAX_JSON_ITEMS = 16_000_000


class DamagedDump(ValueError):  # noqa: N818 - the word users see; every one of them is an error
    """The bytes are cut off or are not of the expected form."""


class UnsafePickle(DamagedDump):
    """The pickle holds more than plain data, or more of it than may be built."""


# An opcode's argument: 0 none, n fixed bytes; a negative one is the width of a length that precedes the argument.
_ARGUMENT = {
    "PROTO": 1, "FRAME": 8, "BINUNICODE": -4, "SHORT_BINUNICODE": -1, "BININT": 4, "BININT1": 1, "BININT2": 2,
    "LONG1": -1, "BINFLOAT": 8, "BINPUT": 1, "LONG_BINPUT": 4, "BINGET": 1, "LONG_BINGET": 4,
}  # fmt: skip
_PLAIN = (
    *_ARGUMENT, "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "DICT", "LIST", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "NONE", "NEWTRUE", "NEWFALSE", "MEMOIZE",
)  # fmt: skip
_ALLOWED = {getattr(pickle, name)[0]: (name, _ARGUMENT.get(name, 0)) for name in _PLAIN}
_SCALARS = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE"})
_TEXTS = frozenset({"BINUNICODE", "SHORT_BINUNICODE"})
_FRESH = {"EMPTY_LIST": "list", "EMPTY_DICT": "dict", "EMPTY_TUPLE": "tuple"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_BINGET = pickle.BINGET[0]
_LENGTHS = {1: struct.Struct("<B"), 4: struct.Struct("<I")}


class _Node:
    """Stand-in for a value: how deep it is, and how many values a walk over it visits."""

    __slots__ = ("depth", "kind", "placed", "size")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.depth = 1
        self.size = 1
        self.placed = False


_SCALAR = _Node("scalar")
_TEXT = _Node("text")
_MARK = _Node("mark")


class _Scan:
    """Interprets a pickle over stand-ins. Refuses, with a sentence, whatever is not harmless plain data."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[_Node] = []
        self.memo: dict[int, _Node] = {}
        self.made = 0

    def run(self) -> None:
        """Follow the opcodes up to STOP."""
        data, memo, stack = self.data, self.memo, self.stack
        for _ in range(MAX_OPCODES):
            if self.at >= len(data):
                raise DamagedDump(f"the pickle is cut off: no STOP in its {len(data):,} bytes")
            code = data[self.at]
            # The short form of reading a memo is half of a dump.
            if code == _BINGET and self.at + 1 < len(data) and len(stack) < MAX_VALUES:
                node = memo.get(data[self.at + 1])
                if node is not None:
                    stack.append(node)
                    self.at += 2
                    continue
            known = _ALLOWED.get(code)
            if known is None:
                raise UnsafePickle(f"opcode 0x{code:02x} at byte {self.at:,} is not needed for plain data")
            name, width = known
            start = self.at + 1
            self.at = start + width if width >= 0 else self._after_counted(start, -width)
            if self.at > len(data):
                raise DamagedDump(f"the pickle is cut off inside {name} at byte {start - 1:,}")
            if name == "STOP":
                if len(stack) != 1 or stack[0] is _MARK:
                    self._malformed("STOP finds no single value")
                return
            self._step(name, start)
        raise UnsafePickle(f"the pickle has more than {MAX_OPCODES:,} opcodes")

    def _after_counted(self, start: int, width: int) -> int:
        if start + width > len(self.data):
            raise DamagedDump(f"the pickle is cut off at byte {start:,}")
        (length,) = _LENGTHS[width].unpack_from(self.data, start)
        return start + width + int(length)

    def _step(self, name: str, start: int) -> None:
        if name in ("BINGET", "LONG_BINGET"):
            index = self._index(start)
            if index not in self.memo:
                self._malformed(f"memo {index} is read before it is written")
            self._push(self.memo[index])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._put(len(self.memo) if name == "MEMOIZE" else self._index(start))
        elif name in _TEXTS or name in _SCALARS:
            self._made()
            self._push(_TEXT if name in _TEXTS else _SCALAR)
        elif name == "MARK":
            self._push(_MARK)
        elif name in _FRESH:
            self._made()
            self._push(_Node(_FRESH[name]))
        elif name == "FRAME":
            (length,) = struct.unpack_from("<Q", self.data, start)
            if length > len(self.data) - self.at:
                raise DamagedDump(f"the pickle is cut off: a frame of {length:,} bytes at byte {start:,}")
        elif name != "PROTO":
            self._build(name)

    def _build(self, name: str) -> None:
        if name in ("APPEND", "SETITEM"):
            children = self._pop(1 if name == "APPEND" else 2)
        elif name in _TUPLES:
            children = self._pop(_TUPLES[name])
        else:
            children = self._pop_to_mark()
        if name in ("APPEND", "APPENDS"):
            self._extend("list", children)
        elif name in ("SETITEM", "SETITEMS"):
            self._extend("dict", children)
        else:
            self._made()
            self._push(_Node("tuple" if name.startswith("TUPLE") else name.lower()))
            self._extend(self.stack[-1].kind, children)

    def _extend(self, kind: str, children: list[_Node]) -> None:
        node = self.stack[-1] if self.stack else _MARK
        # A container that is already part of another no longer grows: its parents' sizes stay true, and no value
        # can come to contain itself.
        if node.kind != kind or node.placed or node in children:
            self._malformed(f"a {kind} that can grow was expected")
        if kind == "dict" and (len(children) % 2 or any(key is not _TEXT for key in children[::2])):
            # Text alone: its hash is keyed, while numbers and nested tuples can be made to collide or to recurse.
            raise UnsafePickle(f"a dict before byte {self.at:,} has a key that is not text")
        for child in children:
            node.size += child.size
            node.depth = max(node.depth, child.depth + 1)
            if child is not _TEXT and child is not _SCALAR:
                child.placed = True
        if node.depth > MAX_DEPTH:
            raise UnsafePickle(f"values are nested more than {MAX_DEPTH} deep at byte {self.at:,}")
        if node.size > MAX_NODES:
            raise UnsafePickle(f"the value unfolds to more than {MAX_NODES:,} parts at byte {self.at:,}")

    def _index(self, start: int) -> int:
        return int.from_bytes(self.data[start : self.at], "little")

    def _put(self, index: int) -> None:
        # The unpickler allocates up to the index: 2**32 would be gigabytes. Writers count up by one.
        if index > len(self.memo) + 1:
            raise UnsafePickle(f"memo index {index:,} at byte {self.at:,} with {len(self.memo):,} memos so far")
        if not self.stack or self.stack[-1] is _MARK:
            self._malformed("nothing to memoize")
        self.memo[index] = self.stack[-1]

    def _push(self, node: _Node) -> None:
        if len(self.stack) >= MAX_VALUES:
            raise UnsafePickle(f"more than {MAX_VALUES:,} values on the stack at byte {self.at:,}")
        self.stack.append(node)

    def _pop(self, count: int) -> list[_Node]:
        values = self.stack[-count:]
        if len(values) < count or _MARK in values:
            self._malformed("too few values on the stack")
        del self.stack[-count:]
        return values

    def _pop_to_mark(self) -> list[_Node]:
        position = len(self.stack) - 1
        while position >= 0 and self.stack[position] is not _MARK:
            position -= 1
        if position < 0:
            self._malformed("no MARK on the stack")
        values = self.stack[position + 1 :]
        del self.stack[position:]
        return values

    def _made(self) -> None:
        self.made += 1
        if self.made > MAX_VALUES:
            raise UnsafePickle(f"the pickle builds more than {MAX_VALUES:,} values")

    def _malformed(self, what: str) -> NoReturn:
        raise DamagedDump(f"the pickle is malformed before byte {self.at:,}: {what}")


class _PlainUnpickler(pickle.Unpickler):
    """Builds containers, texts and numbers only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickle(f"the pickle asks for {module[:80]}.{name[:80]}")

    def persistent_load(self, _pid: object) -> NoReturn:
        raise UnsafePickle("the pickle asks for a persistent object")


def load_pickle(data: bytes) -> object:
    """Load a pickle of dictionaries with text keys, lists, tuples, texts, numbers, booleans and None.

    Bytes after STOP are ignored.

    Raises:
        UnsafePickle: it holds anything else, or exceeds a limit of this module.
        DamagedDump: it is cut off or malformed.
    """
    if len(data) > MAX_BYTES:
        raise UnsafePickle(f"{len(data):,} bytes are more than the limit of {MAX_BYTES:,}")
    _Scan(data).run()
    try:
        loaded: object = _PlainUnpickler(io.BytesIO(data)).load()
    except UnsafePickle:
        raise
    except Exception as error:  # noqa: BLE001 - the unpickler raises whatever the bytes provoke
        raise DamagedDump(f"the pickle is malformed: {type(error).__name__}: {error}") from None
    return loaded


def load_json(data: bytes, max_bytes: int = MAX_BYTES) -> object:
    """Load JSON. NaN and the infinities become None, bytes that are not UTF-8 are replaced.

    Raises:
        DamagedDump: it is cut off or malformed, nested deeper than the interpreter's recursion limit, too large, or
            holds more containers or items than this module's limits.
    """
    if len(data) > max_bytes:
        raise DamagedDump(f"{len(data):,} bytes are more than the limit of {max_bytes:,}")
    if data.count(b"[") + data.count(b"{") > MAX_JSON_CONTAINERS or data.count(b",") > MAX_JSON_ITEMS:
        raise DamagedDump("the JSON holds more values than a dump has")
    try:
        text = data.decode("utf-8-sig", "replace")
        loaded: object = json.loads(without_lone_surrogates(text), parse_constant=lambda _: None)
    except RecursionError:
        raise DamagedDump("the JSON is nested too deep") from None
    except ValueError as error:
        raise DamagedDump(f"not valid JSON: {error}") from None
    return loaded
