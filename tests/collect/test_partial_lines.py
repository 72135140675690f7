"""A line, or a character, that is written in parts."""

import os

import pyarrow as pa
import pytest
from followed import APPENDING, append

from parsers.normalise import normalise
from parsers.records import Source, SourceKind
from parsers.schema import EVENT_SCHEMA

TEXT = "日本語 épreuve 🚀 [rank0]\nloss 0.25\r\n\nthe last line has no end".encode()


@pytest.mark.parametrize("rotated", [None, "rename", "restart"])
def test_bytes_that_come_one_at_a_time_make_the_same_rows(job, rotated):
    log = job.logs / "rank0.log"
    writer = os.open(log, APPENDING)
    for number, byte in enumerate(TEXT):
        os.write(writer, bytes([byte]))
        job.tick()
        if number % 10 == 0:
            job.look()
        if number == len(TEXT) // 2 and rotated == "rename":
            log.rename(job.logs / "rank0.log.1")
        if number == len(TEXT) // 2 and rotated == "restart":
            job.restart()
    os.close(writer)
    job.settle()
    assert job.contents() == [TEXT]
    source = Source(0, "rank0.log", None, SourceKind.LOG)
    rows = pa.Table.from_batches(list(normalise([source], lambda source: job.store.read(0, 1))), EVENT_SCHEMA)
    assert rows["body"].to_pylist() == ["日本語 épreuve 🚀 [rank0]", "loss 0.25", "", "the last line has no end"]
    assert rows["line"].to_pylist() == [1, 2, 3, 4]


def test_a_pause_in_the_middle_of_a_line_is_not_its_end(job):
    append(job.logs / "rank0.log", b"step 1 lo")
    job.settle()
    append(job.logs / "rank0.log", b"ss 0.25\n")
    job.settle()
    assert job.contents() == [b"step 1 loss 0.25\n"]


def test_each_piece_is_given_out_once_and_as_it_was_stored(job):
    pieces = [b"step 1 lo", b"ss 0.25\nst", b"ep 2"]
    for piece in pieces:
        append(job.logs / "rank0.log", piece)
        job.look()
    assert job.arrived == [(0, piece) for piece in pieces]
