"""A job's folder as it may be given away: masked, without names, and with no more lines than its verdict rests on."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import __version__, safe
from aggregator.case import Case
from aggregator.opening import ReadNotes, read_chunks
from aggregator.pipeline import RECORDS, investigate
from aggregator.sharing.anonymise import Anonymiser, hosts_of
from parsers.records import Source
from parsers.safe_pickle import DamagedDump, load_json, load_pickle

if TYPE_CHECKING:
    from aggregator.catalogue.naming import Naming
    from aggregator.verdict import Verdict

_MASK = re.compile(r"\[(?P<kind>[a-z-]+):(?P<hash>[0-9a-f]{4})\]")
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|zst)$")
_NOTE = "BUNDLE.md"


@dataclass(frozen=True, slots=True)
class Keep:
    """Which lines: so many around each that a signal came from, and so many of both ends of a file."""

    around: int
    ends: int


LEVELS: tuple[Keep | None, ...] = (Keep(2, 8), Keep(12, 40), Keep(60, 200), None)
"""From the fewest lines to all."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What must be the same of the original and of its bundle."""

    outcome: str
    status: str | None
    ranks: tuple[int, ...]
    kind: str | None

    @classmethod
    def of(cls, verdict: Verdict) -> Answer:
        """The answer that a verdict gives."""
        failure = verdict.first_failure
        if failure is None:
            return cls(verdict.outcome.value, None, (), None)
        return cls(verdict.outcome.value, failure.status.value, failure.ranks, failure.kind)


@dataclass(frozen=True, slots=True)
class Bundled:
    """What was made: its files, the lines kept of how many, and whether it gives the same answer as the original."""

    files: int
    kept: int
    lines: int
    same: bool
    level: int


