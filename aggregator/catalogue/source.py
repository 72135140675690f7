"""Looks into the source that failed, where it can be read: is what the entry supposes so? Nothing of it is ever run.

Of the files only what the syntax tree says is used, and only a place (`file:line`) is told: a log may name any file.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from aggregator.correlate.phases import names_evaluation, user_frames
from aggregator.opening import open_regular
from parsers.records import Frame

MAX_SOURCE = 2 << 20
"""Bytes of one file."""
MAX_TOKENS = 500_000
"""Words and signs of all files of a traceback: a tree takes time and memory by them, most of 3 s and 400 MB."""
_MAX_FRAMES = 200
_TOKEN = re.compile(rb"\w++|[^\w\s]")
_RANK = re.compile(r"rank|is_(?:main|master|local_main|global_zero|rank_zero)|main_process|master", re.IGNORECASE)
_SWITCHES = ("no_grad", "inference_mode", "set_grad_enabled")
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


class Finding(StrEnum):
    """What the source says of an entry."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, the place that shows it, and what is there in words."""

    finding: Finding
    place: str
    what: str


@dataclass(frozen=True, slots=True)
class _Call:
    """A frame in its source: the function that runs, and the statements around the line, outermost first."""

    frame: Frame
    function: Function
    around: tuple[ast.stmt, ...]

    def place(self, node: ast.AST | None = None) -> str:
        return f"{self.frame.file}:{getattr(node, 'lineno', self.frame.line)}"


