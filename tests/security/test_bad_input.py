"""Files, folders, streams and surroundings that are wrong: a verdict or one clear error, never a crash or a hang."""

import bz2
import contextlib
import functools
import gzip
import json
import lzma
import os
import pickle
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from aggregator import cli

MEMORY = 1 << 30
"""Bytes of address space that a child may take: a verdict needs a small part of it."""
EXPORT_MEMORY = 4 << 30
"""The threads and arenas of polars and pyarrow alone take some 1.1 GB of addresses."""
PATIENCE = 20
"""Seconds after which a small job counts as a hang."""
IS_ROOT = os.geteuid() == 0


def fault(rank=1, error="ValueError: bad sample"):
    lines = ["Traceback (most recent call last):", '  File "/w/train.py", line 3, in main', "    step()", error]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def child(*arguments, data=b"", env=None, cwd=None, memory=MEMORY, **streams):
    """The program in a process of its own, its memory bounded."""

    def bound():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    streams = streams or {"input": data, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(
        [sys.executable, "-m", "aggregator", *map(os.fspath, arguments)],
        check=False, timeout=PATIENCE, preexec_fn=bound, env=env, cwd=cwd, **streams,
    )  # fmt: skip


def told_once(error_text):
    return error_text.count("error:") == 1 and "Traceback" not in error_text and "this is a bug" not in error_text


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def verdict(capsys):
    """Runs postmortem in this process and gives back its JSON."""

    def ask(*paths):
        code = cli.run(["postmortem", "--json", *map(os.fspath, paths)])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return ask


@pytest.fixture
def refusal(capsys):
    """Runs a command line that must fail with one message, and gives back its code and that message."""

    def ask(*words):
        code = cli.run([os.fspath(word) for word in words])
        out, err = capsys.readouterr()
        assert out == ""
        assert told_once(err), err
        return code, err

    return ask


def skipped(answer):
    return {item["file"]: item["reason"] for item in answer["coverage"]["files_skipped"]}


# What is named


def test_a_path_that_is_not_there_is_an_input_error(refusal):
    for name in ("nope", "", "*.nothing", "a" * 5000, "no\x1b]0;x\x07pe\n"):
        code, err = refusal("postmortem", name)
        assert code == 3
        assert "\x1b" not in err


def test_a_folder_without_a_log_is_an_input_error(refusal, tmp_path):
    (tmp_path / "empty").mkdir()
    assert refusal("postmortem", tmp_path / "empty")[0] == 3
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "a.log").write_bytes(bytes(range(256)) * 40)
    code, err = refusal("postmortem", tmp_path / "binary")
    assert code == 3
    assert "binary file" in err


@pytest.mark.skipif(not IS_ROOT or not shutil.which("setpriv"), reason="drops the power to read everything")
def test_what_may_not_be_read_is_listed_and_nothing_else_is_an_input_error(tmp_path):
    (tmp_path / "rank_1.log").write_text(fault())
    (tmp_path / "rank_2.log").write_text(fault(2))
    (tmp_path / "rank_2.log").chmod(0)
    (tmp_path / "locked").mkdir(mode=0)
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    powerless += ["--inh-caps=-dac_override,-dac_read_search", sys.executable, "-m", "aggregator", "postmortem"]
    whole = subprocess.run([*powerless, "--json", tmp_path], capture_output=True, check=False, timeout=PATIENCE)
    assert whole.returncode == 0
    assert skipped(json.loads(whole.stdout)).keys() == {"rank_2.log", "locked"}
    for name in ("rank_2.log", "locked"):
        one = subprocess.run([*powerless, tmp_path / name], capture_output=True, check=False, timeout=PATIENCE)
        assert one.returncode == 3
        assert told_once(one.stderr.decode())