class _Numbers:
    """Masks get numbers in the order in which they are met: their hashes differ from run to run."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], int] = {}

    def settle(self, text: str) -> str:
        return _MASK.sub(self._numbered, text) if "[" in text else text

    def _numbered(self, found: re.Match[str]) -> str:
        number = self._given.setdefault((found["kind"], found["hash"]), len(self._given) + 1)
        return f"[{found['kind']}:{number:04x}]"


class _Copier:
    """Writes the sources of a case to a folder, masked and without names."""

    def __init__(self, case: Case, *, redact: bool) -> None:
        if case.judged is None:
            raise RuntimeError("the job was read without its evidence")
        self._sources = [source for source in case.judged.evidence.sources if source.real is not None]
        self._redact = redact
        self._lines: dict[int, set[int]] = defaultdict(set)
        for signal in case.judged.evidence.signals():
            self._lines[signal.source].add(signal.line)
        for attempt in case.verdict.attempts:
            told = attempt.first_failure.evidence if attempt.first_failure is not None else ()
            paths = {source.path: source.index for source in self._sources}
            for item in (*told, *(proof for row in attempt.collateral for proof in row.evidence)):
                if item.file in paths:
                    self._lines[paths[item.file]].add(item.line)
        texts = (line for source in self._sources for line in _lines_of(source))
        self._names = Anonymiser(hosts_of(case), texts)

    def copy(self, folder: Path, keep: Keep | None) -> tuple[int, int]:
        """Writes all files; the number of lines that were kept, and of those that there are."""
        numbers = _Numbers()
        kept = total = 0
        for source in self._sources:
            target = folder / _COMPRESSED.sub("", self._names.name(source.path))
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.kind in RECORDS:
                target.write_text(numbers.settle(self._record(source)), encoding="utf-8")
            else:
                lines = list(_lines_of(source))
                wanted = self._wanted(source, len(lines), keep)
                told = safe.mask_lines(lines) if self._redact else lines
                with target.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
                    out.writelines(f"{numbers.settle(self._names.text(told[n]))}\n" for n in wanted)
                kept, total = kept + len(wanted), total + len(lines)
            if source.mtime_ns is not None:  # tells the year of stamps without one
                os.utime(target, ns=(source.mtime_ns, source.mtime_ns))
        return kept, total

    def _wanted(self, source: Source, count: int, keep: Keep | None) -> Sequence[int]:
        if keep is None:
            return range(count)
        wanted = {*range(min(keep.ends, count)), *range(max(count - keep.ends, 0), count)}
        for line in self._lines[source.index]:
            wanted.update(range(max(line - 1 - keep.around, 0), min(line + keep.around, count)))
        return sorted(wanted)

    def _record(self, source: Source) -> str:
        data = b"".join(read_chunks(source, ReadNotes()))
        try:
            value = load_pickle(data) if data[:1] == b"\x80" else load_json(data)
        except DamagedDump:
            return ""
        value = self._names.value(value)
        return json.dumps(self._masked(value) if self._redact else value)

    def _masked(self, value: object) -> object:
        if isinstance(value, str):
            return safe.mask(value)
        if isinstance(value, dict):
            return {key: self._masked(item) for key, item in value.items()}
        return [self._masked(item) for item in value] if isinstance(value, list) else value


def _lines_of(source: Source) -> Iterator[str]:
    """The lines of a text, without their ends; bytes that are no UTF-8 come out again as they were."""
    rest = b""
    for chunk in read_chunks(source, ReadNotes()):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "surrogateescape")
    if rest:
        yield rest.decode("utf-8", "surrogateescape")


@contextmanager
def anonymised(case: Case, *, redact: bool = True) -> Iterator[Path]:
    """A copy of a job without names, for as long as it is needed; the folder is called `job`."""
    with tempfile.TemporaryDirectory(prefix="denpex-") as place:
        folder = Path(place) / "job"
        folder.mkdir()
        _Copier(case, redact=redact).copy(folder, None)
        yield folder


@contextmanager
def without_names(case: Case, naming: Naming, *, redact: bool) -> Iterator[Case]:
    """The case on a copy of a job without names, for as long as its report is made."""
    with anonymised(case, redact=redact) as folder:
        found = investigate([str(folder)], naming=naming)
        yield replace(found, verdict=replace(found.verdict, job=replace(found.verdict.job, path=f"/{folder.name}")))


def make_bundle(paths: Sequence[str], output: Path) -> Bundled:
    """Write the bundle of a job to `output`, a tar archive compressed with zstd.

    Raises:
        InputError: nothing readable was found.
        OutputError: it cannot be written.
    """
    from aggregator.export import whole_file  # noqa: PLC0415 - brings PyArrow

    case = investigate(paths)
    copier = _Copier(case, redact=True)
    answer = Answer.of(case.verdict)
    with tempfile.TemporaryDirectory(prefix="denpex-") as place:
        for level, keep in enumerate(LEVELS):
            folder = Path(place) / str(level) / "job"
            folder.mkdir(parents=True)
            kept, lines = copier.copy(folder, keep)
            same = Answer.of(investigate([str(folder)]).verdict) == answer
            if same:
                break
        (folder / _NOTE).write_text(_note(answer, kept, lines, same=same), encoding="utf-8")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        with whole_file(output) as target:
            _pack(files, folder.parent, target)
    return Bundled(len(files) - 1, kept, lines, same, level)


def _note(answer: Answer, kept: int, lines: int, *, same: bool) -> str:
    told = json.dumps({"outcome": answer.outcome, "status": answer.status, "ranks": answer.ranks, "kind": answer.kind})
    agrees = "gives" if same else "does not give"
    return (
        f"# A job's logs for a bug report\n\n"
        f"Made by denpex-agg {__version__} of {lines} lines, of which {kept} are here.\n"
        f"Secrets are masked; hosts, users, addresses, folders and job names are replaced.\n\n"
        f"`denpex-agg postmortem job` {agrees} the verdict of the original:\n\n```\n{told}\n```\n"
    )


def _pack(files: Sequence[Path], root: Path, target: Path) -> None:
    """The same files give the same archive, whoever makes it and when."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files:
            item = tarfile.TarInfo(str(path.relative_to(root)))
            item.size, item.mode = path.stat().st_size, 0o644
            item.mtime = 0 if path.name == _NOTE else int(path.stat().st_mtime)
            with path.open("rb") as file:
                archive.addfile(item, file)
    packed: bytes = pa.compress(data.getvalue(), codec="zstd", asbytes=True)
    target.write_bytes(packed)
