"""Loads and checks the entries: `entries/*.toml`, one file a family.

`families.toml` says which kinds of failure each family is for, so that only one or two files are read for a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from aggregator.catalogue.facts import FACTS, Facts, Value
from aggregator.errors import InputError
from parsers.cachefile import cached
from parsers.lineformats import KINDS, LAYERS
from parsers.tomlfile import TomlError, parse_toml, read_text

ENTRIES_DIR = Path(__file__).parent / "entries"
FAMILIES = "families.toml"
STACKS = ("pytorch", "transformers", "accelerate", "lightning", "deepspeed", "megatron", "nemo", "vllm", "ray", "slurm")
"""Names under which an entry may give code."""
NODE_ADVICE = ("keep", "reset", "drain", "replace")
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_PATTERN = 1000
_MOST = 1e15
_HELP = "docs/entries.md tells what an entry may hold"
SOURCE_CHECKS = ("", "grad-mode", "graph-kept", "rank-condition")


class CatalogueError(InputError):
    """A file of entries is wrong: says which file, which entry and what to change."""


class Pattern(Protocol):
    """A regular expression, of whichever engine."""

    def search(self, text: str, /) -> object | None:
        """Anything but None if it is somewhere in the text."""
        ...


@dataclass(frozen=True, slots=True)
class Condition:
    """Asks one fact. One of the tests holds if it does for any value of the fact.

    `says` is what it means for a reader when it holds; `{}` in it is the value that made it hold.
    """

    fact: str
    says: str
    one_of: tuple[Value, ...] = ()
    matches: Pattern | None = None
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

    def of_folder(self, folder: Path) -> list[tuple[Path, Entry]]:
        """The entries that one folder holds, each with its file.

        Raises:
            CatalogueError: a file is wrong.
        """
        return [(path, entry) for path, _ in self._files if path.parent == folder for entry in load_entries(path)]

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
    if path.parent.resolve() == ENTRIES_DIR.resolve():
        return cached(f"entries_{path.stem}", lambda: [path], lambda: read(path), lambda raw: _entries(raw, path, True))
    return _entries(read(path), path, False)


def _entries(raw: Mapping[str, Any], path: Path, is_ours: bool) -> tuple[Entry, ...]:
    items = raw.get("entry", [])
    if not isinstance(items, list) or not items:
        raise CatalogueError(f"{path.name}: no [[entry]] in it", where=str(path), help=_HELP)
    entries = []
    for number, item in enumerate(items):
        try:
            entries.append(_entry(item, is_ours=is_ours))
        except CatalogueError as error:
            name = item.get("id") if isinstance(item, dict) else None
            label = name[:80] if isinstance(name, str) else "no id"
            what = f"{path.name}: entry {number + 1} ({label}): {error.what}"
            raise CatalogueError(what, where=place_of_item(path, "entry", number, len(items)), help=_HELP) from None
    return tuple(entries)


def _families(folder: Path) -> dict[str, list[str]]:
    path = folder / FAMILIES
    if folder == ENTRIES_DIR:
        return cached("families", lambda: [path], lambda: read(path), lambda raw: _checked_families(raw, path))
    return _checked_families(read(path), path)


def _checked_families(told: dict[str, Any], path: Path) -> dict[str, list[str]]:
    for family, kinds in told.items():
        if not _ID.fullmatch(family) or not _are_texts(kinds) or set(kinds) - KINDS:
            raise CatalogueError(f"{FAMILIES}: {family[:80]}: a list of kinds is wanted", where=str(path), help=_HELP)
    return told


def read(path: Path) -> dict[str, Any]:
    """What a TOML file of the catalogue holds.

    Raises:
        CatalogueError: it cannot be read.
    """
    try:
        return parse_toml(_text(path))
    except TomlError as error:
        raise _unreadable(path, error) from None


@cache
def _text(path: Path) -> str:
    try:
        return read_text(path)
    except TomlError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: TomlError) -> CatalogueError:
    line = f":{error.line}" if error.line is not None else ""
    return CatalogueError(f"{path.name}: {error.what}", where=f"{path}{line}", help=_HELP)


def place_of_item(path: Path, table: str, number: int, of: int) -> str:
    """`path:line` of a file's array of tables, where its items (`of` in all) can be counted; else the path."""
    heads = list(re.finditer(rf"^[ \t]*\[\[[ \t]*{table}[ \t]*\]\]", text := _text(path), re.MULTILINE))
    return f"{path}:{text.count(chr(10), 0, heads[number].start()) + 1}" if len(heads) == of else str(path)


_TEXTS = ("symptom", "cause", "mechanism", "fix", "verify", "prevention", "fingerprint")
_LISTS = ("needs", "never", "signs", "doubts")
_TABLES = (*_LISTS, "observed", "related")
_TESTS = frozenset({"is", "matches", "at_least", "at_most"})


