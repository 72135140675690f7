"""Chunks hold every line once, wherever blocks and chunks end; lines become readable text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parsers.chunks import HEAD_WINDOW, KEPT, LINE_CAP, SLACK, Chunk, Packer
from parsers.kernel import scan
from parsers.records import Source, SourceKind
from parsers.text import body_column, clean_line


def source(index=0):
    return Source(index, f"rank_{index}.log", None, SourceKind.LOG, rank=index)


def pack(files, size=1 << 20):
    packer = Packer(size)
    chunks = []
    for index, blocks in enumerate(files):
        packer.begin(source(index))
        for block in blocks:
            chunks += packer.feed(block)
        chunks += packer.end()
    return [*chunks, *packer.flush()], packer.stats


def lines_of(chunks):
    """(source, offset, number, bytes) of every line, by the piece tables."""
    found = []
    for chunk in chunks:
        stops = [piece.start for piece in chunk.pieces[1:]] + [chunk.size]
        for piece, stop in zip(chunk.pieces, stops, strict=True):
            offset, number = piece.offset, piece.first_line
            for line in split(chunk.data[piece.start : stop]):
                found.append((piece.source.index, offset, number, line))
                offset += len(line) + 1
                number += 1
    return found


def split(data):
    return data.removesuffix(b"\n").split(b"\n") if data else []


def expected(files):
    found = []
    for index, blocks in enumerate(files):
        offset = 0
        for number, line in enumerate(split(b"".join(blocks)), start=1):
            found.append((index, offset, number, line))
            offset += len(line) + 1
    return found


def cut(data, places):
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(bounds)]


FILES = st.lists(
    st.tuples(
        st.lists(st.sampled_from([b"a", b"bc\r", b"\n", b"\r\n", b"\xff", b""]), max_size=40),
        st.lists(st.integers(0, 99)),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(FILES, st.integers(1, 50))
def test_every_line_is_in_one_chunk_with_its_place_for_any_blocks_and_chunk_size(files, size):
    blocks = [cut(b"".join(parts), places) for parts, places in files]
    chunks, stats = pack(blocks, size)
    assert lines_of(chunks) == expected(blocks)
    assert stats.lines == len(expected(blocks))
    assert stats.bytes == sum(len(block) for file in blocks for block in file)
    assert all(chunk.data[chunk.size :] == bytes(SLACK) for chunk in chunks)


def test_small_files_share_a_chunk():
    chunks, _ = pack([[b"x\n"] for _ in range(100)])
    assert len(chunks) == 1
    assert len(chunks[0].pieces) == 100


def test_a_chunk_that_begins_a_source_holds_its_head_window():
    chunks, _ = pack([[b"x" * 99 + b"\n"] * (HEAD_WINDOW // 50)], size=1)
    assert chunks[0].size >= HEAD_WINDOW


@pytest.mark.parametrize("block", [1000, LINE_CAP - 1, LINE_CAP, 1 << 22])
def test_a_long_line_keeps_head_and_tail_and_the_next_line_its_offset(block):
    long = b"HEAD" + b"-" * (1 << 20) + b"TAIL"
    data = b"one\n" + long + b"\nlast\n"
    chunks, stats = pack([[data[at : at + block] for at in range(0, len(data), block)]])
    one, text, last = lines_of(chunks)
    assert (one[3], last) == (b"one", (0, len(data) - 5, 3, b"last"))
    assert text[1:3] == (4, 2)
    assert text[3].startswith(b"HEAD")
    assert text[3].endswith(b"TAIL")
    assert b"bytes cut" in text[3]
    assert len(text[3]) < 2 * KEPT + 100
    assert stats.cut_lines == 1


def test_a_line_of_the_cap_is_whole_and_one_byte_more_is_cut():
    chunks, stats = pack([[b"x" * LINE_CAP + b"\n" + b"y" * (LINE_CAP + 1)]])
    assert len(lines_of(chunks)[0][3]) == LINE_CAP
    assert stats.cut_lines == 1


def test_an_endless_line_is_held_in_bounded_memory():
    packer = Packer()
    packer.begin(source())
    for _ in range(2000):
        assert list(packer.feed(b"x" * (1 << 16))) == []
        assert len(packer._pending.tail) <= KEPT
        assert sum(map(len, packer._pending.parts)) <= LINE_CAP
    (chunk,) = [*packer.end(), *packer.flush()]
    assert chunk.size < 2 * KEPT + 100


def test_a_cut_does_not_tear_a_character():
    for shift in range(4):
        chunks, _ = pack([[b"x" * shift + "€𝄞".encode() * (1 << 16)]])
        lines_of(chunks)[0][3].decode()


def bodies(data, size=1 << 20):
    chunks, _ = pack([[data]], size)
    found, undecodable, nuls = [], 0, 0
    for chunk in chunks:
        array = np.frombuffer(chunk.data, np.uint8)
        lines = scan(array, chunk.size)
        made = body_column(chunk, array, lines)
        made.column.validate(full=True)
        found += made.column.to_pylist()
        undecodable += made.undecodable
        nuls += made.nuls
    return found, undecodable, nuls


BAR = "Epoch 1:  {:2d}%|███▌      | {}/100 [00:01<00:05, 3.2it/s, loss=1.2]"


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("\r" + BAR.format(1, 1) + "\r" + BAR.format(2, 2), BAR.format(2, 2)),
        (BAR.format(1, 1) + "\r" + BAR.format(2, 2) + "  \r", BAR.format(2, 2)),
        (
            BAR.format(1, 1) + "\r" + BAR.format(2, 2) + "\rTraceback (most recent call last):",
            BAR.format(2, 2) + " Traceback (most recent call last):",
        ),
        ("saved\r" + BAR.format(1, 1) + "\r" + BAR.format(2, 2), "saved " + BAR.format(2, 2)),
        (
            BAR.format(1, 1) + "RuntimeError: x\r" + BAR.format(2, 2),
            BAR.format(1, 1) + "RuntimeError: x " + BAR.format(2, 2),
        ),
        ("12it [00:01, 9.0it/s]\r24it [00:02, 9.0it/s]", "24it [00:02, 9.0it/s]"),
        ("1/9 [==>....] - ETA: 3s\r2/9 [===>...] - ETA: 2s", "2/9 [===>...] - ETA: 2s"),
        ("\x1b[32m" + BAR.format(1, 1) + "\x1b[0m\r\x1b[32m" + BAR.format(2, 2) + "\x1b[0m", BAR.format(2, 2)),
        ("a\r\rb\r   \rc", "a b c"),
        ("\r\r", ""),
        ("\x1b[31mERROR\x1b[0m x\x1b]0;title\x07y", "ERROR xy"),
        ("\x1b]0;a title without an end", "]0;a title without an end"),
        ("a\x00\x00b", "ab"),
        ("tab\tand \x01", "tab\tand \x01"),
    ],
)
def test_a_line_is_read_as_a_person_would(line, body):
    assert clean_line(line.encode()).decode() == body
    assert bodies(line.encode() + b"\n")[0] == [body]


def test_bytes_that_are_no_utf8_are_replaced_in_their_line_alone():
    lines = [f"é{n}" for n in range(20_000)]
    data = "\n".join(lines).encode().replace(b"\n\xc3\xa97777\n", b"\ncaf\xe9\n")
    found, undecodable, _ = bodies(data)
    lines[7777] = "caf\ufffd"
    assert (found, undecodable) == (lines, 1)


def test_a_byte_order_mark_goes_only_at_the_start_of_a_file():
    mark = "\ufeff"
    assert bodies(f"{mark}a\n{mark}b\n".encode())[0] == ["a", f"{mark}b"]


PARTS = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\r\n",
            b"\n",
            b"\x00",
            b"\x1b[1m",
            b"\x1b",
            b"text ",
            b"Error",
            b"]",
            b"%|",
            b" ",
            b"\xe2\x82\xac",
            b"\xff",
        ]
        + [BAR.format(n, n).encode() for n in (3, 50)]
        + [b"5it [00:01, 2it/s]"]
    ),
    max_size=60,
)


@settings(deadline=None)
@given(PARTS)
@example([b"a\r"])
@example([b"\xff\r", BAR.format(1, 1).encode(), b"\r", BAR.format(2, 2).encode()])
def test_columns_are_cleaned_as_single_lines_are(parts):
    data = b"".join(parts)
    lines = [
        line.removesuffix(b"\r") if number < data.count(b"\n") else line for number, line in enumerate(split(data))
    ]
    if data and not data.endswith(b"\n"):
        lines[-1] = lines[-1].removesuffix(b"\r")  # the packer ends the last line
    want = [clean_line(line.decode(errors="replace").encode()).decode() for line in lines]
    found, undecodable, nuls = bodies(data)
    assert found == want
    assert nuls == data.count(b"\x00")
    assert undecodable == sum(b"\xff" in line for line in lines)


def test_a_chunk_knows_its_size():
    chunk = Chunk(b"a\n" + bytes(SLACK), 2, ())
    assert body_column(
        chunk, np.frombuffer(chunk.data, np.uint8), scan(np.frombuffer(chunk.data, np.uint8), 2)
    ).column.to_pylist() == ["a"]
