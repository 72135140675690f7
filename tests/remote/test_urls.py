"""Logs behind URLs: the verdict of the same files on disk, and errors that hold no secret."""

import gzip
import http.server
import json
import threading
from pathlib import Path

import pytest

from aggregator.cli import run
from aggregator.discover import discover
from aggregator.errors import InputError, UsageError
from aggregator.opening import Budget, ReadNotes, read_chunks, read_head, read_tail
from aggregator.pipeline import collect, investigate
from aggregator.remote import files, is_url, local_path, shown
from aggregator.remote.files import RemoteFile, guarded
from aggregator.verdict import to_json
from parsers.records import Remote, Source, SourceKind

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'denpex-agg[remote]'")
SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
LINES = "".join(f"2026-12-01 10:{n // 60:02}:{n % 60:02},000 INFO step {n}\n" for n in range(600)).encode()


@pytest.fixture
def memory():
    """An empty file system in memory."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()


def put(fs, folder, target="/run"):
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            fs.pipe_file(f"{target}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def answer(case):
    """All of a verdict but where it was read from, and the bytes' age."""
    told = to_json(case.verdict)
    told["job"].pop("path")
    return told


@pytest.mark.parametrize("sample", ["two-node-segfault", "hang-flight-recorder", "torchrun-logdir-eval-oom"])
def test_a_job_behind_a_url_is_judged_as_on_disk(memory, sample):
    put(memory, SAMPLES / sample / "job")
    there = investigate(["memory://run"])
    assert answer(there) == answer(investigate([str(SAMPLES / sample / "job")]))
    assert there.verdict.job.path == "memory://run"


def test_patterns_single_files_and_archives_are_found(memory):
    memory.pipe_file("/run/rank_0.log", LINES)
    memory.pipe_file("/run/rank_1.log.gz", gzip.compress(LINES))
    memory.pipe_file("/run/deep/.git/config.log", LINES)
    memory.pipe_file("/run/model.pt", b"x")
    found = discover(["memory://run"])
    assert [(s.path, s.rank, s.compression) for s in found.sources] == [
        ("rank_0.log", 0, None),
        ("rank_1.log.gz", 1, "gzip"),
    ]
    assert {note.path for note in found.skipped} == {"deep/.git/config.log", "model.pt"}
    assert [b"".join(read_chunks(source, ReadNotes())) for source in found.sources] == [LINES, LINES]
    assert [s.path for s in discover(["memory://run/*.log"]).sources] == ["rank_0.log"]
    assert [s.path for s in discover(["memory://run/rank_0.log", "memory://run/rank_1.log.gz"]).sources] == [
        "rank_0.log",
        "rank_1.log.gz",
    ]
    (alone,) = discover(["memory://run/rank_0.log"]).sources
    assert (read_head(alone, 10), read_tail(alone, 10)) == (LINES[:10], LINES[-10:])


def test_at_most_so_many_files_are_looked_at(memory):
    for number in range(5):
        memory.pipe_file(f"/run/rank_{number}.log", LINES)
    found = discover(["memory://run"], max_files=3)
    assert len(found.sources) == 3
    assert "limit of 3 files" in found.skipped[0].reason


def test_budgets_hold(memory):
    memory.pipe_file("/run/a.log", LINES)
    memory.pipe_file("/run/b.log.gz", gzip.compress(bytes(8 << 20)))
    plain, packed = discover(["memory://run"]).sources
    notes = ReadNotes()
    end = b"".join(read_chunks(plain, notes, budget=Budget(plain=1000)))
    assert LINES.endswith(end)
    assert 900 < len(end) <= 1000
    assert len(b"".join(read_chunks(packed, notes, budget=Budget(total=1 << 20)))) <= 1 << 20
    assert [note.path for note in notes.items] == ["a.log", "b.log.gz"]


def test_masks_hold(memory, capsys):
    error = b"Traceback (most recent call last):\n  File \"a.py\", line 1, in m\nKeyError: 'password=hunter2hunter2'\n"
    memory.pipe_file("/run/rank_0.log", LINES + error)
    assert run(["postmortem", "memory://run", "--no-history"]) == 0
    out = capsys.readouterr().out
    assert "KeyError" in out
    assert "hunter2" not in out


def test_ranges_grow_while_a_file_is_read_on(memory, monkeypatch):
    data = bytes(range(256)) * (128 << 10)
    memory.pipe_file("/run/a", data)
    asked = []
    real = memory.cat_file

    def cat_file(_, path, *, start, end):
        asked.append(end - start)
        return real(path, start, end)

    monkeypatch.setattr(type(memory), "cat_file", cat_file)
    file, place, read = RemoteFile(Remote("memory://run", "/run/a"), len(data)), 0, b""
    while piece := file.read_at(1 << 20, place):
        read, place = read + piece, place + len(piece)
    assert read == data
    assert asked[:3] == [1 << 20, 4 << 20, 8 << 20]
    assert max(asked) == 8 << 20
    assert sum(asked) == len(data)
    assert file.read_at(5, 7) == data[7:12]


