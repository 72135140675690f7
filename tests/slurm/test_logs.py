"""Which files are taken for a job's, and above all which are not. Real folders."""

import os
import time
from pathlib import Path

import pytest

from aggregator.slurm import logs
from aggregator.slurm.job import SlurmJob
from aggregator.slurm.logs import log_paths

OUR_ID = 4242
BEGAN = int(time.time()) - 3600


def made(folder: Path, *names: str, text: str = "x\n", age_s: float = 0) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - age_s, time.time() - age_s))


def found(job: SlurmJob, folder: Path, roots=()) -> list[str]:
    paths = log_paths(job, roots)
    assert len(set(paths)) == len(paths)
    return sorted(str(Path(path).relative_to(folder)) for path in paths)


def job_in(folder: Path, **told) -> SlurmJob:
    return SlurmJob(**{"id": OUR_ID, "user": "alice", "work_dir": str(folder)} | told)


# The job's own output


def test_the_default_output_is_found_in_the_working_folder(tmp_path):
    made(tmp_path, "slurm-4242.out", "slurm-4241.out", "train.py")
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4242.out"]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("out-%j.txt", "out-4242.txt"),
        ("out-%8j.txt", "out-00004242.txt"),
        ("out-%99j.txt", "out-0000004242.txt"),
        ("%u/%x-%j.log", "alice/sweep-4242.log"),
        ("logs/%A.%a.log", "logs/4000.7.log"),
        ("logs/%4A.%3a.log", "logs/4000.007.log"),
        ("b%b/%j", "b7/4242"),
        ("100%%-%j", "100%-4242"),
        ("odd%q-%j", "odd%q-4242"),
        ("end-%j-%", "end-4242-%"),
    ],
)
def test_marks_in_the_name_of_the_output_are_replaced(tmp_path, pattern, name):
    made(tmp_path, name, "other/unrelated.log")
    job = job_in(tmp_path, name="sweep", array_id=4000, array_task=7, stdout=pattern)
    assert found(job, tmp_path) == [name]


def test_what_slurm_did_not_tell_may_be_anything_that_it_can_be(tmp_path):
    made(
        tmp_path,
        "r0-4242.log",
        "r1-4242.log",
        "rx-4242.log",
        "4242.0-node-1.err",
        "4242-node-2.err",
        "4242.1-node-9.err",
    )
    job = job_in(tmp_path, nodes="node-[1-2]", stdout="r%t-%j.log", stderr="%J-%N.err")
    taken = found(job, tmp_path)
    assert {"r0-4242.log", "r1-4242.log", "4242.0-node-1.err", "4242-node-2.err"} <= set(taken)


def test_a_backslash_switches_replacement_off(tmp_path):
    made(tmp_path, "run-%j.log", "run-4000.log")
    assert found(job_in(tmp_path, stdout="run-\\%j.log"), tmp_path) == ["run-%j.log"]


def test_output_and_error_of_a_relative_and_an_absolute_name_are_both_found(tmp_path):
    made(tmp_path, "work/a.out", "elsewhere/b.err")
    job = job_in(tmp_path / "work", stdout="a.out", stderr=f"{tmp_path}/elsewhere/b.err")
    assert found(job, tmp_path) == ["elsewhere/b.err", "work/a.out"]


def test_marks_in_the_name_of_the_working_folder_are_part_of_it(tmp_path):
    made(tmp_path, "100%j/a.out")
    assert found(job_in(tmp_path / "100%j", stdout="a.out"), tmp_path) == ["100%j/a.out"]


def test_of_requeued_runs_the_last_output_is_taken(tmp_path):
    made(tmp_path, "run%r/job.log".replace("%r", "0"), age_s=900)
    made(tmp_path, "run1/job.log")
    job = job_in(tmp_path, restarts=2, stdout="run%r/job.log")
    assert found(job, tmp_path) == ["run1/job.log"]


# Array jobs, of which an epilog knows neither the array's number nor its own in it


