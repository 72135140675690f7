"""The signals of a text."""

import textwrap

from parsers.records import Source, SourceKind
from parsers.triage import LogTriage

SOURCE = Source(7, "job.log", None, SourceKind.LOG)


def signals(text, *, dedent=True):
    text = textwrap.dedent(text).lstrip("\n") if dedent else text
    triage = LogTriage(SOURCE)
    triage.feed(text.encode())
    return triage.finish().signals


def exceptions(text, **options):
    return [signal for signal in signals(text, **options) if signal.exception is not None]


def only(text):
    (signal,) = exceptions(text)
    return signal
