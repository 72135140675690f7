"""The command `query`, as its user sees it."""

import csv
import io
import json
import os
import re
import tempfile
from pathlib import Path

import polars as pl
import pytest

from aggregator import cli
from aggregator.query import sql
from aggregator.query.output import plain
from aggregator.query.tables import FileTables, JobTables, empty_tables

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_runs"
SEGFAULT = SAMPLES / "two-node-segfault" / "job"
EXAMPLES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "query.md").read_text(encoding="utf-8"), re.DOTALL)
COUNT = "select count(*) as n from events"


@pytest.fixture
def ask(capsys):
    """Runs a query; its exit code, its rows (of NDJSON) or its output, and what is told beside."""

    def run(path, query, *options):
        code = cli.run(["query", str(path), query, *options])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def rows(ask):
    def run(path, query, *options):
        code, out, err = ask(path, query, "-f", "ndjson", *options)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return run


def job_of(tmp_path, **files):
    folder = tmp_path / "job"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.log").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize("query", EXAMPLES)
@pytest.mark.parametrize("sample", ["two-node-segfault", "torchrun-logdir-eval-oom"])
def test_the_documentation_s_queries_have_answers(query, sample, rows):
    assert len(EXAMPLES) == 5
    assert rows(SAMPLES / sample / "job", query)


def test_a_table_is_aligned_with_numbers_to_the_right(ask):
    code, out, _ = ask(
        SEGFAULT, "select rank, count(*) as lines from events where rank is not null group by rank order by rank"
    )
    assert code == 0
    assert out.splitlines() == [
        "rank  lines",
        "----  -----",
        "   0     36",
        "   1     36",
        "   2     36",
        "   3     30",
    ]


def test_ranks_are_those_of_the_verdict_not_of_the_file_names(rows):
    told = rows(SEGFAULT, "select distinct rank from events where path like '%attempt_0/1/%' order by rank")
    assert [row["rank"] for row in told] == [1, 3]


def test_common_time_has_the_offset_of_the_host_s_clock(tmp_path, rows):
    logs = {}
    for rank, host, hour in ((0, "node-a", 8), (1, "node-b", 9)):
        steps = [f"2025-03-06 {hour:02}:00:{n:02},000 INFO step {n}/50 loss 1.0\n" for n in range(20)]
        logs[f"{host}_rank_{rank}"] = "".join(steps)
    folder = tmp_path / "job"
    for number, (name, text) in enumerate(logs.items()):
        place = folder / f"node-{'ab'[number]}"
        place.mkdir(parents=True)
        (place / f"rank_{number}.log").write_text(text)
        assert name
    told = rows(folder, "select ts, ts_common from events where line = 5 order by ts")
    assert told[0]["ts"] != told[1]["ts"]
    assert told[0]["ts_common"] == told[1]["ts_common"]


def test_each_form_has_the_same_rows(ask, tmp_path):
    query = "select rank, kind, text from signals where kind is not null order by file, line, signature"
    wanted = json.loads(ask(SEGFAULT, query, "-f", "json")[1])
    assert wanted
    assert [json.loads(line) for line in ask(SEGFAULT, query, "-f", "ndjson")[1].splitlines()] == wanted
    told = list(csv.DictReader(io.StringIO(ask(SEGFAULT, query, "-f", "csv")[1])))
    assert [row["kind"] for row in told] == [row["kind"] for row in wanted]
    output = tmp_path / "rows.parquet"
    assert ask(SEGFAULT, query, "-f", "parquet", "-o", str(output))[0] == 0
    assert pl.read_parquet(output)["text"].to_list() == [row["text"] for row in wanted]