def test_an_array_tasks_output_is_known_by_what_slurm_wrote_in_it(tmp_path):
    told = "srun: Terminating StepId={}.0\n"
    made(tmp_path, "slurm-4000_1.out", text=told.format(4241))
    made(tmp_path, "slurm-4000_2.out", text=told.format(4242))
    made(tmp_path, "slurm-4000_3.out")
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4000_2.out"]


def test_an_array_tasks_output_is_the_only_one_written_just_now(tmp_path):
    made(tmp_path, "slurm-4000_1.out", "slurm-4000_3.out", age_s=600)
    made(tmp_path, "slurm-4000_2.out")
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4000_2.out"]


def test_where_two_tasks_of_an_array_may_be_meant_none_is_taken(tmp_path):
    made(tmp_path, "slurm-4000_1.out", "slurm-4000_2.out")
    assert found(job_in(tmp_path), tmp_path) == []


def test_the_task_that_has_the_arrays_own_number_does_not_take_the_other_tasks_files(tmp_path):
    made(tmp_path, "slurm-4242_1.out", "slurm-4242_2.out", "trace-4242_1.txt", text="*** STEP 4239.0 ON a CANCELLED\n")
    made(tmp_path, "slurm-4242_9.out", text="*** JOB 4242 ON node-a CANCELLED AT 2031-02-03T04:05:06 ***\n")
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4242_9.out"]
    known = job_in(tmp_path, array_id=4242, array_task=9)
    assert found(known, tmp_path) == ["slurm-4242_9.out"]


def test_the_number_of_a_task_is_no_jobs_number(tmp_path):
    made(tmp_path, "slurm-8_7.out", "slurm-8_8.out", text="*** STEP 10.0 ON a CANCELLED\n")
    made(tmp_path, "slurm-8_9.out", text="srun: Terminating StepId=8.0\n")
    made(tmp_path, "20261202_8.log")
    assert found(job_in(tmp_path, id=8), tmp_path) == ["20261202_8.log", "slurm-8_9.out"]


def test_a_known_array_task_takes_what_has_both_numbers(tmp_path):
    made(
        tmp_path, "slurm-4000_7.out", "prof-4000-7.log", "4000_7/a.log", "slurm-4000_70.out", "4000_8/a.log", "4242.log"
    )
    job = job_in(tmp_path, array_id=4000, array_task=7)
    assert found(job, tmp_path) == ["4000_7", "4242.log", "prof-4000-7.log", "slurm-4000_7.out"]


def test_an_unknown_job_name_takes_one_file_not_all(tmp_path):
    made(tmp_path, "a.log", "b.log", "c.log", age_s=600)
    made(tmp_path, "train.log")
    assert found(job_in(tmp_path, stdout="%x.log"), tmp_path) == ["train.log"]


# What lies beside it


def test_what_has_the_jobs_number_as_a_whole_in_its_name_is_the_jobs(tmp_path):
    ours = ["slurm-4242.out", "train-4242-4.log", "job4242.err", "4242/rank0/out.log", "logs/4242/rank-3.err", "x_4242"]
    made(tmp_path, *ours, "train-14242.log", "train-42420.log", "cn4242.log", "rank-4242.log", "node_4242.log",
         "checkpoint-4242/a.log", "4242-11-30.log", "data/4242/x.log")  # fmt: skip
    expected = ["4242", "job4242.err", "logs/4242", "slurm-4242.out", "train-4242-4.log", "x_4242"]
    assert found(job_in(tmp_path), tmp_path) == expected


def test_a_folder_above_the_output_that_has_the_number_is_taken_whole(tmp_path):
    made(tmp_path, "runs/4242/slurm/out.log", "runs/4242/rank0/log", "runs/4241/rank0/log")
    job = job_in(tmp_path, stdout=f"{tmp_path}/runs/4242/slurm/out.log")
    assert found(job, tmp_path) == ["runs/4242"]


def test_the_working_folder_is_whole_the_jobs_only_by_its_name(tmp_path):
    made(tmp_path, "run-4242/slurm-4242.out", "run-4242/notes.txt", "run/slurm-4242.out", "run/notes.txt")
    assert found(job_in(tmp_path / "run-4242"), tmp_path) == ["run-4242"]
    assert found(job_in(tmp_path / "run"), tmp_path) == ["run/slurm-4242.out"]


