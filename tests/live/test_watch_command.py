"""`watch` as a user runs it: what it says while the job lives, what in the end, and how it ends."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest

from aggregator import cli

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "aggregator" / "verdict.schema.json").read_text(encoding="utf-8"))
PATIENCE_S = 30
FAULT = ["Traceback (most recent call last):", '  File "/w/train.py", line 9, in main', "    run()"]
TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
DIED_WITH = "KeyError: 'labels'"
PLAIN_LINE = re.compile(r"^\d\d:\d\d:\d\dZ .*\n", re.MULTILINE)


def steps(rank, count=20):
    row = "2026-12-01 10:00:{second:02},000 [rank {rank}] INFO step {second}/999 loss 5.3"
    return [row.format(rank=rank, second=second) for second in range(count)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def until(is_met, what):
    """Wait: other processes have no clock that could be turned."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_met():
        assert time.monotonic() < deadline, f"{what()}: not within {PATIENCE_S} s"
        time.sleep(0.02)


class Watching:
    """A `watch --plain` of a folder in a process of its own."""

    def __init__(self, base, folder, *options):
        self._said = {name: base / name for name in ("out", "err")}
        command = [sys.executable, "-m", "aggregator", "watch", folder, "--plain", "--state-dir", base / "state"]
        with self._said["out"].open("wb") as out, self._said["err"].open("wb") as err:
            self.process = subprocess.Popen([*command, *options], stdout=out, stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def said(self, name="out"):
        return self._said[name].read_text(encoding="utf-8")

    def says(self, words, *, times=1):
        """Wait until it has printed the words so often."""
        until(lambda: self.said().count(words) >= times, lambda: f"{words!r} in {self.said()}{self.said('err')}")

    def ended(self, number=signal.SIGINT):
        """End it by a signal; gives its exit code and what it printed after its last plain line."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        assert self.said("err") == ""
        return code, PLAIN_LINE.split(self.said())[-1]


@pytest.fixture
def job(tmp_path):
    """A job of four ranks that is well."""
    folder = tmp_path / "job"
    for rank in range(4):
        write(folder / f"rank_{rank}.log", steps(rank))
    return folder


@pytest.fixture
def dead(job):
    """The same an hour after rank 2 has failed."""
    write(job / "rank_2.log", [*FAULT, DIED_WITH])
    for path in job.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    return job


@pytest.fixture
def denpex(monkeypatch, tmp_path, capsys):
    """Runs a command line in this process; gives exit code, standard output and standard error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*words):
        code = cli.run([str(word) for word in words])
        return code, *capsys.readouterr()

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


# The life of a job


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_job_is_followed_from_before_its_folder_exists_until_the_user_has_seen_enough(tmp_path, number, code):
    folder = tmp_path / "job"
    with Watching(tmp_path, folder) as watching:
        watching.says("waiting: ")
        for rank in range(4):
            write(folder / f"rank_{rank}.log", steps(rank))
        watching.says("healthy: ")
        write(folder / "rank_2.log", [*FAULT, DIED_WITH])
        watching.says("failed: first failure: rank 2")
        ended, report = watching.ended(number)
    assert ended == code
    assert report.startswith("FAILED")
    assert "First failure: rank 2" in report


def test_a_restart_is_followed_and_the_failure_before_it_is_told_once(tmp_path):
    folder, told = tmp_path / "job", tmp_path / "told"
    for rank in range(4):
        write(folder / f"logs/run_x1/attempt_0/{rank}/stderr.log", steps(rank))
    write(folder / "logs/run_x1/attempt_0/2/stderr.log", [*FAULT, DIED_WITH])
    with Watching(tmp_path, folder, "--on-failure", f"sh -c 'cat >> {told}; echo end >> {told}'") as watching:
        watching.says("failed: first failure: rank 2")
        until(lambda: told.exists() and told.read_text().endswith("end\n"), watching.said)
        watching.says("First failure: rank 2")
        for rank in range(4):
            write(folder / f"logs/run_x1/attempt_1/{rank}/stderr.log", steps(rank))
        watching.says("healthy: ")
        report = watching.ended()[1]
    assert report.startswith("RUNNING")
    verdict = json.loads(told.read_text().removesuffix("end\n"))
    assert verdict["first_failure"]["ranks"] == [2]
    jsonschema.Draft202012Validator(SCHEMA).validate(verdict)


def test_what_a_deleted_log_told_is_judged_all_the_same(tmp_path, dead):
    with Watching(tmp_path, dead) as watching:
        watching.says("failed: first failure: rank 2")
        (dead / "rank_2.log").unlink()
        report = watching.ended()[1]
    assert "First failure: rank 2" in report
    assert DIED_WITH in report


