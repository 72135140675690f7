"""Items of the checklist in docs/security.md that no other module of this folder holds."""

import csv
import html.parser
import json
import os
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aggregator import cli

TESTS = Path(__file__).parents[1]
SAMPLE = TESTS.parent / "sample_runs" / "torchrun-logdir-eval-oom" / "job"
OPENED = """
import sys
opened = []
def hook(name, arguments):
    if name == "open": opened.append(str(arguments[0]))
    if name.startswith("socket.") and name not in {"socket.gethostname"}: raise RuntimeError("network: " + name)
    if name in {"exec", "os.system", "subprocess.Popen"} and name != "exec": raise RuntimeError("program: " + name)
sys.addaudithook(hook)
from aggregator import cli
code = cli.run(sys.argv[1:])
sys.stderr.write("\\n".join(opened))
sys.exit(code)
"""
PAYLOADS = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{7*7}}",
    "javascript:alert(1)",
    "\u2028",
]


def helper(folder, name):
    """A module that other tests share."""
    sys.path.insert(0, str(TESTS / folder))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(TESTS / folder))


def watched(*words, **environment):
    """Runs a command line without network and without other programs; it ends with the files that it opened."""
    command = [sys.executable, "-c", OPENED, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("payload", ["[/x]", "[red]", "[@click=app.quit]quit[/]", "[b]bold[/b] $error"])
def test_s7_markup_in_a_log_is_text_on_every_screen(payload):
    pytest.importorskip("textual")
    views = helper("tui", "tui_views")
    shown = views.healthy(job=payload, headline=payload, warnings=(payload,), events=[views.event(0, payload)])
    assert views.Feed(shown).drive().count(payload) >= 3


class _Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.handlers, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [value for name, value in attrs if name in {"href", "src"}]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_s8_no_text_of_a_log_becomes_an_element_or_a_script_of_the_page(payload):
    cases = helper("reports", "report_cases")
    pages = []
    for text in (payload, "harmless"):
        page = _Tags()
        page.feed(cases.rendered(cases.hostile(text), "html"))
        pages.append(page)
    assert pages[0].tags == pages[1].tags
    assert pages[0].handlers == []
    assert not any((link or "").startswith(("javascript:", "data:text")) for link in pages[0].links)
    assert "Content-Security-Policy" in cases.rendered(cases.hostile(payload), "html")
    assert "49" not in cases.rendered(cases.hostile("{{7*7}}x"), "html").split("{{7*7}}x")[0][-4:]


@pytest.mark.parametrize(
    "text", ["::error::x", "::set-output name=a::b", "\n::add-mask::x", "```\n# x", "<!channel>", '"}\n']
)
def test_s9_no_text_of_a_log_is_a_command_to_what_reads_a_report(text):
    cases = helper("reports", "report_cases")
    commands = cases.rendered(cases.hostile(text), "github").splitlines()
    assert len(commands) == len(cases.rendered(cases.hostile("harmless"), "github").splitlines())
    metrics = cases.rendered(cases.hostile(text), "prometheus").splitlines()
    assert len(metrics) == len(cases.rendered(cases.hostile("harmless"), "prometheus").splitlines())
    json.loads(cases.rendered(cases.hostile(text), "sarif"))
    json.loads(cases.rendered(cases.hostile(text), "trace"))


def test_s9_a_spreadsheet_calculates_nothing_of_a_log(tmp_path, capsys):
    lines = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "-1.5", "plain"]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    assert cli.run(["query", "-f", "csv", str(tmp_path), "select body from events order by line"]) == 0
    cells = [row[0] for row in csv.reader(capsys.readouterr().out.splitlines())][1:]
    assert cells == ["'=cmd|' /C calc'!A0", "'+1+1", "'-2+3", "'@SUM(1)", "-1.5", "plain"]


def test_s16_paths_that_a_log_names_are_not_opened_outside_of_the_job(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    job = tmp_path / "job"
    job.mkdir()
    names = ["error.json", "nccl_trace_rank_0", "train.cfg"]
    for name in names:
        (outside / name).write_text("{}")
    (job / "rank_0.log").write_text(
        f"[rank0]: ValueError: x, error_file: {outside}/error.json\n"
        f"[rank0]: dumped to {outside}/nccl_trace_rank_0, TORCH_NCCL_DEBUG_INFO_TEMP_FILE={outside}/nccl_trace_rank_\n"
        f"  error_file: {outside}/error.json\n[rank0]: config ../outside/train.cfg /etc/passwd\n"
    )
    (job / "rank_1.log").symlink_to(outside / "error.json")
    told = watched("postmortem", "--json", "--no-history", job)
    opened = told.stderr.splitlines()
    assert not any(path.startswith((str(outside), "/etc/passwd")) for path in opened)
    skipped = json.loads(told.stdout)["coverage"]["files_skipped"]
    assert {"file": "rank_1.log", "reason": "link that leads out of the job folder"} in skipped


class _Evil:
    def __reduce__(self):
        return Path.touch, (Path("PWNED"),)


def test_s17_a_table_that_holds_a_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    meta = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickle.dumps(_Evil())}
    schema = pa.schema([pa.field("body", pa.binary(), metadata=meta)])
    pq.write_table(pa.table([pa.array([b"x"])], schema=schema), "evil.parquet")
    Path("cut.parquet").write_bytes(Path("evil.parquet").read_bytes()[:60])
    for name in ("evil.parquet", "cut.parquet"):
        words = [sys.executable, "-m", "aggregator", "query", name, "select * from events"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
    assert not Path("PWNED").exists()


def test_s20_what_we_keep_is_for_its_owner_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        state = tmp_path / "state"
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        for words in (["postmortem", SAMPLE], ["watch", "--plain", "--timeout", "1", SAMPLE]):
            command = [sys.executable, "-m", "aggregator", *map(str, words)]
            assert subprocess.run(command, capture_output=True, env=environment, check=False).returncode == 0
    finally:
        os.umask(before)
    kept = list(state.rglob("*"))
    assert kept
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []


def test_s21_nothing_asks_the_network_or_another_program(tmp_path):
    for words in (
        ["postmortem", "--no-history", SAMPLE],
        ["report", "--no-history", SAMPLE, "-o", tmp_path / "r.html"],
        ["export", SAMPLE, "-o", tmp_path / "e.parquet"],
        ["bundle", SAMPLE, "-o", tmp_path / "c.tar.zst"],
    ):
        watched(*words)
    assert "https://" not in "".join(
        part for part in (tmp_path / "r.html").read_text().split('src="')[1:] for part in part[:40]
    )


def test_every_item_of_the_table_names_a_test_of_its_own_that_exists():
    here = {path: path.read_text() for path in (TESTS / "security").glob("test_*.py")}
    tests = set(re.findall(r"def (test_\w+)", "".join(here.values())))
    told = (TESTS.parent / "docs" / "security.md").read_text()
    rows = dict(re.findall(r"^\| (S\d+) \|(.*)$", told, re.MULTILINE))
    assert list(rows) == [f"S{number}" for number in range(1, 22)]
    for item, row in rows.items():
        assert re.search(rf"test_{item.lower()}_", row), item
    assert set(re.findall(r"`(test_\w+)`", told)) <= tests
