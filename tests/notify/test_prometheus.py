"""The file for node_exporter's textfile collector."""

import sys
from dataclasses import replace

import pytest

from aggregator.errors import OutputError, UsageError
from aggregator.live import view as w
from aggregator.notify.prometheus import PrometheusFile, exposition
from aggregator.verdict import Status
from parsers.records import Skipped

parser = pytest.importorskip("prometheus_client.parser")
NOW = 1_772_625_784_500_000_000


@pytest.fixture
def view(failed):
    return w.LiveView(
        job="4242",
        state=w.LiveState.FAILED,
        since=NOW,
        now=NOW,
        headline="rank 3 failed",
        ranks=(
            w.RankHealth(0, w.RankState.VICTIM, idle_s=2.5),
            w.RankHealth(3, w.RankState.FAILED, idle_s=9.0),
            w.RankHealth(4, w.RankState.OK),
        ),
        events=(w.LiveEvent(seen=NOW - 10**9, text="an event"),),
        verdict=failed(),
        skipped=(Skipped("core.1", "not text"),),
        counters=w.Counters(bytes=123456789, lines=1000, unread_bytes=7),
    )


def samples(text):
    found = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    assert not any(sample.timestamp for sample in found)
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in found}


def test_the_file_in_full(view):
    assert exposition(view) == (
        "# HELP denpex_job_state 1 for the state that the job is in.\n"
        "# TYPE denpex_job_state gauge\n"
        'denpex_job_state{job="4242",state="waiting"} 0.0\n'
        'denpex_job_state{job="4242",state="healthy"} 0.0\n'
        'denpex_job_state{job="4242",state="suspect"} 0.0\n'
        'denpex_job_state{job="4242",state="failed"} 1.0\n'
        'denpex_job_state{job="4242",state="finished"} 0.0\n'
        "# HELP denpex_job_outcome 1 for how the job ended and what failed first.\n"
        "# TYPE denpex_job_outcome gauge\n"
        'denpex_job_outcome{job="4242",kind="cuda_oom",outcome="failed"} 1.0\n'
        "# HELP denpex_first_failure_rank The rank that failed first, the lowest of several.\n"
        "# TYPE denpex_first_failure_rank gauge\n"
        'denpex_first_failure_rank{job="4242"} 3.0\n'
        "# HELP denpex_ranks_failed Ranks that have failed, first or as a consequence.\n"
        "# TYPE denpex_ranks_failed gauge\n"
        'denpex_ranks_failed{job="4242"} 2.0\n'
        "# HELP denpex_log_bytes_total Bytes of logs read.\n"
        "# TYPE denpex_log_bytes_total counter\n"
        'denpex_log_bytes_total{job="4242"} 1.23456789e+08\n'
        "# HELP denpex_log_lines_total Lines of logs read.\n"
        "# TYPE denpex_log_lines_total counter\n"
        'denpex_log_lines_total{job="4242"} 1000.0\n'
        "# HELP denpex_log_bytes_lost_total Bytes overwritten or removed before they were read.\n"
        "# TYPE denpex_log_bytes_lost_total counter\n"
        'denpex_log_bytes_lost_total{job="4242"} 7.0\n'
        "# HELP denpex_log_files_skipped Files that could not be read.\n"
        "# TYPE denpex_log_files_skipped gauge\n"
        'denpex_log_files_skipped{job="4242"} 1.0\n'
        "# HELP denpex_last_event_timestamp_seconds When the newest line arrived.\n"
        "# TYPE denpex_last_event_timestamp_seconds gauge\n"
        'denpex_last_event_timestamp_seconds{job="4242"} 1.7726257835e+09\n'
        "# HELP denpex_report_timestamp_seconds When this was written.\n"
        "# TYPE denpex_report_timestamp_seconds gauge\n"
        'denpex_report_timestamp_seconds{job="4242"} 1.7726257845e+09\n'
    )


def test_it_can_be_read_back(view):
    read = samples(exposition(view))
    assert read["denpex_job_state", ("job", "4242"), ("state", "failed")] == 1
    assert read["denpex_last_event_timestamp_seconds", ("job", "4242")] == (NOW - 10**9) / 1e9
    assert len(read) == 14


def test_what_is_not_known_has_no_value(view):
    names = {key[0] for key in samples(exposition(replace(view, verdict=None, ranks=(), events=())))}
    assert names.isdisjoint({"denpex_job_outcome", "denpex_first_failure_rank", "denpex_last_event_timestamp_seconds"})


def test_ranks_that_cannot_be_told_apart_are_not_blamed(view, failed):
    ambiguous = replace(view, verdict=failed(status=Status.AMBIGUOUS, ranks=(3, 5)))
    assert "first_failure_rank" not in exposition(ambiguous)


def test_a_hostile_name_of_a_job_adds_no_sample(view):
    token = "hf_" + "Ab1" * 12
    text = exposition(replace(view, job=f'x"}} 1\nevil{{a="\\\x1b[2J\u202e {token} {"y" * 1000}'))
    read = samples(text)
    assert {key[0].startswith("denpex_") for key in read} == {True}
    [job] = {dict(key[1:])["job"] for key in read}
    assert job.startswith('x"} 1␊evil{a="\\<U+202E> [hf-token:')
    assert len(job) == 100
    assert text.count("\n") == exposition(view).count("\n")


def test_it_is_written_every_15_seconds_and_at_the_end(view, tmp_path):
    path = tmp_path / "job.prom"
    now = [0.0]
    file = PrometheusFile(path, clock=lambda: now[0])
    ages = []
    for now[0], is_last in ((0.0, False), (14.9, False), (15.0, False), (16.0, False), (17.0, True)):
        file.update(replace(view, counters=w.Counters(lines=int(now[0]))), is_last=is_last)
        ages.append(samples(path.read_text())["denpex_log_lines_total", ("job", "4242")])
    assert ages == [0, 0, 15, 15, 17]
    assert [entry.name for entry in tmp_path.iterdir()] == ["job.prom"]


def test_a_file_that_cannot_be_written_is_logged_and_ends_nothing(view, tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    file = PrometheusFile(folder / "job.prom")
    folder.rmdir()
    file.update(view)
    assert "the folder of the output does not exist" in caplog.text


def test_another_ending_and_a_missing_folder_are_refused_at_the_start(tmp_path):
    with pytest.raises(UsageError, match=r"must end with \.prom") as refused:
        PrometheusFile(tmp_path / "job.txt")
    assert refused.value.help
    with pytest.raises(OutputError, match="folder of the output does not exist"):
        PrometheusFile(tmp_path / "none" / "job.prom")


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError) as refused:
        PrometheusFile(tmp_path / "job.prom")
    assert refused.value.help == "pip install 'denpex-agg[prometheus]'"
