"""Clocks that are off, drift, or tell less: the verdict may weaken, never flip."""

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from metamorphic_jobs import (
    assert_not_flipped,
    assert_same,
    host_of,
    is_text,
    job_of,
    judge,
    lines_of,
    rank_of,
    rewrite,
    truth_of,
)
from metamorphic_stamps import cut_to_seconds, deleted, moment_of, moved

TWO_HOSTS = {
    "two-node-segfault": ["dgx-r7-01", "dgx-r7-02"],
    "slurm-node-failure": ["tx-a", "tx-b", "tx-c", "tx-d"],
    "slurm-label-cgroup-oom": ["node-1", "node-2"],
    "k8s-oomkilled": ["vits-large-master-0", "vits-large-worker-1", "vits-large-worker-2"],
}
HOSTS = [(name, host) for name, hosts in TWO_HOSTS.items() for host in hosts]
STAMPED = [
    "eval-oom-no-grad", "torchrun-logdir-eval-oom", "interleaved-nan", "slurm-label-cgroup-oom", "slurm-node-failure",
    "hang-flight-recorder", "collective-shape-mismatch", "two-node-segfault", "k8s-oomkilled",
    "completed-noisy-shutdown", "ray-actor-oom",
]  # fmt: skip
RANKED = [(name, rank) for name in STAMPED if name != "ray-actor-oom" for rank in range(4)]
few = settings(max_examples=6, deadline=None, derandomize=True)


def shifted(name: str, host: str | None, shift):
    """Every time that this host (None: any host) wrote, moved; those of its error files too."""

    def concerned(path: str, line: str = "") -> bool:
        return host is None or host_of(name, path, line) == host

    files = rewrite(job_of(name), lambda path, line: moved(line, shift) if concerned(path, line) else line)
    for path, data in files.items():
        if path.endswith("error.json") and concerned(path):
            files[path] = re.sub(rb'(?<="timestamp": ")\d{10}(?=")', lambda found: moved_epoch(found[0], shift), data)
    return files


def moved_epoch(digits: bytes, shift) -> bytes:
    moment = datetime(1970, 1, 1) + timedelta(seconds=int(digits))  # noqa: DTZ001 - as the stamps, it has no zone
    return b"%d" % (int(digits) + int(shift(moment).total_seconds()))


@pytest.mark.parametrize("name", STAMPED)
def test_the_transformations_move_and_delete_what_they_should(name):
    """A guard of the tests below: times moved there and back are as they were, and no deleted one is left."""
    lines = [line for path, data in job_of(name).items() if is_text(path) for line in lines_of(data)]
    stamped = [line for line in lines if moment_of(line) is not None]
    assert stamped
    for line in stamped:
        there = moved(line, lambda _: timedelta(hours=1))
        assert moment_of(there) == moment_of(line) + timedelta(hours=1)
        assert moved(there, lambda _: timedelta(hours=-1)) == line
        assert moment_of(deleted(line)) is None


@pytest.mark.parametrize(("name", "host"), HOSTS)
@few
@given(seconds=st.floats(-900, 900, allow_nan=False).map(lambda s: round(s, 3)))
@example(seconds=-7200)
@example(seconds=3600)
@example(seconds=-2)
@example(seconds=0.75)
def test_one_host_whose_clock_is_off_never_makes_another_rank_the_culprit(name, host, seconds):
    assert_not_flipped(judge(shifted(name, host, lambda _: timedelta(seconds=seconds))), truth_of(name))


@pytest.mark.parametrize(("name", "host"), HOSTS)
@pytest.mark.parametrize("ppm", [50, -50])
def test_one_host_whose_clock_drifts_never_makes_another_rank_the_culprit(name, host, ppm):
    lines = [line for path, data in job_of(name).items() if is_text(path) for line in lines_of(data)]
    start = min(moment for line in lines if (moment := moment_of(line)) is not None)
    drift = shifted(name, host, lambda moment: (moment - start) * (ppm / 1e6))
    assert_not_flipped(judge(drift), truth_of(name))


@pytest.mark.parametrize("name", STAMPED)
@pytest.mark.parametrize("days", [-200, 0.21])
def test_all_clocks_moved_together_change_nothing(name, days):
    assert_same(judge(shifted(name, None, lambda _: timedelta(days=days))), truth_of(name))


@pytest.mark.parametrize("name", STAMPED)
def test_stamps_cut_to_seconds_never_make_another_rank_the_culprit(name):
    assert_not_flipped(judge(rewrite(job_of(name), lambda _, line: cut_to_seconds(line))), truth_of(name))


@pytest.mark.parametrize(("name", "rank"), RANKED)
def test_one_rank_without_stamps_never_makes_another_rank_the_culprit(name, rank):
    files = rewrite(job_of(name), lambda path, line: deleted(line) if rank_of(name, path, line) == rank else line)
    assert_not_flipped(judge(files), truth_of(name))


@pytest.mark.parametrize("name", STAMPED)
def test_no_stamps_at_all_never_make_another_rank_the_culprit(name):
    assert_not_flipped(judge(rewrite(job_of(name), lambda _, line: deleted(line))), truth_of(name))
