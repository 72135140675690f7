"""Lines that a container runtime wrote in pieces are read as they were printed."""

from itertools import pairwise

import pytest

from parsers.records import Source, SourceKind
from parsers.triage import LogTriage

STAMP = "2031-02-03T04:05:0{}.123456789Z"


def signals(*lines, chunk=None):
    """The signals of a file of CRI lines: `(second, stream, mark, text)`."""
    data = "".join(f"{STAMP.format(s)} {stream} {mark} {text}\n" for s, stream, mark, text in lines).encode()
    triage = LogTriage(Source(0, "0.log", None, SourceKind.LOG))
    step = chunk or len(data)
    for start in range(0, len(data), step):
        triage.feed(data[start : start + step])
    return triage.finish().signals


HEAD = (1, "stderr", "F", "[rank3]: Traceback (most recent call last):")
FRAME = (1, "stderr", "F", '[rank3]:   File "t.py", line 7, in f')
WHOLE = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize("cuts", [(30,), (9,), (20, 45), (1, 2, 3), (12, 60, 61)])
def test_a_line_in_pieces_is_the_line_wherever_it_was_cut(cuts):
    edges = [0, *cuts, len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in pairwise(edges)]
    lines = [(2, "stderr", "F" if number == len(pieces) - 1 else "P", piece) for number, piece in enumerate(pieces)]
    (found,) = [s for s in signals(HEAD, FRAME, *lines) if s.kind]
    assert (found.signature, found.rank, found.line) == ("pt.oom.short", 3, 3)


def test_streams_do_not_mix():
    lines = [
        (1, "stderr", "P", "[rank1]: torch.OutOfMemoryError: CUDA out"),
        (1, "stdout", "F", "step 5 loss 2.1"),
        (1, "stdout", "P", "step 6 "),
        (1, "stderr", "F", " of memory. Tried to allocate 2.00 GiB."),
        (1, "stdout", "F", "loss 2.0"),
    ]
    found = signals(*lines)
    assert [(s.signature, s.fields.get("step"), s.fields.get("need")) for s in found] == [
        ("pt.oom.short", None, "2.00 GiB"), ("prog.step", "5", None), ("prog.step", "6", None),
    ]  # fmt: skip


def test_a_line_that_never_ended_is_read_as_far_as_it_came():
    (found,) = signals((1, "stderr", "P", "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried"))
    assert (found.kind, found.rank) == ("cuda_oom", 1)


def test_where_the_bytes_are_cut_changes_nothing():
    lines = [HEAD, FRAME, (2, "stderr", "P", WHOLE[:40]), (2, "stderr", "F", WHOLE[40:])]
    assert repr(signals(*lines)) == repr(signals(*lines, chunk=7))


def test_a_beginning_that_is_far_away_is_not_joined():
    between = [(3, "stdout", "F", "text")] * 100
    lines = [
        (1, "stderr", "P", "[rank1]: torch.OutOfMemory"),
        *between,
        (4, "stderr", "F", "Error: CUDA out of memory"),
    ]
    assert signals(*lines) == []
