"""The whole flow for a finished job: discover, read, parse, judge."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from aggregator.correlate.evidence import JobEvidence
from aggregator.correlate.judge import judge
from aggregator.discover import Discovery, discover
from aggregator.opening import ReadNotes, read_chunks
from aggregator.reference import newest_date
from aggregator.verdict import Verdict
from parsers.blocks import exception_signal
from parsers.flight_recorder import FlightDump, load_dump
from parsers.lexicon import default_lexicon
from parsers.multiline import Place
from parsers.records import Role, Signal, Source, SourceKind, Stamp, StampQuality
from parsers.safe_pickle import DamagedDump, UnsafePickle
from parsers.scan import Scan
from parsers.timestamps import StampContext
from parsers.torch_elastic import read_error_json
from parsers.triage import LogTriage

_SMALL_FILE = 256 << 20


def postmortem(paths: Sequence[str], *, executor: Executor | None = None) -> Verdict:
    """Read a job's logs and judge it.

    Raises:
        InputError: nothing readable was found.
    """
    return judge(collect(discover(paths), executor=executor))


def collect(found: Discovery, *, executor: Executor | None = None) -> JobEvidence:
    """Read every source of a discovery."""
    notes = ReadNotes()
    reference = newest_date(found.sources)
    logs = found.logs
    if executor is None:
        scans = [read_log(source, reference, notes, len(logs)) for source in logs]
    else:
        scans = list(
            executor.map(read_log, logs, [reference] * len(logs), [notes] * len(logs), [len(logs)] * len(logs))
        )
    dumps: list[tuple[FlightDump, int]] = []
    extra: list[Signal] = []
    size = sum(scan.counts.bytes for scan in scans)
    for source in found.sources:
        if source.kind is SourceKind.FLIGHT_RECORDER:
            size += source.size
            dump = _dump(source, notes)
            if dump is not None:
                dumps.append((dump, source.index))
        elif source.kind is SourceKind.ERROR_JSON:
            size += source.size
            extra.extend(_error_file(source, notes))
    skipped = [*found.skipped, *(item for item in notes.items if item not in found.skipped)]
    return JobEvidence(
        path=found.display,
        sources=found.sources,
        scans=tuple(scans),
        dumps=tuple(dump for dump, _ in dumps),
        dump_sources=tuple(index for _, index in dumps),
        skipped=tuple(skipped),
        bytes=size,
        extra_signals=tuple(extra),
    )


def read_log(source: Source, reference_ns: int | None, notes: ReadNotes, files: int = 1) -> Scan:
    """One text source to its signals."""
    triage = LogTriage(source, default_lexicon(), StampContext(reference_ns or source.reference_ns), files=files)
    for chunk in read_chunks(source, notes):
        triage.feed(chunk)
    return triage.finish()


def _whole(source: Source, notes: ReadNotes) -> bytes | None:
    data = bytearray()
    for chunk in read_chunks(source, notes):
        data += chunk
        if len(data) > _SMALL_FILE:
            notes.add(source.path, f"larger than {_SMALL_FILE >> 20} MiB: not read")
            return None
    return bytes(data)


def _dump(source: Source, notes: ReadNotes) -> FlightDump | None:
    data = _whole(source, notes)
    if data is None:
        return None
    try:
        return load_dump(data, source.rank)
    except UnsafePickle as error:
        notes.add(source.path, f"refused: {error}")
    except DamagedDump as error:
        notes.add(source.path, f"damaged: {error}")
    return None


def _error_file(source: Source, notes: ReadNotes) -> list[Signal]:
    data = _whole(source, notes)
    told = read_error_json(data) if data is not None else None
    if told is None or told.exception is None:
        if data is not None:
            notes.add(source.path, "not an error file that this version can read")
        return []
    signal = exception_signal(told.exception, default_lexicon().match, source.index, Place(1, 0))
    signal.local_rank, signal.host, signal.attempt = source.local_rank, source.host, source.attempt or 0
    signal.fields["error_json"] = "1"
    if told.timestamp_ns is not None:
        signal.stamp, signal.quality = Stamp(told.timestamp_ns, zoned=True), StampQuality.OWN
    return [signal] if signal.role is not Role.CONTEXT else []