def test_a_log_that_is_cut_and_written_anew_is_judged_by_what_is_in_it_now(tmp_path, dead):
    with Watching(tmp_path, dead) as watching:
        watching.says("failed: first failure: rank 2")
        os.truncate(dead / "rank_2.log", 0)
        write(dead / "rank_2.log", steps(2))
        report = watching.ended()[1]
    assert report.startswith("RUNNING")
    assert "once a log was cut or overwritten while it was watched" in report


# How it ends by itself


def test_a_job_that_has_died_already_is_judged_at_once(denpex, dead):
    began = time.monotonic()
    code, out, err = denpex("watch", dead, "--plain", "--exit-on-end", "--exit-code")
    assert time.monotonic() - began < 10
    assert (code, err) == (20, "")
    assert "failed: first failure: rank 2" in out
    assert "First failure: rank 2" in out


def test_a_watch_ends_after_its_time(denpex, job):
    code, out, _ = denpex("watch", job, "--plain", "--timeout", "0.1", "--exit-code")
    assert code == 0
    assert "healthy: " in out
    assert "RUNNING" in out


def test_a_signal_in_the_middle_of_very_much_to_read_is_obeyed_soon(tmp_path, job):
    for rank in range(4):
        with (job / f"rank_{rank}.log").open("a", encoding="utf-8") as log:
            log.write("2026-12-01 10:00:00,000 [rank 0] INFO loading\n" * 2_000_000)
    with Watching(tmp_path, job) as watching:
        watching.says("waiting")
        began = time.monotonic()
        code, report = watching.ended(signal.SIGTERM)
    assert time.monotonic() - began < 4  # to read it all takes three times as long
    assert code == 143
    assert re.search(r"the watch ended before [\d,]+ bytes of the logs\s+were read", report)


def test_nobody_who_reads_any_more_ends_it_quietly(tmp_path, job):
    command = [sys.executable, "-m", "aggregator", "watch", job, "--plain", "--state-dir", tmp_path / "state"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        write(job / "rank_2.log", [*FAULT, DIED_WITH])
        assert process.stderr.read() == ""
    assert process.returncode == 141


# What it says


def test_json_is_alone_on_standard_output(denpex, dead):
    code, out, err = denpex("watch", dead, "--json", "--timeout", "0")
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(out))
    assert code == 0
    assert "failed: first failure: rank 2" in err


def test_plain_lines_show_neither_secrets_nor_escape_sequences(denpex, job):
    write(job / "rank_2.log", [*FAULT, f"ValueError: \x1b]0;owned\x07 bad token {TOKEN}"])
    _, out, _ = denpex("watch", job, "--plain", "--timeout", "0")
    assert "ValueError: " in out
    assert TOKEN not in out
    assert "\x1b" not in out


# Where it keeps what it read


def test_the_state_is_the_user_s_alone_and_in_the_state_folder_of_xdg(denpex, job, tmp_path):
    denpex("watch", job, "--plain", "--timeout", "0")
    home = tmp_path / "xdg" / "denpex-agg"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o700}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{job}", "--state-dir", "{job}/state"], "among the logs"),
        (["-"], "standard input cannot be watched"),
        (["-", "{job}"], "standard input cannot be watched"),
        (["{job}", "--timeout", "nan"], "--timeout is no number of seconds"),
    ],
)
def test_what_cannot_be_watched_is_refused(denpex, job, words, why):
    code, out, err = denpex("watch", "--timeout", "0", *[word.format(job=job) for word in words])
    assert (code, out) == (2, "")
    assert why in err
    assert "help: " in err


def test_a_second_watch_of_a_job_is_refused_and_told_who_is_first(denpex, job, tmp_path):
    with Watching(tmp_path, job) as watching:
        watching.says("healthy: ")
        code, out, err = denpex("watch", job, "--plain", "--state-dir", tmp_path / "state", "--timeout", "0")
        assert (code, out) == (4, "")
        assert f"process {watching.process.pid} on {os.uname().nodename}" in err


def test_the_rows_of_a_watch_that_runs_can_be_exported(denpex, job, tmp_path):
    rows = tmp_path / "rows.parquet"
    with Watching(tmp_path, job) as watching:
        watching.says("healthy: ")
        code, _, _ = denpex("export", job, "--state-dir", tmp_path / "state", "-o", rows)
        assert code == 0
        assert watching.ended()[0] == 130
    assert pq.read_table(rows)["body"].to_pylist() == [line for rank in range(4) for line in steps(rank)]


def test_an_export_of_what_was_never_watched_says_so(denpex, job, tmp_path):
    code, _, err = denpex("export", job, "--state-dir", tmp_path / "state", "-o", tmp_path / "rows.parquet")
    assert code == 3
    assert "denpex-agg watch" in err
    assert not (tmp_path / "rows.parquet").exists()
