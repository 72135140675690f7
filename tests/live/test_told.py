"""Nobody is told of a failure that the job went on from."""

import pytest

from aggregator.live.clock import Clock
from aggregator.live.watch import Watch
from aggregator.store import Store

TRACEBACK = """Traceback (most recent call last):
  File "/app/train.py", line 20, in step
    fetch()
ConnectionError: the store did not answer
"""


class Told:
    def __init__(self):
        self.ranks = []

    def failed(self, verdict, attempt):
        self.ranks.append(verdict.first_failure.ranks)
        return True


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_fault_is_told_only_if_its_rank_does_not_go_on(tmp_path, goes_on):
    now, told, folder = [1000.0], Told(), tmp_path / "job"
    folder.mkdir()
    clock = Clock(lambda: now[0], lambda: 1_800_000_000_000_000_000 + int(now[0] * 1e9))
    with Watch([str(folder)], Store(tmp_path / "state"), hints=False, clock=clock, dispatcher=told) as watch:
        for step in range(60):
            for rank in range(4):
                with (folder / f"rank{rank}.log").open("a", encoding="utf-8") as out:
                    if step == 30 and rank == 1:
                        out.write(TRACEBACK)
                    if step < 30 or goes_on:
                        out.write(f"step {step} loss 0.5\n")
            for _ in range(4):
                watch.step()
                now[0] += 0.25
    assert told.ranks == ([] if goes_on else [(1,)] * len(told.ranks))
    assert bool(told.ranks) is not goes_on