def test_s2_pipes_devices_sockets_and_links_neither_block_nor_lead_outside(verdict, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "rank_1.log").write_text(fault())
    (tmp_path / "secret.log").write_text("[rank7]: RuntimeError: secret of another user\n")
    os.mkfifo(job / "fifo.log")
    for name, target in {
        "loop": ".",
        "up": "..",
        "a": "b",
        "b": "a",
        "out.log": "../secret.log",
        "zero.log": "/dev/zero",
    }.items():
        (job / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as plug:
        plug.bind("job/plug.log")
    answer = verdict(job)
    assert answer["first_failure"]["ranks"] == [1]
    assert "secret of another" not in json.dumps(answer)
    assert skipped(answer).keys() >= {"fifo.log", "plug.log", "loop", "up", "a", "b", "out.log", "zero.log"}


def test_a_pipe_or_device_that_is_named_is_refused(refusal, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", "/dev/null"):
        assert refusal("postmortem", path)[0] == 3


def test_a_tree_of_two_hundred_levels_is_walked_to_a_limit_that_is_told(verdict, tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank_0.log").write_text(fault(0))
    os.chdir(tmp_path / "job")
    for _ in range(200):
        Path("d").mkdir()
        os.chdir("d")
    Path("deep.log").write_text(fault(9))
    os.chdir(tmp_path)
    answer = verdict("job")
    assert answer["first_failure"]["ranks"] == [0]
    assert "too deep" in skipped(answer).values()


# Bytes


def test_holes_torn_characters_and_other_encodings_are_read(verdict, tmp_path):
    text = fault(1, "ValueError: großer Fehler 中文 😀").encode()
    for cut in range(1, 12):
        (tmp_path / "torn.log").write_bytes(text[: len(text) - cut])
        assert verdict("torn.log")["outcome"] in {"failed", "unknown"}
    (tmp_path / "hole.log").write_bytes(fault(0).encode())
    os.truncate(tmp_path / "hole.log", 40 << 20)
    with (tmp_path / "hole.log").open("ab") as out:
        out.write(b"\n" + fault(3).encode())
    assert set(verdict("hole.log")["first_failure"]["ranks"]) == {0, 3}
    (tmp_path / "wide.log").write_bytes(fault().encode("utf-16"))
    assert verdict("wide.log")["first_failure"]["ranks"] == [1]
    (tmp_path / "half.log").write_bytes(b"\xff\xfe" + b"\x00\xd8" * 3000 + b"\xff")
    assert verdict("half.log")["outcome"] == "unknown"


def test_a_line_without_end_needs_little_memory(tmp_path):
    with (tmp_path / "long.log").open("wb") as out:
        out.write(b"[rank1]: RuntimeError: CUDA out of memory. ")
        for _ in range(96):
            out.write(b"x" * (1 << 20))
    for name, content in (("feeds.log", b"\n"), ("returns.log", b"[rank1]: step 1 it/s\r")):
        (tmp_path / name).write_bytes(content * ((24 << 20) // len(content)))
    for name in ("long.log", "feeds.log", "returns.log"):
        done = child("postmortem", tmp_path / name, "--json")
        assert done.returncode == 0, done.stderr[-300:]
        json.loads(done.stdout)


@pytest.mark.parametrize("name", ["gz", "bz2", "xz", "zst"])
def test_a_cut_or_damaged_archive_gives_what_it_has_and_says_so(name, verdict, tmp_path):
    squeeze = {
        "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress,
        "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
    }[name]  # fmt: skip
    whole = squeeze("".join(fault(rank % 8) for rank in range(200)).encode())
    path = tmp_path / f"job.log.{name}"
    for length in (6, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "archive" in skipped(verdict(path)).get(path.name, "")
    for place in range(6, len(whole), len(whole) // 4):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        verdict(path)
    path.write_bytes(whole + whole)
    assert verdict(path)["coverage"]["lines"] == 1600


def test_s11_a_bomb_is_stopped_within_little_memory(tmp_path):
    squeezer = bz2.BZ2Compressor(9)
    data = b"".join(squeezer.compress(bytes(4 << 20)) for _ in range(30)) + squeezer.flush()
    (tmp_path / "bomb.log.bz2").write_bytes(data)
    assert child("postmortem", tmp_path / "bomb.log.bz2").returncode == 0


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("PWNED"),)


def test_s10_a_dump_that_is_a_program_or_a_bomb_is_refused_by_name(verdict, tmp_path):
    dumps = [
        pickle.dumps(Evil()),
        pickle.dumps({"version": "2.4", "pg_config": {}, "entries": [Evil()]}),
        b"cpathlib\nPath\n(S'PWNED'\ntR.",
        b"\x80\x02]r\xff\xff\xff\xff.",
        b"\x80\x02\x8e" + b"\xff" * 8 + b".",
        b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.",
        b"\x80\x02" + b"]" * 20_000 + b"a" * 19_999 + b".",
        b"\x80\x02]" + b"".join(b"q%c(h%ch%ce" % (n, n, n) for n in range(40)) + b".",
        b"",
        pickle.dumps([1, 2], protocol=2),
        b'{"pg_config": {}, "entries": [' + b"[" * 50_000,
        b'{"pg_config": {}, "entries": [{"collective_seq_id": ' + b"9" * 6000 + b"}]}",
    ]
    for number, data in enumerate(dumps):
        (tmp_path / f"nccl_trace_rank_{number}").write_bytes(data)
    # A pickle of protocol 0 is text, and read as such.
    assert skipped(verdict(tmp_path)).keys() == {
        f"nccl_trace_rank_{number}" for number in range(len(dumps)) if dumps[number][:1] != b"c"
    }
    assert not Path("PWNED").exists()


def test_an_error_file_that_lies_or_is_too_deep_is_survived(verdict, tmp_path):
    stack = 'Traceback (most recent call last):\\n  File \\"/a.py\\", line 3, in main\\n    x\\nValueError: bad\\n'
    files = [
        f'{{"message": {{"message": "x", "extraInfo": {{"py_callstack": "{stack}", "timestamp": {stamp}}}}}}}'
        for stamp in ('"1700000000"', '"' + "9" * 5000 + '"', "1e300", "-1", "null", "[]")
    ]
    files += [
        '{"message":' * 50_000,
        "[]",
        '{"message": null, "extraInfo": 3, "py_callstack": 1}',
        '{"message": 1' + "9" * 6000,
    ]
    for number, text in enumerate(files):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "error.json").write_text(text)
    assert verdict(tmp_path)["outcome"] == "failed"


def test_s2_files_that_change_shrink_and_vanish_meanwhile_do_no_harm(tmp_path, capsys):
    job = tmp_path / "job"
    job.mkdir()
    (job / "stays.log").write_text(fault())
    (tmp_path / "secret").write_text("the secret of another\n" * 100)
    stop = threading.Event()

    def disturb():
        turn = 0
        while not stop.is_set():
            turn += 1
            for rank in range(4):
                path = job / f"rank_{rank}.log"
                path.unlink(missing_ok=True)
                if (turn + rank) % 3 == 0:
                    path.write_text(fault(rank) * 500)
                elif (turn + rank) % 3 == 1:
                    path.symlink_to(tmp_path / "secret")

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        for _ in range(10):
            assert cli.run(["postmortem", "--json", str(job)]) == 0
            out = capsys.readouterr().out
            assert json.loads(out)["outcome"] == "failed"
            assert "secret of another" not in out
    finally:
        stop.set()
        disturber.join()


# Streams, outputs, surroundings


def test_standard_input_may_be_empty_binary_or_compressed(tmp_path):
    assert (
        json.loads(child("postmortem", "-", "--json", data=gzip.compress(fault().encode())).stdout)["outcome"]
        == "failed"
    )
    for data in (b"", bytes(range(256)) * 200, b"\0" * 5000, b"\xff\xfe"):
        assert child("postmortem", "-", data=data).returncode in {0, 3}
        exported = child("export", "-", "-o", tmp_path / "o.parquet", "--force", data=data, memory=EXPORT_MEMORY)
        assert exported.returncode in {0, 3}


@pytest.mark.parametrize("command", ["postmortem", "diagnose", "export -o o.parquet"])
def test_standard_input_that_is_closed_is_an_input_error(command, tmp_path):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m aggregator {command} - <&-', sys.executable],
        capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, b"")
    assert told_once(done.stderr.decode())
    assert b"standard input is closed" in done.stderr


@pytest.mark.parametrize("command", ["postmortem rank_1.log", "explain segfault", "formats list", "--help", "-V"])
@pytest.mark.parametrize(
    ("streams", "code"),
    [(">&-", 4), ("2>&-", 0), (">/dev/full", 4), ("2>/dev/full", 0), (">/dev/full 2>/dev/full", 4), (">&- 2>&-", 4)],
)
def test_a_closed_or_full_output_is_told_where_that_can_be_told(command, streams, code, tmp_path):
    (tmp_path / "rank_1.log").write_text(fault())
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m aggregator {command} {streams}', sys.executable],
        capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == code
    if code and "2>" not in streams:
        assert told_once(done.stderr.decode())
        assert b"cannot write to standard output" in done.stderr
    else:
        assert done.stderr == b""


@pytest.mark.parametrize("streams", ["", "2>&-", "2>/dev/full", "<&- >&- 2>&-", "-vv 2>/dev/full"])
def test_an_error_that_nobody_can_be_told_keeps_its_code(streams, tmp_path):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m aggregator postmortem nope {streams}', sys.executable],
        capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    (tmp_path / "rank_1.log").write_text(fault())
    for words in ("postmortem rank_1.log", "postmortem rank_1.log --json", "--help", "-V"):
        script = f'{{ "$0" -m aggregator {words}; echo $? > code; }} | true'
        done = subprocess.run(
            ["sh", "-c", script, sys.executable], capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path
        )
        assert done.stderr == b""
        assert (tmp_path / "code").read_text() in {
            "141\n",
            "0\n",
        }  # 0: what fits into the pipe was gone before it closed


@pytest.mark.parametrize("command", ["postmortem", "export"])
@pytest.mark.parametrize("name", ["exists", "no/such/folder", "folder", "n" * 300])
def test_an_output_that_cannot_be_written_is_an_output_error(command, name, refusal, tmp_path):
    (tmp_path / "rank_1.log").write_text(fault())
    (tmp_path / "exists").touch()
    (tmp_path / "folder").mkdir()
    assert refusal(command, "rank_1.log", "-o", name)[0] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exists", "folder", "rank_1.log"]


@pytest.mark.parametrize("command", ["postmortem", "export"])
def test_an_output_beyond_the_file_size_limit_leaves_nothing_behind(command, tmp_path):
    (tmp_path / "rank_1.log").write_text(fault() * 3)
    script = f'ulimit -f 0; trap "" XFSZ; "$0" -m aggregator {command} rank_1.log -o out 2>&1 | cat'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, check=False, timeout=PATIENCE, cwd=tmp_path
    )
    assert told_once(done.stdout.decode())
    assert [path.name for path in tmp_path.iterdir()] == ["rank_1.log"]


def test_a_working_folder_that_is_gone_is_told_in_one_sentence(tmp_path):
    (tmp_path / "gone").mkdir()
    (tmp_path / "rank_1.log").write_text(fault())
    for path in ("x", ".", tmp_path / "rank_1.log"):
        script = f'rmdir "$PWD"; "$0" -m aggregator postmortem {path}'
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = subprocess.run(
            ["sh", "-c", script, sys.executable],
            capture_output=True,
            check=False,
            timeout=PATIENCE,
            cwd=tmp_path / "gone",
        )
        assert done.returncode in {0, 3}
        assert b"this is a bug" not in done.stderr


SURROUNDINGS = [
    "HOME=/nonexistent",
    "XDG_CACHE_HOME=/proc",
    "XDG_CACHE_HOME=/dev/null",
    "LC_ALL=C",
    "TERM=",
    "TZ=No/Where",
]
SURROUNDINGS += ["PYTHONIOENCODING=ascii", "COLUMNS=1", "COLUMNS=-5", "COLUMNS=x"]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_the_answer_is_the_same_in_odd_surroundings(surroundings, tmp_path):
    (tmp_path / "rank_1.log").write_text(fault(error="ValueError: größer"))
    done = child("postmortem", tmp_path / "rank_1.log", "--json", env=os.environ | dict([surroundings.split("=")]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["first_failure"]["ranks"] == [1]


@pytest.mark.parametrize("damage", [b"", b"x", b"null", b"{}", b"[null]", b"[[]]", b'[{"id": 1}]', b"[" * 100_000])
def test_a_damaged_cache_is_read_past(damage, tmp_path):
    (tmp_path / "rank_1.log").write_text(fault(error="RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"))
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert child("postmortem", tmp_path / "rank_1.log", env=env).returncode == 0
    for cached in (tmp_path / "cache" / "denpex-agg").iterdir():
        cached.write_bytes(damage)
    done = child("postmortem", tmp_path / "rank_1.log", "--json", env=env)
    assert json.loads(done.stdout)["first_failure"]["kind"] == "cuda_oom"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_leaves_nothing_behind(number, code, tmp_path):
    (tmp_path / "out").mkdir()
    # Standard input that never ends, so that the program is at work when it is told to stop.
    reading, writing = os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-m", "aggregator", "export", "-", "-o", tmp_path / "out" / "o.parquet"],
        stdin=reading,
        stderr=subprocess.PIPE,
        # A shell starts background jobs with SIGINT ignored, and so would be what they start.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread yet
    )
    os.close(reading)
    for _ in range(64):
        os.write(writing, b"a line\n" * 1000)  # returns once the program reads: it is past its start
    for _ in range(PATIENCE):
        program.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(timeout=1)  # a signal just before a blocking read is seen with the next one
            break
    os.close(writing)
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == code
    assert b"Traceback" not in err
    assert list((tmp_path / "out").iterdir()) == []
