"""Puts blocks that span lines together: tracebacks, dumps of stacks, torchelastic's summary box.

Blocks of different streams may be interleaved line by line; the caller passes a key for the stream of each line (its
launcher tag). Where lines carry no tag, blocks are told apart by their own grammar as far as that goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from parsers.later import later
from parsers.prefixes import Origin
from parsers.records import Known
from parsers.stacks import STACK_LITERALS, TRACEBACK_HEAD, Fit, begins_stack, fit_stack

BLOCK_LITERALS = (
    TRACEBACK_HEAD,
    "Fatal Python error: ",
    "Root Cause (first observed failure):",
    "Failures:",
    *STACK_LITERALS,
)
"""What a block can begin with."""
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# torch.utils.data and torch.multiprocessing put a worker's traceback into the message of the one they raise.
_NESTED = later(r"^(?:Original Traceback|-- Process \d+ terminated with the following error)")
_ERROR_LEVELS = frozenset({"E", "ERR", "ERROR", "F", "FATAL", "CRITICAL", "C"})
_RAISED_WORD = later(r"\b(?:exception|raised|uncaught|unhandled|crashed|error:)", re.IGNORECASE)
_EXCEPTION_LINE = later(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\([\w.]+\))?(?:: |:$|$)")
_FRAME = later(r'^  File "[^"]{1,400}", line \d{1,9}, in ')
_FATAL = later(r"(?:^|\s)Fatal Python error: ")
_DUMP_LINE = later(
    r'^(?:\s*$|Thread 0x|Current thread|Stack \(most recent|  File "|Extension modules:|  <|  \.\.\.'
    r"|Python runtime state|<no Python)"
)
_BOX_SECTION = later(r"^\s*(?:Failures:|Root Cause \(first observed failure\):)\s*$")
_BOX_BORDER = later(r"^={20,}$")
_BOX_LINE = later(r"^(?:\s*$|\s{2,}\S|-{20,}$|\[\d+\]:\s*$|Failures:|Root Cause|\S+ FAILED$)")

# A block is given up (kept as far as it came) after so many lines of others in between, or of its own.
_MAX_FOREIGN = 400
_MAX_FOREIGN_AFTER = 64
_MAX_LINES = 3000
_MAX_OPEN = 32
"""Blocks of one stream that are open at once: each line is offered to all of them."""


class BlockKind(StrEnum):
    """What a block is."""

    TRACEBACK = "traceback"
    FAULT = "fault"
    BOX = "box"
    STACK = "stack"


class Place(NamedTuple):
    """Where a line is: number from 1, byte offset. A tuple: it is made for every line."""

    line: int
    offset: int


@dataclass(slots=True)
class Block:
    """A block as it grows; `lines` are bodies, prefixes stripped. `lead` is the stream's line just before it."""

    kind: BlockKind
    key: Hashable
    place: Place
    origin: Origin
    lead: str
    lines: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    state: str = "frames"
    foreign: int = 0
    """Lines of others since its own last one."""
    strays: int = 0
    """Lines of its own stream that did not fit, blank ones where a chain may follow."""
    heads: dict[str, None] = field(default_factory=dict)
    """Threads of a dump of stacks."""
    mark: object = None
    """What the caller's `mark` gave when the block began."""

    def add(self, body: str, place: Place) -> None:
        self.lines.append(body)
        self.places.append(place)
        self.foreign = 0

    def copy(self) -> Block:
        """A block that grows on its own."""
        return replace(self, lines=self.lines[:], places=self.places[:], heads=dict(self.heads))


