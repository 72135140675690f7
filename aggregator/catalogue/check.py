"""Holds every entry against its samples: small jobs that it must name, that a sibling must win, that only quote it.

`entries/samples/<family>.toml` has `[[sample]]` items: `entry`; `what` (`positive`, `sibling` or `quoted`); for a
sibling `is`, the entry that wins there; and the job, as `log` (one file `train.log`) or `files` (name → text).
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggregator.catalogue.entries import ENTRIES_DIR, Catalogue, CatalogueError
from aggregator.catalogue.naming import Naming
from aggregator.pipeline import postmortem

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
        try:
            items = tomllib.loads(path.read_text(encoding="utf-8")).get("sample", [])
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise CatalogueError(f"{path}: {error}") from None
        for number, item in enumerate(items, 1):
            where = f"{path.name}: sample {number} ({item.get('entry')}, {item.get('what')})"
            files = item.get("files", {"train.log": item["log"]} if "log" in item else {})
            if item.get("what") not in WHATS or not files or (item["what"] == "sibling") != ("is" in item):
                raise CatalogueError(f"{where}: wants entry, what, log or files, and for a sibling `is`")
            expected = {"positive": item["entry"], "sibling": item.get("is"), "quoted": None}[item["what"]]
            yield Sample(item["entry"], item["what"], expected, files, where)


def problems(catalogue: Catalogue, folder: Path = ENTRIES_DIR) -> Iterator[str]:
    """What is wrong with the entries of a folder, in words; nothing if all is well."""
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
    for entry in catalogue.of_folder(folder):
        for what in WHATS:
            if (entry.id, what) not in seen:
                yield f"{entry.id}: has no {what} sample"
        for related in entry.related:
            if related.entry not in entries:
                yield f"{entry.id}: related entry {related.entry} does not exist"


def named_for(sample: Sample, catalogue: Catalogue) -> str | None:
    """The entry that the verdict on a sample names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in sample.files.items():
            path = folder / file
            if not path.resolve().is_relative_to(folder.resolve()):
                raise CatalogueError(f"{sample.where}: {file} leads out of the job's folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.lstrip("\n"), encoding="utf-8")
        failure = postmortem([name], naming=Naming(catalogue)).first_failure
    return failure.diagnosis.entry if failure is not None and failure.diagnosis is not None else None
