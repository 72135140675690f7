"""Signatures of rows: those of the signals that triage finds."""

from hypothesis import given, settings
from hypothesis import strategies as st
from normalised import rows_of

from parsers.normalise import LAG, normalise
from parsers.records import Role, Signal, Source, SourceKind
from parsers.triage import LogTriage


class FakeTriage:
    """Finds every line that holds `!`; of the last bytes it has seen it tells nothing until the end."""

    def __init__(self, source):
        self.source, self.data, self.signals, self.line = source, b"", [], 0

    def feed(self, chunk):
        self.data += chunk
        self._take(self.data.rfind(b"\n", 0, max(len(self.data) - LAG // 2, 0)) + 1)

    def finish(self):
        self._take(len(self.data))

    def _take(self, end):
        for line in self.data[:end].splitlines(keepends=True) if end else ():
            self.line += 1
            if b"!" in line:
                name = f"s{len(line.rstrip())}"
                self.signals.append(Signal(name, Role.ROOT, self.source.index, self.line, 0, ""))
        self.data = self.data[end:]


def signatures(table):
    columns = (table[name].to_pylist() for name in ("path", "line", "signature"))
    return [(path, line, signature) for path, line, signature in zip(*columns, strict=True) if signature is not None]


def alone(files):
    found = []
    for index, data in enumerate(files):
        triage = FakeTriage(Source(index, "", None, SourceKind.LOG))
        triage.feed(data)
        triage.finish()
        found += triage.signals
    return found


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([b"!a", b"b", b"!cc", b""])).map(b"\n".join), max_size=5), st.integers(1, 64))
def test_signatures_stand_at_the_lines_of_the_signals_of_triage_alone(files, block):
    table, made = rows_of(files, block=block, chunk_size=100, triage=FakeTriage)
    assert made.signals == alone(files)
    assert signatures(table) == [(f"{s.source}.log", s.line, s.signature) for s in made.signals]


def test_rows_wait_for_a_triage_that_tells_late():
    files = [b"".join(b"!\n" if n % 1000 == 0 else b"line %d\n" % n for n in range(300_000))] * 2
    table, made = rows_of(files, block=1 << 18, chunk_size=1 << 18, triage=FakeTriage)
    assert len(made.signals) == 600
    assert signatures(table) == [(f"{s.source}.log", s.line, s.signature) for s in made.signals]


def test_each_source_is_read_once():
    opened = []

    def read(source):
        opened.append(source.index)
        return iter([b"x\n" * 99] * 9)

    sources = [Source(n, f"{n}.log", None, SourceKind.LOG) for n in range(3)]
    assert len(list(normalise(sources, read, LogTriage, chunk_size=500))) > 1
    assert opened == [0, 1, 2]


def test_the_shipped_triage_names_an_exception():
    data = b"a\n" * 9 + b'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: bad shard\n'
    table, made = rows_of([data], triage=LogTriage)
    (signal,) = made.signals
    assert table["signature"].to_pylist()[signal.line - 1] == signal.signature
