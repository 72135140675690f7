"""The command of --on-failure, as a real child process."""

import io
import json
import logging
import os
import select
import shlex
import subprocess
import sys
import time

import pytest

from aggregator.case import Case
from aggregator.errors import UsageError
from aggregator.notify import NotifyError
from aggregator.notify.command import OUTPUT_LIMIT, CommandNotifier
from aggregator.reports import ReportOptions, reporter

TOKEN = "hf_" + "Ab1" * 12


def shell(script, *arguments, **options):
    return CommandNotifier(shlex.join(["sh", "-c", script, "sh", *map(str, arguments)]), **options)


@pytest.mark.parametrize("redact", [True, False])
def test_it_gets_the_verdict_as_json_prints_it(tmp_path, message, redact):
    told = message(text=f"login with {TOKEN}", redact=redact)
    shell('cat > "$1"', tmp_path / "got").send(told)
    got = (tmp_path / "got").read_text(encoding="utf-8")
    printed = io.StringIO()
    reporter("json", ReportOptions(redact=redact)).render(Case(told.verdict), printed)
    assert got == printed.getvalue()
    assert json.loads(got)["first_failure"]["ranks"] == [3]
    assert (TOKEN in got) is not redact


def test_the_main_facts_are_in_its_environment(tmp_path, message, monkeypatch):
    monkeypatch.setenv("OURS", "kept")
    command = shell(
        'echo "$DENPEX_OUTCOME $DENPEX_JOB_ID $DENPEX_RANKS $DENPEX_CORRECTION $OURS" > "$1"', tmp_path / "f"
    )
    command.send(message(ranks=(5, 0, 1, 2), correction=True))
    assert (tmp_path / "f").read_text() == "failed 4242 0-2,5 1 kept\n"


def test_hostile_facts_are_short_and_harmless(tmp_path, message):
    command = shell(
        'printf %s "$DENPEX_JOB_ID" > "$1"; printf %s "$DENPEX_RANKS" > "$2"', tmp_path / "j", tmp_path / "r"
    )
    command.send(message(job="$(rm -rf /)\x1b[2J\n`x`é" + "y" * 10_000, ranks=tuple(range(0, 9000, 2))))
    job = (tmp_path / "j").read_text()
    assert job.startswith("__rm_-rf_____2J__x__yyy")
    assert len(job) == 200
    assert len((tmp_path / "r").read_text(encoding="utf-8")) <= 200


def test_no_shell_expands_its_words(tmp_path, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CommandNotifier("touch 'a b' $HOME ;").send(message())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$HOME", ";", "a b"]


@pytest.mark.parametrize(("script", "end"), [("exit 3", "exit code 3"), ("kill -9 $$", "signal 9")])
def test_a_bad_end_is_reported(message, script, end):
    with pytest.raises(NotifyError, match=f"^the command ended with {end}$"):
        shell(script).send(message())


def test_a_command_that_reads_nothing_does_not_block(message):
    CommandNotifier("true").send(message(text="x" * 4000, reasons=("y" * 4000,) * 100))


def test_its_output_goes_to_our_log_masked_harmless_and_cut(message, caplog):
    caplog.set_level(logging.DEBUG, logger="aggregator")
    shell(f"printf '\\033[2Jtoken {TOKEN}\\n'; echo oops >&2; yes | head -c 1000000").send(message())
    [record] = caplog.records
    assert record.levelno == logging.DEBUG
    text = record.getMessage()
    assert "token [hf-token:" in text
    assert "oops␊y␊y" in text
    assert len(text) < OUTPUT_LIMIT + 100


def test_a_child_that_it_leaves_behind_is_not_waited_for(message):
    start = time.monotonic()
    shell("sleep 20 & exit 0").send(message())
    assert time.monotonic() - start < 15


def test_after_the_limit_all_that_it_started_is_gone(tmp_path, message):
    """The group holds a FIFO open; that ends when the last of its processes does."""
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    command = shell('trap "" TERM; exec 3>"$1"; echo up >&3; sleep 60 & sleep 60 & wait', fifo, time_limit_s=0.5)
    with pytest.raises(NotifyError, match=r"killed, as it ran for more than 0\.5 s"):
        command.send(message())
    got = b""
    while select.select([reader], [], [], 5)[0] and (chunk := os.read(reader, 100)):
        got += chunk
    assert got == b"up\n"
    assert select.select([reader], [], [], 0)[0], "somebody is still alive"
    os.close(reader)


def test_it_does_not_outlive_us(tmp_path):
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    program = (
        "import sys, threading, time\n"
        "from aggregator import verdict as v\n"
        "from aggregator.notify import FailureMessage\n"
        "from aggregator.notify.command import CommandNotifier\n"
        "verdict = v.Verdict(job=v.Job(path='x'), outcome=v.Outcome.FAILED, first_failure=None, collateral=(),\n"
        "                    attempts=(), clocks=(), coverage=v.Coverage(files=1, bytes=1, lines=1))\n"
        "command = CommandNotifier(sys.argv[1])\n"
        "threading.Thread(target=command.send, args=(FailureMessage(verdict),), daemon=True).start()\n"
        "sys.stdin.read(1)\n"
        "while threading.active_count() < 3:\n"  # the one that reads its output is there: it is being watched
        "    time.sleep(0.01)\n"
    )
    script = 'exec 3>"$1"; echo up >&3; sleep 60'
    us = subprocess.Popen(
        [sys.executable, "-c", program, shlex.join(["sh", "-c", script, "sh", str(fifo)])], stdin=subprocess.PIPE
    )
    assert select.select([reader], [], [], 20)[0]
    assert os.read(reader, 100) == b"up\n"
    us.communicate(b"x", timeout=20)
    assert select.select([reader], [], [], 5)[0], "it is still alive"
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_a_program_that_is_gone_by_then_is_reported(tmp_path, message):
    program = tmp_path / "tell"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    command = CommandNotifier(str(program))
    program.unlink()
    with pytest.raises(NotifyError, match="cannot be started: No such file"):
        command.send(message())


@pytest.mark.parametrize("command", ["", "no-such-program-x --now", "/etc x", "echo 'open"])
def test_a_command_that_cannot_work_is_refused_at_the_start(command):
    with pytest.raises(UsageError) as refused:
        CommandNotifier(command)
    assert refused.value.help
