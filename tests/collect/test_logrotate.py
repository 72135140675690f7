"""With Debian's logrotate and a real writer: nothing is lost but what `copytruncate` itself loses on the disk."""

import gzip
import itertools
import os
import shutil
import subprocess
import sys

import pytest

LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
pytestmark = pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed")

WRITER = """
import sys
path, number = sys.argv[1], 0
file = open(path, "a", buffering=1)
for command in sys.stdin:
    count, reopen = command.split()
    if reopen == "True":
        file.close()
        file = open(path, "a", buffering=1)
    for _ in range(int(count)):
        print("[rank0] step", number, "épreuve" * (number % 50), file=file)
        number += 1
    print(number, flush=True)
"""


class Writer:
    """A process that writes so many lines when it is told to, and reopens its file when it is told that."""

    def __init__(self, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, count, *, reopen=False):
        self._process.stdin.write(f"{count} {reopen}\n")
        self._process.stdin.flush()

    def end(self):
        return int(self._process.stdout.readline())

    def write(self, count, *, reopen=False):
        self.begin(count, reopen=reopen)
        return self.end()

    def close(self):
        self._process.communicate()


@pytest.fixture
def rotate(tmp_path, job):
    """Runs logrotate with some options, as its timer would."""
    hours = itertools.count(1)

    def run(options):
        lines = "".join(f"  {option}\n" for option in options)
        if "dateext" in options:
            lines += f"  dateformat -%Y%m%d{next(hours):02}\n"
        config = tmp_path / "logrotate.conf"
        config.write_text(f"{job.logs}/*.log {{\n  rotate 50\n  missingok\n{lines}}}\n")
        config.chmod(0o600)
        command = [LOGROTATE, "--force", "--state", str(tmp_path / "status"), str(config)]
        subprocess.run(command, check=True, capture_output=True)

    job.logs.chmod(0o755)
    return run


OPTIONS = [
    "create",
    "create compress",
    "create compress delaycompress",
    "create dateext",
    "create dateext compress delaycompress",
    "copytruncate",
    "copytruncate compress",
    "copytruncate compress delaycompress",
    "copytruncate dateext compress",
]


def stored_lines(job):
    return [line for data in job.contents() for line in data.splitlines()]


def stored(job):
    """All lines that are stored, by their numbers."""
    return sorted(int(line.split()[2]) for line in stored_lines(job))


def on_disk(job):
    """All lines that are in any file."""
    parts = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in job.logs.iterdir()
    ]
    return {line for data in parts for line in data.splitlines()}


def is_whole(line):
    """Whether the writer wrote just this: `copytruncate` can cut a line that is being written when its copy ends."""
    words = line.decode(errors="replace").split(" ")
    return (
        len(words) == 4
        and words[:2] == ["[rank0]", "step"]
        and words[2].isdigit()
        and words[3] == "épreuve" * (int(words[2]) % 50)
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("down", [False, True])
def test_every_line_is_stored_once_over_several_rotations(job, rotate, options, down):
    """The writer rests while logrotate runs; afterwards it goes on in the old file until it is told to reopen it."""
    writer, count = Writer(job.logs / "train.log"), 0
    for turn in range(5):
        writer.write(40 + turn)
        job.look()
        writer.write(7)
        if down:
            job.close()
        rotate(options.split())
        if "create" in options and ("delaycompress" in options or "compress" not in options):
            writer.write(3)
        count = writer.write(3, reopen=True)
        if down:
            job.start()
        job.look()
    writer.close()
    job.settle()
    assert stored(job) == list(range(count))
    job.restart()
    job.settle()
    assert stored(job) == list(range(count))
    assert job.skipped() == {}


@pytest.mark.parametrize("options", [options for options in OPTIONS if "copytruncate" in options])
def test_what_is_lost_of_a_busy_log_is_lost_on_the_disk_and_counted(job, rotate, options):
    """The writer does not rest: what it writes between copy and cut is in no file afterwards."""
    writer, count = Writer(job.logs / "train.log"), 0
    for _ in range(5):
        writer.write(50)
        job.look()
        writer.begin(4000)
        rotate(options.split())
        count = writer.end()
        job.look()
    writer.close()
    job.settle()
    found = stored_lines(job)
    whole = [line for line in found if is_whole(line)]
    assert len(whole) == len(set(whole))
    assert set(found) >= on_disk(job)
    assert job.collector.tally.truncations == 5
    assert count == 5 * 4050
