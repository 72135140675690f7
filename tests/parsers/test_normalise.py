"""Every line is a row, with the time, identity and text that the line and its file tell."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from normalised import FILES, column, ns, rows_of

from parsers.chunks import HEAD_WINDOW, SLACK
from parsers.kernel import scan
from parsers.records import Source, SourceKind
from parsers.stampcolumns import read_stamps
from parsers.timestamps import StampContext, read_stamp


@settings(deadline=None)
@given(FILES)
def test_there_is_a_row_for_each_line_of_each_file(files):
    table, made = rows_of(files)
    want = [
        (f"{n}.log", number + 1)
        for n, data in enumerate(files)
        for number in range(data.count(b"\n") + (data != b"" and not data.endswith(b"\n")))
    ]
    assert list(zip(table["path"].to_pylist(), table["line"].to_pylist(), strict=True)) == want
    assert made.stats.rows == made.stats.lines == len(want)
    assert made.stats.bytes == sum(map(len, files))


@settings(deadline=None)
@given(FILES, st.integers(1, 64), st.integers(1, 200))
def test_rows_depend_neither_on_blocks_nor_on_chunks(files, block, chunk_size):
    whole, _ = rows_of(files, mtime_ns=ns("2026-03-02"))
    parts, _ = rows_of(files, mtime_ns=ns("2026-03-02"), block=block, chunk_size=chunk_size)
    assert parts.to_pylist() == whole.to_pylist()


def test_rows_of_a_long_file_do_not_depend_on_chunks():
    data = (
        b"".join(
            b"head\n" * 9 + b"2026-03-01 08:%02d:%02d,001 - m - INFO - %b\n" % (n // 60 % 60, n % 60, b"x" * (n % 300))
            for n in range(9000)
        )
        + b"y" * 400_000
        + b"\n[E302 09:00:00.1 a.cc:1] end\n"
    )
    whole, _ = rows_of([data] * 2, chunk_size=1 << 30)
    for size, block in ((1, 99_991), (300_000, 1 << 16)):
        parts, _ = rows_of([data] * 2, chunk_size=size, block=block)
        assert parts.num_rows == whole.num_rows
        assert parts.to_pylist() == whole.to_pylist()


@settings(deadline=None)
@given(FILES)
def test_an_offset_leads_to_its_line(files):
    table, _ = rows_of(files)
    for path, offset, number in zip(*(table[name].to_pylist() for name in ("path", "offset", "line")), strict=True):
        data = files[int(path.removesuffix(".log"))]
        assert offset == 0 or data[offset - 1 : offset] == b"\n"
        assert data.count(b"\n", 0, offset) == number - 1


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-03-01 08:00:00 x", "2026-03-01 08:00:00"),
        ("2026-03-01T08:00:00,123 x", "2026-03-01 08:00:00.123"),
        ("[2026-03-01 08:00:00.123456] x", "2026-03-01 08:00:00.123456"),
        ("2026-03-01T08:00:00.123456789Z stdout F x", "2026-03-01 08:00:00.123456"),
        ("2026-03-01T08:00:00+01:00 x", "2026-03-01 07:00:00"),
        ("2026-03-01T08:00:00.5-0730 x", "2026-03-01 15:30:00.5"),
        ("2026/03/01 08:00:00 x", "2026-03-01 08:00:00"),
        ("26/03/01 08:00:00 INFO x", "2026-03-01 08:00:00"),
        ("03/31/2026 08:00:00 - INFO", "2026-03-31 08:00:00"),
        ("[rank3]:[E301 08:00:00.123456789 a.cpp:1] x", "2026-03-01 08:00:00"),
        ("I0301 08:00:00.123456 77 a.py:1] x", "2026-03-01 08:00:00.123456"),
        ("INFO 03-01 08:00:00 [core.py:75] x", "2026-03-01 08:00:00"),
        ("Sun Mar  1 08:00:00 2026[1,3]<stdout>:x", "2026-03-01 08:00:00"),
        ("[Sun Mar  1 08:00:00 2025] NVRM: Xid", "2025-03-01 08:00:00"),
        ("Mar 01 08:00:00.123456 host kernel: x", "2026-03-01 08:00:00.123456"),
        ('{"ts": 1772352000.25, "msg": 1}', "2026-03-01 08:00:00.25"),
        ('{"timestamp":"1772352000123"}', "2026-03-01 08:00:00.123"),
        ("[1772352000.250000] [node:1:0] UCX ERROR x", "2026-03-01 08:00:00.25"),
        ("1772352000.25 x", "2026-03-01 08:00:00.25"),
        ("slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT 2026-03-01T08:00:00 ***", "2026-03-01 08:00:00"),
    ],
)
def test_the_usual_stamps_are_read(line, time):
    table, _ = rows_of([line.encode()], mtime_ns=ns("2026-03-05"))
    assert table["ts_quality"].to_pylist() == ["own"]
    assert (
        table["ts"].cast(pa.int64()).to_pylist()[0] // 1000 == ns(time.ljust(26, "0") if "." in time else time) // 1000
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-02-30 08:00:00 x",
        "2026-03-01 24:00:00 x",
        "took 08:00:00 x",
        "[12345.678901] NVRM: Xid",
        "{'seed': 1772352000}",
        '{"seed": 1772352000}',
        '{"id": 17723520001234567}',
        "a" * 200 + " 2026-03-01 08:00:00",
        "32026-03-01 08:00:00",
        "E0001 08:00:00.1 x",
        "Max  1 08:00:00 x",
        "1,1772352000",
    ],
)
def test_what_is_no_stamp_is_none(line):
    assert column("ts_quality", line.encode(), mtime_ns=ns("2026-03-05")) == ["none"]


INSTANTS = st.datetimes(datetime(1971, 1, 1), datetime(2199, 12, 31))  # noqa: DTZ001 - the writer's local time
FORMS = {
    "iso": ("%Y-%m-%d %H:%M:%S", ",.", "[{}] x"),
    "slash": ("%Y/%m/%d %H:%M:%S", ".", "{} x"),
    "us": ("%m/%d/%Y %H:%M:%S", "", "{} - INFO"),
    "glog": ("%m%d %H:%M:%S", ".", "W{} 12 a.py:3] x"),
    "syslog": ("%b %d %H:%M:%S", ".", "{} host x"),
    "short": ("%m-%d %H:%M:%S", "", "INFO {} x"),
    "asctime": ("%a %b %d %H:%M:%S %Y", "", "[{}] x"),
    "c10": ("%m%d %H:%M:%S", "", "[E{} a.cpp:3] x"),
}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FORMS)), INSTANTS, INSTANTS, st.sampled_from(["", "5", "123", "123456"]),
    st.sampled_from(["", "Z", "+01:00", "-0730", "+05"]), st.data(),
)  # fmt: skip
def test_stamps_are_those_of_the_reference_reader(form, moment, reference, fraction, zone, data):
    shape, points, around = FORMS[form]
    text = moment.strftime(shape)
    if form == "us" and moment.day > 12 and moment.month > 12:
        return
    if points and fraction:
        text += data.draw(st.sampled_from(points)) + fraction
    if form in {"iso", "slash"}:
        text += zone
    written = int(reference.replace(tzinfo=UTC).timestamp()) * 10**9
    source = Source(0, "a.log", None, SourceKind.LOG, mtime_ns=written)
    want = read_stamp(form, text, StampContext(source.reference_ns))
    assert want is not None
    assert column("ts", around.format(text).encode(), mtime_ns=written) == [want.ns]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_hostile_bytes_never_break_the_kernel(noise):
    data = np.frombuffer(noise + b"\n" + bytes(SLACK), np.uint8)
    lines = scan(data, len(noise) + 1)
    stamps = read_stamps(data, lines)
    assert len(lines.starts) == noise.count(b"\n") + 1
    assert (np.diff(stamps.row) > 0).all()


@settings(deadline=None)
@given(st.lists(st.sampled_from(':0123456789-/TZ+., [EWIMarFeb\n{"ts'), max_size=300))
def test_text_that_nearly_holds_stamps_gives_times_in_range(letters):
    for value in column("ts", "".join(letters).encode(), mtime_ns=ns("2026-01-01")):
        assert value is None or ns("1969-12-31") < value < ns("2200-01-02")


def test_lines_without_a_stamp_have_that_of_the_line_above_and_the_first_ones_that_of_the_next():
    data = b"front\n2026-03-01 08:00:00 a\n  more\n2026-03-01 09:00:00 b\nend\n"
    first, second = ns("2026-03-01 08:00:00"), ns("2026-03-01 09:00:00")
    assert column("ts", data, b"other\n") == [first, first, first, second, second, None]
    assert column("ts_quality", data, b"other\n") == ["bounded", "own", "inherited", "own", "inherited", "none"]


def test_a_stamp_beyond_the_head_bounds_nothing():
    data = b"x\n" * HEAD_WINDOW + b"2026-03-01 08:00:00 a\n"
    assert column("ts_quality", data)[-2:] == ["none", "own"]


def test_a_missing_year_is_that_nearest_to_the_jobs_reference_then_to_the_files_writing():
    yearless = b"[E1231 23:59:59.000000001 a.cpp:1] x\n"
    december, written = ns("2024-12-31 23:59:59"), ns("2024-06-30")
    assert column("ts", yearless, reference=ns("2025-01-02"), mtime_ns=written) == [december]
    assert column("ts", yearless, mtime_ns=ns("2025-01-03")) == [december]
    assert column("ts", b"Jul  1 00:00:00 h x", mtime_ns=written) == [ns("2024-07-01")]
    assert column("ts", yearless) == [None]


def test_29_february_is_in_a_leap_year():
    assert column("ts", b"I0229 00:00:00.5 1 a.py:1] x", mtime_ns=ns("2025-03-01")) == [ns("2024-02-29") + 5 * 10**8]


@pytest.mark.parametrize(
    ("line", "rank", "local", "stream"),
    [
        ("[rank3]: x", 3, 9, None),
        ("[rank3]:[E301 08:00:00.1 a.cpp:1] x", 3, 9, None),
        ("[default2]:x", 8, 2, None),
        ("[trainer_v2-5]: [rank13]: x", 13, 5, None),
        ("[1,3]<stderr>:x", 3, 9, "stderr"),
        ("[4]<stdout>:x", 4, 9, "stdout"),
        ("Sun Mar  1 08:00:00 2026[1,3]<stdout>:x", 3, 9, "stdout"),
        ('<stderr rank="3">x</stderr>', 3, 9, "stderr"),
        ("[2026-03-01 08:00:00] x", 8, 9, None),
        ("[rank99999999999]: x", 8, 9, None),
        ("[Rank 3] x", 8, 9, None),
    ],
)
def test_tags_of_a_line_overrule_its_file(line, rank, local, stream):
    table, _ = rows_of([line.encode()], rank=8, local_rank=9, host="n1", attempt=2)
    row = table.to_pylist()[0]
    assert (row["rank"], row["local_rank"], row["stream"]) == (rank, local, stream)
    assert (row["host"], row["attempt"], row["path"]) == ("n1", 2, "0.log")


def test_a_number_is_a_rank_where_srun_labelled_the_lines():
    assert column("rank", b" 3: x\n12: y\nz: 1\n7:\n", rank=None) == [3, 12, None, 7]


def test_a_number_is_text_where_few_lines_begin_with_one():
    assert column("rank", b"3: x\nsome\nmore\ntext\n") == [None] * 4


def test_each_file_is_asked_by_itself_whether_srun_labelled_it():
    assert column("rank", b"0: a\n1: b\n", b"0: a\nb\nc\n" * 9) == [0, 1] + [None] * 27


def test_a_number_in_brackets_is_a_rank_where_a_launcher_labelled_the_lines():
    lines = [b"[%d] rank %d of 4 is ready\n" % (n % 4, n % 4) for n in range(12)]
    assert column("rank", b"".join([*lines, b"[3/4]: x\nscript\n(2)\n"]), rank=8) == [0, 1, 2, 3] * 3 + [3, 8, 8]


def test_a_number_in_brackets_is_text_where_it_counts_something_else():
    data = b"".join(b"[%d] step %d\n(%d) x\n" % (n, n, n) for n in range(12))
    assert set(column("rank", data, rank=None)) == {None}


@pytest.mark.parametrize("rank", [(1 << 31) - 1, 1 << 31, (1 << 32) + 5, 10**30])
def test_a_rank_that_the_column_cannot_hold_is_none(rank):
    assert column("rank", b"x\n[rank3]: y\n", rank=rank) == [rank if rank < 1 << 31 else None, 3]


def test_tags_of_a_merged_file_are_those_of_each_line():
    ranks = [n * 7 % 16 for n in range(3000)]
    data = b"".join(b"[default%d]:[rank%d]: step %d\n" % (n % 8, n, n) for n in ranks)
    assert column("rank", data, chunk_size=9000) == ranks
    assert column("local_rank", data) == [n % 8 for n in ranks]


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("2026-03-01 08:00:00,1 - a - WARNING - x", 13),
        ("[2026-03-01 08:00:00] [INFO] x", 9),
        ("\x1b[31mERROR\x1b[0m x", 17),
        ("n:1:2 [0] NCCL WARN x", 13),
        ("[W301 08:00:00.1 a.cpp:1] ERROR", 13),
        ("F0301 08:00:00.1 1 a.cc:1] x", 21),
        ('{"level": "info", "msg": "ERRORS"}', 9),
        ('{"lvl":"Critical"}', 21),
        ('{"severity": "boo"} ERROR', 0),
        ("slurmstepd: error: x", 17),
        ("NCCL_DEBUG=x INFORMATION", 0),
        ("plain", 0),
        ("DEBUG x", 5),
        ("x CRITICAL", 21),
    ],
)
def test_severity_is_the_level_that_the_line_names(line, severity):
    assert column("severity", line.encode()) == [severity]


@pytest.mark.parametrize(
    ("line", "logger"),
    [
        ("2026-03-01 08:00:00,123 - megatron.training - INFO - x", "megatron.training"),
        ("[rank1]:[W301 08:00:00.123456789 ProcessGroupNCCL.cpp:12] x", "ProcessGroupNCCL.cpp"),
        ("I0301 08:00:00.123456 77 torch/_dynamo/utils.py:8] x", "torch/_dynamo/utils.py"),
        ("2026-03-01 08:00:00 - no logger", None),
        ("x - y - z", None),
        ("2026-03-01 08:00:00 - " + "n" * 100 + " - x", None),
    ],
)
def test_the_logger_is_named_behind_the_stamp(line, logger):
    assert column("logger", line.encode(), mtime_ns=ns("2026-03-05")) == [logger]


def test_no_sources_give_no_rows():
    table, made = rows_of([])
    assert table.num_rows == made.stats.files == 0
