"""What happens to a run when the machine fails it: disk, memory, permissions, children, clock."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from aggregator import opening
from aggregator.parallel import read_apart
from aggregator.pipeline import investigate, postmortem

SAMPLES = Path(__file__).parents[2] / "sample_runs"
SAMPLE = SAMPLES / "eval-oom-no-grad" / "job"
MEMORY = 512 << 20
RANKS = 16_384


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "aggregator", *map(str, words)], capture_output=True, text=True, check=False, **options
    )


@pytest.fixture
def full_disk(tmp_path):
    """A disk of 128 KiB that has no room left."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=128k", "none", place]
    if os.getuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small disk")
    (place / "filler").write_bytes(bytes(124 << 10))
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize(
    "words", [["report", "-o", "r.html"], ["export", "-o", "e.parquet"], ["bundle", "-o", "c.tar.zst"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_full_disk_is_told_and_leaves_nothing_half_written(words, full_disk):
    name = words[-1]
    (full_disk / "filler2").write_bytes(bytes(2 << 10))
    done = command(words[0], SAMPLE, "-o", full_disk / name)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert {path.name for path in full_disk.iterdir()} == {"filler", "filler2"}


def test_a_full_disk_of_the_state_and_the_cache_costs_no_verdict(full_disk):
    (full_disk / "filler2").write_bytes(bytes(4 << 10))
    environment = {**os.environ, "XDG_STATE_HOME": str(full_disk), "XDG_CACHE_HOME": str(full_disk)}
    done = command("postmortem", SAMPLE, env=environment)
    assert done.returncode == 0, done.stderr
    assert "First failure: rank 3" in done.stdout


@pytest.mark.parametrize(
    ("lines", "words"), [
        (8_500, ["logs"]),  # more than is sorted in memory
        (300, ["query", "select count(*) from events"]), (300, ["bundle", "-o", "c"]),
        (300, ["export", "--anonymise", "-o", "e"]),
    ],
)  # fmt: skip
def test_a_full_disk_of_temporary_files_is_told(lines, words, full_disk, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "rank_0.log").write_text("".join(f"[rank0]: step {n} loss 1.0 {n:03000}\n" for n in range(lines)))
    environment = {**os.environ, "TMPDIR": str(full_disk)}
    done = command(words[0], job, *words[1:], env=environment, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: temporary files cannot be written: No space left on device")
    assert str(full_disk) in done.stderr
    assert [path.name for path in full_disk.iterdir()] == ["filler"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.parametrize(
    "words", [["report", "-o", "r.html"], ["export", "-o", "e.parquet"]], ids=lambda words: words[0]
)
def test_a_limit_of_the_size_of_files_is_told(words, tmp_path):
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    done = command(
        words[0], SAMPLE, "--no-history" if words[0] == "report" else "-q", *words[1:], cwd=tmp_path, preexec_fn=limit
    )
    assert done.returncode == 4, done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_answers_eio_ends_the_file_there_and_is_told(monkeypatch, tmp_path):
    for rank in range(2):
        (tmp_path / f"rank_{rank}.log").write_text(
            f"[rank{rank}]: step 1 loss 1.0\n" * 40_000 + f"[rank{rank}]: RuntimeError: CUDA out of memory\n" * rank
        )
    whole, broken = os.pread, (tmp_path / "rank_0.log").stat().st_ino

    def pread(fd, size, position):
        if position >= 256 << 10 and os.fstat(fd).st_ino == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole(fd, size, position)

    monkeypatch.setattr(opening.os, "pread", pread)
    verdict = postmortem([str(tmp_path)])
    assert verdict.first_failure.ranks == (1,)
    assert [(item.file, item.reason) for item in verdict.coverage.files_skipped] == [
        ("rank_0.log", "Input/output error")
    ]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that answers EIO")
def test_a_file_that_answers_eio_from_its_first_byte_is_told_by_every_command(tmp_path):
    file = "/proc/self/mem"  # a regular file with nothing at its beginning
    for words in (["postmortem", file], ["logs", file], ["bundle", file, "-o", tmp_path / "b"]):
        done = command(*words)
        assert done.returncode == 3, done.stderr
        assert "Input/output error" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_permission_that_is_lost_while_reading_is_told(monkeypatch, tmp_path):
    for rank in range(2):
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank{rank}]: RuntimeError: CUDA out of memory\n" * rank or "x\n")
    opened = opening.open_regular
    asked = []

    def open_regular(path):
        asked.append(str(path))
        if str(path).endswith("rank_0.log") and asked.count(str(path)) > 1:  # it was found, and is not there to be read
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path)

    monkeypatch.setattr(opening, "open_regular", open_regular)
    verdict = postmortem([str(tmp_path)])
    assert verdict.first_failure.ranks == (1,)
    assert ("rank_0.log", "Permission denied") in [(i.file, i.reason) for i in verdict.coverage.files_skipped]


@pytest.mark.timeout(300)
def test_16384_ranks_are_judged_in_512_mb(tmp_path):
    steps = "".join(f"2031-02-03 04:00:{n:02} [rank%d]: step {n} loss 1.0\n" for n in range(3))
    wait = "2031-02-03 04:10:00 [rank%d]: RuntimeError: NCCL communicator was aborted on rank %d.\n"
    oom = "2031-02-03 04:00:03 [rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for node in range(RANKS // 8):
        told = [
            steps.replace("%d", str(rank)) + (oom % rank if rank == RANKS // 2 else wait % (rank, rank))
            for rank in range(node * 8, node * 8 + 8)
        ]
        (tmp_path / f"node-{node:05}.log").write_text("".join(told))
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY, MEMORY))
    done = command("postmortem", "--no-history", tmp_path, preexec_fn=limit)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"First failure: rank {RANKS // 2}" in done.stdout


def _killed_once(sources, parent, mark):
    """Reads nothing; the first process of the pool that comes here is killed by the system's memory killer."""
    if os.getpid() != parent:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return [source.path for source in sources]


def test_a_reader_that_is_killed_costs_no_file(tmp_path):
    for rank in range(6):
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank{rank}]: step 1 loss 1.0\n" * 1000)
    case = investigate([str(tmp_path)])
    logs = list(case.judged.evidence.sources)
    read = partial(_killed_once, parent=os.getpid(), mark=str(tmp_path / ".killed"))
    assert read_apart(read, logs, 2) == [source.path for source in logs]
    assert (tmp_path / ".killed").exists()


def test_a_clock_that_steps_while_a_job_is_watched_ends_nothing_early(tmp_path):
    # The wall clock runs an hour back and forth; the watch waits by the monotonic one.
    script = """
import sys, time
real, began = time.time, time.monotonic()
time.time = lambda: real() + (3600 if int((time.monotonic() - began) * 5) % 2 else -3600)
time.time_ns = lambda: int(time.time() * 1e9)
from aggregator import cli
sys.exit(cli.run(sys.argv[1:]))
"""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank_0.log").write_text("[rank0]: step 1 loss 1.0\n")
    words = ["watch", "--plain", "--timeout", "3", "--state-dir", tmp_path / "state", tmp_path / "job"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert 3 <= time.monotonic() - began < 30
    assert "Traceback" not in done.stderr
