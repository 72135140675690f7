"""Readers of one log, and logs for them."""

from parsers.records import Source, SourceKind
from parsers.timestamps import StampContext, read_stamp
from parsers.triage import LogTriage

SOURCE = Source(0, "job.log", None, SourceKind.LOG)
MANY_FILES = 10_000
"""So many files have the shortest ends, so that a small text has a middle."""


def scanned(data, chunks=None, *, source=SOURCE, files=1, lexicon=None):
    triage = LogTriage(source, lexicon, StampContext(SECOND), files=files)
    for chunk in [data] if chunks is None else chunks:
        triage.feed(chunk)
    return triage.finish()


def said(scan):
    """All that a scan tells, for comparison."""
    return repr((scan.signals, scan.activity, scan.counts))


def at(text):
    stamp = read_stamp("iso", text, StampContext())
    assert stamp is not None
    return stamp.ns


SECOND = 1_760_000_000 * 10**9


def one(scan, exception):
    (found,) = [signal for signal in scan.signals if signal.fields.get("exception") == exception]
    return found


def line_at(data, offset):
    return data[offset:].split(b"\n", 1)[0]


def ordinary(size, first=0, every=1):
    """Lines of a healthy program; one in `every` has a stamp."""
    step = b"%s trainer: loss 2.3121 lr 3.0e-4 grad_norm 1.02 tokens/s 51234 mem 61.2GB\n"
    lines = [
        step
        % (b"2025-10-03 %02d:%02d:%02d,500 INFO" % (n // 3600 % 24, n // 60 % 60, n % 60) if n % every == 0 else b"-")
        for n in range(first, first + size // 70)
    ]
    return b"".join(lines)


FAULT = (
    b'Traceback (most recent call last):\n  File "/w/t.py", line 9, in <module>\n    f()\n'
    b"ZeroDivisionError: division by zero\n"
)


def tagged(rank, text):
    return b"".join(b"[rank%d]: " % rank + line + b"\n" for line in text.splitlines())