def test_values_of_every_type_are_told(rows, ask):
    query = (
        "select last - first as took, null as nothing, 1.5 as half, true as yes, "
        "cast(1.0 as float) / 0 as endless, cast(first as date) as day from "
        "(select min(ts) as first, max(ts) as last from events) as span"
    )
    (row,) = rows(SAMPLES / "eval-oom-no-grad" / "job", query)
    assert row.pop("took") > 400
    assert row == {
        "nothing": None, "half": 1.5, "yes": True, "endless": None, "day": "2025-03-06"
    }  # fmt: skip
    assert ask(SEGFAULT, query)[0] == 0


def test_numbers_are_told_without_the_noise_of_their_last_bits():
    told = [17.354000000000003, 0.1 + 0.2, 1e300, 5e-324, 0.0, 2 / 3, 1772352000.123456, None, float("inf")]
    frame = pl.DataFrame({"x": told})
    assert plain(frame, redact=True)["x"].to_list() == [
        17.354, 0.3, 1e300, 5e-324, 0.0, pytest.approx(2 / 3, rel=1e-15), 1772352000.123456, None, None,
    ]  # fmt: skip


def test_nested_values_are_told_as_json():
    frame = pl.DataFrame({"list": [[1, 2], None], "pair": [{"a": "x"}, {"a": None}], "nan": [float("nan"), 1.0]})
    assert plain(frame, redact=True).rows() == [("[1, 2]", '{"a": "x"}', None), (None, '{"a": null}', 1.0)]


@pytest.mark.parametrize("form", ["csv", "json", "ndjson", "table"])
def test_no_rows_are_no_error(ask, form):
    code, out, err = ask(SEGFAULT, "select rank from signals where false", "-f", form)
    assert (code, err) == (0, "")
    assert out == {"csv": "rank\n", "json": "[]\n", "ndjson": "", "table": "rank\n----\n"}[form]


def test_a_table_ends_after_a_thousand_rows_and_says_so(tmp_path, ask):
    folder = job_of(tmp_path, rank_0="".join(f"2025-03-06 08:00:00 line {n}\n" for n in range(1500)))
    code, out, err = ask(folder, "select line from events")
    assert (code, len(out.splitlines())) == (0, 1002)
    assert "--limit 0" in err
    assert len(ask(folder, "select line from events", "--limit", "0")[1].splitlines()) == 1502
    assert len(ask(folder, "select line from events", "-f", "csv")[1].splitlines()) == 1501
    assert len(ask(folder, "select line from events", "-f", "csv", "--limit", "7")[1].splitlines()) == 8


@pytest.mark.parametrize(
    ("query", "what", "help_text"),
    [
        ("select rnak from events", "no column 'rnak'", "rank"),
        ("select s.rank from signals as s join evnts as e on e.rank = s.rank", "no table 'evnts'", "events"),
        ("select frobnicate(rank) from events", "no function 'frobnicate'", "SQL"),
        ("select rank fom events", "Expected", "SQL"),
        ("select rank from events where body ~ '('", "unclosed group", "SQL"),
        ("select body + 1 from events", "not allowed", "SQL"),
        ("selct rank from events", "begins with SELECT", "select"),
        ("", "begins with SELECT", "select"),
        ("select 1", "no table", "events and signals"),
        ("drop table events", "begins with SELECT", "select"),
        ("create table x as select * from events", "begins with SELECT", "select"),
        ("select 1 from events; drop table events", "one (and only one) statement", "SQL"),
        ("select * into '/tmp/x' from events", "not supported", "SQL"),
        ("select " + "+".join(["rank"] * 2000) + " from events", "longer than", ""),
        ("select " + "(" * 1500 + "1 from events", "recursion", ""),
    ],
)
def test_a_wrong_query_is_told_in_words(ask, query, what, help_text):
    code, out, err = ask(SEGFAULT, query)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert what in err
    assert help_text in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "function", ["read_csv", "READ_CSV", "read_parquet", "read_json", "read_ndjson", "read_ipc", "scan_csv"]
)
@pytest.mark.parametrize(
    "shape",
    [
        "select * from {0}('{1}'), events", "select * from \"{0}\"('{1}'), events",
        "select * from `{0}`('{1}'), events",
        "select * from {0} /* x */ ('{1}'), events", "select * from {0} -- x\n('{1}'), events",
        "select * from {0}\u00a0\n('{1}'), events", "with t as (select * from {0}('{1}')) select * from t, events",
        "select rank from events where exists (select 1 from {0}('{1}'))",
        "select (select 1 from {0}('{1}')) from events", "select * from events union all select * from {0}('{1}')",
        "select 'it''s', \"{0}\" /* /* */ */ ('{1}') from events",
    ],
)  # fmt: skip
def test_no_query_reads_a_file(ask, tmp_path, function, shape):
    secret = tmp_path / "secret.txt"
    secret.write_text("root:x:0\n")
    code, out, err = ask(SEGFAULT, shape.format(function, secret))
    assert (code, out) == (2, "")
    assert "not files" in err
    assert "root" not in err


