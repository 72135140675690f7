"""What Slurm's own commands tell of a job. They are scripts here that print what the real ones do."""

import os
import shlex
import time

import pytest

from aggregator.errors import InputError
from aggregator.slurm import lookup
from aggregator.slurm.job import SlurmJob
from aggregator.slurm.lookup import find_job, is_job_id

ME = os.geteuid()
INVALID = "slurm_load_jobs error: Invalid job id specified"

# `scontrol show job -o` of Slurm 22.05; the fields between are left out in the others.
BATCH = (
    f"JobId=123 JobName=train it UserId=alice({ME}) GroupId=alice(1000) MCS_label=N/A Priority=4294901758 Nice=0 "
    "Account=(null) QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 "
    "BatchFlag=1 Reboot=0 ExitCode=1:0 RunTime=00:00:12 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=1796193600 "
    "EligibleTime=1796193600 StartTime=1796193601 EndTime=1796193613 Deadline=N/A SuspendTime=None "
    "LastSchedEval=1796193601 Scheduler=Main Partition=gpu AllocNode:Sid=login-1:4711 ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList=node-[1-2] BatchHost=node-1 NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 "
    "ReqB:S:C:T=0:0:*:* TRES=cpu=4,node=2,billing=4 Socks/Node=* NtasksPerN:B:S:C=2:0:*:* CoreSpec=* MinCPUsNode=2 "
    "MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) "
    "Network=(null) Command=/home/alice/run.sh WorkDir=/home/alice/my runs Comment=hello "
    "StdErr=/home/alice/my runs/e-123 StdIn=/dev/null StdOut=/home/alice/my runs/slurm-123.out Power="
)
ARRAY = (
    "JobId={raw} ArrayJobId=5 ArrayTaskId={task} JobName=sweep UserId=alice({me}) GroupId=a(1) JobState=FAILED "
    "Restarts=0 ExitCode=1:0 StartTime=1796193601 NodeList=node-3 WorkDir=/w StdErr=/w/slurm-5_{task}.out "
    "StdOut=/w/slurm-5_{task}.out"
)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder of commands that is the whole PATH; `slurm(scontrol="…")` makes one that prints a text."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(**scripts):
        for name, script in scripts.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)

    return install


def says(text):
    return f"printf '%s\\n' {shlex.quote(text)}"


def fails(text, code=1):
    return f"echo {shlex.quote(text)} >&2; exit {code}"


def rows(*lists):
    return "\n".join("\x1f".join(map(str, fields)) for fields in lists)


@pytest.mark.parametrize(
    "text", ["123", "1234567890", "123_4", "123.0", "123.batch", "123_4.extern", "123+1", "123+1.0"]
)
def test_these_are_job_ids(text):
    assert is_job_id(text)


@pytest.mark.parametrize(
    "text", ["", "-", "0x1", "12345678901", "123_", "_1", "123.", "123/", "12 3", "-1", "123;id", "١٢٣"]
)
def test_these_are_not(text):
    assert not is_job_id(text)
    with pytest.raises(InputError, match="not the id of a Slurm job"):
        find_job(text)


def test_the_controller_tells_of_a_job_whose_names_have_blanks(slurm):
    slurm(scontrol=says(BATCH))
    assert find_job("123") == SlurmJob(
        id=123, user="alice", uid=ME, name="train it", work_dir="/home/alice/my runs",
        stdout="/home/alice/my runs/slurm-123.out", stderr="/home/alice/my runs/e-123", nodes="node-[1-2]",
        exit_code="1:0", restarts=0, start_s=1796193601,
    )  # fmt: skip
    assert find_job("123.0").id == 123
    assert find_job("123.batch").id == 123


def test_the_commands_are_asked_for_the_whole_job_and_for_times_as_numbers(slurm, tmp_path):
    slurm(scontrol=f'echo "$* $SLURM_TIME_FORMAT" > {tmp_path}/asked; {says(BATCH)}')
    find_job("123.7")
    assert (tmp_path / "asked").read_text() == "show job -o 123 %s\n"


def test_a_job_that_waits_or_has_no_script_lacks_what_slurm_does_not_tell(slurm):
    slurm(scontrol=says(f"JobId=123 JobName=sh UserId=alice({ME}) StartTime=Unknown NodeList=(null) WorkDir=/w Power="))
    job = find_job("123")
    assert (job.nodes, job.stdout, job.start_s, job.restarts) == ("", "", None, None)


def test_a_key_in_a_jobs_name_is_not_taken_for_slurms(slurm):
    line = BATCH.replace("train it", "x JobId=9 UserId=root(0) WorkDir=/etc StdOut=/etc/shadow")
    slurm(scontrol=says(line))
    if ME == 0:
        with pytest.raises(InputError):
            find_job("123")
    else:
        job = find_job("123")
        assert (job.id, job.work_dir, job.uid) == (123, "/home/alice/my runs", None)