@dataclass(slots=True)
class BlockAssembler:
    """Feeds on lines in file order, gives back blocks as they end."""

    _mark: Callable[[Hashable], object] = lambda _key: None
    """Asked, with the stream's key, for something to keep with each block that begins."""
    _open: dict[Hashable, list[Block]] = field(default_factory=dict)
    _last: dict[Hashable, str] = field(default_factory=dict)
    _above: tuple[Origin, Place] | None = None
    _line: tuple[Origin, Place] | None = None
    _spoke: set[Hashable] = field(default_factory=set)

    def copy(self, mark: Callable[[Hashable], object]) -> BlockAssembler:
        """An assembler of its own that goes on from here, with another `mark`."""
        blocks = {key: [block.copy() for block in blocks] for key, blocks in self._open.items()}
        return replace(self, _mark=mark, _open=blocks, _last=dict(self._last), _spoke=set(self._spoke))

    @property
    def busy(self) -> bool:
        """Whether a block is open, so that the lines that follow are needed whatever they hold."""
        return bool(self._open)

    @property
    def settled(self) -> bool:
        """Whether each open block is complete as it is, though more of it may follow."""
        return bool(self._open) and all(block.state == "after" for blocks in self._open.values() for block in blocks)

    def feed(self, key: Hashable, origin: Origin, place: Place) -> tuple[bool, list[Block]]:
        """Take one line; tells whether a block took it, and which blocks it ended."""
        body = origin.body
        if body.strip():
            self._above, self._line = self._line, (origin, place)
        if not self._open:
            started = self._start(key, origin, place)
            self._passed(key, body)
            if started is None:
                return False, []
            started.mark = self._mark(key)
            self._open[key] = [started]
            return True, []
        return self._feed_open(key, origin, place)

    def _feed_open(self, key: Hashable, origin: Origin, place: Place) -> tuple[bool, list[Block]]:
        body = origin.body
        ended: list[Block] = []
        stack = self._open.get(key)
        taken = bool(stack) and self._continue(stack or [], body, origin, place, ended)
        if not taken:
            started = self._start(key, origin, place)
            if started is not None:
                started.mark = self._mark(key)
                blocks = self._open.setdefault(key, [])
                ended += blocks[: len(blocks) + 1 - _MAX_OPEN] if len(blocks) >= _MAX_OPEN else []
                blocks.append(started)
                taken = True
        ended.extend(block for block in self._open.get(key, ()) if _given_up(block) and block not in ended)
        for other, blocks in self._open.items():
            if other == key:
                continue
            for block in blocks:  # hundreds, where somebody wants our time
                block.foreign += 1
                if block.foreign > _MAX_FOREIGN_AFTER and _given_up(block):
                    ended.append(block)
        self._drop(ended)
        self._passed(key, body)
        return taken, ended

    def _passed(self, key: Hashable, body: str) -> None:
        if body.strip():
            self._last[key] = body
            if body[0] not in " \t":
                self._spoke.add(key)

    def finish(self) -> list[Block]:
        """The file has ended: every open block as it stands."""
        ended = [block for blocks in self._open.values() for block in blocks]
        self._open.clear()
        return ended

    def close(self, place: Place) -> list[Block]:
        """A record has ended: the blocks that began in it are complete, whatever follows."""
        ended = [block for blocks in self._open.values() for block in blocks if block.place == place]
        self._drop(ended)
        return ended

    def _drop(self, ended: list[Block]) -> None:
        for block in ended:
            stack = self._open.get(block.key)
            if stack and block in stack:
                stack.remove(block)
                if not stack:
                    del self._open[block.key]

    def _start(self, key: Hashable, origin: Origin, place: Place) -> Block | None:
        body = origin.body
        for literal in BLOCK_LITERALS:  # `any` takes three times as long, for every line
            if literal in body:
                break
        else:
            if key in self._spoke or not _FRAME.match(body):
                return None
            # The log begins inside a traceback: `tail`, rotation, a buffer that was too short.
            block = Block(BlockKind.TRACEBACK, key, place, origin, "")
            block.add(body, place)
            return block
        lead = self._last.get(key, "")
        if TRACEBACK_HEAD in body and not body.lstrip().startswith("traceback :"):
            before, _, behind = body.partition(TRACEBACK_HEAD)
            lead = behind.strip() or before.strip() or lead
            block = Block(BlockKind.TRACEBACK, key, place, self._owned(origin, place), lead)
            block.add(TRACEBACK_HEAD, place)
            return block
        if _FATAL.search(body):
            block = Block(BlockKind.FAULT, key, place, origin, lead)
            block.add(body, place)
            return block
        if _BOX_SECTION.match(body):
            block = Block(BlockKind.BOX, key, place, origin, lead)
            block.add(body.strip(), place)
            return block
        if begins_stack(body, lead):
            block = Block(BlockKind.STACK, key, place, origin, lead)
            fit_stack(block.heads, body)
            block.add(body, place)
            return block
        return None

    def _owned(self, origin: Origin, place: Place) -> Origin:
        """Whose a traceback is that begins without a tag: a logger's prefix stands before its message only."""
        if self._above is None or origin.rank is not None or origin.local_rank is not None:
            return origin
        above, where = self._above
        told = (above.level or "").upper() in _ERROR_LEVELS or _RAISED_WORD.search(above.body)
        if place.line - where.line != 1 or above.rank is None or above.host != origin.host or not told:
            return origin
        return replace(origin, rank=above.rank, rank_how=Known.GUESS)

    def _continue(self, stack: list[Block], body: str, origin: Origin, place: Place, ended: list[Block]) -> bool:
        for block in reversed(list(stack)):
            if block.kind is BlockKind.BOX:
                taken, over = _box_takes(block, body, place)
            elif block.kind is BlockKind.FAULT:
                taken, over = _fault_takes(block, body, place)
            elif block.kind is BlockKind.STACK:
                taken, over = _stack_takes(block, body, place)
            else:
                taken, over = _traceback_takes(block, body, origin, place)
            if over:
                ended.append(block)
            if taken:
                return True
        return False