def test_every_function_that_polars_reads_files_with_is_refused():
    """Polars lists those that it knows when it is asked for one that it does not."""
    for name in [name for name in dir(pl) if name.startswith(("read_", "scan_"))]:
        with pytest.raises(sql.UsageError, match="not files"):
            sql.check(f"select * from events, {name}('x')")


@pytest.mark.parametrize("function", ["read_csv", "read_parquet", "read_ipc", "read_ndjson"])
def test_a_reader_that_slips_through_is_found_in_the_plan(ask, tmp_path, monkeypatch, function):
    monkeypatch.setattr(sql, "_READER", re.compile("(?!)"))
    file = tmp_path / "secret"
    frame = pl.DataFrame({"secret": ["hunter22"]})
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "ipc": frame.write_ipc, "ndjson": frame.write_ndjson}[
        function.removeprefix("read_")
    ](file)
    for query in (
        f"select * from {function}('{file}'), events",
        f"select 1 from events join {function}('{file}') on 1 = 1",
    ):
        code, out, err = ask(SEGFAULT, query)
        assert (code, out) == (2, "")
        assert "hunter22" not in err
    assert ask(SEGFAULT, "select 1 from events where body = 'Csv SCAN [x]'")[0] == 0


def test_secrets_are_masked_before_the_query_sees_them(tmp_path, rows, ask):
    folder = job_of(tmp_path, rank_0="2025-03-06 08:00:00 ERROR password=hunter22hunter\n")
    assert rows(folder, "select message from events where message like '%hunter22%'") == []
    assert "hunter22" not in json.dumps(rows(folder, "select *, substr(message, 20) as s from events"))
    assert "hunter22" in json.dumps(rows(folder, "select message from events", "--no-redact"))
    exported = tmp_path / "events.parquet"
    assert cli.run(["export", str(folder), "-o", str(exported), "--no-redact", "-q"]) == 0
    assert rows(exported, "select message from events where message like '%hunter22%'") == []
    assert "hunter22" not in ask(exported, "select * from events")[1]
    assert "hunter22" in json.dumps(rows(exported, "select message from events", "--no-redact"))


@pytest.mark.parametrize("form", ["table", "csv", "json", "ndjson"])
def test_hostile_lines_are_inert(tmp_path, ask, form):
    text = "2025-03-06 08:00:00 a\x9b2J \u202e \x07 \u2028 b\r\n".encode() + b"\xff\x1b]52;c;aGk=\x07\n"
    code, out, _ = ask(job_of(tmp_path, rank_0=text), 'select message as "\x1b]0;x\x07" from events', "-f", form)
    assert code == 0
    assert all(line.isprintable() for line in out.split("\n"))


