"""The forms of `export`: what other programs read of them."""

import json
import os
import subprocess
import sys

import polars as pl
import pyarrow.parquet as pq
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from aggregator import cli
from aggregator.eventlines import otlp
from parsers.schema import SCHEMA_VERSION

WORLD = range(2)


@pytest.fixture
def job(tmp_path):
    """Two hosts; stamps with and without a zone, a traceback, text that could act, bytes that are no text."""
    for rank in WORLD:
        folder = tmp_path / "job" / f"node-{rank}"
        folder.mkdir(parents=True)
        lines = [
            f"2025-03-06 08:00:0{rank},250 - train - INFO - rank {rank} of 2 starts".encode(),
            f"[rank{rank}]: 2025-03-06T08:00:10.123456789Z WARNING größer als 2 \U0001f525".encode(),
            b"Traceback (most recent call last):",
            b'  File "/w/train.py", line 3, in main',
            b"ValueError: a\xc2\x9b2Jb \x1b]0;title\x07 \xe2\x80\xaecba \xff",
            b"",
        ]
        (folder / f"rank_{rank}.log").write_bytes(b"\n".join(lines))
    return tmp_path / "job"


def exported(job, form, capsys):
    assert cli.run(["export", str(job), "-f", form, "-o", "-", "-q"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_ndjson_is_an_event_a_line(job, capsys, golden):
    text = exported(job, "ndjson", capsys)
    golden("events.ndjson", text)
    assert [json.loads(line)["rank"] for line in text.splitlines()] == [0] * 5 + [1] * 5


def test_otlp_is_what_collectors_read(job, capsys, golden):
    text = exported(job, "otlp", capsys)
    golden("events.otlp.jsonl", text)
    for message in (LogsData(), ExportLogsServiceRequest()):
        (line,) = text.splitlines()
        json_format.Parse(line, message)
        hosts = [row.resource.attributes[0].value.string_value for row in message.resource_logs]
        records = [record for row in message.resource_logs for scope in row.scope_logs for record in scope.log_records]
        assert hosts == ["node-0", "node-1"]
        assert len(records) == 10
        assert records[0].time_unix_nano == 1741248000_250000000
        assert records[1].severity_text == "WARN"
        assert {item.key: item.value.int_value for item in records[1].attributes}["denpex.rank"] == 0
        assert records[4].event_name == "py.traceback" or any(record.event_name for record in records)


def test_the_table_holds_the_same_events(job, capsys, tmp_path, golden):
    output = tmp_path / "events.parquet"
    assert cli.run(["export", str(job), "-f", "parquet", "-o", str(output), "-q"]) == 0
    assert pq.read_schema(output).metadata[b"denpex.schema_version"] == str(SCHEMA_VERSION).encode()
    told = [json.loads(line)["body"] for line in exported(job, "ndjson", capsys).splitlines()]
    table = pl.read_parquet(output)
    assert table["body"].to_list() == told
    golden("events.parquet.csv", table.write_csv().replace("\x9b", "<9b>").replace("\u202e", "<202e>"))


@pytest.mark.parametrize("form", ["ndjson", "otlp"])
def test_no_line_can_act_on_a_terminal_and_its_value_is_as_logged(job, capsys, form):
    text = exported(job, form, capsys)
    assert all(line.isprintable() for line in text.splitlines())
    assert "größer" in text
    assert "\\u009b2Jb" in text


@pytest.mark.parametrize("form", ["ndjson", "otlp"])
def test_secrets_are_masked_unless_asked_for(job, capsys, form):
    (job / "node-0" / "rank_0.log").write_text("2025-03-06 08:00:00 password=hunter22hunter\n")
    assert "hunter22" not in exported(job, form, capsys)
    assert cli.run(["export", str(job), "-f", form, "-o", "-", "-q", "--no-redact"]) == 0
    assert "hunter22" in capsys.readouterr().out


def test_a_file_of_lines_appears_whole_and_is_replaced_only_by_force(job, tmp_path, capsys):
    output = tmp_path / "events.ndjson"
    words = ["export", str(job), "-f", "ndjson", "-o", str(output)]
    assert cli.run(words) == 0
    assert "10 rows of 2 files" in capsys.readouterr().err
    assert len(output.read_text(encoding="utf-8").splitlines()) == 10
    assert cli.run(words) == 4
    assert cli.run([*words, "--force"]) == 0


def test_parquet_to_standard_output_is_refused_with_a_way_out(job, capsys):
    assert cli.run(["export", str(job), "-o", "-"]) == 4
    assert "ndjson" in capsys.readouterr().err


def test_no_line_of_otlp_is_longer_than_the_collector_reads(job, capsys, tmp_path):
    (job / "node-0" / "rank_0.log").write_text("".join(f"{number} {'x' * 200_000}\n" for number in range(20)))
    lines = exported(job, "otlp", capsys).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) < 1 << 20
    bodies = [
        record.body.string_value.partition(" ")[0]
        for line in lines
        for row in json_format.Parse(line, LogsData()).resource_logs
        for scope in row.scope_logs
        for record in scope.log_records
        if "x" * 100 in record.body.string_value
    ]
    assert bodies == [str(number) for number in range(20)]


def test_the_process_of_a_file_is_a_resource(job, tmp_path):
    output = tmp_path / "events.parquet"
    assert cli.run(["export", str(job), "-o", str(output), "-q"]) == 0
    (line,) = otlp(pq.read_table(output).to_batches(), {"node-1/rank_1.log": 77})
    rows = json_format.Parse(line, LogsData()).resource_logs
    pids = [{item.key: item.value.int_value for item in row.resource.attributes}.get("process.pid") for row in rows]
    assert pids == [None, 77]


def test_a_terminal_that_knows_only_ascii_gets_ascii(job):
    command = [sys.executable, "-m", "aggregator", "export", str(job), "-f", "ndjson", "-o", "-", "-q"]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert json.loads(done.stdout.splitlines()[1])["body"].endswith("größer als 2 \U0001f525")
