"""What a watch makes of files that are rotated away, and of state that an earlier watch left."""

import shutil
from pathlib import Path

import pytest

from aggregator.live.clock import Clock
from aggregator.live.view import LiveState
from aggregator.live.watch import Watch
from aggregator.store import Store

RUN = Path(__file__).parents[2] / "sample_runs" / "eval-oom-no-grad" / "job"


class Time:
    """A clock that is turned by hand."""

    def __init__(self):
        self.now = 1000.0

    def watch(self, folder, state):
        clock = Clock(lambda: self.now, lambda: 1_800_000_000_000_000_000 + int(self.now * 1e9))
        return Watch([str(folder)], Store(state), hints=False, clock=clock)

    def steps(self, watch, count=15, seconds=1.0):
        for _ in range(count):
            watch.step()
            self.now += seconds
        return watch.view()


@pytest.fixture
def time():
    return Time()


def merged(job):
    """The ranks' logs of the sample as one, each line with its rank."""
    logs = sorted((job / "exp" / "ade20k" / "log").glob("rank*.log"))
    return b"".join(
        b"[rank%d]: %s\n" % (rank, line) for rank, log in enumerate(logs) for line in log.read_bytes().splitlines()
    )


def test_a_failure_stays_one_when_its_lines_are_rotated_away(tmp_path, time):
    folder = tmp_path / "job"
    folder.mkdir()
    log = folder / "train.log"
    log.write_bytes(merged(RUN))
    with time.watch(folder, tmp_path / "state") as watch:
        told = {time.steps(watch).headline}
        for turn in range(4):
            log.rename(folder / "train.log.1")
            log.write_bytes(b"[rank0]: still waiting %d\n" % turn * 50)
            told.add(time.steps(watch).headline)
        assert len(told) == 1
        verdict = watch.final()
    assert (verdict.outcome, verdict.first_failure.ranks) == ("failed", (3,))
    assert any(warning.startswith("train.log.2 and 2 more: removed by rotation") for warning in verdict.warnings)


def test_a_second_watch_knows_at_once_what_the_first_has_read(tmp_path, time):
    folder = tmp_path / "job"
    shutil.copytree(RUN, folder)
    with time.watch(folder, tmp_path / "state") as watch:
        first = time.steps(watch)
    with time.watch(folder, tmp_path / "state") as watch:
        second = time.steps(watch)
        assert watch.quiet_s > 60
    assert (first.state, first.headline) == (second.state, second.headline) == (LiveState.FAILED, first.headline)
    assert second.counters.bytes == first.counters.bytes > 0
    assert [rank.step for rank in second.ranks] == [rank.step for rank in first.ranks]
    assert any(rank.step is not None for rank in second.ranks)


def test_what_is_not_judged_yet_is_not_called_healthy(tmp_path, time):
    folder = tmp_path / "job"
    shutil.copytree(RUN, folder)
    with time.watch(folder, tmp_path / "state") as watch:
        states = {watch.view().state}
        for _ in range(10):
            states.add(time.steps(watch, 1).state)
    assert states == {LiveState.WAITING, LiveState.FAILED}


def test_who_was_suspected_when_the_watch_ended_is_told(tmp_path, time):
    folder = tmp_path / "job"
    folder.mkdir()
    logs = [folder / f"rank{rank}.log" for rank in range(8)]
    with time.watch(folder, tmp_path / "state") as watch:
        for step in range(60):
            for rank, log in enumerate(logs):
                if rank != 3 or step < 40:
                    with log.open("a", encoding="utf-8") as out:
                        out.write(f"step {step}/1000 loss 0.5\n")
            time.steps(watch, 4, 0.5)
        assert time.steps(watch, 120).suspicion.ranks == (3,)
        verdict = watch.final()
    assert verdict.outcome == "running"
    assert any("rank 3" in warning and "suspected" in warning for warning in verdict.warnings)
