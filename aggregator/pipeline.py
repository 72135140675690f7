"""The whole flow for a finished job: discover, read, parse, judge."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from aggregator.case import Case
from aggregator.catalogue.naming import SHIPPED, Naming
from aggregator.correlate.evidence import JobEvidence
from aggregator.correlate.judge import judge_job
from aggregator.diagnostics import stage, tell_scans, tell_sources
from aggregator.discover import Discovery, discover
from aggregator.opening import DEFAULT_BUDGET, Budget, ReadNotes, read_chunks
from aggregator.parallel import no_garbage, read_apart, workers_for
from aggregator.reference import newest_date
from aggregator.verdict import Verdict
from parsers.blocks import exception_signal
from parsers.lexicon import default_lexicon
from parsers.multiline import Place
from parsers.records import Role, Signal, Skipped, Source, SourceKind, Stamp, StampQuality
from parsers.scan import Scan
from parsers.timestamps import StampContext, context_of
from parsers.torch_elastic import read_error_json
from parsers.triage import LogTriage

if TYPE_CHECKING:
    from aggregator.engines import Engine
    from parsers.flight_recorder import FlightDump

RECORDS = frozenset({SourceKind.FLIGHT_RECORDER, SourceKind.ERROR_JSON})
"""Kinds of files that are read as a whole."""
_SMALL_FILE = 256 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """What a file tells that is no line log: a dump, or the signals of an error file; and what was not read of it."""

    source: Source
    dump: FlightDump | None
    signals: tuple[Signal, ...]
    notes: tuple[Skipped, ...]


def postmortem(paths: Sequence[str], *, naming: Naming = SHIPPED) -> Verdict:
    """Read a job's logs and judge it; for `Raises` see `investigate`."""
    return investigate(paths, naming=naming).verdict


def investigate(
    paths: Sequence[str], *, naming: Naming = SHIPPED, workers: int | None = None, engine: Engine | None = None
) -> Case:
    """Read a job's logs and judge it, with what a report may show beside the verdict.

    `workers` is how many processes read; as many as pay if it is None. With an `engine`, it reads.

    Raises:
        InputError: nothing readable was found.
        UsageError: the engine cannot be used.
    """
    with stage("finding the files"):
        found = discover(paths)
    tell_sources(found.sources, found.skipped)
    with stage("reading them"):
        evidence = collect(found, workers=workers_for(found.logs) if workers is None else workers, engine=engine)
    tell_scans(found.logs, evidence.scans)
    with stage("judging"), no_garbage():
        judged = judge_job(replace(evidence, notes=(*evidence.notes, *_still_written(found.sources))), naming)
    return Case(judged.verdict, judged)


def _still_written(sources: Iterable[Source]) -> list[str]:
    """A sentence on files that have grown since they were found: what came after they were read is not judged."""
    grown = []
    for source in sources:
        with contextlib.suppress(OSError):
            if source.real is not None and source.real.stat().st_size > source.size:
                grown.append(source.path)
    if not grown:
        return []
    more = f" and {len(grown) - 1:,} more" if len(grown) > 1 else ""
    return [f"{grown[0]}{more}: still being written; `denpex-agg watch` follows a job that runs"]


def collect(
    found: Discovery, *, workers: int = 1, budget: Budget = DEFAULT_BUDGET, engine: Engine | None = None
) -> JobEvidence:
    """Read every source of a discovery, of each what the budget allows, with so many processes or by the engine."""
    logs = found.logs
    read = partial(read_logs, reference_ns=newest_date(found.sources), files=len(logs), budget=budget)
    if engine is not None:
        told = engine(read, logs)
    else:
        default_lexicon().finder.expect(sum(source.size for source in logs))  # once: processes that are forked have it
        told = read_apart(read, logs, workers) if workers > 1 else read(logs)
    records = [read_record(source, budget) for source in found.sources if source.kind in RECORDS]
    notes = [note for _, noted in told for note in noted]
    return combine(found.display, found.sources, [scan for scan, _ in told], records, (*found.skipped, *notes))


