"""However a job's files come to be, and whatever happens to the watch: in the end it says what a post-mortem says."""

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aggregator.export import export_events
from aggregator.live.clock import Clock
from aggregator.live.place import run_folder
from aggregator.live.watch import Watch
from aggregator.pipeline import postmortem
from aggregator.store import Store
from aggregator.verdict import to_json

RUNS = sorted(path.parent for path in (Path(__file__).parents[2] / "sample_runs").glob("*/expected.json"))
PIECES = (1, 40, 700, 5_000, 60_000)
LONG_S = 60.0
"""Longer than anything in a watch waits."""

each_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
few_seeds = settings(
    max_examples=2,
    phases=[Phase.reuse, Phase.generate],  # a smaller seed is no simpler job
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass
class Job:
    """A sample run that is written bit by bit, and the watch that follows; `now` is seconds."""

    base: Path
    run: Path
    draw: Random
    now: float = 1_000.0
    lives: int = 0
    watch: Watch = field(init=False)

    def __post_init__(self):
        self.paths = [str(self.base / "job")]
        home = self.run / "job"
        self.left = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}
        self._start()

    @property
    def state(self):
        return self.base / f"state{self.lives}"

    def _start(self):
        clock = Clock(lambda: self.now, lambda: int(self.now * 1e9))
        self.watch = Watch(self.paths, Store(run_folder(self.paths, self.state)), clock=clock, hints=False)

    def write(self, name, size):
        path = self.base / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(self.left[name][:size])
        self.left[name] = self.left[name][size:]
        if not self.left[name]:
            del self.left[name]

    def step(self):
        self.now += self.draw.choice([0.1, 0.3, 2.5, LONG_S])
        self.watch.step()

    def kill(self):
        """As `kill -9`: what was flushed is all that the next watch finds."""
        before = self.state
        self.lives += 1
        shutil.copytree(before, self.state)
        self.watch.close()
        self._start()

    def play(self, *, kills=0.0):
        """To the end of the job; the probability of a kill is that after each piece."""
        while self.left:
            self.write(self.draw.choice(list(self.left)), self.draw.choice(PIECES))
            if self.draw.random() < 0.2:
                self.step()
            if self.draw.random() < kills:
                self.kill()

    def end(self):
        """What the watch says in the end, as JSON."""
        said = document(self.watch.final())
        self.watch.close()
        return said

    def rows(self, *, stored):
        """All rows of the job: those that the watch has stored, or those of its files."""
        output = self.base / "rows.parquet"
        export_events(self.paths, output, force=True, state_dir=self.state if stored else None)
        return pq.read_table(output).to_pylist()


def document(verdict):
    return json.loads(json.dumps(to_json(verdict)))


@contextmanager
def begun(run, seed):
    """The job of a sample run, nothing of it written yet."""
    with tempfile.TemporaryDirectory() as base:
        yield Job(Path(base), run, Random(seed))


@each_run
@few_seeds
@given(seed=st.integers(0, 2**32))
def test_any_pieces_in_any_order_of_files_end_in_the_verdict_of_the_post_mortem(run, seed):
    with begun(run, seed) as job:
        job.play()
        assert job.end() == document(postmortem(job.paths))


@each_run
def test_files_that_were_met_unfinished_are_judged_whole(run):
    with begun(run, 0) as job:
        for name, data in list(job.left.items()):
            job.write(name, len(data) * 9 // 10)
        job.step()
        for name in list(job.left):
            job.write(name, None)
        assert job.end() == document(postmortem(job.paths))


@each_run
@few_seeds
@given(seed=st.integers(0, 2**32))
def test_a_watch_that_was_killed_on_the_way_ends_in_the_same_verdict_and_the_same_rows(run, seed):
    with begun(run, seed) as job:
        job.play(kills=0.05)
        assert job.end() == document(postmortem(job.paths))
        assert job.rows(stored=True) == job.rows(stored=False)
