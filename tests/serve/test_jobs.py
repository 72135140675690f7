"""The list of jobs under a folder."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from asking import ROOT_TRACEBACK, ask, give, job_ids

from aggregator.errors import InputError
from aggregator.live.place import run_folder
from aggregator.serve import site
from aggregator.serve.jobs import Root
from aggregator.store import Store

BOOM = ROOT_TRACEBACK.format("boom")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder of jobs, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "runs"
    for number in (4241, 4242):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "rank_0.log").write_text(BOOM)
    return folder


def test_each_folder_is_a_job_and_the_one_that_changed_last_is_first(serve, runs):
    os.utime(runs / "4241", (2_000_000_000, 2_000_000_000))
    (runs / ".hidden").mkdir()
    (runs / "notes.txt").write_text("not a job")
    assert list(job_ids(ask(serve(runs))[2])) == ["4241", "4242"]


def test_a_job_opens_as_its_report(serve, runs):
    server = serve(runs)
    ids = job_ids(ask(server)[2])
    status, headers, report = ask(server, f"job/{ids['4242']}")
    assert status == 200
    assert "RuntimeError: boom" in report
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "sha256-" in headers["Content-Security-Policy"]
    verdict = json.loads(ask(server, f"job/{ids['4242']}.json")[2])
    assert verdict["job"]["path"] == str(runs / "4242")
    assert "First failure: rank 2" in ask(server)[2]


def test_the_row_of_a_job_tells_its_state_and_whether_it_is_written_now(serve, runs):
    server = serve(runs)
    (runs / "4241" / "rank_0.log").write_text("2026-03-04 11:00:00,000 INFO step 5 loss 2.0\n")
    os.utime(runs / "4242" / "rank_0.log", (1_700_000_000, 1_700_000_000))
    ids = job_ids(ask(server)[2])
    running, failed = (json.loads(ask(server, f"job/{ids[name]}.row")[2]) for name in ("4241", "4242"))
    assert (running["outcome"], running["written"], running["live"]) == ("running", True, True)
    assert (failed["outcome"], failed["written"], failed["live"]) == ("failed", False, False)
    assert failed["changed"] == "2023-11-14 22:13:20Z"
    assert "rank 2" in failed["verdict"]


def test_until_it_is_read_a_job_has_the_verdict_that_the_history_kept(serve, runs):
    subprocess.run(
        [sys.executable, "-m", "aggregator", "postmortem", runs / "4242", "-q"], check=True, capture_output=True
    )
    page = ask(serve(runs))[2]
    assert page.count("not read yet") == 1
    assert "first failure: rank 2: " in page
    assert "(as of 20" in page


def test_a_job_that_a_watch_follows_is_marked(serve, runs):
    server = serve(runs)
    with Store(run_folder([str(runs / "4242")], None)):
        assert ask(server)[2].count(">watched<") == 1
    assert ">watched<" not in ask(server)[2]


def test_a_folder_without_a_log_says_so(serve, runs):
    (runs / "empty").mkdir()
    server = serve(runs)
    job = job_ids(ask(server)[2])["empty"]
    status, _, page = ask(server, f"job/{job}")
    assert status == 422
    assert "no log to read" in page
    assert json.loads(ask(server, f"job/{job}.row")[2])["outcome"] == "not read"


def test_jobs_that_are_read_push_no_upload_out(serve, runs, monkeypatch):
    monkeypatch.setattr(site, "_KEPT", 1)
    server = serve(runs)
    report = give(server, BOOM.encode())
    for job in job_ids(ask(server)[2]).values():
        assert ask(server, f"job/{job}.row")[0] == 200
    assert ask(server, report)[0] == 200


def test_links_are_no_jobs_and_those_in_a_job_are_not_followed_out_of_it(serve, runs, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "rank_0.log").write_text(ROOT_TRACEBACK.format("their secret"))
    (runs / "link").symlink_to(secret)
    (runs / "4242" / "rank_1.log").symlink_to(secret / "rank_0.log")
    server = serve(runs)
    ids = job_ids(ask(server)[2])
    assert set(ids) == {"4241", "4242"}
    report = ask(server, f"job/{ids['4242']}")[2]
    assert "their secret" not in report
    assert "link that leads out of the job folder" in report


def test_a_job_that_has_become_a_link_is_not_followed(serve, runs, tmp_path):
    server = serve(runs)
    job = job_ids(ask(server)[2])["4242"]
    shutil.move(runs / "4242", tmp_path / "elsewhere")
    (runs / "4242").symlink_to(tmp_path / "elsewhere")
    assert ask(server, f"job/{job}")[0] == 404


@pytest.mark.parametrize("job", ["4242", "..", "../runs/4242", "%2e%2e", "", "0" * 24])
def test_paths_and_names_open_no_job(serve, runs, job):
    assert ask(serve(runs), f"job/{job}")[0] == 404


def test_without_a_root_there_are_no_jobs(serve):
    server = serve()
    assert "Jobs in" not in ask(server)[2]
    assert ask(server, "job/x")[0] == 404


def test_a_job_that_takes_too_long_is_told_and_the_list_is_still_there(serve, runs):
    server = serve(runs, time_s=0.01)
    job = job_ids(ask(server)[2])["4242"]
    assert ask(server, f"job/{job}")[0] == 504
    assert "took longer than" in ask(server)[2]


def test_a_thousand_jobs_are_listed_at_once(serve, runs):
    for number in range(1000):
        (runs / f"{number:04}").mkdir(exist_ok=True)
    server = serve(runs)
    began = time.monotonic()
    assert len(job_ids(ask(server)[2])) == 1002
    assert time.monotonic() - began < 5


def test_a_root_that_goes_is_told(serve, runs):
    server = serve(runs)
    shutil.rmtree(runs)
    status, _, page = ask(server)
    assert status == 500
    assert "cannot be listed" in page


def test_a_root_that_is_no_folder_is_a_mistake(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        Root(tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a folder"):
        Root(tmp_path / "file")
