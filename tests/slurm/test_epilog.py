"""The epilog as a whole: what it tells of a job, to whom, and that it never fails."""

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from epilog_runs import COMMAND, FAULT, HEALTHY, IS_ROOT, NO_ACCOUNT, NOBODY, Node

from aggregator.slurm import epilog, reader

as_root = pytest.mark.skipif(not IS_ROOT, reason="becomes another user: needs root")


def test_a_failed_job_is_told_in_one_line_a_report_and_a_verdict(node):
    node.write("slurm-123.out", FAULT)
    ended = node.epilog()
    assert ended.code == 0
    assert ended.printed == ""
    assert "job 123 (" in ended.said
    assert "rank 1: CUDA out of memory" in ended.said
    assert len(ended.said.splitlines()) == 1
    for folder, forms in ((node.home, {"txt", "json", "html"}), (node.reports, {"txt", "json"})):
        assert {p.name for p in folder.glob("*denpex*")} == {f"denpex-123.{form}" for form in forms}
        assert "CUDA out of memory" in (folder / "denpex-123.txt").read_text()
        assert json.loads((folder / "denpex-123.json").read_text())["first_failure"]["ranks"] == [1]
    assert "rank 1" in (node.home / "denpex-123.html").read_text()
    assert node.verdict()["cause"].startswith("rank 1: CUDA out of memory")


@as_root
def test_the_reports_belong_to_whom_they_are_for(node):
    os.chown(node.reports, 0, 4)
    node.write("slurm-123.out", FAULT)
    node.epilog()
    users, admins = ((folder / "denpex-123.txt").stat() for folder in (node.home, node.reports))
    assert (users.st_uid, stat.S_IMODE(users.st_mode)) == (NOBODY, 0o600)
    assert (admins.st_uid, admins.st_gid, stat.S_IMODE(admins.st_mode)) == (0, 4, 0o640)


def test_a_job_that_went_well_leaves_nothing_behind(node):
    node.write("slurm-123.out", HEALTHY)
    ended = node.epilog(SLURM_JOB_EXIT_CODE2="0:0")
    assert ended.code == 0
    assert "completed" in ended.said
    assert node.written() == (b"", set())


def test_a_report_of_an_earlier_run_of_the_job_is_kept(node):
    log = node.write("slurm-123.out", FAULT)
    node.epilog()
    log.write_text(FAULT.replace("CUDA out of memory. Tried to allocate 1.13 GiB", "second run"))
    node.epilog()
    assert "1.13 GiB" in (node.home / "denpex-123.1.txt").read_text()
    for folder in (node.home, node.reports):
        assert "1.13 GiB" not in (folder / "denpex-123.txt").read_text()


@as_root
def test_a_user_without_an_account_on_the_node():
    node = Node(NO_ACCOUNT)
    try:
        node.write("slurm-123.out", FAULT)
        assert f"job 123 ({NO_ACCOUNT}): rank 1" in node.epilog().said
        assert (node.home / "denpex-123.txt").stat().st_uid == NO_ACCOUNT
    finally:
        node.remove()


@as_root
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"SLURM_JOB_UID": "0", "SLURM_JOB_USER": "root"}, "is root"),
        ({"SLURM_JOB_UID": ""}, "does not tell"),
        ({"SLURM_JOB_UID": "0x10"}, "does not tell"),
        ({"SLURM_JOB_UID": "-1"}, "does not tell"),
        ({"SLURM_JOB_UID": "4294967295", "SLURM_JOB_USER": ""}, "cannot become"),
        ({"SLURM_JOB_UID": "9999999999", "SLURM_JOB_USER": ""}, "cannot become"),
        ({"SLURM_JOB_USER": "root"}, "different users"),
        ({"SLURM_JOB_USER": "daemon"}, "different users"),
    ],
)
def test_nothing_is_read_as_anybody_but_the_jobs_user(node, told, why):
    node.write("slurm-123.out", FAULT)
    ended = node.epilog(**told)
    assert ended.code == 0
    assert "not judged: refused: " in ended.said
    assert why in ended.said
    assert node.written() == (b"", set())


def test_a_job_without_logs_is_said_to_have_none(node):
    ended = node.epilog()
    assert ended.code == 0
    assert "not judged: no log to read" in ended.said


def test_an_exit_code_is_trouble_even_where_the_logs_tell_of_none(node):
    node.write("slurm-123.out", "starting\n")
    ended = node.epilog(SLURM_JOB_EXIT_CODE2="7:0")
    assert "ended with 7:0; its logs tell of no failure" in ended.said
    assert (node.home / "denpex-123.txt").exists()


