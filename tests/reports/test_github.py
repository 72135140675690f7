"""Annotations for GitHub: read as the runner reads them, whatever a log says."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import COMPLETED, ROOT, hostile, rendered, sample, without_root

from aggregator import verdict
from aggregator.reports import github


def read(text):
    """Commands as the runner takes them from a step's output (actions/runner, ActionCommand.cs, TryParseV2)."""
    for line in text.splitlines():
        found = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
        if line.lstrip().startswith("::"):
            properties = dict(part.split("=", 1) for part in found[2].split(","))
            yield found[1], {key: unescaped(value, ":,") for key, value in properties.items()}, unescaped(found[3], "")


def unescaped(text, more):
    for char in "\r\n" + more:
        text = text.replace(f"%{ord(char):02X}", char)
    return text.replace("%25", "%")


@pytest.mark.parametrize("run", ["eval-oom-no-grad", "completed-noisy-shutdown"])
def test_the_annotations_of_a_sample_run_are_the_golden_ones(run, golden):
    golden(f"{run}.github", without_root(rendered(sample(run), "github")))


def test_the_first_failure_and_the_outcome_are_told():
    (error, where, what), (warning, _, outcome) = read(rendered(sample("eval-oom-no-grad"), "github"))
    assert (error, warning) == ("error", "warning")
    assert where == {"file": "exp/ade20k/log/rank3.log", "line": "46", "title": "first failure"}
    assert what.startswith("First failure: rank 3 (seg-gpu07, GPU 3)")
    assert outcome.startswith("FAILED: 8 ranks on 1 host")


def test_a_line_of_the_repository_is_named_relative_to_it(monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", "/home/segteam/semseg")
    assert "::error file=model/pspnet.py,line=30," in rendered(sample("eval-oom-no-grad"), "github")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))
    told = rendered(sample("eval-oom-no-grad"), "github")
    assert "::error file=sample_runs/eval-oom-no-grad/job/exp/ade20k/log/rank3.log,line=46," in told


@given(st.text(alphabet=st.sampled_from("a%0AD253,:=\r\n;|]"), max_size=30),
       st.text(alphabet=st.sampled_from("a%0AD253,:=\r\n;|]"), max_size=30))  # fmt: skip
def test_what_is_escaped_is_what_the_runner_reads(message, title):
    text = github.command("error", message, title=title, file="x")
    assert list(read(text)) == [("error", {"title": title, "file": "x"}, message)]


@given(st.text(max_size=40))
def test_no_log_line_makes_a_command_or_a_line(text):
    told = rendered(hostile(text), "github")
    assert [name for name, _, _ in read(told)] == ["error", "warning"]
    assert len(told.splitlines()) == 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", told)


@pytest.mark.parametrize(
    "payload",
    ["x\n::set-env name=PATH::/evil", "x\r::stop-commands::y", "##[error]x", "%0A::error::x", "::add-mask::a",
     "\u2028::error::x"],
)  # fmt: skip
def test_commands_in_a_log_stay_text(payload):
    for status in verdict.Status:
        told = rendered(hostile(payload, status=status), "github")
        assert [line.split(" ")[0] for line in told.splitlines()] == ["::error", "::warning"]


def test_a_job_that_went_well_is_a_notice():
    assert [name for name, _, _ in read(rendered(COMPLETED, "github"))] == ["notice"]


def test_the_markdown_report_is_appended_to_the_summary_of_the_step(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    path.write_text("# mine\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    rendered(sample("eval-oom-no-grad"), "github")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# mine\n")
    assert text.removeprefix("# mine\n").strip() == rendered(sample("eval-oom-no-grad"), "markdown").strip()


def test_the_summary_stays_within_what_github_takes(tmp_path, monkeypatch, caplog):
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * (github.SUMMARY_LIMIT - 300))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    for _ in range(3):
        rendered(sample("eval-oom-no-grad"), "github")
    assert path.stat().st_size <= github.SUMMARY_LIMIT
    assert "is full" in caplog.text
    assert path.read_text(encoding="utf-8").count("```") % 2 == 0


def test_a_summary_that_cannot_be_written_costs_no_annotation(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert rendered(sample("eval-oom-no-grad"), "github").startswith("::error ")
    assert "cannot write" in caplog.text