def test_an_exported_table_is_a_path_too(tmp_path, rows, ask):
    exported = tmp_path / "events.parquet"
    assert cli.run(["export", str(SEGFAULT), "-o", str(exported), "-q"]) == 0
    assert rows(exported, COUNT) == [{"n": 264}]
    code, _, err = ask(exported, "select * from signals")
    assert code == 2
    assert "no signals" in err
    data = exported.read_bytes()
    exported.write_bytes(data[: len(data) // 2])
    assert ask(exported, COUNT)[0] == 3
    exported.write_bytes(data[:4] + os.urandom(len(data) // 3) + data[4 + len(data) // 3 :])
    code, _, err = ask(exported, "select * from events")
    assert code == 3, err
    pl.DataFrame({"a": [1]}).write_parquet(exported)
    code, _, err = ask(exported, COUNT)
    assert code == 3
    assert "not a table of events" in err


def test_a_path_that_is_not_there_is_told(tmp_path, ask):
    code, _, err = ask(tmp_path / "nothing", COUNT)
    assert code == 3
    assert err.startswith("error: ")


def test_only_what_is_needed_is_read(tmp_path):
    """Columns and row groups are left out by the scan itself."""
    tables = JobTables([str(SEGFAULT)], tmp_path)
    plan = sql.run("select line from events where rank = 3", {"events": tables.events()}).explain()
    assert "PROJECT 2/14 COLUMNS" in plan
    assert re.search(r"SELECTION: .*rank.* == .*3", plan)
    plan = sql.run(
        "select line from events where rank = 3", {"events": FileTables(tmp_path / "events.parquet").events()}
    )
    assert re.search(r"SELECTION: .*rank.* == .*3", plan.explain())


def test_a_query_of_signals_alone_normalises_nothing(monkeypatch, rows):
    monkeypatch.setattr(JobTables, "events", lambda _: pytest.fail("the lines were read"))
    assert rows(SEGFAULT, "select rank from signals where kind = 'segfault' and role = 'root'")[0] == {"rank": 3}


def test_the_temporary_folder_is_private_and_gone_afterwards(monkeypatch, rows, tmp_path):
    seen = []
    events = JobTables.events

    def watched(self):
        seen.append((self.folder, self.folder.stat().st_mode & 0o777))
        return events(self)

    monkeypatch.setattr(JobTables, "events", watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert rows(SEGFAULT, COUNT) == [{"n": 264}]
    assert seen[0][1] == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_schema_lists_every_column(capsys):
    assert cli.run(["query", "anything", "--schema"]) == 0
    out = capsys.readouterr().out
    for frame in empty_tables().values():
        assert all(f"\n  {name} " in out for name in frame.collect_schema().names())


def test_outputs_are_refused_as_elsewhere(ask, tmp_path):
    output = tmp_path / "rows.csv"
    output.write_text("mine")
    assert ask(SEGFAULT, COUNT, "-f", "csv", "-o", str(output))[0] == 4
    assert output.read_text() == "mine"
    assert ask(SEGFAULT, COUNT, "-f", "csv", "-o", str(output), "--force")[0] == 0
    assert output.read_text() == "n\n264\n"
    assert ask(SEGFAULT, COUNT, "-f", "parquet")[0] == 4
    assert cli.run(["query", str(SEGFAULT)]) == 2


def test_a_table_fits_the_terminal_and_goes_through_the_pager(on_terminal):
    query = "select rank, ts, message from events where severity >= 17"
    code, text = on_terminal(["query", str(SEGFAULT), query], DENPEX_PAGER="sed s/^/P/")
    assert code == 0
    lines = text.splitlines()
    assert all(line.startswith("P") and len(line) <= 61 for line in lines)
    assert any("…" in line for line in lines)
    code, text = on_terminal(["query", str(SEGFAULT), query, "--no-pager"], DENPEX_PAGER="sed s/^/P/")
    assert (code, text.startswith("rank")) == (0, True)


@pytest.mark.parametrize("pager", ["true", "no-such-pager", "'", "", "cat"])
def test_a_pager_that_ends_early_or_is_none_is_no_error(pager, on_terminal):
    code, text = on_terminal(["query", str(SEGFAULT), COUNT], PAGER=pager)
    assert code == 0
    assert ("264" in text) is (pager != "true")
