"""From the raw bytes of one log to its signals, reading closely only the lines that matter.

The whole file is scanned for the literals of the message formats; the lines they hit, the blocks these begin, a few
lines before each, and the head and tail of the file are parsed. Batch and live reading both feed chunks, cut
anywhere; the result does not depend on where.
"""

from __future__ import annotations

from copy import copy

from parsers.blocks import PLAIN_EXCEPTION, block_signals
from parsers.clip import clip
from parsers.feeds import count_feeds
from parsers.handled import role_in_record, role_of
from parsers.lexicon import Lexicon, default_lexicon
from parsers.lineformats import Message
from parsers.marks import Mark, newest_marks, tells_a_step
from parsers.multiline import Block, BlockAssembler, Place
from parsers.pieces import Pieces
from parsers.prefixes import Origin, PrefixStripper
from parsers.records import Role, Signal, Source
from parsers.scan import Activity, Scan, StreamKey, Twins, stream_key
from parsers.skim import MAX_LINE, Repeats, close_sizes, context_start, long_lines, shortened, visible
from parsers.thinning import Thinning
from parsers.timeline import Timeline
from parsers.timestamps import StampContext, context_of
from parsers.unread import Unread

_BELOW = 8
"""Lines parsed below a fault without a time of its own, to find one that bounds it."""
_KEPT_TAGS = {name: f"tag_{name}" for name in ("task", "pod", "actor", "ip", "gpu", "container")} | {
    "conflict_rank": "conflict_rank"
}
_MESSAGE_LINES = 4
"""An exception's message goes on for so many lines."""


