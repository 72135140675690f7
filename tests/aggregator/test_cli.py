"""The command line: exit codes, where output goes, how mistakes are told."""

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer

from aggregator import __version__, cli
from aggregator import verdict as v
from aggregator.case import Case
from aggregator.errors import InputError
from parsers.records import Skipped

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "cli.md"


def made(outcome=v.Outcome.FAILED, status=v.Status.IDENTIFIED, message="boom"):
    failure = v.Failure(status=status, confidence=0.9, kind="abort", message=message, ranks=(3,))
    return v.Verdict(
        job=v.Job(path="runs/1"),
        outcome=outcome,
        first_failure=None if outcome is v.Outcome.COMPLETED else failure,
        collateral=(),
        attempts=(),
        clocks=(),
        coverage=v.Coverage(files=1, bytes=1, lines=1),
    )


class Pipeline(types.ModuleType):
    """Stands in for the analysis: answers with `answer`, or raises it, and keeps what it was asked."""

    def __init__(self):
        super().__init__("aggregator.pipeline")
        self.answer = made()
        self.paths = None

    def investigate(self, paths, *, naming, engine):
        self.paths = list(paths)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return Case(self.answer)


@pytest.fixture
def pipeline(monkeypatch):
    stub = Pipeline()
    monkeypatch.setitem(sys.modules, "aggregator.pipeline", stub)
    return stub


