"""A job's folder as it may be given away: masked, without names, and with no more lines than its verdict rests on."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import __version__
from aggregator.case import Case
from aggregator.pipeline import investigate
from aggregator.scratch import scratch_folder
from aggregator.sharing.copying import NOTE, Copier, Keep

if TYPE_CHECKING:
    from aggregator.catalogue.naming import Naming
    from aggregator.verdict import Verdict

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


@contextmanager
def anonymised(case: Case, *, redact: bool = True) -> Iterator[Path]:
    """A copy of a job without names, for as long as it is needed; the folder is called `job`."""
    with scratch_folder() as place:
        folder = place / "job"
        folder.mkdir()
        Copier(case, redact=redact).copy(folder, None)
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
    copier = Copier(case, redact=True)
    answer = Answer.of(case.verdict)
    with scratch_folder() as place:
        for level, keep in enumerate(LEVELS):
            folder = place / str(level) / "job"
            folder.mkdir(parents=True)
            kept, lines = copier.copy(folder, keep)
            same = Answer.of(investigate([str(folder)]).verdict) == answer
            if same:
                break
        (folder / NOTE).write_text(_note(answer, kept, lines, same=same), encoding="utf-8")
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

    with (
        pa.CompressedOutputStream(str(target), "zstd") as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            item = tarfile.TarInfo(str(path.relative_to(root)))
            item.size, item.mode = path.stat().st_size, 0o644
            item.mtime = 0 if path.name == NOTE else int(path.stat().st_mtime)
            with path.open("rb") as file:
                archive.addfile(item, file)
