"""The scripts that come with the program, run by a real shell."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

FILES = Path(__file__).parents[2] / "aggregator" / "slurm" / "files"
SCRIPTS = ["epilog.sh", "epilog_slurmctld.sh", "batch_trap.sh"]


def installed(folder, name, python=sys.executable, **replaced):
    text = (FILES / name).read_text().replace("@PYTHON@", str(python))
    for old, new in replaced.items():
        assert f"{old}=" in text
        text = "\n".join(f"{old}={new}" if line.startswith(f"{old}=") else line for line in text.split("\n"))
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def program(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def run(*command, **environment):
    """As Slurm does: with its own environment and nothing else."""
    return subprocess.run(
        command, env={"SLURM_JOB_ID": "123"} | environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_shells_understand_them(name, shell):
    subprocess.run([shell, "-n", FILES / name], check=True)


@pytest.mark.parametrize("name", ["epilog.sh", "epilog_slurmctld.sh"])
@pytest.mark.parametrize("script", [None, "exit 1", "kill -9 $$", "echo x; echo x >&2; exit 137"])
def test_an_epilog_ends_with_0_whatever_becomes_of_the_program(tmp_path, name, script):
    python = "/nowhere/python" if script is None else program(tmp_path, "python", script)
    done = run(installed(tmp_path, name, python))
    assert (done.returncode, done.stdout) == (0, "")


def test_an_epilog_whose_program_hangs_ends_in_time(tmp_path):
    python = program(tmp_path, "python", "trap '' TERM", "exec /bin/sleep 50")
    started = time.monotonic()
    assert run(installed(tmp_path, "epilog.sh", python, limit="1")).returncode == 0
    assert time.monotonic() - started < 20


def test_nothing_of_the_folder_or_the_environment_is_run(tmp_path):
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "typing.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    script = installed(tmp_path, "epilog.sh")
    done = subprocess.run(
        [script], cwd=trap, check=False, timeout=60,
        env={"PYTHONPATH": str(trap), "PYTHONSTARTUP": str(trap / "typing.py"), "SLURM_JOB_ID": "123"},
    )  # fmt: skip
    assert done.returncode == 0
    assert not (tmp_path / "ran").exists()


def test_the_comment_is_one_argument_of_sacctmgr(tmp_path):
    python = program(tmp_path, "python", "printf 'rank 13 on node-b: CUDA out of memory [0.94]'")
    sacctmgr = program(tmp_path, "sacctmgr", f'for word; do echo "<$word>"; done > {tmp_path}/asked')
    assert run(installed(tmp_path, "epilog_slurmctld.sh", python, sacctmgr=sacctmgr)).returncode == 0
    words = ["-i", "modify", "job", "where", "JobID=123", "set"]
    comment = "AdminComment=rank 13 on node-b: CUDA out of memory [0.94]"
    assert (tmp_path / "asked").read_text().splitlines() == [f"<{word}>" for word in [*words, comment]]


def test_without_a_comment_the_accounts_are_left_alone(tmp_path):
    python, sacctmgr = program(tmp_path, "python", "exit 0"), program(tmp_path, "sacctmgr", f"touch {tmp_path}/asked")
    assert run(installed(tmp_path, "epilog_slurmctld.sh", python, sacctmgr=sacctmgr)).returncode == 0
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_batch_script_tells_where_its_output_is_and_keeps_its_exit_code(tmp_path, shell, code):
    python = program(
        tmp_path, "python", f'echo "$SLURM_JOB_STDOUT $SLURM_JOB_STDERR $SLURM_JOB_EXIT_CODE2 $*" > {tmp_path}/told'
    )
    trap = installed(tmp_path, "batch_trap.sh", python)
    script = tmp_path / "job.sh"
    script.write_text(f". {trap}\necho work\nexit {code}\n")
    with (tmp_path / "100%j.out").open("w") as out, (tmp_path / "err").open("w") as err:
        done = subprocess.run([shell, script], stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False)
    assert done.returncode == code
    told = f"{tmp_path}/100%%j.out {tmp_path}/err {code}:0 -I -m aggregator slurm-epilog\n"
    assert (tmp_path / "told").read_text() == told


def test_a_batch_script_that_is_told_to_end_still_reports(tmp_path):
    python = program(tmp_path, "python", f"echo $SLURM_JOB_EXIT_CODE2 > {tmp_path}/told")
    script = tmp_path / "job.sh"
    script.write_text(f". {installed(tmp_path, 'batch_trap.sh', python)}\necho ready\nsleep 2\necho on\n")
    with subprocess.Popen(["bash", script], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.terminate()
        assert running.wait(20) == 143
    assert (tmp_path / "told").read_text() == "143:0\n"


def test_all_files_can_be_printed_with_the_interpreter_in_them():
    for path in sorted(FILES.iterdir()):
        command = [sys.executable, "-m", "aggregator", "slurm-epilog", "--print", path.name]
        printed = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"NO_COLOR": "1"}
        )
        assert printed.stdout == path.read_text().replace("@PYTHON@", sys.executable)
