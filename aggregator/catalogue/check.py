"""Holds every entry against its samples: small jobs that it must name, that a sibling must win, that only quote it.

`entries/samples/<family>.toml` has `[[sample]]` items: `entry`; `what` (`positive`, `sibling` or `quoted`); for a
sibling `is`, the entry that wins there; and the job, as `log` (one file `train.log`) or `files` (name → text).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

from aggregator.catalogue.entries import (
    ENTRIES_DIR,
    FAMILIES,
    Catalogue,
    CatalogueError,
    place_of_item,
    read,
)
from aggregator.catalogue.naming import Naming
from aggregator.pipeline import postmortem

_HELP = "docs/entries.md tells what a sample may hold"
WHATS = ("positive", "sibling", "quoted")


@dataclass(frozen=True, slots=True)
class Sample:
    """One small job, and the entry that its verdict must name (`expected`; None: any but `entry`)."""

    entry: str
    what: str
    expected: str | None
    files: dict[str, str]
    where: str


def samples(folder: Path = ENTRIES_DIR) -> Iterator[Sample]:
    """All samples of a folder of entries.

    Raises:
        CatalogueError: a file cannot be read, or a sample is wrong.
    """
    for path in sorted((folder / "samples").glob("*.toml")):
        items = read(path).get("sample", [])
        if not isinstance(items, list):
            raise CatalogueError(f"{path.name}: no [[sample]] in it", where=str(path), help=_HELP)
        for number, item in enumerate(items):
            sample = _sample(item, path, number)
            if sample is None:
                what = f"{path.name}: sample {number + 1}: wants entry, what, log or files, and for a sibling `is`"
                raise CatalogueError(what, where=place_of_item(path, "sample", number, len(items)), help=_HELP)
            yield sample


def _sample(item: object, path: Path, number: int) -> Sample | None:
    """A sample as its file tells it; None if something of it is missing or of the wrong kind."""
    if not isinstance(item, dict):
        return None
    entry, what, sibling = item.get("entry"), item.get("what"), item.get("is")
    files = item.get("files", {"train.log": item["log"]} if "log" in item else {})
    if (
        not isinstance(entry, str)
        or what not in WHATS
        or not isinstance(sibling, str if what == "sibling" else NoneType)
    ):
        return None
    if not isinstance(files, dict) or not files or not all(isinstance(text, str) for text in files.values()):
        return None
    expected = {"positive": entry, "sibling": sibling, "quoted": None}[what]
    return Sample(entry, what, expected, files, f"{path.name}: sample {number + 1} ({entry[:80]}, {what})")


def problems(catalogue: Catalogue, folder: Path = ENTRIES_DIR) -> Iterator[str]:
    """What is wrong with the entries of a folder, in words; nothing if all is well."""
    yield from _misplaced(catalogue, folder)
    entries = {entry.id: entry for entry in catalogue.all()}
    seen: set[tuple[str, str]] = set()
    for sample in samples(folder):
        seen.add((sample.entry, sample.what))
        if sample.entry not in entries or (sample.expected or sample.entry) not in entries:
            yield f"{sample.where}: there is no such entry"
            continue
        named = named_for(sample, catalogue)
        if sample.expected is not None and named != sample.expected:
            yield f"{sample.where}: {named or 'nothing'} is named, not {sample.expected}"
        elif sample.expected is None and named == sample.entry:
            yield f"{sample.where}: it is named although it is only quoted"
    for entry in {entry.id: entry for _, entry in catalogue.of_folder(folder)}.values():
        for what in WHATS:
            if (entry.id, what) not in seen:
                yield f"{entry.id}: has no {what} sample"
        for related in entry.related:
            if related.entry not in entries:
                yield f"{entry.id}: related entry {related.entry} does not exist"


def _misplaced(catalogue: Catalogue, folder: Path) -> Iterator[str]:
    """Entries that would not be found: of two with one id only the last is."""
    first: dict[str, str] = {}
    for path, entry in catalogue.of_folder(folder):
        if entry.id in first:
            yield f"{path.name}: {entry.id}: the id is already used in {first[entry.id]}"
        first.setdefault(entry.id, path.name)
    read_from = {path.name for path, _ in catalogue.of_folder(folder)}
    for path in sorted(folder.glob("*.toml")):
        if path.name not in {FAMILIES, *read_from}:
            yield f"{path.name}: is never read: {FAMILIES} does not name it"


def named_for(sample: Sample, catalogue: Catalogue) -> str | None:
    """The entry that the verdict on a sample names.

    Raises:
        CatalogueError: its files cannot be written.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in sample.files.items():
            path = folder / file
            try:
                if not path.resolve().is_relative_to(folder.resolve()):
                    raise CatalogueError(f"{sample.where}: {file[:80]!r} leads out of the job's folder", help=_HELP)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.lstrip("\n"), encoding="utf-8")
            except (OSError, ValueError) as error:  # a name that no file can have
                why = getattr(error, "strerror", None) or error
                raise CatalogueError(f"{sample.where}: {file[:80]!r} cannot be written: {why}", help=_HELP) from None
        failure = postmortem([name], naming=Naming(catalogue)).first_failure
    return failure.diagnosis.entry if failure is not None and failure.diagnosis is not None else None