def test_a_file_that_fails_while_it_is_read_is_noted(memory):
    memory.pipe_file("/run/rank_0.log", LINES)
    memory.pipe_file("/run/rank_1.log", LINES)
    found = discover(["memory://run"])
    memory.rm("/run/rank_1.log")
    evidence = collect(found)
    assert [(note.path, note.reason) for note in evidence.skipped] == [("rank_1.log", "no such file or folder")]
    assert evidence.scans[0].counts.bytes == len(LINES)


def test_a_file_that_became_shorter_ends_there(memory):
    memory.pipe_file("/run/a.log", LINES[:100])
    notes = ReadNotes()
    source = Source(0, "a.log", None, SourceKind.LOG, size=len(LINES), remote=Remote("memory://run", "/run/a.log"))
    assert b"".join(read_chunks(source, notes)) == LINES[:100]
    assert [note.reason for note in notes.items] == ["ends before the size that its listing told"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["memory://nothing"], "error: cannot be read: no such file or folder\n  --> memory://nothing\n"),
        (["memory://nothing/*.log"], "error: the pattern matches nothing\n  --> memory://nothing/*.log\n"),
        (["memory://run", "."], "error: a job's files must be in one place"),
        (["nosuchscheme://run"], "error: not a URL that can be read\n  --> nosuchscheme://run\n"),
        (["simplecache::memory://run"], "error: no such file or folder\n"),
        (["memory://run"], "error: no log to read\n  --> memory://run\n"),
    ],
)
def test_errors_are_told_without_a_traceback(memory, words, error, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory.pipe_file("/run/model.pt", b"x")
    assert run(["postmortem", *words, "--no-history"]) in {2, 3}
    assert capsys.readouterr().err.startswith(error)


def test_secrets_of_a_url_are_never_shown(monkeypatch):
    url = "sftp://mira:p%40ss@host/run?X-Amz-Signature=abc"
    assert shown(url) == "sftp://host/run"
    told = files._reason(url, ValueError("cannot log in as mira:p@ss at sftp://mira:p%40ss@host/run, p%40ss"))
    assert "p@ss" not in told
    assert "p%40ss" not in told
    assert "p%40ss" not in repr(Remote(url, "/run"))


def test_a_missing_library_is_told(monkeypatch, capsys):
    def missing(_):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    assert run(["postmortem", "s3://key:secret@bucket/run", "--no-history"]) == 2
    error = capsys.readouterr().err
    assert error == "error: s3:// needs another library\n  --> s3://bucket/run\n  = help: Install s3fs to access S3\n"


def test_a_url_cannot_be_watched(tmp_path, capsys):
    assert run(["watch", "s3://u:p@bucket/run", "--state-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: a URL cannot be watched\n  --> s3://bucket/run\n")


def test_file_urls_are_paths_with_all_rules_of_paths(tmp_path):
    (tmp_path / "rank_0.log").write_bytes(LINES)
    (tmp_path / "rank_1.log").symlink_to("/etc/passwd")
    found = discover([f"file://{tmp_path}"])
    assert [source.real for source in found.sources] == [tmp_path / "rank_0.log"]
    assert [note.reason for note in found.skipped] == ["link that leads out of the job folder"]
    assert local_path("file:///a") == "/a"
    assert not is_url("file:///a")


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, in ranges too."""

    def do_GET(self):
        path = Path(self.translate_path(self.path))
        told = self.headers.get("Range")
        if not (told and path.is_file()):
            super().do_GET()
            return
        data = path.read_bytes()
        first, _, last = told.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *words):
        """Says nothing."""


def test_exports_of_a_url_are_those_of_the_files(memory, tmp_path):
    (tmp_path / "rank_0.log").write_bytes(LINES)
    put(memory, tmp_path)
    told = []
    for place in (str(tmp_path), "memory://run"):
        out = tmp_path / "out.ndjson"
        assert run(["export", place, "--format", "ndjson", "-o", str(out), "--force", "-q"]) == 0
        told.append([json.loads(line) for line in out.read_text().splitlines()])
    assert told[0] == told[1]
    assert len(told[0]) == 600


def test_a_server_of_files_in_ranges(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp", reason="aiohttp is not installed, which reads http://")
    (tmp_path / "rank_0.log").write_bytes(LINES)
    monkeypatch.chdir(tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (source,) = discover([f"http://127.0.0.1:{server.server_port}/rank_0.log"]).sources
        assert b"".join(read_chunks(source, ReadNotes())) == LINES
    finally:
        server.shutdown()
        server.server_close()


def test_what_a_library_raises_becomes_a_sentence(memory):
    def fails(_):
        raise RuntimeError("at memory://u:secret@x")

    with pytest.raises(OSError, match=r"^RuntimeError: at memory://x$"):
        guarded("memory://run", fails)


def test_nothing_is_there(memory):
    with pytest.raises(InputError):
        discover(["memory://"])
    with pytest.raises(UsageError):
        discover(["memory://a", "-"])
