"""Writes every line of the job's logs: a Parquet file with `parsers.schema.EVENT_SCHEMA`, or lines of text."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from aggregator import safe
from aggregator.diagnostics import stage, tell_sources
from aggregator.discover import Discovery, discover
from aggregator.errors import OutputError
from aggregator.eventlines import LINE_FORMATS, fit_json
from aggregator.masking import masked, masked_names
from aggregator.opening import ReadNotes, read_chunks
from aggregator.reference import newest_date
from aggregator.reports.destination import replacing, standard_output
from parsers.lexicon import default_lexicon
from parsers.normalise import Normalisation, OpenChunks, normalise
from parsers.schema import EVENT_SCHEMA, MAX_RANK
from parsers.timestamps import context_of
from parsers.triage import LogTriage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from parsers.records import Skipped, Source

PARQUET = "parquet"

_DICTIONARY = [field.name for field in EVENT_SCHEMA if pa.types.is_dictionary(field.type)]
_DICTIONARY += ["rank", "local_rank", "attempt", "severity"]
_ENCODING = dict.fromkeys(("ts", "offset", "line"), "DELTA_BINARY_PACKED")
"""Of columns that grow by small steps."""
_PAGE = 8 << 20
"""A page is a column of a row group: messages compress better, and faster, in one piece."""
_STATISTICS = ["ts", "rank", "severity", "signature", "path", "offset", "line"]


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What went into the table: `rows` equals `lines`, `bytes` are decompressed.

    `skipped` says what was not, or not wholly, read; `unranked` are files named for a rank that the table cannot hold.
    """

    files: int
    lines: int
    bytes: int
    rows: int
    skipped: tuple[Skipped, ...]
    unranked: tuple[str, ...]


def export_events(
    paths: Sequence[str], output: Path, *, force: bool, redact: bool = True, state_dir: Path | None = None,
    form: str = PARQUET,
) -> ExportSummary:  # fmt: skip
    """Write all lines of the logs under `paths` to the file `output`, secrets masked unless `redact` is false.

    `form` is `parquet`, or one of `eventlines.LINE_FORMATS`, which may also go to standard output (`-`). The file
    appears whole or not at all. With `state_dir` the lines are those that a watch of `paths` stored there.

    Raises:
        InputError: a path does not exist, there is no log, or no watch has stored anything.
        OutputError: `output` exists and `force` is not given, is no regular file, or cannot be written.
    """
    if form == PARQUET:
        _check_output(output, force=force)
    notes = ReadNotes()
    target = _Target(output, form, force)
    if state_dir is None:
        with stage("finding the files"):
            found = discover(paths)
        reference = newest_date(found.sources)
        return _export(found, partial(read_chunks, notes=notes), reference, notes, target, redact=redact)
    from aggregator.live.stored import stored_logs  # noqa: PLC0415 - the store is needed for watched jobs only

    with stored_logs(paths, state_dir) as stored:
        return _export(stored.found, stored.read, stored.reference_ns, notes, target, redact=redact)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the rows go, in which form, and whether a file that is there may be replaced."""

    output: Path
    form: str
    force: bool

    def write(self, batches: Iterable[pa.RecordBatch], sources: Iterable[Source], *, redact: bool) -> None:
        if self.form == PARQUET:
            write_events(batches, self.output)
            return
        pids = {
            safe.mask(source.path) if redact else source.path: source.pid
            for source in sources
            if source.pid is not None
        }
        is_stdout = str(self.output) == "-"
        with standard_output() if is_stdout else replacing(self.output, force=self.force) as out:
            out.writelines(fit_json(line, out.encoding) for line in LINE_FORMATS[self.form](batches, pids))


def _export(
    found: Discovery, open_chunks: OpenChunks, reference: int | None, notes: ReadNotes, target: _Target, *, redact: bool
) -> ExportSummary:
    tell_sources(found.sources, found.skipped)
    rows = events_of(found.logs, open_chunks, reference)
    with stage("reading and writing"):
        target.write(masked_names(masked(rows)) if redact else rows, found.logs, redact=redact)
    stats = rows.stats
    skipped = [*found.skipped, *(note for note in notes.items if note not in found.skipped)]
    unranked = tuple(log.path for log in found.logs if max(log.rank or 0, log.local_rank or 0) > MAX_RANK)
    return ExportSummary(stats.files, stats.lines, stats.bytes, stats.rows, tuple(skipped), unranked)


def events_of(logs: Sequence[Source], open_chunks: OpenChunks, reference: int | None) -> Normalisation:
    """The rows of all lines of `logs`, with the signatures that triage finds; `reference` tells years (ns)."""

    def triage(source: Source) -> LogTriage:
        return LogTriage(source, default_lexicon(), context_of(source, reference), files=len(logs))

    return normalise(logs, open_chunks, triage, reference_ns=reference)


def write_events(batches: Iterable[pa.RecordBatch], output: Path) -> None:
    """Write record batches, one row group each, to a Parquet file that appears whole or not at all.

    Raises:
        OutputError: the file cannot be written; nothing is left behind.
    """
    with whole_file(output) as path, pa.OSFile(str(path), "wb") as sink:
        writer = pq.ParquetWriter(
            sink,
            EVENT_SCHEMA,
            compression="zstd",
            compression_level=1,
            # Messages hardly repeat: a dictionary of them would be built, found too large and thrown away.
            use_dictionary=_DICTIONARY,  # type: ignore[arg-type]  # the stubs lack the list of names
            column_encoding=_ENCODING,
            write_statistics=_STATISTICS,
            data_page_size=_PAGE,
        )
        try:
            for batch in batches:
                writer.write_batch(batch, row_group_size=max(batch.num_rows, 1))
        except BaseException:
            # The file is lost anyway; without this the writer tries again when it is collected.
            with suppress(OSError, pa.ArrowException):
                writer.close()
            raise
        writer.close()


def _check_output(output: Path, *, force: bool) -> None:
    if str(output) == "-":
        raise OutputError(
            "Parquet cannot be written to a pipe", where="-", help="name a file to write, or take --format ndjson"
        )
    if output.exists() and not output.is_file():
        raise OutputError("the output is not a regular file", where=str(output), help="name a file to write")
    if output.exists() and not force:
        raise OutputError("the output exists", where=str(output), help="name another file, or add --force")
    if not output.absolute().parent.is_dir():
        raise OutputError("there is no such folder", where=str(output.parent), help="create it first")


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A new file beside `output` that takes its name if all goes well and disappears if not."""
    partial_file = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        os.close(os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError as error:
        raise _refused(output, error) from None
    try:
        yield partial_file
        _sync(partial_file)
        partial_file.replace(output)
        _sync(output.absolute().parent)
    except OSError as error:
        raise _refused(output, error) from None
    finally:
        with suppress(OSError):
            partial_file.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(output: Path, error: OSError) -> OutputError:
    why = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"the output cannot be written: {why}", where=str(output), help="free space or name another file"
    )
