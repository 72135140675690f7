"""More files than descriptors."""

import subprocess
import sys
from pathlib import Path

import pytest
from followed import append, lines

FEW = """
import os, resource, sys
sys.path.insert(0, {here!r})
os.fsync = os.fdatasync = lambda descriptor: None
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pathlib import Path
from followed import Followed
with Followed(Path({base!r}), descriptors=4096) as job:
    logs = sorted(job.logs.rglob("*.log"))
    job.look(5)
    for number, log in enumerate(logs):
        with log.open("ab", buffering=0) as file:
            file.write(b"%d\\n" % number)
    job.look(5)
    stored = job.named()
    assert len(stored) == len(logs) == {count}
    for number, log in enumerate(logs):
        assert stored[str(log.relative_to(job.logs))] == b"rank\\n%d\\n" % number
    assert job.collector.open_files < 256
    assert job.skipped() == {{}} and job.collector.tally.unread_bytes == 0
"""


def test_ten_thousand_files_are_followed_with_256_descriptors(tmp_path):
    """Although the collector believes to have 4,096."""
    count = 10_000
    for number in range(count):
        folder = tmp_path / "logs" / f"node{number // 500:02}"
        if number % 500 == 0:
            folder.mkdir(parents=True)
        (folder / f"rank{number:05}.log").write_bytes(b"rank\n")
    script = FEW.format(here=str(Path(__file__).parent), base=str(tmp_path), count=count)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@pytest.mark.parametrize("descriptors", [1, 3, 7])
def test_the_descriptors_in_use_are_never_more_than_allowed(start, descriptors):
    job = start(descriptors=descriptors)
    logs = [job.logs / f"rank{number}.log" for number in range(10)]
    for turn in range(5):
        for log in logs[turn:]:
            append(log, lines(turn, turn + 1))
        job.look()
        assert job.collector.open_files <= descriptors
    job.settle()
    assert job.contents() == sorted(lines(0, min(number, 4) + 1) for number in range(10))


def test_each_file_has_its_turn_before_the_first_has_its_second(job):
    for number in range(5):
        append(job.logs / f"rank{number}.log", b"x" * (1 << 20))
    job.look()
    order = [stream for stream, _ in job.arrived]
    assert order[:10] == [0, 1, 2, 3, 4] * 2
