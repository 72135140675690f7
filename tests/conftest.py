"""Options and fixtures for all tests."""

import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes is the machine's business: no test is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

sys.path.insert(0, str(Path(__file__).parent / "slurm"))  # the epilog's runs are also those of its attackers
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what the tests produce")


@pytest.fixture(autouse=True)
def our_loggers_as_they_were():
    """Commands that run inside a test send our log to standard error, and nowhere else."""
    yield
    for name in ("aggregator", "parsers"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests_own(tmp_path_factory):
    """Commands keep what they found in the user's state folder: not in the developer's, while they are tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def update_golden(request):
    """Whether what the tests compare with is to be written anew."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(request):
    """Compare text with a file of tests/golden; with --update-golden write it there (then read the diff)."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{name} is missing: run with --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def node():
    """A node of a Slurm cluster on which a job ends."""
    from epilog_runs import Node  # noqa: PLC0415 - needed by few tests

    made = Node()
    yield made
    made.remove()


@pytest.fixture
def on_terminal():
    """Runs a command line on a terminal; its exit code, and what it wrote there."""

    def run(words, columns=60, **environment):
        parent, child = pty.openpty()
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **environment}
        command = [sys.executable, "-m", "aggregator", *words]
        with subprocess.Popen(command, stdout=child, stderr=subprocess.PIPE, env=variables) as process:
            os.close(child)
            text = b"".join(iter(lambda: _read(parent), b""))
            os.close(parent)
            return process.wait(), text.decode().replace("\r\n", "\n")

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux tells so that the other end is closed
        return b""
