"""`denpex-agg report`, and how forms are chosen."""

import json

import pytest
from report_cases import ROOT

from aggregator import cli
from aggregator.reports import format_of, reporter, reporter_names

JOB = str(ROOT / "sample_runs" / "eval-oom-no-grad" / "job")


@pytest.mark.parametrize("name", reporter_names())
def test_each_form_is_known_by_the_ending_of_its_files(name):
    made = reporter(name)
    assert made.name == name
    assert format_of(f"4242{made.suffix}") == name


@pytest.mark.parametrize(("file", "name"), [("a.trace.json", "trace"), ("a.json", "json"), ("a.b", None), ("md", None)])
def test_the_longest_ending_counts(file, name):
    assert format_of(file) == name


@pytest.mark.parametrize(
    ("file", "begins"),
    [("v.md", "## FAILED"), ("v.prom", "# HELP"), ("v.txt", "FAILED"), ("v.html", "<!"), ("v", "<!")],
)
def test_the_files_ending_chooses_the_form_and_a_page_is_written_else(tmp_path, capsys, file, begins):
    assert cli.run(["report", JOB, "-o", str(tmp_path / file)]) == 0
    assert (tmp_path / file).read_text(encoding="utf-8").startswith(begins)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(f"report written to {tmp_path / file}\n")


def test_an_ending_that_names_no_form_is_refused_before_anything_is_read(tmp_path, capsys):
    assert cli.run(["report", str(tmp_path / "no job"), "-o", str(tmp_path / "v.pdf")]) == 2
    assert "no form of report is known by the ending .pdf" in capsys.readouterr().err
    assert not (tmp_path / "v.pdf").exists()


def test_a_form_that_is_named_outranks_the_ending(tmp_path, capsys):
    assert cli.run(["report", JOB, "-o", str(tmp_path / "v.html"), "-f", "json", "-q", "--exit-code"]) == 20
    assert json.loads((tmp_path / "v.html").read_text())["outcome"] == "failed"
    assert capsys.readouterr() == ("", "")


def test_a_dash_writes_to_standard_output(capsys):
    assert cli.run(["report", JOB, "-o", "-", "-f", "markdown"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("## FAILED")
    assert err == ""


def test_a_file_is_replaced_only_with_force(tmp_path):
    path = tmp_path / "v.md"
    path.write_text("mine")
    assert cli.run(["report", JOB, "-o", str(path)]) == 4
    assert path.read_text() == "mine"
    assert cli.run(["report", JOB, "-o", str(path), "--force"]) == 0


@pytest.mark.parametrize("words", [["postmortem", JOB], ["report", JOB, "-o", "-"]])
def test_a_misspelt_form_is_answered_with_the_right_one(capsys, words):
    assert cli.run([*words, "-f", "markdwn"]) == 2
    assert "perhaps markdown" in capsys.readouterr().err


@pytest.mark.parametrize("name", reporter_names())
def test_post_mortem_prints_every_form(capsys, name):
    assert cli.run(["postmortem", JOB, "-f", name]) == 0
    assert capsys.readouterr().out.endswith("\n")


def test_a_report_beside_the_logs_is_no_evidence(tmp_path, capsys):
    (tmp_path / "rank0.log").write_text("INFO step 1\nINFO training finished\n")
    for name in ("v.problems", "v.sarif", "v.github", "v.prom", "v.trace.json"):
        cli.run(["report", JOB, "-o", str(tmp_path / name), "-q"])
    assert cli.run(["postmortem", str(tmp_path), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["first_failure"] is None
    assert len(verdict["coverage"]["files_skipped"]) == 5
