"""The command itself: a process that writes nothing and ends in silence."""

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from asking import ROOT_TRACEBACK, ask, give, job_ids, zip_of

SCRIPT = Path(sys.executable).parent / "denpex-agg"
BOOM = ROOT_TRACEBACK.format("boom")
NO_FILES = """\
import os, sys

def heed(event, arguments):
    if event == "open":
        path, _, flags = arguments
        is_file = not isinstance(path, int) and not str(path).endswith((os.devnull, "/history/lock"))
        if is_file and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            os.write(2, f"{event}: {arguments}".encode())
            os._exit(77)
    elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate", "tempfile.mkstemp"):
        os.write(2, f"{event}: {arguments}".encode())
        os._exit(77)

sys.addaudithook(heed)
"""
"""Ends a process, and whatever Python it starts, as soon as it opens a file to write. The lock of the history is opened
so, too, where there is one, and nothing written to it.
"""


@contextmanager
def served(*words, program=(sys.executable, "-m", "aggregator"), **options):
    command = [*program, "serve", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            _, _, host, token, _ = process.stdout.readline().split("/")
            port = int(host.partition(":")[2])
            yield process, SimpleNamespace(server_address=("127.0.0.1", port), token=token)
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_prints_its_address_and_ends_in_silence(number, code):
    with served() as (process, server):
        assert ask(server)[0] == 200
        process.send_signal(number)
        assert process.communicate(timeout=10) == ("", "")
        assert process.returncode == code


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "aggregator", "serve", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_can_be_told_its_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with served("--port", port) as (_, server):
        assert server.server_address[1] == port


def test_without_a_screen_no_browser_is_opened():
    variables = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    with served("--open", env=variables | {"BROWSER": ""}) as (process, server):
        assert ask(server)[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10)[1] == "no browser can be opened here: open the address above\n"


def test_the_browser_gets_the_address(tmp_path):
    told = tmp_path / "told"
    with served("--open", env=os.environ | {"BROWSER": f'{sys.executable} -c \'open("{told}", "w").write("%s")\''}) as (
        _,
        server,
    ):
        assert ask(server)[0] == 200
        assert told.read_text().endswith(f"/{server.token}/")


def listed(*folders):
    return {path: path.stat().st_mtime_ns if path.is_file() else 0 for folder in folders for path in folder.rglob("*")}


def test_nothing_that_is_given_gets_to_the_disk(tmp_path):
    """Every process of it ends if it opens a file to write, and the folders that it could use stay as they were."""
    names = {name: tmp_path / name for name in ("home", "tmp", "cache", "state", "cwd", "hook", "runs")}
    for folder in names.values():
        folder.mkdir()
    (names["runs"] / "4242").mkdir()
    (names["runs"] / "4242" / "rank_0.log").write_text(BOOM)
    variables = os.environ | {
        "HOME": str(names["home"]), "TMPDIR": str(names["tmp"]), "XDG_CACHE_HOME": str(names["cache"]),
        "XDG_STATE_HOME": str(names["state"]), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    with served(env=variables, cwd=names["cwd"]) as (_, server):  # what is kept of our own files
        assert ask(server)[0] == 200
    (names["hook"] / "sitecustomize.py").write_text(NO_FILES)
    before = listed(*names.values())
    heeded = variables | {"PYTHONPATH": str(names["hook"])}
    with served("--root", names["runs"], env=heeded, cwd=names["cwd"]) as (process, server):
        report = give(server, BOOM.encode(), "rank_0.log")
        assert "RuntimeError: boom" in ask(server, report)[2]
        zipped = give(server, zip_of(names["runs"], names["runs"]), "runs.zip")
        assert "RuntimeError: boom" in ask(server, zipped)[2]
        job = job_ids(ask(server)[2])["4242"]
        assert "RuntimeError: boom" in ask(server, f"job/{job}")[2]
        assert resource.prlimit(process.pid, resource.RLIMIT_FSIZE) == (0, 0)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10) == ("", "")
    assert listed(*names.values()) == before


@pytest.mark.skipif(not SCRIPT.exists(), reason="it is not installed")
def test_the_folder_that_it_is_started_in_is_not_imported(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "__init__.py").write_text("raise SystemExit(9)\n")
    with served(program=[SCRIPT], cwd=tmp_path) as (_, server):
        assert give(server, BOOM.encode()).startswith("upload/")
