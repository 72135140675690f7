"""What holds of the merged order for any job, however its rows are cut and however little memory there is."""

import json
import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.jobevents import JobEvents
from aggregator.logview.ordered import ORDER, Places
from aggregator.logview.runs import Sorter
from aggregator.logview.selection import Wanted
from aggregator.logview.view import LogView
from aggregator.pipeline import investigate

LINE = st.one_of(
    st.integers(0, 40).map(lambda second: f"2025-03-06 08:00:{second:02} INFO step {second}"),
    st.sampled_from(["  continues", "Traceback (most recent call last):", "ERROR x", "", "[rank1]: told by one"]),
)
FILES = st.dictionaries(
    st.sampled_from(["node-a/rank_0", "node-a/rank_1", "node-b/rank_2", "node-b/rank_3", "launcher", "notes"]),
    st.lists(LINE, min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


def written(folder, files):
    for name, lines in files.items():
        path = Path(folder) / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


@settings(max_examples=60)
@given(files=FILES, tail=st.none() | st.integers(0, 4))
def test_no_line_is_lost_doubled_or_out_of_the_order_of_its_file(files, tail):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as runs:
        written(folder, files)
        view = LogView(investigate([folder]))
        frames = list(view.frames(Wanted(), tail, Path(runs), redact=True))
        rows = pl.concat(frames).rows(named=True) if frames else []
        last, before = {}, None
        for row in rows:
            assert row["line"] > last.get(row["path"], 0)
            last[row["path"]] = row["line"]
            assert before is None or row["key"] >= before
            before = row["key"]
        there = {(f"{name}.log", number) for name, lines in files.items() for number in range(1, len(lines) + 1)}
        shown = Counter((row["path"], row["line"]) for row in rows)
        assert set(shown.values()) <= {1}
        if tail is None:
            assert set(shown) == there
        else:
            assert set(shown) <= there
            assert max(Counter(row["writer"] for row in rows).values(), default=0) <= tail


@settings(max_examples=60)
@given(files=FILES, size=st.integers(1, 5))
def test_places_do_not_depend_on_how_the_rows_are_cut(files, size):
    with tempfile.TemporaryDirectory() as folder:
        written(folder, files)
        job = JobEvents(investigate([folder]).judged)
        whole = list(job.batches(redact=True, signatures=False))
        cut = [batch.slice(at, size) for batch in whole for at in range(0, batch.num_rows, size)]
        names = ["path", "line", "key", "number", "level", "writer", "time"]
        one = pl.concat(Places(job).placed(whole)).select(names)
        other = pl.concat(Places(job).placed(cut)).select(names)
        assert one.equals(other)


@settings(max_examples=100)
@given(
    rows=st.lists(st.lists(st.tuples(st.integers(0, 9), st.text(max_size=4)), max_size=8), max_size=12),
    size=st.sampled_from([1, 60, 200, 1 << 20]),
)
def test_rows_that_do_not_fit_in_memory_are_sorted_all_the_same(rows, size):
    with tempfile.TemporaryDirectory() as folder:
        sorter, number, added = Sorter(ORDER, Path(folder), run_size=size, fan_in=2), 0, []
        for part in rows:
            frame = [(key, number + at, text) for at, (key, text) in enumerate(part)]
            number += len(part)
            added += frame
            if frame:
                sorter.add(pl.DataFrame(frame, schema=[*ORDER, "text"], orient="row"))
        found = [row for frame in sorter for row in frame.rows()]
        assert found == sorted(added)
        # Merged in levels: never more files than that take.
        assert len(list(Path(folder).iterdir())) <= 8


def test_memory_does_not_grow_with_the_job(tmp_path):
    """Of a job that is many times a run, one piece of each run is in memory."""
    sorter = Sorter(ORDER, tmp_path, run_size=1 << 20, fan_in=4)
    body = "x" * 1000
    for part in range(40):
        numbers = range(part * 1000, part * 1000 + 1000)
        sorter.add(pl.DataFrame({"key": [n % 1000 for n in numbers], "number": numbers, "text": [body] * 1000}))
    largest, count, last = 0, 0, (-1, -1)
    for frame in sorter:
        largest = max(largest, frame.estimated_size())
        count += frame.height
        assert (frame["key"][0], frame["number"][0]) > last
        last = (frame["key"][-1], frame["number"][-1])
    assert count == 40_000
    assert largest < 16 << 20


def test_json_of_the_view_is_what_export_says(tmp_path, capsys):
    from aggregator import cli  # noqa: PLC0415 - the other tests need no command line

    written(tmp_path / "job", {"rank_0": ["2025-03-06 08:00:01 INFO a", "b"]})
    assert cli.run(["logs", str(tmp_path / "job"), "-o", "json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert cli.run(["export", str(tmp_path / "job"), "-f", "ndjson", "-o", "-", "-q"]) == 0
    exported = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for ours, theirs in zip(told, exported, strict=True):
        assert {name: ours[name] for name in theirs if name in ours} == {
            name: theirs[name] for name in theirs if name in ours
        }