class LogTriage:
    """Reads one text source. `feed` it its bytes in any chunking, then `finish`."""

    def __init__(
        self, source: Source, lexicon: Lexicon | None = None, context: StampContext | None = None,
        *, files: int = 1,
    ) -> None:  # fmt: skip
        """Begin a source.

        Args:
            source: what is known of the file.
            lexicon: the formats; the shipped ones by default.
            context: completes year-less stamps; the file's own age by default.
            files: how many files the job has: the more, the shorter the ends that are parsed line by line.
        """
        self.scan = Scan(source)
        self._lexicon = lexicon if lexicon is not None else default_lexicon()
        self._context = context if context is not None else context_of(source)
        self._stripper: PrefixStripper | None = None
        self._guess: tuple[int, PrefixStripper] | None = None
        self._timeline = Timeline()
        self._assembler = BlockAssembler(self._timeline.above)
        self._pieces = Pieces()
        self._unread = Unread.of(source.index)
        self._line = 1
        self._sizes = close_sizes(files, named=source.rank is not None)
        self._head_left, self._tail = self._sizes.head, self._sizes.tail
        self._below = 0
        self._repeats = Repeats(self._lexicon)
        self._likely: dict[StreamKey, Message] = {}
        self._plain: dict[StreamKey, tuple[Signal, int]] = {}
        self._thinning = Thinning()

    @property
    def signals(self) -> list[Signal]:
        """Signals so far, in file order."""
        return self.scan.signals

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the file; they may end anywhere."""
        self.scan.counts.bytes += len(chunk)
        if self._unread.add(chunk):
            self._take()

    def finish(self, tail: int | None = None) -> Scan:
        """The file has ended: its tail is read line by line, open blocks are closed.

        With `tail` no more than so many bytes are, and the rest is read as the middle of a file: faster, but what only
        the ends are asked for (steps, most of all) may be missing.
        """
        if tail is None:
            self._stripper = self._stripper or self._begin(self._unread.gather())
            self._take()
        else:
            self._cut_tail(tail)
        data = self._unread.gather()
        self.scan.counts.long_lines += long_lines(data, self._unread.scanned, len(data))
        start = self._tail_start(data)
        self._line += count_feeds(data, 0, start)
        self._lines(data, start, len(data))
        self.scan.counts.lines = self._line - 1
        for line in self._pieces.rest():
            self._segment(*line)
        self._close_blocks()
        self.scan.signals.extend(self._thinning.last_marks())
        self._thinning = Thinning()
        self.scan.signals.sort(key=lambda signal: signal.offset)
        return self.scan

    def so_far(self, tail: int | None = None, *, then: bytes = b"") -> Scan:
        """What `finish` would give after the bytes `then`, the caller's own; reading goes on as if never asked."""
        if tail is not None:
            self._fitting()  # which the next call finds
        twin = copy(self)
        twin.feed(then)
        return twin.finish(tail)

    def refit(self, context: StampContext, files: int) -> bool:
        """Go on as if begun with these; False, and nothing is changed, where what was read so far depends on others."""
        sizes, known = close_sizes(files, named=self.scan.source.rank is not None), self._sizes
        if self._stripper is None:
            self._head_left = sizes.head
        elif (
            sizes._replace(tail=0, enough=0) != known._replace(tail=0, enough=0) or sizes.tail > known.tail
            or (self._timeline.incomplete and context != self._context)
        ):  # fmt: skip
            return False
        else:
            self._stripper = self._stripper.completing(context)
        self._context, self._sizes, self._tail = context, sizes, sizes.tail
        return True

    def latest(self, size: int) -> list[Mark]:
        """How far each writer of the last `size` bytes' complete lines has come, the newest first; changes nothing."""
        stripper = self._fitting()
        lines = self._unread.data[-size:].split(b"\n")[:-1]
        if size < self.scan.counts.bytes:
            del lines[:1]
        return newest_marks(reversed(lines), stripper, self._lexicon, self._likely)

    def __copy__(self) -> LogTriage:
        """A reader of its own that goes on from here; what cannot change is shared."""
        twins = Twins()
        timeline = self._timeline.copy(twins)
        twin = LogTriage.__new__(LogTriage)
        vars(twin).update(
            vars(self),
            scan=self.scan.copy(twins),
            _timeline=timeline,
            _assembler=self._assembler.copy(timeline.above),
            _pieces=self._pieces.copy(),
            _repeats=self._repeats.copy(),
            _unread=self._unread.copy(),
            _likely=dict(self._likely),
            _plain={key: (twins.one(signal), line) for key, (signal, line) in self._plain.items()},
            _thinning=self._thinning.copy(twins),
        )
        return twin

    def _take(self) -> None:
        """Deal with what was fed, but for the tail."""
        data = self._unread.gather()
        keep, scanned = len(data) - self._tail, self._unread.scanned
        begun = self._stripper is not None or len(data) >= self._sizes.first
        end = data.rfind(b"\n", scanned, keep) + 1 if keep > scanned and begun else 0
        if end == 0:
            self._unread.bound(self._tail)
        else:
            self._advance(data, end)

    def _tail_start(self, data: bytes) -> int:
        """Where the lines begin that are parsed last: those above the tail are only if it holds a fault."""
        start = stop = self._unread.scanned
        hits = self._lexicon.finder.positions(data[start:]) if start else []
        for hit in hits:
            if start + hit >= stop:
                begin, stop = data.rfind(b"\n", start, start + hit) + 1 or start, data.find(b"\n", start + hit) + 1
                stop = stop or len(data)
                if self._lexicon.may_be_fault(shortened(data[begin:stop]).decode(errors="replace")):
                    return 0
        if not start or self._assembler.busy or self._below:
            return start
        least = min([len(data) - self._sizes.enough, *(start + hit for hit in hits[:1])])
        enough = data.rfind(b"\n", start, max(start, least)) + 1
        return enough if enough and tells_a_step(data[enough:], self._lexicon) else start

    def _cut_tail(self, size: int) -> None:
        """Deal with all but the last `size` bytes; what was searched is not parsed any more."""
        self._stripper = self._fitting()
        self._tail = size
        self._take()
        self._line += count_feeds(self._unread.data, 0, self._unread.scanned)
        self._unread.go_on(self._unread.scanned, self._unread.scanned)

    def _advance(self, data: bytes, end: int) -> None:
        """Deal with data[:end], which ends with a line; what follows stays pending."""
        start = self._unread.scanned
        cursor = 0
        if self._head_left > 0:
            stop = data.find(b"\n", min(start + self._head_left, end) - 1) + 1
            self._head_left -= stop - start
            self._lines(data, start, stop)
            cursor = start = stop
        self.scan.counts.long_lines += long_lines(data, self._unread.scanned, end)
        if start < end:
            cursor = self._middle(data, cursor, start, end)
        kept = context_start(data, cursor, end, self._sizes.above)
        self._line += count_feeds(data, cursor, kept)
        self._unread.go_on(kept, end)

    def _fitting(self) -> PrefixStripper:
        """The file's stripper; while too little of it is known, the one that fits what there is, or half of it."""
        data = self._unread.gather()
        if self._stripper is not None:
            return self._stripper
        if self._guess is None or len(data) >= 2 * self._guess[0]:
            self._guess = len(data), self._begin(data)
        return self._guess[1]

    def _begin(self, data: bytes) -> PrefixStripper:
        """The stripper that fits the file, decided on its first lines."""
        head = data[: self._sizes.first].decode(errors="replace").splitlines()
        return PrefixStripper.fitting(self._lexicon.prefixes, self._context, head)

    def _lines(self, data: bytes, start: int, end: int) -> None:
        """Parse every line of data[start:end]."""
        if self._stripper is None:
            self._stripper = self._begin(data)
        position = start
        while position < end:
            stop = data.find(b"\n", position, end)
            stop = end if stop < 0 else stop
            self._one(data[position:stop], self._unread.at(position))
            position = stop + 1

    def _middle(self, data: bytes, cursor: int, start: int, end: int) -> int:
        """Parse what the literals hit in data[start:end], all whole lines; tells up to where lines are parsed.

        `_line` is the number of the line at the cursor, before and after; lines between the cursor and `start` may
        still be parsed as context.
        """
        if self._assembler.busy or self._below:
            cursor = self._follow(data, start, end)
        skip = max(cursor, start)
        for hit in self._lexicon.finder.positions(data[start:end]):
            position = start + hit
            if position < skip:
                continue
            line_start = data.rfind(b"\n", skip, position) + 1 or skip
            line_end = data.find(b"\n", position, end)
            if min(position - line_start, line_end - position - 1) >= MAX_LINE // 2:
                continue  # in the part of a long line that is not looked at
            skip = line_end + 1
            if not self._repeats.wanted(data, line_start, line_end):
                self.scan.counts.repeats += 1
                continue
            self._skip_to(data, cursor, line_start, line_end)
            self._one(data[line_start:line_end], self._unread.at(line_start))
            cursor = skip = self._follow(data, line_end + 1, end)
        return cursor

    def _follow(self, data: bytes, cursor: int, end: int) -> int:
        """Parse on while a block is open, or a stamp is looked for."""
        while cursor < end:
            if not self._assembler.busy:
                if not self._timeline.waiting:
                    self._below = 0
                if self._below == 0:
                    break
                self._below -= 1
            line_end = data.find(b"\n", cursor, end)
            if self._assembler.settled and self._repeats.loud(data, cursor, line_end):
                self._close_blocks()
                self._below = 0
                break
            self._one(data[cursor:line_end], self._unread.at(cursor))
            cursor = line_end + 1
        return cursor

    def _close_blocks(self) -> None:
        for block in self._assembler.finish():
            self._block(block)

    def _skip_to(self, data: bytes, cursor: int, line_start: int, line_end: int) -> None:
        """Go to a line; before a fault, parse some lines above it, for its stamp and phase."""
        context = line_start
        if self._repeats.context(data, line_start, line_end):
            context = context_start(data, cursor, line_start, self._sizes.above)
            self._below = _BELOW
        self._line += count_feeds(data, cursor, context)
        self._lines(data, context, line_start)

    def _one(self, raw: bytes, offset: int) -> None:
        raw = shortened(raw)
        place = Place(self._line, offset)
        self._line += 1
        text = self._decode(raw)
        if "\r" in text:
            for segment in visible(text):
                self._segment(segment, place)
        else:
            self._segment(text, place)

    def _decode(self, raw: bytes) -> str:
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        if b"\x00" in raw:
            raw = raw.replace(b"\x00", b"")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.scan.counts.undecodable += 1
            return raw.decode(errors="replace")

    def _segment(self, text: str, place: Place) -> None:
        assert self._stripper is not None  # set before the first line is read
        origin = self._stripper.strip(text)
        if self._pieces.concern(origin):
            for line in self._pieces.add(origin, text, place):
                self._segment(*line)
            return
        if "\n" not in origin.body:
            self._tell(origin, place, text)
            return
        for number, one in enumerate(self._stripper.lines(origin)):
            self._tell(one, place, one.body, of_record=number)
        for block in self._assembler.close(place):
            self._block(block)

    def _tell(self, origin: Origin, place: Place, text: str, of_record: int = 0) -> None:
        """One line; `of_record` numbers those below the first of a record that has several."""
        key = stream_key(origin)
        # Blocks that this line ends came before it: they are filed before its stamp is taken up.
        taken, ended = self._assembler.feed(key, origin, place)
        for block in ended:
            self._block(block)
        if not of_record:
            self._note(key, origin, place)
        if taken:
            return
        for message, fields in self._lexicon.match(origin.body, self._likely.get(key)):
            if message.role is Role.PROGRESS:
                self._likely[key] = message
            elif message.role is Role.SYMPTOM and (of_record or origin.stamp is None):
                self._explain(key, message, place)
            self._emit(message, fields, origin, place, text, key)

    def _explain(self, key: StreamKey, message: Message, place: Place) -> None:
        """A symptom right below an exception of no known kind is the rest of its message: it says what it was."""
        plain = self._plain.get(key)
        if plain is not None and 0 <= place.line - plain[1] <= _MESSAGE_LINES:
            signal = plain[0]
            signal.role, signal.kind, signal.layer = Role.SYMPTOM, message.kind, message.layer
            signal.signature = message.id

    def _note(self, key: StreamKey, origin: Origin, place: Place) -> None:
        activity = self.scan.activity.get(key)
        if activity is None:
            activity = self.scan.activity[key] = Activity(first=place)
        activity.note(origin, place)
        if origin.stamp is not None:
            self.scan.counts.stamped += 1
            self._timeline.note(key, place, origin.stamp)

    def _emit(
        self, message: Message, fields: dict[str, str], origin: Origin, place: Place, text: str, key: StreamKey
    ) -> None:
        signal = Signal(
            message.id, role_of(message.role, origin), self.scan.source.index, place.line, place.offset,
            clip(text, 4096), message.kind, message.layer, message.phase, fields=fields,
        )  # fmt: skip
        self._place(signal, origin, key)

    def _place(self, signal: Signal, origin: Origin, key: StreamKey) -> None:
        """Complete a signal's identity from its line's tags and its file."""
        source = self.scan.source
        signal.rank, signal.rank_how = origin.rank, origin.rank_how
        signal.local_rank = origin.local_rank if origin.local_rank is not None else source.local_rank
        signal.host = origin.host or source.host
        signal.pid = origin.pid if origin.pid is not None else source.pid
        signal.stream = origin.stream or source.stream
        signal.attempt = origin.attempt if origin.attempt is not None else (source.attempt or 0)
        for name, value in origin.tags.items():
            if name in _KEPT_TAGS:
                signal.fields.setdefault(_KEPT_TAGS[name], value)
        if origin.level is not None:
            signal.fields.setdefault("level", origin.level)
        if origin.logger is not None:
            signal.fields.setdefault("logger", origin.logger)
        self._timeline.date(signal, key, origin.stamp)
        if self._thinning.keeps(key, signal):
            self.scan.signals.append(signal)

    def _block(self, block: Block) -> None:
        for signal in block_signals(block, self._lexicon.match, self.scan.source.index):
            key = stream_key(block.origin)
            if signal.signature == PLAIN_EXCEPTION:
                self._plain[key] = (signal, block.places[-1].line)
            signal.role = role_in_record(signal.role, block)
            self._place(signal, block.origin, key)
            self._timeline.date_block(signal, block)
