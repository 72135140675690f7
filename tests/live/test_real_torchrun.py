"""`watch` beside real torchrun jobs: one watcher from before the start, one that comes in the middle.

Each job waits for the second watcher before anything happens to it, so no test depends on how fast the machine is.
"""

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from torchrun_jobs import JOBS, running

PATIENCE_S = 60
"""For anything that is waited for: a job takes 20 s at most on an idle machine."""

WELL = ("completed", [], None)
EXPECTED = {
    "exception": [("failed", [2], "python_exception")],
    "out of memory": [("failed", [1], "host_oom")],
    "killed": [("failed", [3], "killed")],
    "hang": [("failed", [2], "collective_timeout")],
    "healthy": [WELL],
    "restarted and well": [("failed", [1], "python_exception"), WELL],
    "restarted in vain": [("failed", [1], "python_exception"), ("failed", [3], "killed")],
    "two nodes": [("failed", [3], "python_exception")],
}
"""By job: outcome, ranks and kind of each attempt, oldest first."""
TOLD_EARLY = ["exception", "hang"]
"""Jobs whose launcher lives on for seconds after the first failure."""

pytestmark = pytest.mark.timeout(4 * PATIENCE_S)


@cache
def why_no_torch():
    """The last line of what importing torchrun says, None if it can be imported.

    In a process of its own: a broken torch may take the process with it, and a good one takes a second.
    """
    done = subprocess.run(
        [sys.executable, "-c", "import torch.distributed.run"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


@pytest.fixture(autouse=True)
def _torch():
    if reason := why_no_torch():
        pytest.skip(f"torch cannot be imported: {reason}")


class Watcher:
    """A `watch` of a job folder, and when it said what."""

    def __init__(self, folder: Path, state: Path):
        self._verdict = state.with_suffix(".json")
        command = [sys.executable, "-m", "aggregator", "watch", folder, "--plain", "--json", "--exit-on-end"]
        command += ["--timeout", str(PATIENCE_S), "--state-dir", state]
        with self._verdict.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stderr:
            self.lines.append((time.monotonic(), line))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()

    def said(self, *words: str) -> list[float]:
        """When it printed lines with one of the words, seconds of the monotonic clock."""
        return [when for when, line in self.lines if any(word in line.lower() for word in words)]

    def verdict(self):
        """What it printed at the end of the job, after it has come to that by itself."""
        said = "".join(line for _, line in self.lines)
        assert self._process.wait(PATIENCE_S) == 0, said
        return json.loads(self._verdict.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Watched:
    """What both watchers gave, and when the last launcher was gone (seconds of the monotonic clock)."""

    from_start: Watcher
    from_middle: Watcher
    ended: float
    attempts: list[list[tuple[str, list[int], str | None]]]


def until(is_met, what: str) -> None:
    """Wait: other processes have no clock that could be turned."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_met():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
        time.sleep(0.05)


def attempts(verdict):
    """Outcome, ranks and kind of each attempt; the last one must be what the verdict says on top."""
    rows = verdict["attempts"]
    assert (verdict["outcome"], verdict["first_failure"]) == (rows[-1]["outcome"], rows[-1]["first_failure"])
    failures = [row["first_failure"] or {"ranks": [], "kind": None} for row in rows]
    return [(row["outcome"], failure["ranks"], failure["kind"]) for row, failure in zip(rows, failures, strict=True)]


def watch(name: str, place: Path) -> Watched:
    """Run a job to its end under two watchers."""
    folder, go_ahead = place / "job", place / "go-ahead"
    folder.mkdir()
    with Watcher(folder, place / "first") as first, running(JOBS[name], folder, go_ahead) as launchers:
        until(lambda: any("step 5 " in log.read_text() for log in folder.rglob("stdout.log")), "training")
        with Watcher(folder, place / "second") as second:
            until(lambda: first.said("healthy") and second.said("healthy"), "both watchers see a healthy job")
            go_ahead.touch()
            for launcher in launchers:
                launcher.wait(PATIENCE_S)
            ended = time.monotonic()
            both = [attempts(watcher.verdict()) for watcher in (first, second)]
            return Watched(first, second, ended, both)


@pytest.mark.parametrize("name", [name for name in JOBS if name not in TOLD_EARLY])
def test_a_watcher_names_what_happened_whether_it_came_early_or_late(name, tmp_path):
    watched = watch(name, tmp_path)
    assert watched.attempts == [EXPECTED[name]] * 2


@pytest.mark.parametrize("name", TOLD_EARLY)
def test_trouble_is_told_while_the_job_still_runs(name, tmp_path):
    watched = watch(name, tmp_path)
    assert watched.attempts == [EXPECTED[name]] * 2
    for watcher in (watched.from_start, watched.from_middle):
        told = watcher.said("suspect", "failed")
        assert told, watcher.lines
        assert told[0] < watched.ended, watcher.lines
