"""Real schedulers and workers, in processes of the test's own, on loopback: what they read is what is read here."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from aggregator import pipeline
from aggregator.cli import run
from aggregator.engines import engine_of
from aggregator.errors import UsageError
from aggregator.pipeline import investigate, read_logs
from aggregator.verdict import to_json

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'denpex-agg[dask]'")
from aggregator.engines import dask as ours

pytestmark = [
    pytest.mark.timeout(120),
    # Its own, when a scheduler or a worker goes away.
    pytest.mark.filterwarnings("default"),
]
SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
JOB = SAMPLES / "two-node-segfault" / "job"
PATIENCE_S = 60


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@contextmanager
def started(folder, name, *words, **environment):
    """A process, and the file that it writes to; ended by its pid."""
    told = folder / f"{name}.txt"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    settings = {"PYTHONPATH": path, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3", **environment}
    with told.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=out, stderr=out, cwd=folder, env=os.environ | settings
        )
    try:
        yield process, told
    finally:
        process.kill()
        process.wait()


def scheduler(folder, **environment):
    words = (
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--no-show",
    )
    return started(folder, "scheduler", *words, **environment)


def worker(folder, address, name, **environment):
    words = ("-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard", "--nthreads", "1")
    return started(folder, name, *words, "--name", name, **environment)


def address_of(told):
    return until(lambda: re.search(r"Scheduler at:\s+(tcp://\S+)", told.read_text()))[1]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers: the word for `--engine`, and the workers' processes by name."""
    with scheduler(tmp_path) as (_, told):
        address = address_of(told)
        with worker(tmp_path, address, "one") as (one, told_one), worker(tmp_path, address, "two") as (two, told_two):
            for path in (told_one, told_two):
                until(lambda path=path: "Registered to" in path.read_text())
            yield address.replace("tcp", "dask"), {"one": one, "two": two}


def lines(rank, count=400):
    head = "".join(f"2026-12-01 10:{n // 60:02}:{n % 60:02},000 [rank {rank}] INFO step {n}\n" for n in range(count))
    return head + "Traceback (most recent call last):\n  File \"a.py\", line 1, in main\nKeyError: 'x'\n" * (rank == 2)


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(24):
        (folder / f"rank_{rank}.log").write_text(lines(rank))
    return folder


def as_json(*words, engine):
    """The verdict as the command writes it."""
    out = Path(words[0]).parent / "verdict.json"
    assert run(["postmortem", *words, "--engine", engine, "--json", "-o", str(out), "--force", "--no-history"]) == 0
    return out.read_bytes()


def test_the_verdict_of_workers_is_that_of_this_machine_byte_for_byte(cluster, job, capfd):
    engine, _ = cluster
    whole = as_json(str(job), engine="local")
    assert json.loads(whole)["first_failure"]["ranks"] == [2]
    assert as_json(str(job), engine=engine) == whole
    assert capfd.readouterr().err == ""  # nothing of what a cluster says of itself


@pytest.mark.parametrize("sample", ["two-node-segfault", "hang-flight-recorder"])
def test_sample_runs_are_judged_alike(cluster, sample):
    job = str(SAMPLES / sample / "job")
    engine, _ = cluster
    assert to_json(investigate([job], engine=engine_of(engine)).verdict) == to_json(investigate([job]).verdict)


def kills_the_first_that_reads(sources, *, marker, **told):
    """As `read_logs`, in a worker that is killed over one file, if it is the first to meet it."""
    if any(source.rank == 2 for source in sources):
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return read_logs(sources, **told)


class Killing:
    """`kills_the_first_that_reads`, which workers import from this file."""

    def __init__(self, marker):
        self.marker = marker

    def __call__(self, sources, **told):
        import test_dask  # noqa: PLC0415 - in a worker, whose path has this folder

        return test_dask.kills_the_first_that_reads(sources, marker=self.marker, **told)

    def __reduce__(self):
        return _in_worker, (self.marker,)


def _in_worker(marker):
    return Killing(marker)


def test_a_worker_that_is_killed_while_it_reads_changes_nothing(cluster, job, tmp_path, monkeypatch):
    engine, workers = cluster
    whole = investigate([str(job)]).verdict
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_dask  # noqa: PLC0415 - by the name under which the workers know it

    monkeypatch.setattr(pipeline, "read_logs", test_dask.Killing(tmp_path / "killed"))
    assert investigate([str(job)], engine=engine_of(engine)).verdict == whole
    assert sorted(process.poll() for process in workers.values() if process.poll() is not None) == [-signal.SIGKILL]


def test_what_kills_every_worker_is_read_here(cluster, job, monkeypatch):
    engine, workers = cluster
    whole = investigate([str(job)]).verdict
    real = ours._result

    def lost(future):
        for process in workers.values():
            process.kill()
        future.cancel()
        return real(future)

    monkeypatch.setattr(ours, "_result", lost)
    assert investigate([str(job)], engine=engine_of(engine)).verdict == whole


def test_files_that_workers_cannot_see_are_read_here_and_told(cluster, job, monkeypatch, capfd):
    engine, _ = cluster
    whole = as_json(str(job), engine="local")
    read = ours._read_there
    hidden = job.with_name("hidden")

    def without_files(client, task, sources):
        job.rename(hidden)
        try:
            return read(client, task, sources)
        finally:
            hidden.rename(job)

    monkeypatch.setattr(ours, "_read_there", without_files)
    assert as_json(str(job), engine=engine) == whole
    assert "24 files are not the same for Dask's workers, and are read here: rank_0.log" in capfd.readouterr().err


def test_a_file_of_the_same_name_that_is_another_one_is_not_read_there(job):
    (source,) = [s for s in pipeline.discover([str(job)]).sources if s.rank == 2]
    assert ours._is_here(source)
    source.real.write_text(lines(3))
    assert not ours._is_here(source)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({"denpex-agg": "9.9"}, "denpex-agg 0.1.0"),
        ({"python": "3.99"}, "python 3."),
        ({"distributed": "1"}, "distributed 20"),
    ],
)
def test_workers_of_another_version_are_refused(cluster, job, monkeypatch, capfd, versions, told):
    engine, _ = cluster
    here = ours._versions()
    monkeypatch.setattr(ours, "_versions", lambda: here | versions)
    assert run(["postmortem", str(job), "--engine", engine, "--no-history"]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"error: the worker has {told}")
    assert "--> tcp://127.0.0.1:" in error


def test_a_worker_of_another_version_that_comes_later_gives_all_back(job):
    sources = pipeline.discover([str(job)]).logs
    assert ours._read_task(lambda _: 1 / 0, sources, {"python": "2.7"}) == [()] * len(sources)


def test_a_scheduler_that_is_not_there_is_an_error(job, capfd, monkeypatch):
    monkeypatch.setattr(ours, "_ANSWER_S", 1)
    assert run(["postmortem", str(job), "--engine", "dask://127.0.0.1:9", "--no-history"]) == 2
    assert capfd.readouterr().err.startswith("error: no Dask scheduler answers\n  --> tcp://127.0.0.1:9\n")


def test_a_scheduler_without_workers_is_an_error(job, tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "_WORKER_S", 0.2)
    with scheduler(tmp_path) as (_, told), pytest.raises(UsageError, match="no worker came"):
        investigate([str(job)], engine=engine_of(address_of(told).replace("tcp", "dask")))
