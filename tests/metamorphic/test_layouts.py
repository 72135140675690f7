"""The same job as separate files, as one file, in whatever order and mixture, gives the same verdict."""

import os
import random
import re
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metamorphic_jobs import (
    Files,
    assert_not_flipped,
    assert_same,
    brief,
    host_of,
    is_text,
    job_of,
    joined,
    judge,
    lines_of,
    rank_of,
    rewrite,
    truth_of,
    write,
)
from metamorphic_stamps import moment_of, moved

from aggregator.pipeline import postmortem

ALL = [
    "eval-oom-no-grad", "torchrun-logdir-eval-oom", "interleaved-nan", "slurm-label-cgroup-oom", "slurm-node-failure",
    "hang-flight-recorder", "collective-shape-mismatch", "two-node-segfault", "k8s-oomkilled",
    "completed-noisy-shutdown", "ray-actor-oom",
]  # fmt: skip
SEPARATE = ["eval-oom-no-grad", "slurm-node-failure"]
MERGED = {
    "interleaved-nan": "train.log",
    "slurm-label-cgroup-oom": "slurm-6.out",
    "hang-flight-recorder": "train.log",
    "k8s-oomkilled": "kubectl-logs-prefix.txt",
}
TAGS = {"plain": "[rank{}]: ", "torchrun": "[default{}]:", "label": "{}: "}
JITTER_S = 0.2
EARLY = datetime(1970, 1, 1)  # noqa: DTZ001 - stamps have no zone here
Lines = list[tuple[datetime, int, str]]
"""When a line was written at the earliest, by which rank, the line."""


def streams(name: str, files: Files) -> dict[int, Lines]:
    """The lines of each rank's own file, each with the last time above it."""
    found: dict[int, Lines] = {}
    for path, data in files.items():
        rank = rank_of(name, path, "")
        if rank is None or not is_text(path):
            continue
        now = EARLY
        for line in lines_of(data):
            now = moment_of(line) or now
            found.setdefault(rank, []).append((now, rank, line))
    return found


def merged(name: str, files: Files, how: str, tag: str) -> Files:
    """All rank files as one, in rank order, reversed, or by stamp; the launcher's file stays beside it."""
    lines = streams(name, files)
    ranks = sorted(lines, reverse=how == "reversed")
    rows = [row for rank in ranks for row in lines[rank]]
    if how == "by stamp":
        rows.sort(key=itemgetter(0))
    rest = {path: data for path, data in files.items() if rank_of(name, path, "") is None}
    tagged = [
        line if line.startswith("[rank") and tag == TAGS["plain"] else tag.format(rank) + line for _, rank, line in rows
    ]
    return {**rest, "train.log": joined(tagged)}


def parts(name: str) -> tuple[str, Files, dict[int | None, list[str]]]:
    """Path of a merged file, the other files, and its lines by the rank that wrote them."""
    files = job_of(name)
    path = MERGED[name]
    found: dict[int | None, list[str]] = {}
    for line in lines_of(files.pop(path)):
        found.setdefault(rank_of(name, path, line), []).append(line)
    return path, files, found


@pytest.mark.parametrize("name", SEPARATE)
@pytest.mark.parametrize("how", ["in rank order", "reversed", "by stamp"])
@pytest.mark.parametrize("tag", TAGS)
def test_rank_files_joined_into_one_give_the_same_verdict(name, how, tag):
    assert_same(judge(merged(name, job_of(name), how, TAGS[tag])), truth_of(name))


@pytest.mark.parametrize("host", ["tx-a", "tx-b", "tx-c", "tx-d"])
@pytest.mark.parametrize("seconds", [-600, -2, 2, 600])
def test_files_merged_by_the_stamps_of_a_clock_that_is_off_never_make_another_rank_the_culprit(host, seconds):
    name = "slurm-node-failure"
    shift = timedelta(seconds=seconds)
    files = rewrite(
        job_of(name), lambda path, line: moved(line, lambda _: shift) if host_of(name, path, line) == host else line
    )
    assert_not_flipped(judge(merged(name, files, "by stamp", TAGS["plain"])), truth_of(name))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("age_s", [86400 * 3650, -86400 * 400])