@pytest.fixture(autouse=True)
def tidy(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_the_verdict_goes_to_standard_output_and_a_failed_job_is_no_error(pipeline, capsys):
    assert cli.run(["postmortem", "runs/1", "more.log"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("FAILED")
    assert "First failure: rank 3" in out
    assert err == ""
    assert pipeline.paths == ["runs/1", "more.log"]


@pytest.mark.parametrize("flags", [["--json"], ["-f", "json"], ["--format", "json"], ["--format", "text", "--json"]])
def test_json_can_be_asked_for_in_two_ways(pipeline, capsys, flags):
    assert cli.run(["postmortem", "-", *flags]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "failed"
    assert pipeline.paths == ["-"]


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        ("completed", "identified", 0),
        ("running", "identified", 0),
        ("failed", "identified", 20),
        ("failed", "ambiguous", 20),
        ("failed", "undetermined", 22),
        ("cancelled", "identified", 20),
        ("hung", "identified", 21),
        ("hung", "undetermined", 21),
        ("unknown", "identified", 22),
    ],
)
def test_the_exit_code_tells_the_outcome_only_if_asked_to(pipeline, outcome, status, code):
    pipeline.answer = made(v.Outcome(outcome), v.Status(status))
    assert cli.run(["postmortem", "runs/1", "--exit-code"]) == code
    assert cli.run(["postmortem", "runs/1"]) == 0


@pytest.mark.parametrize("words", [[], ["formats"], ["postmortem"], ["nonsense"], ["postmortem", "x", "--nonsense"],
                                   ["postmortem", "x", "-f", "yaml"], ["export", "x"]])  # fmt: skip
def test_a_wrong_command_line_is_told_on_stderr_with_code_2(capsys, words):
    assert cli.run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(("error: ", "Usage: "))
    assert "--help" in err
    assert "Traceback" not in err


def test_a_near_miss_of_a_command_is_answered_with_the_right_one(capsys):
    cli.run(["postmortm", "x"])
    assert "postmortem" in capsys.readouterr().err


def test_an_error_of_ours_says_what_where_and_what_to_do(pipeline, capsys):
    pipeline.answer = InputError("no log\x1b[2J file", where="runs/1", help="give the folder")
    assert cli.run(["postmortem", "runs/1"]) == 3
    assert capsys.readouterr() == ("", "error: no log␛[2J file\n  --> runs/1\n  = help: give the folder\n")


def test_a_bug_has_code_1_and_a_traceback_only_with_debug(pipeline, capsys):
    pipeline.answer = RuntimeError("password=hunter22 \x1b[2J")
    assert cli.run(["postmortem", "runs/1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: this is a bug: RuntimeError")
    assert "--debug" in err
    assert "Traceback" not in err
    assert cli.run(["postmortem", "runs/1", "--debug"]) == 1
    debug = capsys.readouterr().err
    assert "Traceback" in debug
    assert "hunter22" not in err + debug
    assert "\x1b" not in err + debug


def test_debug_after_the_end_of_options_is_a_path(pipeline):
    assert cli.run(["postmortem", "--", "--debug"]) == 0
    assert pipeline.paths == ["--debug"]


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_stopped_run_says_nothing_and_has_the_code_of_its_signal(pipeline, capsys, stop, code):
    pipeline.answer = stop
    assert cli.run(["postmortem", "runs/1"]) == code
    assert capsys.readouterr().out == ""


def test_the_report_can_go_to_a_file(pipeline, tmp_path, capsys):
    path = tmp_path / "verdict.json"
    assert cli.run(["postmortem", "runs/1", "--json", "-o", str(path)]) == 0
    assert json.loads(path.read_text())["outcome"] == "failed"
    assert capsys.readouterr().out == ""
    assert [item.name for item in tmp_path.iterdir()] == ["verdict.json"]


def test_an_output_file_is_replaced_only_with_force_and_refused_before_the_work(pipeline, tmp_path, capsys):
    path = tmp_path / "verdict.txt"
    path.write_text("mine")
    assert cli.run(["postmortem", "runs/1", "-o", str(path)]) == 4
    assert pipeline.paths is None
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert cli.run(["postmortem", "runs/1", "-o", str(path), "--force"]) == 0
    assert path.read_text().startswith("FAILED")


def test_an_output_that_cannot_be_is_refused(pipeline, tmp_path):
    assert cli.run(["postmortem", "runs/1", "-o", str(tmp_path)]) == 4
    assert cli.run(["postmortem", "runs/1", "-o", str(tmp_path / "no" / "x")]) == 4


def test_a_dash_as_output_is_standard_output(pipeline, capsys):
    assert cli.run(["postmortem", "runs/1", "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("FAILED")


def test_a_report_that_fails_half_way_leaves_no_file(pipeline, tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.reports.text.TextReporter.render", lambda *_: 1 / 0)
    assert cli.run(["postmortem", "runs/1", "-o", str(tmp_path / "x")]) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flag", "environment", "is_coloured"),
    [
        ("auto", {}, False),
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_the_flag_outranks_no_color_which_outranks_force_color(
    pipeline, capsys, monkeypatch, flag, environment, is_coloured
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["postmortem", "runs/1", "--color", flag]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is is_coloured


def test_secrets_are_masked_unless_asked_for(pipeline, capsys):
    pipeline.answer = made(message="password=hunter22")
    cli.run(["postmortem", "runs/1"])
    assert "hunter22" not in capsys.readouterr().out
    cli.run(["postmortem", "runs/1", "--no-redact"])
    assert "hunter22" in capsys.readouterr().out


@pytest.mark.parametrize(("flags", "heard"), [(["-q"], ""), ([], "w"), (["-v"], "wi"), (["-vv"], "wid")])
def test_quiet_and_verbose_set_what_is_said_on_stderr_masked_and_harmless(pipeline, capsys, flags, heard):
    def log_much(paths, *, naming, engine):
        log = logging.getLogger("aggregator.x")
        log.warning("w password=hunter22 \x1b[2J")
        log.info("i")
        log.debug("d")
        return Case(made())

    pipeline.investigate = log_much
    assert cli.run(["postmortem", "runs/1", *flags]) == 0
    err = capsys.readouterr().err
    assert "".join(line.split(": ")[1][0] for line in err.splitlines()) == heard
    assert "hunter22" not in err
    assert "\x1b" not in err


def test_export_passes_its_arguments_on_and_sums_up_on_stderr(monkeypatch, tmp_path, capsys):
    stub = types.ModuleType("aggregator.export")
    asked = []

    def export_events(paths, output, *, force, redact, state_dir, form):
        asked.append((list(paths), output.name, force, redact, state_dir, form))
        return types.SimpleNamespace(files=2, rows=1234, skipped=(Skipped("core\x1b", "not text"),), unranked=())

    stub.export_events = export_events
    monkeypatch.setitem(sys.modules, "aggregator.export", stub)
    assert cli.run(["export", "runs/1", "-o", str(tmp_path / "e.parquet"), "--force"]) == 0
    assert asked == [(["runs/1"], "e.parquet", True, True, None, "parquet")]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("1,234 rows of 2 files written to ")
    assert err.splitlines()[1] == "not read: core␛: not text"
    assert cli.run(["export", "runs/1", "-o", str(tmp_path / "e.parquet"), "-q"]) == 0
    assert capsys.readouterr().err == ""


GOOD = """
id = "mine"
title = "My logs"
url = "https://example.org"
[[message]]
id = "mine.boom"
role = "root"
keywords = ["boom"]
pattern = 'boom'
[[message.sample]]
line = "a boom"
"""


def test_own_format_files_can_be_checked(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(GOOD)
    assert cli.run(["formats", "check", str(tmp_path)]) == 0
    assert "1 formats checked, 0 problems" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [GOOD.replace("a boom", "a bang"), GOOD.replace("root", "culprit"), "id = ", ""])
def test_a_wrong_format_file_is_an_input_error_that_names_it(tmp_path, capsys, bad):
    (tmp_path / "mine.toml").write_text(bad)
    assert cli.run(["formats", "check", str(tmp_path)]) == 3
    out, err = capsys.readouterr()
    assert "mine.toml" in out + err


def test_an_empty_or_missing_folder_of_formats_is_an_input_error(tmp_path):
    assert cli.run(["formats", "check", str(tmp_path)]) == 3
    assert cli.run(["formats", "check", str(tmp_path / "no")]) == 3


def test_the_shipped_formats_can_be_listed(capsys):
    assert cli.run(["formats", "list"]) == 0
    assert "messages" in capsys.readouterr().out


def commands():
    root = typer.main.get_command(cli.app)
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {sub}", inner) for sub, inner in command.commands.items())
        else:
            yield name, command


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=[name for name, _ in commands()])
def test_each_command_has_three_examples_its_exit_codes_and_its_options_in_the_documentation(name, command, capsys):
    assert cli.run([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.count(f"denpex-agg {name}") >= 4  # the usage and three examples
    assert "Exit codes: 0" in text
    _, found, page = DOCS.read_text(encoding="utf-8").partition(f"## `denpex-agg {name}")
    assert found, f"docs/cli.md has no section for {name}"
    section = page.partition("\n## ")[0]
    for option in (option for parameter in command.params for option in parameter.opts if option.startswith("--")):
        assert option == "--help" or f"`{option}" in section, option


def program(*words, **options):
    command = [sys.executable, "-m", "aggregator", *words]
    return subprocess.run(command, text=True, capture_output=True, check=False, **options)


@pytest.mark.parametrize("words", [["-V"], ["--version"]])
def test_the_version_is_one_line(words):
    assert program(*words).stdout == f"denpex-agg {__version__}\n"


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (["--version"], {"typer", "rich", "polars", "numpy", "pyarrow", "tomllib"}),
        (["--help"], {"polars", "numpy", "pyarrow", "rich", "parsers", "jinja2"}),
        (["postmortem", "--help"], {"polars", "numpy", "pyarrow", "rich", "parsers", "jinja2"}),
    ],
)
def test_help_and_version_import_nothing_heavy(words, forbidden):
    code = (
        "import sys; from aggregator.__main__ import main\n"
        f"sys.argv = ['denpex-agg', *{words!r}]\n"
        "assert main() == 0\n"
        "print('MODULES', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    loaded = set(done.stdout.rpartition("MODULES")[2].split())
    assert not loaded & forbidden


@pytest.mark.skipif(importlib.util.find_spec("aggregator.pipeline") is None, reason="no pipeline here")
def test_a_post_mortem_needs_no_columns():
    code = "import sys, aggregator.cli, aggregator.pipeline; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert not set(done.stdout.split()) & {"polars", "numpy", "pyarrow"}


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    code = (
        "import sys, types; from aggregator.cli import run\n"
        "import parsers.lineformats as formats\n"
        "fake = types.SimpleNamespace(id='x' * 1000, prefixes=(), messages=(), title='')\n"
        "formats.load_formats = lambda: [fake] * 9999\n"
        "sys.exit(run(['formats', 'list']))"
    )
    done = subprocess.Popen([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.readline()
    done.stdout.close()
    assert done.stderr.read() == ""
    done.stderr.close()
    assert done.wait() == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110 - at import, as text
def test_a_full_disk_behind_standard_output_is_an_output_error():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        command = [sys.executable, "-m", "aggregator", "formats", "list"]
        done = subprocess.run(command, text=True, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error: cannot write to standard output: No space left")
