"""Loads and checks the entries: `entries/*.toml`, one file a family.

`families.toml` says which kinds of failure each family is for, so that only one or two files are read for a verdict.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from aggregator.catalogue.facts import FACTS, Facts, Value
from aggregator.errors import InputError
from parsers.lineformats import KINDS, LAYERS

ENTRIES_DIR = Path(__file__).parent / "entries"
FAMILIES = "families.toml"
STACKS = ("pytorch", "transformers", "accelerate", "lightning", "deepspeed", "megatron", "nemo", "vllm", "ray", "slurm")
"""Names under which an entry may give code."""
NODE_ADVICE = ("keep", "reset", "drain", "replace")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_PATTERN = 1000
SOURCE_CHECKS = ("", "grad-mode", "graph-kept", "rank-condition")


class CatalogueError(InputError):
    """A file of entries is wrong: says which file, which entry and what to change."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Asks one fact. One of the tests holds if it does for any value of the fact.

    `says` is what it means for a reader when it holds; `{}` in it is the value that made it hold.
    """

    fact: str
    says: str
    one_of: tuple[Value, ...] = ()
    matches: re.Pattern[str] | None = None
    at_least: float | None = None
    at_most: float | None = None
    weight: float = 0.0

    def met_by(self, facts: Facts) -> Value | None:
        """The first value that makes it hold, or None."""
        return next((value for value in facts.get(self.fact) if self._fits(value)), None)

    def _fits(self, value: Value) -> bool:
        if self.one_of:
            return value in self.one_of
        if self.matches is not None:
            return isinstance(value, str) and self.matches.search(value[:4000]) is not None
        return isinstance(value, int | float) and (
            (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)
        )


@dataclass(frozen=True, slots=True)
class Related:
    """Another entry to look at, and why. `severity` is low, medium or high."""

    entry: str
    why: str
    severity: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One well-known failure. Texts are for the engineer on call; docs/catalogue.md says what each is for."""

    id: str
    title: str
    kinds: tuple[str, ...]
    layer: str
    symptom: str
    cause: str
    mechanism: str
    fix: str
    verify: str
    prevention: str
    fingerprint: str
    node: str
    base: float
    needs: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()
    signs: tuple[Condition, ...] = ()
    doubts: tuple[Condition, ...] = ()
    confirm: tuple[str, ...] = ()
    observed: tuple[tuple[str, str], ...] = ()
    scale: str = ""
    source_check: str = ""
    """Of `source.CHECKS`: what can be seen in the source that failed."""
    code: Mapping[str, str] = field(default_factory=dict)
    related: tuple[Related, ...] = ()
    references: tuple[str, ...] = ()