def _entry(item: object, *, is_ours: bool) -> Entry:
    if not isinstance(item, dict):
        raise CatalogueError("not a table")
    unknown = set(item) - {known.name for known in fields(Entry)}
    if unknown:
        raise CatalogueError(f"unknown: {', '.join(sorted(unknown))[:200]}")
    for name in ("id", "title", "layer", *_TEXTS):
        _insist(isinstance(item.get(name), str) and bool(item[name].strip()), f"`{name}` must be a text")
    for name in _TABLES:
        _insist(isinstance(item.get(name, []), list), f"`{name}` must be a list")
    kinds, base = item.get("kinds"), item.get("base", 0.5)
    _insist(_ID.fullmatch(item["id"]) is not None, "`id` must be in kebab-case")
    _insist(_are_texts(kinds) and bool(kinds) and not set(kinds or ()) - KINDS, "`kinds` must list known kinds")
    _insist(item["layer"] in LAYERS, f"`layer` must be one of {', '.join(sorted(LAYERS))}")
    _insist(item.get("node", "keep") in NODE_ADVICE, f"`node` must be one of {', '.join(NODE_ADVICE)}")
    _insist(_is_number(base) and 0 <= base <= 1, "`base` must be from 0 to 1")
    check = item.get("source_check", "")
    _insist(check in SOURCE_CHECKS, f"`source_check` must be one of {', '.join(SOURCE_CHECKS[1:])}")
    code = item.get("code", {})
    _insist(isinstance(code, dict) and not set(code) - set(STACKS), f"`code` is for {', '.join(STACKS)}")
    _insist(_are_texts([*code.values(), item.get("scale", "")]), "`code` and `scale` must be texts")
    references = _strings(item, "references")
    _insist(all(link.startswith("https://") for link in references), "`references` must be https links")
    texts: dict[str, Any] = {name: " ".join(item[name].split()) for name in ("title", *_TEXTS)}
    bare = all("{}" not in str(row.get("says")) for row in item.get("needs", []) if isinstance(row, dict))
    _insist(bare, "`says` of `needs` must do without {}: it is also told where no value fits")
    asked: dict[str, Any] = {name: tuple(_conditions(item.get(name, []), name, is_ours=is_ours)) for name in _LISTS}
    return Entry(
        **texts, **asked, id=item["id"], kinds=tuple(kinds or ()), layer=item["layer"],
        node=item.get("node", "keep"), base=float(base), confirm=_strings(item, "confirm"),
        scale=" ".join(item.get("scale", "").split()),
        source_check=check,
        observed=tuple(_pair(row) for row in item.get("observed", [])),
        code={stack: text.strip("\n") for stack, text in code.items()},
        related=tuple(_related(row) for row in item.get("related", [])), references=references,
    )  # fmt: skip


def _insist(holds: bool, what: str) -> None:
    if not holds:
        raise CatalogueError(what)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_number(value: object) -> bool:
    """Whether it is one that can be compared and shown: neither true nor false, nor infinite, nor none at all."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST


def _strings(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    told = item.get(name, [])
    _insist(_are_texts(told), f"`{name}` must list texts")
    return tuple(" ".join(text.split()) for text in told)


def _pair(row: object) -> tuple[str, str]:
    if not isinstance(row, list) or len(row) != 2 or not _are_texts(row):  # noqa: PLR2004
        raise CatalogueError("each of `observed` is a pair: what one sees, and why")
    return (row[0], row[1])


def _related(row: object) -> Related:
    if not isinstance(row, dict) or set(row) != {"entry", "why", "severity"} or not _are_texts([*row.values()]):
        raise CatalogueError("each of `related` has entry, why and severity")
    _insist(row["severity"] in {"low", "medium", "high"}, "`severity` must be low, medium or high")
    return Related(**row)


def _conditions(rows: Iterable[object], name: str, *, is_ours: bool) -> Iterator[Condition]:
    for number, row in enumerate(rows, 1):
        where = f"{name} {number}"
        if not isinstance(row, dict):
            raise CatalogueError(f"{where}: not a table")
        tests = _TESTS & set(row)
        _insist(len(tests) > 0, f"{where}: a test is missing: {', '.join(sorted(_TESTS))}")
        unknown = set(row) - {"fact", "says", "weight", *tests}
        _insist(not unknown, f"{where}: unknown: {', '.join(sorted(unknown))[:200]}")
        fact, says, weight = row.get("fact"), row.get("says"), row.get("weight", 0.2)
        _insist(isinstance(fact, str), f"{where}: `fact` must be a text")
        _insist(fact in FACTS, f"{where}: unknown fact {str(fact)[:80]!r}: see `denpex-agg catalogue facts`")
        _insist(isinstance(says, str) and bool(says), f"{where}: `says` is missing")
        _insist(_is_number(weight), f"{where}: `weight` must be a number")
        told = row.get("is", [])
        values = told if isinstance(told, list) else [told]
        _insist(all(isinstance(value, str | bool) or _is_number(value) for value in values), f"{where}: `is` is wrong")
        _insist("is" not in tests or bool(values), f"{where}: `is` lists nothing")
        bounds = [row[name] for name in ("at_least", "at_most") if name in row]
        _insist(all(map(_is_number, bounds)), f"{where}: `at_least` and `at_most` must be numbers")
        yield Condition(
            str(fact), str(says), tuple(values),
            _pattern(row["matches"], where, is_ours=is_ours) if "matches" in row else None,
            row.get("at_least"), row.get("at_most"), float(weight),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class OurPattern:
    """A pattern of ours, compiled when it is asked for: most are never, and all take as long as a small job."""

    pattern: str

    def search(self, text: str) -> object | None:
        return re.search(self.pattern, text)


def _pattern(text: object, where: str, *, is_ours: bool) -> Pattern:
    if not isinstance(text, str) or len(text) > _MAX_PATTERN:
        raise CatalogueError(f"{where}: `matches` must be a pattern of at most {_MAX_PATTERN} characters")
    if is_ours:
        return OurPattern(text)
    from aggregator.linear import LinearPattern  # noqa: PLC0415 - brings PyArrow

    try:
        return LinearPattern(text)
    except ValueError as error:
        raise CatalogueError(f"{where}: {text[:200]!r}: {error}") from None