class Sources:
    """Finds and reads the files of a traceback.

    Args:
        folders: where to look for them (`--source`), by as much of the end of their path as fits.
        here: whether to read them where the traceback says that they are, as on the machine of the job.
    """

    def __init__(self, folders: Sequence[Path] = (), *, here: bool = True) -> None:
        self._folders = folders
        self._here = here
        self._trees: dict[str, ast.Module | None] = {}
        self._tokens = 0
        self.unread: dict[str, str] = {}
        """Files that are there and were not read, and why."""

    def calls(self, frames: Sequence[Frame]) -> list[_Call] | None:
        """The user's own frames in their source, outermost first; None unless every one is found there as it ran."""
        found = []
        own = user_frames(frames)
        if len(own) > _MAX_FRAMES:
            return None
        for frame in own:
            tree = self._tree(frame.file)
            call = _find(frame, tree) if tree is not None else None
            if call is None:
                return None
            found.append(call)
        return found or None

    def _tree(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            trees = (self._read(path) for path in self._places(file))
            self._trees[file] = next((tree for tree in trees if tree is not None), None)
        return self._trees[file]

    def _read(self, path: Path) -> ast.Module | None:
        try:
            descriptor = open_regular(path)
        except (OSError, ValueError):
            return None
        try:
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(MAX_SOURCE + 1)
            if len(data) > MAX_SOURCE:
                self.unread[str(path)] = f"larger than {MAX_SOURCE >> 20} MiB"
                return None
            tokens = sum(1 for _ in _TOKEN.finditer(data))
            if self._tokens + tokens > MAX_TOKENS:
                self.unread[str(path)] = f"the files of the traceback have more than {MAX_TOKENS:,} words and signs"
                return None
            self._tokens += tokens
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the parser has an opinion on `x is 1`, and would print it
                return ast.parse(data)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.unread[str(path)] = f"cannot be parsed ({type(error).__name__})"
            return None

    def _places(self, file: str) -> Iterator[Path]:
        if not file.endswith(".py") or "\0" in file:
            return
        parts = [part for part in file.split("/") if part not in {"", ".", ".."}]
        for folder in self._folders:
            for first in range(len(parts)):
                yield folder.joinpath(*parts[first:])
        if self._here and file.startswith("/"):
            yield Path(file)


def _find(frame: Frame, tree: ast.Module) -> _Call | None:
    """Where a frame is in its file; None if another function is at that line, so that the file is not what ran."""
    function: Function = tree
    around: list[ast.stmt] = []
    body: list[ast.stmt] = tree.body
    while True:
        inner = next((node for node in body if node.lineno <= frame.line <= (node.end_lineno or node.lineno)), None)
        if inner is None:
            break
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            function, around = inner, []
        elif not isinstance(inner, ast.ClassDef):
            around.append(inner)
        body = _below(inner)
    name = function.name if not isinstance(function, ast.Module) else "<module>"
    is_there = name == frame.function.rpartition(".")[2] or frame.function.startswith("<")
    return _Call(frame, function, tuple(around)) if is_there and around else None


def _below(node: ast.stmt) -> list[ast.stmt]:
    parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    parts += [handler.body for handler in getattr(node, "handlers", [])]
    parts += [case.body for case in getattr(node, "cases", [])]
    return [item for part in parts for item in part if isinstance(item, ast.stmt)]


def look(check: str, frames: Sequence[Frame], sources: Sources) -> Told | None:
    """What the source that failed says, by the check that an entry names; None without it, or if it decides nothing."""
    calls = sources.calls(frames)
    return CHECKS[check](calls) if calls is not None else None


def grad_mode(calls: Sequence[_Call]) -> Told | None:
    """Was autograd on in an evaluation? The innermost switch on the stack counts."""
    switched: Told | None = None
    for call in calls:
        for node, on in _switches(call):
            switched = None if on else Told(Finding.REFUTED, call.place(node), "autograd is turned off here")
    if switched is not None:
        return switched
    if _may_switch(calls):
        return None
    evaluating = next((call for call in calls if names_evaluation(call.frame.function)), calls[-1])
    return Told(
        Finding.CONFIRMED, evaluating.place(), "called with autograd on: no no_grad or inference_mode around it"
    )


def _switches(call: _Call) -> Iterator[tuple[ast.AST, bool]]:
    """What switches autograd on (True) or off around a line, outermost first."""
    if not isinstance(call.function, ast.Module):
        for decorator in call.function.decorator_list:
            if (on := _switch(decorator)) is not None:
                yield decorator, on
    for statement in call.around:
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                if (on := _switch(item.context_expr)) is not None:
                    yield item.context_expr, on
    for statement in _before(call):
        if isinstance(statement, ast.Expr) and (on := _switch(statement.value)) is not None:
            name = _name(statement.value)
            if name == "set_grad_enabled":
                yield statement, on


def _may_switch(calls: Sequence[_Call]) -> bool:
    """Whether anything in the functions may switch autograd in a way that is not read here: by a variable, a stack."""
    functions = {id(call.function): call.function for call in calls}  # one may call itself a hundred times
    return any(
        isinstance(node, ast.Name | ast.Attribute) and _name(node).endswith(_SWITCHES)
        for function in functions.values()
        for node in ast.walk(function)
    ) or any(
        isinstance(item.context_expr, ast.Name | ast.Attribute | ast.IfExp)
        for call in calls
        for statement in call.around
        if isinstance(statement, ast.With | ast.AsyncWith)
        for item in statement.items
    )


def _before(call: _Call) -> Iterator[ast.stmt]:
    """Statements of the function that run before the line, each block's own."""
    blocks: list[list[ast.stmt]] = [call.function.body, *(_below(statement) for statement in call.around)]
    for block in blocks:
        yield from (statement for statement in block if (statement.end_lineno or statement.lineno) < call.frame.line)


def _switch(node: ast.expr) -> bool | None:
    """Whether an expression turns autograd on or off; None if it does neither."""
    name = _name(node)
    argument = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if argument is None and isinstance(node, ast.Call) and node.keywords:
        argument = node.keywords[0].value
    value = argument.value if isinstance(argument, ast.Constant) else None
    if name in {"no_grad", "inference_mode", "_no_grad", "no_grad_ctx"}:
        return value is False
    if name == "enable_grad":
        return True
    if name == "set_grad_enabled":
        return value if isinstance(value, bool) else None
    return None


def _name(node: ast.expr) -> str:
    """`no_grad` of `torch.no_grad()`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def graph_kept(calls: Sequence[_Call]) -> Told | None:
    """Are losses or outputs kept with their graphs, in a loop of a function on the stack?"""
    seen = set[ast.stmt]()
    for call in calls:
        loop = next((node for node in call.around if isinstance(node, ast.For | ast.While | ast.AsyncFor)), None)
        if loop is None or loop in seen:
            continue
        seen.add(loop)
        made = _assigned(loop)
        for node in ast.walk(loop):
            target, kept = _kept(node)
            # What the step itself makes does not outlive it; a name that is made anew may be a number by then.
            if kept is not None and _is_tensor(kept) and target not in made and made[_name(kept)] <= 1:
                return Told(Finding.CONFIRMED, call.place(node), "keeps the graph of each step: no item() or detach()")
    return None


def _assigned(loop: ast.stmt) -> Counter[str]:
    """How often a loop's body gives each name a value by `=`."""
    return Counter(_name(target) for node in ast.walk(loop) if isinstance(node, ast.Assign) for target in node.targets)


def _kept(node: ast.AST) -> tuple[str, ast.expr | None]:
    """What a statement adds to something, and the name of that."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return _name(node.target), node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and node.args:
        return _name(node.func.value), node.args[0]
    return "", None


def _is_tensor(node: ast.expr) -> bool:
    """Whether a name, or an attribute of one, says that it is a loss or an output as the model gave it."""
    inner = node
    while isinstance(inner, ast.BinOp):
        inner = inner.left
    if isinstance(inner, ast.Call) or not isinstance(inner, ast.Name | ast.Attribute):
        return False
    name = inner.id if isinstance(inner, ast.Name) else inner.attr
    return re.search(r"loss|logits|outputs?$|^preds?$", name) is not None


def rank_condition(calls: Sequence[_Call]) -> Told | None:
    """Is a collective, or what calls one, under a condition on the rank?"""
    seen = set[ast.stmt]()
    for call in calls:
        for statement in call.around:
            if isinstance(statement, ast.If) and statement not in seen and _RANK.search(ast.unparse(statement.test)):
                return Told(Finding.CONFIRMED, call.place(statement), "called under a condition on the rank")
            seen.add(statement)
    return None


CHECKS: dict[str, Callable[[Sequence[_Call]], Told | None]] = {
    "grad-mode": grad_mode,
    "graph-kept": graph_kept,
    "rank-condition": rank_condition,
}
"""What an entry's `source_check` may name."""
