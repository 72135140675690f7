"""From bytes that arrive in small pieces to evidence and verdicts: the same readers as the post-mortem's.

Whatever the pieces, their order among files, and what was asked in between: the exact verdict is the one that
`pipeline.collect` and `judge` give on the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from aggregator.correlate.identity import Identity, stream_rank
from aggregator.correlate.judge import judge_job
from aggregator.diagnostics import stage
from aggregator.pipeline import RECORDS, Record, combine, read_record
from aggregator.utf16 import UTF16_NOTE, Utf8Decoder
from parsers.lexicon import default_lexicon
from parsers.records import Skipped, Source
from parsers.scan import StreamKey, Twins
from parsers.skim import close_sizes
from parsers.timestamps import StampContext, context_of
from parsers.triage import LogTriage

if TYPE_CHECKING:
    from aggregator.correlate.evidence import JobEvidence
    from aggregator.verdict import Verdict
    from parsers.marks import Mark
    from parsers.scan import Scan

_SMALL = 1 << 20
"""Streams of fewer bytes are read anew as soon as what was assumed of them turns out wrong; others when it must be."""
_TAIL = 512
"""Bytes at the end of a stream that are parsed line by line where the verdict need not be exact."""


@dataclass(slots=True)
class _Stream:
    """The reader of one stream. `context` and `files` are those that it was made with, or fitted to."""

    source: Source
    triage: LogTriage
    context: StampContext
    files: int
    decoder: Utf8Decoder = field(default_factory=Utf8Decoder)
    scan: Scan | None = None
    """What was seen last."""
    exact: bool = False
    grown: bool = False
    """Whether bytes came since."""

    def feed(self, data: bytes) -> None:
        self.triage.feed(self.decoder.decode(data))
        self.grown = True

    def refit(self, context: StampContext, files: int) -> bool:
        """Whether the reader goes on as if made with these."""
        if context == self.context and close_sizes(files) == close_sizes(self.files):
            return True
        if not self.triage.refit(context, files):
            return False
        self.context, self.files, self.scan = context, files, None
        return True

    def look(self, *, exact: bool, anew: bool = True) -> Scan:
        """All that was read up to now, or unless `anew` at the last look."""
        if self.scan is None or exact > self.exact or (self.grown and anew):
            self.scan = self.triage.so_far(None if exact else _TAIL, then=self.decoder.rest())
            self.exact, self.grown = exact, False
        return self.scan

    def told(self, *, exact: bool, anew: bool) -> Scan:
        """What `look` gives, for the caller to write into."""
        scan = self.look(exact=exact, anew=anew).copy()
        scan.source = self.source
        for signal in scan.signals:
            signal.source = self.source.index
        return scan


class Reducer:
    """Everything that was read of a running job.

    Bytes must be in what `reopen` gives before they are fed: a stream that cannot go on as it is, because its place
    among the files is another now, is read again from there. `reopen` gets a stream's number.
    """

    def __init__(self, display: str, reopen: Callable[[int], Iterator[bytes]]) -> None:
        """Begin a job; `display` is what the user called it."""
        self._display = display
        self._reopen = reopen
        self._streams: dict[int, _Stream] = {}
        self._others: Sequence[Source] = ()
        self._skipped: Sequence[Skipped] = ()
        self._reference_ns: int | None = None
        self._records: dict[Source, Record] = {}
        self._who = Identity()

    def arrange(
        self,
        sources: Mapping[int, Source],
        *,
        others: Sequence[Source],
        skipped: Sequence[Skipped],
        reference_ns: int | None,
    ) -> None:
        """Files came, went or were renamed.

        Args:
            sources: by stream, what is known of the logs that are judged. Streams that are missing are forgotten.
            others: every other source. The indexes of all sources together count from 0 without a gap.
            skipped: files that were not, or not wholly, read.
            reference_ns: the newest full date in the job (`newest_date`), which completes stamps without a year.
        """
        before, self._streams = self._streams, {}
        self._others, self._skipped, self._reference_ns = others, skipped, reference_ns
        for stream_id, source in sources.items():
            stream = before.get(stream_id)
            if stream is not None and _alike(stream.source, source):
                stream.source = source
                if stream.refit(self._context(source), len(sources)) or stream.triage.scan.counts.bytes >= _SMALL:
                    self._streams[stream_id] = stream
                    continue
            self._streams[stream_id] = self._read(stream_id, source, len(sources))

    def feed(self, stream_id: int, data: bytes) -> None:
        """The next bytes of a stream; of one that is not arranged yet they are read when it is."""
        if (stream := self._streams.get(stream_id)) is not None:
            stream.feed(data)

    def writer(self, stream_id: int, key: StreamKey) -> tuple[int | None, str | None, str | None]:
        """Rank, host and path of a writer in a stream, as the last verdict had them; nothing if it is not judged."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return None, None, None
        source = stream.source
        rank = source.rank if source.rank is not None else stream_rank(source, key, self._who)
        host = self._who.host_of_rank.get(rank) if rank is not None else None
        return rank, host or source.host, source.path

    def latest(self, stream_id: int, size: int) -> list[Mark]:
        """How far the writers of a stream have come, by its last `size` bytes; nothing of one that is not arranged."""
        stream = self._streams.get(stream_id)
        return stream.triage.latest(size) if stream is not None else []

    def looks(self) -> Iterator[None]:
        """Looks anew at one stream after the other: what is known of them will do after that."""
        for stream in list(self._streams.values()):
            stream.look(exact=False)
            yield

    def evidence(self, *, exact: bool = False, anew: Container[int] | None = None) -> JobEvidence:
        """What was read up to now, for the caller to write into.

        Exact is what `pipeline.collect` gives on the same bytes, and may read streams again; otherwise steps near the
        end of a stream may be missing, and large streams may be read as they were arranged before. Of streams that are
        not in `anew`, what is known of earlier will do.
        """
        by_place = sorted(self._streams, key=lambda stream_id: self._streams[stream_id].source.index)
        if exact:
            for stream_id in by_place:
                stream = self._streams[stream_id]
                if not stream.refit(self._context(stream.source), len(by_place)):
                    self._streams[stream_id] = self._read(stream_id, stream.source, len(by_place))
        streams = [self._streams[stream_id] for stream_id in by_place]
        scans = [
            self._streams[stream_id].told(exact=exact, anew=exact or anew is None or stream_id in anew)
            for stream_id in by_place
        ]
        notes = [Skipped(stream.source.path, UTF16_NOTE) for stream in streams if stream.decoder.converts]
        sources = sorted((*(stream.source for stream in streams), *self._others), key=attrgetter("index"))
        return combine(self._display, sources, scans, self._records_now(), (*self._skipped, *notes))

    def verdict(self, *, exact: bool = False, anew: Container[int] | None = None) -> Verdict:
        """The verdict on what was read up to now; for `exact` and `anew` see `evidence`."""
        with stage("a verdict"):
            judged = judge_job(self.evidence(exact=exact, anew=anew))
        self._who = judged.table
        return judged.verdict

    def _context(self, source: Source) -> StampContext:
        return context_of(source, self._reference_ns)

    def _read(self, stream_id: int, source: Source, files: int) -> _Stream:
        context = self._context(source)
        stream = _Stream(source, LogTriage(source, default_lexicon(), context, files=files), context, files)
        for data in self._reopen(stream_id):
            stream.feed(data)
        return stream

    def _records_now(self) -> list[Record]:
        """Dumps and error files, each read once as long as it stays as it is; their signals are the caller's own."""
        known, self._records = self._records, {}
        records = []
        for source in self._others:
            if source.kind in RECORDS:
                unplaced = replace(source, index=0)
                record = self._records[unplaced] = known.get(unplaced) or read_record(unplaced)
                signals = Twins().all(record.signals)
                for signal in signals:
                    signal.source = source.index
                records.append(replace(record, source=source, signals=tuple(signals)))
        return records


def _alike(one: Source, other: Source) -> bool:
    """Whether two sources tell the same of the lines in them, wherever they are."""
    return one == replace(
        other, index=one.index, path=one.path, real=one.real, group=one.group, size=one.size, mtime_ns=one.mtime_ns
    )