def test_a_home_is_never_taken_whole(tmp_path, monkeypatch):
    made(tmp_path, "4242/alice/slurm-4242.out", "4242/alice/.ssh/id")
    monkeypatch.setattr(logs, "_home", lambda: f"{tmp_path}/4242/alice")
    assert found(job_in(tmp_path / "4242/alice"), tmp_path) == ["4242/alice/slurm-4242.out"]


def test_our_own_report_of_an_earlier_run_is_no_log(tmp_path):
    made(tmp_path, "slurm-4242.out", "denpex-4242.txt", "denpex-4242.json", "denpex-4242.kernel.node-1.log")
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4242.out"]


def test_what_was_last_written_before_the_job_began_is_not_its(tmp_path):
    made(tmp_path, "rank.0", "rank.1")
    made(tmp_path, "rank.2", "old-4242.log", age_s=90_000)
    job = job_in(tmp_path, stdout="rank.%t", start_s=BEGAN)
    assert found(job, tmp_path) == ["rank.0", "rank.1"]


def test_an_admins_roots_are_searched_with_the_same_marks(tmp_path):
    made(tmp_path, "home/slurm-4242.out", "scratch/alice/runs/4242/log", "tb/4242-a.log", "tb/9.log", "bob/4242.log")
    roots = [f"{tmp_path}/scratch/%u/runs/%j", f"{tmp_path}/tb", f"{tmp_path}/gone/%j", "relative/%j", "", "/a\0b/%j"]
    expected = ["home/slurm-4242.out", "scratch/alice/runs/4242", "tb/4242-a.log"]
    assert found(job_in(tmp_path / "home"), tmp_path, roots) == expected


# Hostile users


@pytest.mark.parametrize(
    "told",
    [
        {"work_dir": "relative"},
        {"work_dir": "/nowhere/at/all"},
        {"work_dir": "/a\0b"},
        {"work_dir": "/" + "x" * 5000},
        {"stdout": "/dev/null", "stderr": "/dev/zero"},
        {"stdout": "a\0b"},
        {"stdout": "\\" * 1000},
        {"stdout": "%x" * 10_000, "name": ""},
        {"stdout": "%t%x%n%s%x%t-%j", "name": ""},
        {"stdout": "%" + "9" * 5000 + "j"},
        {"stdout": "../" * 3000 + "etc/passwd%j"},
        {"stdout": "%x", "name": "\udcff\n\x1b[2J"},
        {"nodes": "n[0-9999999]", "stdout": "%N-%j"},
        {"name": "(((((((" * 100, "stdout": "%x.%t"},
    ],
)
def test_hostile_names_find_nothing_and_raise_nothing(tmp_path, told):
    started = time.monotonic()
    made(tmp_path, "a" * 200 + ".log", "unrelated.txt", age_s=600)
    assert log_paths(job_in(tmp_path, **told)) == []
    assert time.monotonic() - started < 3


def test_links_pipes_and_devices_are_not_taken(tmp_path):
    secret = tmp_path / "secret"
    made(secret, "key")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "slurm-4242.out").symlink_to(secret / "key")
    (folder / "link-4242").symlink_to(secret)
    os.mkfifo(folder / "fifo-4242.log")
    (folder / "logs").symlink_to(secret)
    made(secret, "4242.log")
    assert log_paths(job_in(folder)) == []
    assert log_paths(job_in(folder, stdout="fifo-%j.log")) == []


def test_a_folder_of_very_many_files_ends_the_search_not_the_node(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FOUND", 50)
    for number in range(3000):
        (tmp_path / f"{number}-4242.log").touch()
    (tmp_path / "slurm-4242.out").touch()
    paths = log_paths(job_in(tmp_path))
    assert paths[0].endswith("slurm-4242.out")
    assert len(paths) == 50


def test_a_search_that_takes_too_long_gives_what_it_has(tmp_path, monkeypatch):
    made(tmp_path, "slurm-4242.out", "train-4242.log")
    monkeypatch.setattr(logs, "LIMIT_S", -1)
    assert found(job_in(tmp_path), tmp_path) == ["slurm-4242.out"]