def test_secrets_do_not_leave_the_log(node):
    node.write("slurm-123.out", FAULT.replace("Tried", "hf_" + "A" * 34 + " Tried"))
    node.epilog()
    assert b"AAAAAAAA" not in node.written()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"],
        ["--bogus", "--debug"],
        ["--config"],
        ["extra"],
        ["--config", "/nonexistent.toml"],
        ["--config", "/"],
        ["--comment"],
        [],
    ],
)
def test_whatever_the_command_line_it_ends_with_0(arguments):
    done = subprocess.run([*COMMAND, *arguments], env={}, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_closed_and_full_outputs_are_no_failure(node):
    node.write("slurm-123.out", FAULT)
    command = f"exec {' '.join(COMMAND)} --config {node.config_file}"
    for streams in ("<&- >&- 2>&-", ">/dev/full 2>/dev/full", ">&- 2>/dev/full"):
        for more in ("", "--comment"):
            done = subprocess.run(
                ["/bin/sh", "-c", f"{command} {more} {streams}"], env=node.environment(), timeout=60, check=False
            )
            assert done.returncode == 0
    assert node.verdict()["first_failure"]["ranks"] == [1]


def test_a_full_disk_is_told(node):
    node.write("slurm-123.out", FAULT)
    command = ["/bin/sh", "-c", f"ulimit -f 0; exec {' '.join(COMMAND)} --config {node.config_file}"]
    done = subprocess.run(
        command, env=node.environment(), capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0
    assert "rank 1: CUDA" in done.stderr
    assert "no report in the job's folder: cannot write denpex-123.txt: File too large" in done.stderr
    assert f"{node.reports}: cannot write denpex-123.txt: File too large" in done.stderr
    assert node.written() == (b"", set())


def test_sigterm_ends_it_at_once_with_0(node):
    node.write("slurm-123.out", FAULT * 400_000)
    running = subprocess.Popen([*COMMAND, "--config", str(node.config_file)], env=node.environment(), stderr=-3)
    time.sleep(1.0)
    running.terminate()
    assert running.wait(5) == 0


AS_NOBODY = """
import io, os, sys
from aggregator import cli
from aggregator.catalogue.entries import default_catalogue
from aggregator.pipeline import investigate
from aggregator.reports import reporter
from aggregator.slurm import epilog, kernel, logs, outputs, reader
case = investigate([sys.argv[2]])
for form in ("text", "json", "html"):
    reporter(form).render(case, io.StringIO())
default_catalogue().read_files()
for name in reader._LATER:
    __import__(name)
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
sys.exit(cli.run(["slurm-epilog"]))
"""
"""Imports first what it may need: the interpreter may be where only root can read it."""


@as_root
def test_a_user_may_run_it_in_a_job(node):
    node.write("slurm-123.out", FAULT)
    command = [sys.executable, "-c", AS_NOBODY, str(NOBODY), str(node.home / "slurm-123.out")]
    subprocess.run(command, env=node.environment(SLURM_SCRIPT_CONTEXT=""), check=True)
    assert "CUDA out of memory" in (node.home / "denpex-123.txt").read_text()
    assert not list(node.reports.iterdir())


def test_the_verdict_is_that_of_postmortem(node):
    sample = Path(__file__).parent.parent.parent / "sample_runs" / "slurm-label-cgroup-oom" / "job"
    for path in sample.iterdir():
        node.write(f"123/{path.name}", path.read_bytes())
    node.own(node.home / "123")
    node.epilog()
    command = [sys.executable, "-m", "aggregator", "postmortem", str(node.home / "123"), "--json"]
    wanted = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    told = node.verdict()
    for key in ("outcome", "first_failure", "collateral", "attempts", "clocks"):
        assert told[key] == wanted[key]


@pytest.mark.parametrize(
    ("work", "said"),
    [(lambda run: time.sleep(60), "not judged: gave up after 1 s"), (lambda run: 1 / 0, "this is a bug: ZeroDivision")],
    ids=["hangs", "has a bug"],
)
def test_a_run_that_goes_wrong_is_told_and_ends(node, monkeypatch, capfd, work, said):
    monkeypatch.setattr(epilog, "_work", work)
    node.config("time_limit_s = 1")
    pid = os.fork()  # the epilog changes the process that it runs in
    if pid == 0:
        epilog.run(node.environment(), str(node.config_file))
        os._exit(0)
    began = time.monotonic()
    assert os.waitpid(pid, 0)[1] == 0
    assert time.monotonic() - began < 4
    assert said in capfd.readouterr().err


NESTED = b"[" * 900 + b"]" * 900


class TestAHostileReader:
    """Whoever takes over the process that reads can send what he likes."""

    @pytest.mark.parametrize(
        "sent",
        [
            b"", b"\n", b"kernel\nkernel\n", b"kernel", b"null\n", b"[]\n", b"\xff\xfe\n",
            b"x" * (5 << 20) + b"\n", b"[" * 100_000 + b"\n",
            b'{"verdict": []}\n', b'{"verdict": ' + NESTED + b"}\n", b'{"problem": "a\\nb\\u001b[2J"}\n',
            b'{"verdict": {"outcome": "failed", "coverage": {"files": 1, "bytes": 1}, "x": ' + NESTED + b"}}\n",
            b'{"verdict": {"outcome": "failed", "coverage": {"files": 1' + b"0" * 9000 + b"}}}\n",
        ],
        ids=range(14),
    )  # fmt: skip
    def test_harms_nobody(self, node, monkeypatch, capfd, sent):
        def start(task):
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                ours.close()
                os.setsid()
                with contextlib.suppress(OSError):
                    theirs.sendall(sent)
                time.sleep(30)
                os._exit(0)
            theirs.close()
            return pid, ours

        monkeypatch.setattr(reader, "start", start)
        node.config("time_limit_s = 3\nin_job_folder = false")
        pid = os.fork()  # the epilog changes the process that it runs in
        if pid == 0:
            epilog.run(node.environment(SLURM_NODELIST="node-1"), str(node.config_file))
            os._exit(0)
        began = time.monotonic()
        assert os.waitpid(pid, 0)[1] == 0
        assert time.monotonic() - began < 6
        said = capfd.readouterr().err
        assert "job 123 (" in said
        assert "\x1b" not in said
        assert "this is a bug" not in said
        assert all(line.startswith("denpex-agg[") for line in said.splitlines())


def test_the_counters_of_a_node_add_up(node):
    node.config(f'prometheus = "{node.reports}/denpex.prom"')
    node.write("slurm-123.out", FAULT)
    for _ in range(2):
        assert node.epilog().code == 0
    text = (node.reports / "denpex.prom").read_text()
    assert 'denpex_jobs_total{outcome="failed",kind="cuda_oom"} 2\n' in text
    assert stat.S_IMODE((node.reports / "denpex.prom").stat().st_mode) == 0o644
    parser = pytest.importorskip("prometheus_client.parser")
    assert {family.name for family in parser.text_string_to_metric_families(text)} == {
        "denpex_jobs", "denpex_epilog_seconds",
    }  # fmt: skip


CONTROLLER = {"SLURM_SCRIPT_CONTEXT": "epilog_slurmctld", "SLURMD_NODENAME": ""}


@pytest.mark.parametrize("context", ["epilog_slurmctld", "epilog_task"])
def test_an_epilog_that_is_not_the_jobs_own_does_nothing(node, context):
    node.write("slurm-123.out", FAULT)
    ended = node.epilog(SLURM_SCRIPT_CONTEXT=context)
    assert (ended.code, ended.said, node.written()) == (0, "", (b"", set()))


class TestComment:
    def test_the_controller_prints_one_harmless_line_once_the_report_is_there(self, node):
        node.write("slurm-123.out", FAULT)
        later = threading.Timer(1.0, node.epilog)
        later.start()
        ended = node.epilog("--comment", **CONTROLLER)
        later.join()
        assert ended.code == 0
        assert ended.printed.startswith("rank 1: CUDA out of memory")
        assert len(ended.printed) <= 200
        assert not set(ended.printed) & set("'\"`$\\\n;|&<>")

    def test_without_a_report_it_prints_nothing(self, node):
        node.config(f'report_dir_ = "{node.reports}"')
        assert node.epilog("--comment", **CONTROLLER).printed == ""


@as_root
def test_the_systems_log_gets_what_standard_error_shows(node):
    node.write("slurm-123.out", FAULT)
    device = node.root / "dev"
    device.mkdir()
    for name in ("null", "urandom"):
        os.mknod(device / name, stat.S_IFCHR | 0o666, Path(f"/dev/{name}").stat().st_rdev)
        (device / name).chmod(0o666)
    script = f"mount --bind {device} /dev && exec {' '.join(COMMAND)} --config {node.config_file}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(device / "log"))
        done = subprocess.run(
            ["unshare", "--mount", "/bin/sh", "-c", script], env=node.environment(PATH=os.environ["PATH"]),
            capture_output=True, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip
        if "unshare" in done.stderr or "mount:" in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
        log.settimeout(5)
        told = log.recv(4096).decode()
    assert "denpex-agg[" in told
    assert "rank 1: CUDA out of memory" in told
