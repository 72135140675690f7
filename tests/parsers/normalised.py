"""The rows of some files."""

from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import strategies as st

from parsers.normalise import normalise
from parsers.records import Source, SourceKind
from parsers.schema import EVENT_SCHEMA

DAY = 86_400 * 10**9


def ns(text):
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def rows_of(files, *, block=1 << 20, chunk_size=1 << 20, triage=None, reference=None, **about):
    """Rows of some files, given as bytes; `about` completes their sources."""
    about.setdefault("rank", None)
    sources = [Source(n, f"{n}.log", None, SourceKind.LOG, **about) for n in range(len(files))]

    def read(source):
        data = files[source.index]
        return iter([data[at : at + block] for at in range(0, len(data), block)])

    made = normalise(sources, read, triage, reference_ns=reference, chunk_size=chunk_size)
    table = pa.Table.from_batches(list(made), EVENT_SCHEMA)
    table.validate(full=True)
    return table, made


def column(name, *files, **options):
    table, _ = rows_of(files, **options)
    values = table[name]
    return values.cast(pa.int64()).to_pylist() if name == "ts" else values.to_pylist()


PIECES = [
    b"2026-03-01 08:00:00,123 - a.b - INFO - x",
    b"[rank3]:[E301 08:00:01.123456789 P.cpp:1] y",
    b"[default1]: z",
    b"plain",
    b"\r 5%|# | 1/9 [00:01<00:02, 1it/s]",
    b"\xff\xfe",
    b"\x1b[1mWARN\x1b[0m",
    b'{"ts": 1772352000.5}',
    b"[1,3]<stderr>:q",
    b"Mar  1 08:00:09 host k",
    b"\x00",
    b"\n",
    b"\r\n",
    b"",
]
FILES = st.lists(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join) | st.binary(max_size=60), max_size=5)