def test_one_task_of_an_array_is_found_by_either_of_its_numbers(slurm):
    slurm(scontrol=says(ARRAY.format(raw=10, task=8, me=ME)))
    for text in ("5_8", "10"):
        job = find_job(text)
        assert (job.id, job.array_id, job.array_task) == (10, 5, 8)


def test_a_whole_array_is_no_job(slurm):
    lines = "\n".join(ARRAY.format(raw=raw, task=task, me=ME) for raw, task in ((9, 7), (10, 8), (5, 9)))
    slurm(scontrol=says(lines))
    with pytest.raises(InputError) as caught:
        find_job("5")
    assert caught.value.help == "name one of them, as in 5_7, 5_8, 5_9"
    assert find_job("5_9").id == 5


def test_the_leader_of_a_heterogeneous_job_stands_for_it(slurm):
    parts = [
        f"JobId={number} HetJobId=12 HetJobOffset={number - 12} JobName=h UserId=a({ME}) WorkDir=/w"
        for number in (13, 12)
    ]
    slurm(scontrol=says("\n".join(parts)))
    assert find_job("12").id == 12


# Accounting


def test_of_jobs_that_the_controller_has_forgotten_the_accounts_tell(slurm):
    row = ["%x-%j.log", "", 123, 123, "alice", ME, "node-[1-2]", 1796193601, "1:0", "/home/a|b", "a|b\x1fc"]
    slurm(scontrol=fails(INVALID), sacct=says(rows(row)))
    assert find_job("123") == SlurmJob(
        id=123, user="alice", uid=ME, name="a|b\x1fc", work_dir="/home/a|b", stdout="%x-%j.log", nodes="node-[1-2]",
        exit_code="1:0", start_s=1796193601,
    )  # fmt: skip


def test_an_old_sacct_without_the_fields_of_paths_still_tells_the_rest(slurm):
    row = [10, "5_8", "alice", ME, "node-3", "Unknown", "0:15", "/w", "sweep"]
    asked = f'case "$*" in *StdOut*) {fails("sacct: error: Invalid field requested: &quot;StdOut&quot;")};; esac'
    slurm(sacct=f"{asked}\n{says(rows(row))}")
    job = find_job("5_8")
    assert (job.id, job.array_id, job.array_task, job.work_dir, job.start_s) == (10, 5, 8, "/w", None)


# Nothing to be had


def test_without_slurm_the_user_is_told_what_to_give_instead(slurm):
    with pytest.raises(InputError, match="there is no Slurm here") as caught:
        find_job("123")
    assert caught.value.help == "give the job's log folder or its files"


@pytest.mark.parametrize(
    "output",
    ["", "No jobs in the system", "\x1b]0;x\x07", "JobId=abc", "JobId=", pytest.param("=" * 10_000, id="much")],
)
def test_output_that_names_no_job_is_no_job(slurm, output):
    slurm(scontrol=says(output), sacct=says(output))
    with pytest.raises(InputError, match="Slurm does not tell of this job"):
        find_job("123")


def test_slurms_own_words_are_told(slurm):
    slurm(scontrol=fails(INVALID), sacct=fails("Slurm accounting storage is disabled"))
    with pytest.raises(InputError) as caught:
        find_job("123")
    assert caught.value.what == (
        f"Slurm does not tell of this job (scontrol: {INVALID}; sacct: Slurm accounting storage is disabled)"
    )


def test_a_controller_that_does_not_answer_is_not_waited_for(slurm, monkeypatch):
    monkeypatch.setattr(lookup, "LIMIT_S", 0.3)
    slurm(scontrol="exec /bin/sleep 30", sacct=fails("down"))
    started = time.monotonic()
    with pytest.raises(InputError, match=r"scontrol took longer than 0\.3 s"):
        find_job("123")
    assert time.monotonic() - started < 5


def test_root_does_not_read_what_another_users_job_names(slurm, monkeypatch):
    slurm(scontrol=says(BATCH.replace(f"alice({ME})", "alice(1000)")))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InputError, match="root does not read") as caught:
        find_job("123")
    assert caught.value.help == "run it as alice, or name the files yourself"
    slurm(scontrol=says(BATCH.replace(f"alice({ME})", "alice(1000)").replace("hello", "x UserId=root(0)")))
    with pytest.raises(InputError, match="root does not read"):
        find_job("123")


def test_the_logs_of_a_job_are_found_by_its_id(slurm, tmp_path):
    folder = tmp_path / "my runs"
    folder.mkdir()
    (folder / "slurm-123.out").write_text("x\n")
    slurm(scontrol=says(BATCH.replace("/home/alice/my runs", str(folder))))
    assert lookup.logs_of("123") == [str(folder / "slurm-123.out")]
    (folder / "slurm-123.out").unlink()
    with pytest.raises(InputError, match="no log of this job was found") as caught:
        lookup.logs_of("123")
    assert caught.value.where == str(folder / "slurm-123.out")