def _given_up(block: Block) -> bool:
    patience = _MAX_FOREIGN if block.state == "frames" else _MAX_FOREIGN_AFTER
    return block.foreign > patience or len(block.lines) > _MAX_LINES


def _box_takes(block: Block, body: str, place: Place) -> tuple[bool, bool]:
    if _BOX_BORDER.match(body.strip()):
        return True, True
    if not _BOX_LINE.match(body):
        block.foreign += 1
        return False, False
    block.add(body, place)
    return True, False


def _fault_takes(block: Block, body: str, place: Place) -> tuple[bool, bool]:
    if _DUMP_LINE.match(body):
        block.add(body, place)
        return True, body.startswith("Extension modules:")
    block.strays += 1
    return False, block.strays > 2  # noqa: PLR2004 - a line of another writer may stand between


def _stack_takes(block: Block, body: str, place: Place) -> tuple[bool, bool]:
    fit = fit_stack(block.heads, body)
    if fit is Fit.TAKEN:
        block.add(body, place)
        return True, False
    block.strays += 1
    return False, fit is Fit.OVER or block.strays > 2  # noqa: PLR2004 - as above


def _traceback_takes(block: Block, body: str, origin: Origin, place: Place) -> tuple[bool, bool]:
    if block.state == "frames":
        return _frames_take(block, body, origin, place)
    if body.startswith('  File "'):
        # Ray prints the wrapped call's frames straight after the wrapper's own line.
        block.state = "frames"
        block.add(body, place)
        return True, False
    stripped = body.strip()
    if not stripped:
        block.foreign = 0
        block.strays += 1
        return True, block.strays > 3  # noqa: PLR2004 - a chain has one blank line between its parts
    if stripped in _CHAIN:
        block.state = "chain"
        block.add(stripped, place)
        return True, False
    nested = _NESTED.match(stripped)
    if TRACEBACK_HEAD in body and (block.state == "chain" or nested):
        block.state = "frames"
        block.strays = 0
        block.add(body if nested else TRACEBACK_HEAD, place)
        return True, False
    if nested:
        block.state = "chain"
        block.add(body, place)
        return True, False
    return False, True


def _frames_take(block: Block, body: str, origin: Origin, place: Place) -> tuple[bool, bool]:
    if not body.strip() or body[0] in " \t|+" or body.startswith('> File "'):
        block.add(body, place)
        return True, False
    own_record = origin.stamp is not None or origin.level is not None
    was_record = block.origin.stamp is not None or block.origin.level is not None
    if TRACEBACK_HEAD not in body and _EXCEPTION_LINE.match(body) and (was_record or not own_record):
        block.add(body, place)
        block.state = "after"
        block.strays = 0
        return True, False
    block.foreign += 1
    return False, False
