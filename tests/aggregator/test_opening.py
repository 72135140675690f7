"""Streams of bytes out of files that may be hostile, damaged or gone."""

import bz2
import gzip
import lzma
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import opening
from aggregator.opening import Budget, ReadNotes, SourceStream, read_chunks, read_head, read_tail
from parsers.records import Source, SourceKind

RANDOM = random.Random(7)
TEXT = b"".join(b"step %d loss %.9f\n" % (n, RANDOM.random()) for n in range(60_000))


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


CODECS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lambda data: lzma.compress(data, preset=0), "zstd": zstd}


def source(path):
    return Source(0, path.name, path, SourceKind.LOG)


def read(path, **options):
    notes = ReadNotes()
    return b"".join(read_chunks(source(path), notes, **options)), [note.reason for note in notes.items]


@pytest.fixture(params=CODECS)
def codec(request):
    return request.param


def test_archives_are_known_by_their_bytes_and_read_whole(tmp_path, codec):
    (tmp_path / "x.log").write_bytes(CODECS[codec](TEXT))
    assert read(tmp_path / "x.log") == (TEXT, [])


def test_members_one_after_another_are_one_stream(tmp_path, codec):
    (tmp_path / "x").write_bytes(CODECS[codec](TEXT) + CODECS[codec](b"end\n"))
    assert read(tmp_path / "x") == (TEXT + b"end\n", [])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.999])
def test_an_archive_that_is_cut_off_gives_what_it_has_and_a_note(tmp_path, codec, share):
    whole = CODECS[codec](TEXT)
    (tmp_path / "x").write_bytes(whole[: int(len(whole) * share)])
    data, reasons = read(tmp_path / "x")
    assert TEXT.startswith(data)
    # bzip2 has blocks of 900 kB, zstd of 128 kB, and half a block gives nothing.
    assert len(data) > len(TEXT) * share - {"bzip2": 1_000_000, "zstd": 300_000}.get(codec, 100_000)
    assert reasons == [f"the {codec} archive is cut off: read up to there"]


def test_what_follows_an_archive_is_noted_and_padding_is_not(tmp_path):
    (tmp_path / "junk").write_bytes(gzip.compress(TEXT) + b"junk")
    (tmp_path / "padded").write_bytes(gzip.compress(TEXT) + bytes(512))
    assert read(tmp_path / "junk") == (TEXT, ["the gzip archive is damaged: read up to there"])
    assert read(tmp_path / "padded") == (TEXT, [])


@pytest.mark.parametrize("codec", ["xz", "bzip2", "zstd"])
def test_a_bomb_is_stopped_with_a_note(tmp_path, codec):
    (tmp_path / "x").write_bytes(CODECS[codec](bytes(64 << 20)))
    data, reasons = read(tmp_path / "x", budget=Budget(free=1 << 20, ratio=100))
    assert len(data) < 64 << 20
    assert reasons == ["stopped: unfolds to more than 100 times its size"]


def test_the_total_that_an_archive_may_unfold_to_is_limited(tmp_path):
    (tmp_path / "x").write_bytes(gzip.compress(TEXT))
    data, reasons = read(tmp_path / "x", budget=Budget(total=1 << 20))
    assert len(data) <= 1 << 20
    assert reasons == ["stopped after 1048576 decompressed bytes"]


@given(st.binary(max_size=300), st.sampled_from([b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b""]))
def test_no_bytes_raise(tmp_path_factory, data, magic):
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(magic + data)
    read(path)


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_chunk_borders_do_not_change_the_bytes(tmp_path, codec, size):
    text = TEXT[:20_000]
    (tmp_path / "x").write_bytes(CODECS[codec](text))
    chunks = list(read_chunks(source(tmp_path / "x"), ReadNotes(), size=size))
    assert b"".join(chunks) == text
    assert {len(chunk) for chunk in chunks[:-1]} <= {size}


def test_utf16_comes_out_as_utf8_with_a_note(tmp_path):
    for number, codec in enumerate(("utf-16-le", "utf-16-be")):
        path = tmp_path / str(number)
        path.write_bytes(("\ufeff" + "Schritt 5 ✓ 𝄞\r\n" * 9000).encode(codec))
        data, reasons = read(path, size=10_001)
        assert data == ("Schritt 5 ✓ 𝄞\r\n" * 9000).encode()
        assert len(reasons) == 1


def test_what_is_no_regular_file_is_noted_and_never_blocks(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/hostname")
    (tmp_path / "folder").mkdir()
    assert read(tmp_path / "fifo") == (b"", ["not a regular file (FIFO)"])
    assert read(tmp_path / "link") == (b"", ["became a link"])
    assert read(tmp_path / "folder") == (b"", ["not a regular file (folder)"])
    assert read(tmp_path / "gone") == (b"", ["No such file or directory"])


def test_an_input_error_in_the_middle_ends_the_stream_with_a_note(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(TEXT)

    def failing(fd, size, offset, real=os.pread):
        if offset >= 1 << 20:
            raise OSError(5, "Input/output error")
        return real(fd, size, offset)

    monkeypatch.setattr(opening.os, "pread", failing)
    data, reasons = read(path, size=1 << 18)
    assert (data, reasons) == (TEXT[: 1 << 20], ["Input/output error"])


def test_standard_input_can_be_read_again(monkeypatch):
    reader, writer = os.pipe()
    os.write(writer, gzip.compress(b"step 5\n"))
    os.close(writer)
    opening._seekable_stdin.cache_clear()
    monkeypatch.setattr(opening, "STDIN_FD", reader)
    stdin = Source(0, "-", None, SourceKind.LOG)
    assert read_head(stdin, 4) == b"step"
    assert b"".join(read_chunks(stdin, ReadNotes())) == b"step 5\n"
    os.close(reader)
    opening._seekable_stdin.cache_clear()


def test_a_stream_is_read_piece_by_piece_and_gives_its_descriptor_back(tmp_path):
    (tmp_path / "x").write_bytes(TEXT)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with SourceStream(source(tmp_path / "x"), ReadNotes()) as stream:
        assert stream.read(10) + stream.read(300_000) == TEXT[:300_010]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_tail_is_that_of_the_file_on_disk(tmp_path):
    (tmp_path / "x").write_bytes(TEXT)
    assert read_tail(source(tmp_path / "x"), 100) == TEXT[-100:]
    assert read_tail(source(tmp_path / "x"), len(TEXT) * 2) == TEXT
