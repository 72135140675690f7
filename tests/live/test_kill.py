"""`kill -9` at random instants beside a live job: every written line is stored once, as if nobody had killed anything.

As a script, this is the job: it writes logs until its standard input is closed, then says what it wrote.
"""

import gzip
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

KILLS = int(os.environ.get("DENPEX_KILLS", "12"))
"""In the suite; 500 by hand."""
LIFE_S = 1.0
"""Longest life of a watch, from its start or, every other time, from its first word."""
CATCH_UP_S = 8
"""More than a watch waits before it takes a file for no copy of another."""
NAMES = [f"attempt_0/{rank}/{stream}.log" for rank in range(3) for stream in ("stdout", "stderr")]
PIECE_S = 0.004

pytestmark = pytest.mark.timeout(60 + 8 * KILLS)


class Log:
    """A log that is written and rotated. `contents` are the lines of each file that it was made of, oldest first."""

    def __init__(self, path, draw):
        self.path, self.draw = path, draw
        self.contents = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    def _open(self):
        self.file = self.path.open("ab", buffering=0)
        self._begin()

    def _begin(self):
        self.contents.append([])
        self.torn = b""
        self.put(b"world size 3 | every rank and every restart writes this line\n")

    def put(self, data):
        """Write, a torn line's rest or a new one's beginning as it may be."""
        self.file.write(data)
        *whole, self.torn = (self.torn + data).split(b"\n")
        self.contents[-1] += [line.decode() for line in whole]

    def write(self, number):
        text = f"2026-03-01 08:00:00,000 [rank{self.path.parent.name}] step {number} épreuve loss 0.25\n"
        if self.draw.random() < 0.05:
            text += f'Traceback (most recent call last):\n  File "/w/t.py", line 9, in main\nValueError: {number}\n'
        data = text.encode()
        cut = self.draw.randrange(len(data))
        self.put(data[:cut])
        if self.draw.random() < 0.5:
            time.sleep(PIECE_S)
        self.put(data[cut:])

    def rotate(self):
        """As logrotate: rename, or copy and cut; older parts are compressed or moved on."""
        parts = sorted(self.path.parent.glob(f"{self.path.name}.*"), key=lambda part: int(part.suffixes[1][1:]))
        for part in reversed(parts):
            moved = self.path.with_name(f"{self.path.name}.{int(part.suffixes[1][1:]) + 1}.gz")
            if part.suffix == ".gz":
                part.rename(moved)
            else:
                moved.write_bytes(gzip.compress(part.read_bytes(), 1))
                part.unlink()
        first = self.path.with_name(f"{self.path.name}.1")
        if self.draw.random() < 0.5:
            self.path.rename(first)
            self.finish()
            self._open()
        else:
            shutil.copyfile(self.path, first)
            self._end()
            os.truncate(self.path, 0)
            self._begin()

    def finish(self):
        self._end()
        self.file.close()

    def _end(self):
        if self.torn:
            self.contents[-1].append(self.torn.decode())


def work(folder, seed):
    """Write until standard input ends."""
    draw = random.Random(seed)
    logs = []
    number = 0
    while not select.select([sys.stdin], [], [], PIECE_S)[0]:
        number += 1
        if len(logs) < len(NAMES) and number % 100 == 1:
            logs.append(Log(folder / NAMES[len(logs)], draw))
        log = draw.choice(logs)
        log.write(number)
        if draw.random() < 0.01:
            if draw.random() < 0.5:
                log.put(f"{number} is never finished".encode())
            log.rotate()
    for log in logs:
        log.finish()
    sys.stdout.write(json.dumps([content for log in logs for content in log.contents]))


def watch(folder, state, *options, out=subprocess.PIPE):
    command = [sys.executable, "-m", "aggregator", "watch", folder, "--plain", "--state-dir", state, *options]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True)


def exported(folder, state):
    """The rows that a watch has stored."""
    output = state.with_suffix(".parquet")
    command = [sys.executable, "-m", "aggregator", "export", folder, "--state-dir", state, "--no-redact", "-q"]
    subprocess.run([*command, "-o", output], check=True)
    return pq.read_table(output)


def by_content(table, *columns):
    """The columns of the rows of each file, as they are ordered there; what the files are called is left out."""
    contents = defaultdict(list)
    for path, *values in zip(*(table[name].to_pylist() for name in ("path", *columns)), strict=True):
        contents[path].append(values)
    return sorted(contents.values(), key=repr)


def test_no_row_is_lost_and_none_is_there_twice_however_often_the_watch_is_killed(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    with ExitStack() as stack:
        command = [sys.executable, __file__, folder, str(random.randrange(2**32))]
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = stack.enter_context((tmp_path / "said").open("w+", encoding="utf-8"))
        quiet = watch(folder, tmp_path / "undisturbed", out=said)
        for process in (job, quiet):
            stack.enter_context(process)
            stack.callback(process.kill)
        for kill in range(KILLS):
            with watch(folder, tmp_path / "killed") as process:
                if kill % 2:
                    process.stdout.readline()
                time.sleep(random.uniform(0, LIFE_S))
                process.send_signal(signal.SIGKILL)
        written = json.loads(job.communicate("")[0])
        last = watch(folder, tmp_path / "killed", "--timeout", str(CATCH_UP_S))
        last_said = last.communicate()[0]
        assert last.returncode == 0, last_said
        quiet.terminate()
        assert quiet.wait() == 128 + signal.SIGTERM, said.seek(0) or said.read()
    rows = exported(folder, tmp_path / "killed")
    assert by_content(rows, "body") == sorted(([[line] for line in content] for content in written), key=repr)
    columns = [name for name in rows.schema.names if name != "path"]
    killed, undisturbed = (by_content(table, *columns) for table in (rows, exported(folder, tmp_path / "undisturbed")))
    assert len(killed) == len(undisturbed)
    assert [pair for pair in zip(killed, undisturbed, strict=True) if pair[0] != pair[1]] == []


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