def test_times_of_files_that_a_copy_or_a_checkout_sets_change_nothing(name, age_s, tmp_path):
    for path in write(job_of(name), tmp_path / "job"):
        moment_s = Path(path).stat().st_mtime - age_s
        os.utime(path, (moment_s, moment_s))
    assert_same(postmortem([str(tmp_path / "job")]), truth_of(name))


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_merged_file_sorted_by_rank_gives_the_same_verdict(name, reverse):
    path, rest, lines = parts(name)
    launcher = lines.pop(None, [])
    rows = [line for rank in sorted(lines, reverse=reverse) for line in lines[rank]]
    assert_same(judge({**rest, path: joined(rows + launcher)}), truth_of(name))


@pytest.mark.parametrize("name", ["interleaved-nan", "hang-flight-recorder"])
def test_a_merged_file_split_by_rank_gives_the_same_verdict(name):
    _, rest, lines = parts(name)
    rest["launcher.log"] = joined(lines.pop(None))
    split = {f"logs/rank_{rank}.log": joined(own) for rank, own in lines.items()}
    assert_same(judge({**rest, **split}), truth_of(name))


@pytest.mark.parametrize("name", ["slurm-label-cgroup-oom"])
def test_labelled_output_split_by_task_gives_the_same_verdict(name):
    _, rest, lines = parts(name)
    rest["slurm-6.out"] = joined(lines.pop(None))
    split = {
        f"logs/6_{rank}_log.out": joined([re.sub(r"^\d: ", "", line) for line in own]) for rank, own in lines.items()
    }
    assert_same(judge({**rest, **split}), truth_of(name))


@pytest.mark.parametrize("name", MERGED)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_lines_shuffled_between_streams_within_a_moment_never_make_another_rank_the_culprit(name, seed):
    chance = random.Random(seed)
    files, path = job_of(name), MERGED[name]
    now, last, rows = 0.0, {}, []
    for line in lines_of(files[path]):
        moment = moment_of(line)
        now = max(now, (moment - EARLY).total_seconds()) if moment else now
        stream = rank_of(name, path, line)
        last[stream] = max(last.get(stream, 0.0), now + chance.uniform(0, JITTER_S))
        rows.append((last[stream], line))
    rows.sort(key=itemgetter(0))
    files[path] = joined([line for _, line in rows])
    assert_not_flipped(judge(files), truth_of(name))


@pytest.mark.parametrize("name", MERGED)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_streams_that_arrive_in_bursts_give_the_same_verdict(name, seed):
    """A pipe that is flushed by blocks: each stream keeps its order, blocks of streams change places."""
    chance = random.Random(seed)
    path, rest, lines = parts(name)
    launcher, rows = lines.pop(None, []), []
    while lines:
        rank = chance.choice(sorted(lines))
        size = chance.randint(1, 12)
        rows += lines[rank][:size]
        lines[rank] = lines[rank][size:]
        if not lines[rank]:
            del lines[rank]
    assert_same(judge({**rest, path: joined(rows + launcher)}), truth_of(name))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_files_named_in_any_order_give_the_same_verdict(name, seed):
    def shuffled(paths: list[str]) -> list[str]:
        return random.Random(seed).sample(paths, len(paths))

    folder, listed = judge(job_of(name)), judge(job_of(name), shuffled)
    assert brief(listed) == brief(folder)
    # Paths are told from the deepest folder that all of the named files share.
    assert [(row.rank, row.kind, row.host) for row in listed.collateral] == [
        (row.rank, row.kind, row.host) for row in folder.collateral
    ]
    assert_same(listed, truth_of(name))


@pytest.mark.parametrize("name", ["two-node-segfault", "slurm-node-failure"])
def test_folders_named_in_any_order_give_the_same_verdict(name):
    def folders(paths: list[str]) -> list[str]:
        return [
            next(iter(group)) for _, group in groupby(sorted({p.rsplit("/logs/", 1)[0] for p in paths}, reverse=True))
        ]

    assert_same(judge(job_of(name), folders), truth_of(name))