def read_logs(
    sources: Sequence[Source], *, reference_ns: int | None, files: int, budget: Budget
) -> list[tuple[Scan, list[Skipped]]]:
    """Text sources to their signals, each with what was not read of it."""
    told = []
    common = StampContext(reference_ns) if reference_ns else None  # what it remembers of dates is shared
    for source in sources:
        notes = ReadNotes()
        scan = read_log(source, common or context_of(source), notes, files, budget)
        told.append((scan, notes.items))
    return told


def combine(
    display: str, sources: Sequence[Source], scans: Sequence[Scan], records: Sequence[Record],
    skipped: Iterable[Skipped],
) -> JobEvidence:  # fmt: skip
    """All that was read of a job; `sources`, `scans` and `records` are in the order of reading."""
    noted = [*skipped, *(note for record in records for note in record.notes)]
    return JobEvidence(
        path=display,
        sources=tuple(sources),
        scans=tuple(scans),
        dumps=tuple(record.dump for record in records if record.dump is not None),
        dump_sources=tuple(record.source.index for record in records if record.dump is not None),
        skipped=tuple(dict.fromkeys(noted)),
        bytes=sum(scan.counts.bytes for scan in scans) + sum(record.source.size for record in records),
        extra_signals=tuple(signal for record in records for signal in record.signals),
    )


def read_log(
    source: Source, context: StampContext, notes: ReadNotes, files: int = 1, budget: Budget = DEFAULT_BUDGET
) -> Scan:
    """One text source to its signals."""
    triage = LogTriage(source, default_lexicon(), context, files=files)
    for chunk in read_chunks(source, notes, budget=budget):
        triage.feed(chunk)
    return triage.finish()


def read_record(source: Source, budget: Budget = DEFAULT_BUDGET) -> Record:
    """A dump or an error file; what cannot be read of it is noted."""
    notes = ReadNotes()
    data = _whole(source, notes, min(_SMALL_FILE, budget.plain or _SMALL_FILE))
    dump, signals = None, list[Signal]()
    if data is not None and source.kind is SourceKind.FLIGHT_RECORDER:
        dump = _dump(source, data, notes)
    elif data is not None:
        signals = _error_file(source, data, notes)
    return Record(source, dump, tuple(signals), tuple(notes.items))


def _whole(source: Source, notes: ReadNotes, limit: int) -> bytes | None:
    data = bytearray()
    for chunk in read_chunks(source, notes):
        data += chunk
        if len(data) > limit:
            notes.add(source.path, f"larger than {limit / (1 << 20):.3g} MiB: not read")
            return None
    return bytes(data)


def _dump(source: Source, data: bytes, notes: ReadNotes) -> FlightDump | None:
    from parsers.flight_recorder import load_dump  # noqa: PLC0415 - few jobs have dumps
    from parsers.safe_pickle import DamagedDump, UnsafePickle  # noqa: PLC0415 - as above

    try:
        return load_dump(data, source.rank)
    except UnsafePickle as error:
        notes.add(source.path, f"refused: {error}")
    except DamagedDump as error:
        notes.add(source.path, f"damaged: {error}")
    return None


def _error_file(source: Source, data: bytes, notes: ReadNotes) -> list[Signal]:
    told = read_error_json(data)
    if told is None or told.exception is None:
        notes.add(source.path, "not an error file that this version can read")
        return []
    signal = exception_signal(told.exception, default_lexicon().match, source.index, Place(1, 0))
    signal.local_rank, signal.host, signal.attempt = source.local_rank, source.host, source.attempt or 0
    signal.fields["error_json"] = "1"
    if told.timestamp_ns is not None:
        signal.stamp, signal.quality = Stamp(told.timestamp_ns, zoned=True), StampQuality.OWN
    return [signal] if signal.role is not Role.CONTEXT else []
