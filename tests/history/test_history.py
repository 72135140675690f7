"""What a user sees of the verdicts of earlier jobs."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from kept_verdicts import DAY, RUNS, START, failed, job_on

from aggregator import cli, safe
from aggregator import verdict as v
from aggregator.history import journal


def shown(capsys, *words):
    capsys.readouterr()
    assert cli.run(["history", *words]) == 0
    return capsys.readouterr().out


def document(capsys, *words):
    return json.loads(shown(capsys, "--json", *words))


def test_two_jobs_that_failed_on_the_same_host_are_seen_together(tmp_path, capsys):
    for day in (6, 9):
        assert cli.run(["postmortem", job_on(tmp_path / f"run-{day}", day)]) == 0
    text = shown(capsys)
    assert text.startswith("2 runs of 2 jobs, 2025-03-06 to 2025-03-09\n")
    for title, name, what in (
        ("Causes that came again", "eval-oom-missing-no-grad: Evaluation loop OOM", "on seg-gpu07 (2)"),
        ("Hosts that failed first again", "seg-gpu07", "CUDA out of memory (2)"),
        ("GPUs that failed first again", "seg-gpu07 GPU 3", "CUDA out of memory (2)"),
    ):
        section = text.partition(f"\n{title}\n")[2].partition("\n\n")[0]
        assert section.startswith(f"  {name}")
        assert f"2 times in 2 jobs, 2025-03-06 to 2025-03-09: {what}" in section


def test_the_same_job_looked_at_again_counts_once(tmp_path, capsys):
    job = job_on(tmp_path / "run", 6)
    for words in (["postmortem", job], ["report", job, "-o", str(tmp_path / "v.md")], ["postmortem", job, "--json"]):
        assert cli.run(words) == 0
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert cli.run(["postmortem", str(moved)]) == 0
    assert "1 run of 1 job," in shown(capsys)
    assert "again" not in shown(capsys)


def test_a_watch_keeps_its_last_verdict(tmp_path, capsys):
    job = job_on(tmp_path / "run", 6)
    words = ["watch", job, "--plain", "--timeout", "1", "--state-dir", str(tmp_path / "watch")]
    assert cli.run([*words, "--no-history"]) == 0
    assert document(capsys)["runs"] == []
    assert cli.run(words) == 0
    assert document(capsys)["runs"][0]["attempts"][0]["kind"] == "cuda_oom"


def test_attempts_of_the_same_job_are_listed_together(tmp_path, capsys):
    job = job_on(tmp_path / "run", 6)
    cli.run(["postmortem", job])
    job_on(tmp_path / "run", 8)  # the same folder, run again
    cli.run(["postmortem", job])
    text = shown(capsys).partition("Jobs that were tried again\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["2025-03-06", "2025-03-08"]
    assert len(document(capsys)["repeated"]) == 1


def test_attempts_inside_one_run_count_too(capsys):
    first = failed().first_failure
    verdict = replace(failed(1), attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=first),
                                           v.Attempt(index=1, outcome=v.Outcome.FAILED)))  # fmt: skip
    journal.remember(["runs/1"], verdict)
    (host,) = document(capsys)["recurring"]["hosts"]
    assert (host["name"], host["times"], host["jobs"]) == ("node-b", 2, 1)


def test_what_is_asked_for_is_chosen_by_time_and_host(capsys):
    for day, host in ((0, "node-a"), (5, "node-b"), (9, "node-a")):
        journal.remember([f"runs/{day}"], failed(day, host=host))
    assert len(document(capsys, "--host", "node-a")["runs"]) == 2
    since = v.iso_time(START + 4 * DAY)
    assert len(document(capsys, "--since", since)["runs"]) == 2
    assert len(document(capsys, "--since", since[:10], "--host", "node-b")["runs"]) == 1
    assert document(capsys, "--since", "1m")["runs"] == []
    assert len(document(capsys, "--since", "999999d")["runs"]) == 3


@pytest.mark.parametrize("words", [["--since", "yesterday"], ["--since", ""], ["--clear", "--json"], ["--since", "7y"]])
def test_what_cannot_be_asked_is_told(capsys, words):
    assert cli.run(["history", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_only_settled_verdicts_blame_a_host(capsys):
    for day in (0, 1):
        journal.remember([f"runs/{day}"], failed(day, status=v.Status.AMBIGUOUS))
    recurring = document(capsys)["recurring"]
    assert recurring["hosts"] == recurring["gpus"] == []
    assert recurring["causes"][0]["times"] == 2


def test_what_was_kept_can_be_forgotten(capsys, folder):
    journal.remember(["runs/1"], failed())
    assert cli.run(["history", "--clear"]) == 0
    assert shown(capsys) == "No verdict is kept: postmortem, report and watch keep theirs.\n"
    assert not (folder / "verdicts.jsonl").exists()
    assert cli.run(["history", "--clear"]) == 0


def test_nothing_is_kept_where_that_is_not_wanted(tmp_path, monkeypatch, folder):
    job = job_on(tmp_path / "run", 6)
    assert cli.run(["postmortem", job, "--no-history"]) == 0
    assert cli.run(["report", job, "-o", str(tmp_path / "v.md"), "--no-history"]) == 0
    journal.remember(["-"], failed())
    monkeypatch.setenv("DENPEX_HISTORY", "0")
    assert cli.run(["postmortem", job]) == 0
    assert not folder.exists()


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nowhere", "/dev/null/x"])
def test_a_state_folder_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch, capsys, home):
    monkeypatch.setenv("XDG_STATE_HOME", home)
    job = job_on(tmp_path / "run", 6)
    assert cli.run(["postmortem", job]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("FAILED")
    assert err == ""
    assert cli.run(["postmortem", job, "-v"]) == 0
    assert "not kept for `denpex-agg history`" in capsys.readouterr().err
    assert "No verdict is kept" in shown(capsys)


def test_root_keeps_nothing_in_the_home_of_somebody_else(tmp_path, monkeypatch, folder):
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(journal, "_owner", lambda path: 1000)
    journal.remember(["runs/1"], failed())
    assert not folder.exists()


def test_secrets_are_masked_before_they_are_kept_whatever_is_shown(tmp_path, folder):
    verdict = failed(location="/x/password=hunter22.py:1", hosts=("password=hunter22",), gpu="password=hunter22")
    verdict = replace(verdict, job=replace(verdict.job, id="password=hunter22"))
    journal.remember(["password=hunter22"], verdict)
    kept = (folder / "verdicts.jsonl").read_text()
    assert "hunter22" not in kept
    assert safe.mask("password=hunter22") in kept


def test_the_files_are_for_their_owner_only(folder):
    before = os.umask(0)
    try:
        journal.remember(["runs/1"], failed())
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o77 for path in (folder, *folder.iterdir())] == [0, 0, 0]


def test_control_characters_in_the_file_do_not_reach_the_terminal(folder, capsys):
    journal.remember(["runs/1"], failed())
    path = folder / "verdicts.jsonl"
    path.write_bytes(path.read_bytes().replace(b"node-b", b"\\u001b[2J"))
    assert "\x1b" not in shown(capsys)


def test_keeping_a_verdict_imports_no_columns():
    code = (
        "import sys; from aggregator.cli import run; assert run(sys.argv[1:]) == 0\n"
        "print('MODULES', *{name.partition('.')[0] for name in sys.modules})"
    )
    words = ["postmortem", str(RUNS / "completed-noisy-shutdown" / "job")]
    done = subprocess.run([sys.executable, "-c", code, *words], text=True, capture_output=True, check=True)
    assert not set(done.stdout.rpartition("MODULES")[2].split()) & {"polars", "pyarrow", "numpy"}
