"""The table is whole, readable by its schema, and never half written."""

import errno
import gzip
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aggregator import cli, export
from aggregator.errors import InputError, OutputError
from aggregator.export import export_events, write_events
from parsers.schema import EVENT_SCHEMA, SCHEMA_VERSION


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(3):
        text = f"2026-03-01 08:00:0{rank},000 - train - INFO - start\n" + "step\n" * rank
        (folder / f"rank_{rank}.log").write_text(text)
    return folder


@pytest.fixture
def output(tmp_path):
    return tmp_path / "events.parquet"


def left_over(output):
    return [path.name for path in output.parent.iterdir() if ".part" in path.name]


def test_every_line_of_every_log_is_a_row(job, output):
    summary = export_events([str(job)], output, force=False)
    table = pq.read_table(output)
    assert (summary.files, summary.lines, summary.rows, summary.skipped) == (3, 6, 6, ())
    assert summary.bytes == sum(path.stat().st_size for path in job.iterdir())
    assert table["rank"].to_pylist() == [0, 1, 1, 2, 2, 2]
    assert table["body"].to_pylist()[1:3] == ["2026-03-01 08:00:01,000 - train - INFO - start", "step"]
    assert table["ts_quality"].to_pylist()[1:3] == ["own", "inherited"]


def test_the_file_has_the_schema_and_its_version(job, output):
    export_events([str(job)], output, force=False)
    assert pq.read_schema(output).equals(EVENT_SCHEMA, check_metadata=False)
    assert pq.read_schema(output).metadata[b"denpex.schema_version"] == str(SCHEMA_VERSION).encode()


def test_compressed_logs_are_read(job, output):
    (job / "rank_3.log.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert export_events([str(job)], output, force=False).rows == 8


def test_a_file_named_for_a_rank_that_cannot_be_is_told(job, output, capsys):
    name = "20260301080001_rank99999999999999999999.log"
    (job / name).write_text("a\n")
    assert cli.run(["export", str(job), "-o", str(output)]) == 0
    assert capsys.readouterr().err.endswith(f"no rank: {name}: the number in its name is too large to be one\n")
    assert None in pq.read_table(output)["rank"].to_pylist()


def test_what_could_not_be_read_is_listed(job, output):
    (job / "rank_3.log.gz").write_bytes(gzip.compress(os.urandom(5000))[:2000])
    summary = export_events([str(job)], output, force=False)
    assert [note.path for note in summary.skipped] == ["rank_3.log.gz"]
    assert summary.rows == summary.lines


def test_an_existing_file_is_replaced_only_by_force(job, output):
    output.write_text("mine")
    with pytest.raises(OutputError, match="exists") as raised:
        export_events([str(job)], output, force=False)
    assert raised.value.exit_code == 4
    assert output.read_text() == "mine"
    export_events([str(job)], output, force=True)
    assert pq.read_table(output).num_rows == 6


@pytest.mark.parametrize("force", [False, True])
def test_only_a_regular_file_is_replaced(job, tmp_path, force):
    with pytest.raises(OutputError, match="regular"):
        export_events([str(job)], tmp_path, force=force)
    with pytest.raises(OutputError, match="regular"):
        export_events([str(job)], Path("/dev/null"), force=force)


def test_a_missing_folder_is_said(job, tmp_path):
    with pytest.raises(OutputError, match="folder"):
        export_events([str(job)], tmp_path / "no" / "events.parquet", force=False)


def test_missing_input_leaves_no_file(tmp_path, output):
    with pytest.raises(InputError):
        export_events([str(tmp_path / "nothing")], output, force=False)
    assert not output.exists()


def batch(rows=1000):
    table = pa.Table.from_pylist(
        [
            {
                "ts_quality": "none",
                "attempt": 0,
                "severity": 0,
                "path": "a",
                "offset": n,
                "line": n,
                "body": os.urandom(50).hex(),
            }
            for n in range(rows)
        ],
        EVENT_SCHEMA,
    )
    return table.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("earlier", [None, "mine"])
def test_a_full_disk_is_an_output_error_and_leaves_what_was_there(monkeypatch, output, earlier):
    if earlier:
        output.write_text(earlier)
    monkeypatch.setattr(export.pa, "OSFile", lambda path, mode: pa.PythonFile(_Limited(path), mode="w"))
    with pytest.raises(OutputError, match="No space left") as raised:
        write_events([batch(), batch()], output)
    assert raised.value.where == str(output)
    assert left_over(output) == []
    assert (output.read_text() if output.exists() else None) == earlier


class _Limited:
    """A file on a disk with room for 5,000 bytes."""

    def __init__(self, path):
        self.room, self.closed = 5000, False

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(data)

    def tell(self):
        return 5000 - self.room

    def flush(self):
        pass

    def close(self):
        self.closed = True


def test_an_interrupt_leaves_no_file(output):
    def batches():
        yield batch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_events(batches(), output)
    assert list(output.parent.glob("*")) == left_over(output) == []


def test_a_row_group_is_a_chunk(output):
    write_events([batch(10), batch(20)], output)
    metadata = pq.read_metadata(output)
    assert [metadata.row_group(n).num_rows for n in range(2)] == [10, 20]


def test_no_lines_make_an_empty_table(output):
    write_events([], output)
    assert pq.read_table(output).num_rows == 0


def test_the_file_has_the_permissions_of_any_new_file(output):
    plain = output.with_name("plain")
    plain.touch()
    write_events([batch(1)], output)
    assert stat.S_IMODE(output.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_secrets_are_masked_in_the_table_unless_asked_for(tmp_path):
    token = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    lines = ["rank 0 step 1 tokens/s 1234", f"login(token={token})", "no secret here", f"again {token}"]
    log = tmp_path / "rank_0.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    export_events([str(log)], tmp_path / "masked.parquet", force=False)
    body = pq.read_table(tmp_path / "masked.parquet")["body"].to_pylist()
    assert [body[0], body[2]] == [lines[0], lines[2]]
    assert not any(token in line for line in body)
    assert body[1].startswith("login(token=[hf-token:")
    export_events([str(log)], tmp_path / "plain.parquet", force=False, redact=False)
    assert pq.read_table(tmp_path / "plain.parquet")["body"].to_pylist() == lines