class Catalogue:
    """The shipped entries, and those of a site's own folder, which replace shipped ones of the same id."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """Look which families there are; their files are read when a failure asks for them.

        Raises:
            CatalogueError: a file of families is wrong.
        """
        self._files = [
            (folder / f"{family}.toml", frozenset(kinds))
            for folder in (ENTRIES_DIR, *folders)
            for family, kinds in _families(folder).items()
        ]

    def read_files(self) -> None:
        """Read the files now: who gives up rights later may not be able to.

        Raises:
            CatalogueError: a file cannot be read.
        """
        for path, _ in self._files:
            _text(path)

    def of_kind(self, kind: str) -> list[Entry]:
        """The entries that may explain a failure of this kind.

        Raises:
            CatalogueError: a file is wrong.
        """
        found: dict[str, Entry] = {}
        for path, kinds in self._files:
            if kind in kinds:
                found.update((entry.id, entry) for entry in load_entries(path))
        return [entry for entry in found.values() if kind in entry.kinds]

    def of_folder(self, folder: Path) -> list[Entry]:
        """The entries that one folder holds.

        Raises:
            CatalogueError: a file is wrong.
        """
        return [entry for path, _ in self._files if path.parent == folder for entry in load_entries(path)]

    def all(self) -> list[Entry]:
        """Every entry, by id.

        Raises:
            CatalogueError: a file is wrong.
        """
        found: dict[str, Entry] = {}
        for path, _ in self._files:
            found.update((entry.id, entry) for entry in load_entries(path))
        return sorted(found.values(), key=lambda entry: entry.id)


@cache
def default_catalogue() -> Catalogue:
    """The shipped entries."""
    return Catalogue()


@cache
def load_entries(path: Path) -> tuple[Entry, ...]:
    """The entries of one file.

    Raises:
        CatalogueError: it cannot be read, or an entry is wrong.
    """
    items = _toml(path).get("entry", [])
    if not isinstance(items, list) or not items:
        raise CatalogueError(f"{path}: no [[entry]] in it")
    return tuple(_entry(item, f"{path.name}: entry {number}") for number, item in enumerate(items, 1))


def _families(folder: Path) -> dict[str, list[str]]:
    told = _toml(folder / FAMILIES)
    for family, kinds in told.items():
        if not _ID.fullmatch(family) or not isinstance(kinds, list) or set(kinds) - KINDS:
            raise CatalogueError(f"{folder / FAMILIES}: {family}: a list of kinds is wanted")
    return told


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{path}: {error}") from None


@cache
def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: {error}") from None


_TEXTS = ("symptom", "cause", "mechanism", "fix", "verify", "prevention", "fingerprint")
_LISTS = ("needs", "never", "signs", "doubts")


def _entry(item: object, where: str) -> Entry:
    if not isinstance(item, dict):
        raise CatalogueError(f"{where}: not a table")
    where = f"{where} ({item.get('id', 'no id')})"
    unknown = set(item) - {known.name for known in fields(Entry)}
    if unknown:
        raise CatalogueError(f"{where}: unknown: {', '.join(sorted(unknown))}")
    for name in ("id", "title", "layer", *_TEXTS):
        if not isinstance(item.get(name), str) or not item[name].strip():
            raise CatalogueError(f"{where}: `{name}` must be a text")
    kinds = item.get("kinds")
    base = item.get("base", 0.5)
    _insist(_ID.fullmatch(item["id"]) is not None, where, "`id` must be in kebab-case")
    _insist(isinstance(kinds, list) and bool(kinds) and not set(kinds) - KINDS, where, "`kinds` must list known kinds")
    _insist(item["layer"] in LAYERS, where, f"`layer` must be one of {', '.join(sorted(LAYERS))}")
    _insist(item.get("node", "keep") in NODE_ADVICE, where, f"`node` must be one of {', '.join(NODE_ADVICE)}")
    _insist(isinstance(base, int | float) and 0 <= base <= 1, where, "`base` must be from 0 to 1")
    check = item.get("source_check", "")
    _insist(check in SOURCE_CHECKS, where, f"`source_check` must be one of {', '.join(SOURCE_CHECKS[1:])}")
    code = item.get("code", {})
    _insist(isinstance(code, dict) and not set(code) - set(STACKS), where, f"`code` is for {', '.join(STACKS)}")
    references = _strings(item, "references", where)
    _insist(all(link.startswith("https://") for link in references), where, "`references` must be https links")
    texts: dict[str, Any] = {name: " ".join(item[name].split()) for name in ("title", *_TEXTS)}
    bare = all("{}" not in str(row.get("says")) for row in item.get("needs", []) if isinstance(row, dict))
    _insist(bare, where, "`says` of `needs` must do without {}: it is also told where no value fits")
    asked: dict[str, Any] = {name: tuple(_conditions(item.get(name, []), f"{where}: {name}")) for name in _LISTS}
    return Entry(
        **texts, **asked, id=item["id"], kinds=tuple(kinds or ()), layer=item["layer"],
        node=item.get("node", "keep"), base=float(base), confirm=_strings(item, "confirm", where),
        scale=" ".join(str(item.get("scale", "")).split()),
        source_check=check,
        observed=tuple(_pair(row, where) for row in item.get("observed", [])),
        code={stack: str(text).strip("\n") for stack, text in code.items()},
        related=tuple(_related(row, where) for row in item.get("related", [])), references=references,
    )  # fmt: skip


def _insist(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise CatalogueError(f"{where}: {what}")


def _strings(item: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    told = item.get(name, [])
    _insist(isinstance(told, list) and all(isinstance(text, str) for text in told), where, f"`{name}` must list texts")
    return tuple(" ".join(text.split()) for text in told)


def _pair(row: object, where: str) -> tuple[str, str]:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(text, str) for text in row):  # noqa: PLR2004
        raise CatalogueError(f"{where}: each of `observed` is a pair: what one sees, and why")
    return (row[0], row[1])


def _related(row: object, where: str) -> Related:
    if not isinstance(row, dict) or set(row) != {"entry", "why", "severity"}:
        raise CatalogueError(f"{where}: each of `related` has entry, why and severity")
    _insist(row["severity"] in {"low", "medium", "high"}, where, "`severity` must be low, medium or high")
    return Related(**row)


def _conditions(rows: object, where: str) -> Iterator[Condition]:
    if not isinstance(rows, list):
        raise CatalogueError(f"{where} must be a list of tables")
    for row in rows:
        _insist(isinstance(row, dict), where, "must be a list of tables")
        tests = {"is", "matches", "at_least", "at_most"} & set(row)
        _insist(bool(tests) and not set(row) - {"fact", "says", "weight", *tests}, where, f"cannot be read: {row}")
        _insist(row.get("fact") in FACTS, where, f"unknown fact {row.get('fact')!r}: see `denpex-agg catalogue facts`")
        _insist(isinstance(row.get("says"), str) and bool(row["says"]), where, f"`says` is missing: {row}")
        told = row.get("is", [])
        yield Condition(
            row["fact"], row["says"], tuple(told) if isinstance(told, list) else (told,),
            _pattern(row["matches"], where) if "matches" in row else None,
            row.get("at_least"), row.get("at_most"), float(row.get("weight", 0.2)),
        )  # fmt: skip


def _pattern(text: object, where: str) -> re.Pattern[str]:
    if not isinstance(text, str) or len(text) > _MAX_PATTERN:
        raise CatalogueError(f"{where}: `matches` must be a pattern of at most {_MAX_PATTERN} characters")
    try:
        return re.compile(text)
    except re.error as error:
        raise CatalogueError(f"{where}: {text!r}: {error}") from None
