"""What leaves the house has no names in it, and the same verdict."""

import gzip
import hashlib
import json
import re
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from aggregator import cli
from aggregator.catalogue.naming import SHIPPED
from aggregator.pipeline import investigate, postmortem
from aggregator.sharing import bundle as bundles
from aggregator.sharing.anonymise import Anonymiser, hosts_of
from aggregator.sharing.bundle import Answer, make_bundle, without_names

RUNS = sorted(path.parent for path in (Path(__file__).parents[2] / "sample_runs").glob("*/expected.json"))
TOKEN = "hf_" + "aB3dE5gH7j" * 4


@pytest.fixture(autouse=True)
def handler():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def unpacked(archive, folder):
    folder.mkdir()
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", folder], check=True)
    return folder / "job"


def names_in(case):
    """Names of this job that must not be found in what is given away: `node-2` is none."""
    stems = {host: re.sub(r"[\d.-]", "", host) for host in hosts_of(case)}
    return {host for host, stem in stems.items() if len(stem) > 3 and stem != "node"}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_s14_a_job_without_names_gets_the_same_verdict(run):
    case = investigate([str(run / "job")])
    with without_names(case, SHIPPED, redact=True) as shown:
        told, was = shown.verdict, case.verdict
        assert Answer.of(told) == Answer.of(was)
        assert [row.rank for row in told.collateral] == [row.rank for row in was.collateral]
        assert len(told.job.hosts) == len(was.job.hosts)
        assert (told.job.started, told.job.ended) == (was.job.started, was.job.ended)
        if was.first_failure is not None:
            assert told.first_failure.phase == was.first_failure.phase
            assert told.first_failure.confidence == was.first_failure.confidence


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_s14_a_bundle_is_small_nameless_and_gives_the_same_answer_each_time(run, tmp_path):
    case = investigate([str(run / "job")])
    archive = tmp_path / "case.tar.zst"
    made = make_bundle([str(run / "job")], archive)
    assert made.same
    assert made.kept < made.lines
    job = unpacked(archive, tmp_path / "unpacked")
    assert Answer.of(postmortem([str(job)])) == Answer.of(case.verdict)
    text = "".join(f"{path}\n{path.read_text(errors='replace')}" for path in sorted(job.rglob("*")) if path.is_file())
    text = text.replace(str(tmp_path), "")
    assert [name for name in names_in(case) if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w])", text)] == []
    first = hashlib.sha256(archive.read_bytes()).hexdigest()
    make_bundle([str(run / "job")], archive)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == first


LINES = """\
2031-02-03 04:05:06 [rank1]: on zeus-gpu07.corp.example.com (192.168.17.4) as carla, job-name: llama-secret-run
2031-02-03 04:05:06 [rank1]: mail carla.gomez@corp.example.com, data in /scratch/carla/private-corpus/a.bin
2031-02-03 04:05:07 [rank1]: USER=carla host zeus-gpu07 peer [fe80:0:0:0:1:2:3:4] again 192.168.17.4
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/carla/llama-secret-run/train.py", line 3, in main
[rank1]:   File "/home/carla/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 5, in _call_impl
[rank1]: ValueError: bad sample, token=TOKEN
"""
PERSONAL = ("carla", "gomez", "zeus", "corp", "192.168.17.4", "fe80", "llama-secret-run", "private-corpus", TOKEN[:12])


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "home" / "carla"
    (folder / "zeus-gpu07").mkdir(parents=True)
    (folder / "zeus-gpu07" / "rank_1.log").write_text(LINES.replace("TOKEN", TOKEN))
    return folder


@pytest.mark.parametrize(
    "form", ["text", "json", "html", "markdown", "github", "sarif", "trace", "prometheus", "problems"]
)
def test_s14_no_name_is_in_any_anonymised_report(form, job, capsys):
    assert cli.run(["postmortem", "--anonymise", "--no-history", "-f", form, str(job)]) == 0
    told = re.sub(r"<script.*?</script>", "", capsys.readouterr().out, flags=re.DOTALL)
    assert [word for word in PERSONAL if word in told] == []


def test_s14_no_name_is_in_an_anonymised_export(job, capsys):
    assert cli.run(["export", "--anonymise", "--format", "ndjson", "-o", "-", str(job)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    text = json.dumps(rows)
    assert [word for word in PERSONAL if word in text] == []
    assert len(rows) == LINES.count("\n")
    hosts = {row["host"] for row in rows}
    assert len(hosts) == 1
    assert "/site-packages/torch/nn/modules/module.py" in text


def test_s14_the_same_name_is_the_same_word_everywhere():
    names = Anonymiser({"zeus-gpu07", "zeus-gpu08"}, LINES.splitlines())
    one = names.text("peer 192.168.17.4 of carla on zeus-gpu07")
    assert names.text("peer 192.168.17.4 of carla on zeus-gpu07") == one
    assert names.text("nodes zeus-gpu[07-08]") == f"nodes {one.rpartition(' ')[2][:-2]}[07-08]"
    assert (
        names.text("127.0.0.1 loss 2.25 rank 3 step 12 torch 2.10.1")
        == "127.0.0.1 loss 2.25 rank 3 step 12 torch 2.10.1"
    )


def test_s14_a_bundle_whose_verdict_is_another_keeps_more_lines_and_says_so(tmp_path, monkeypatch, capsys):
    judged = bundles.investigate
    asked = []

    def forgetful(paths, **options):
        case = judged(paths, **options)
        asked.append(paths)
        if len(asked) in {2, 3}:  # the first two copies
            return replace(case, verdict=replace(case.verdict, first_failure=None))
        return case

    monkeypatch.setattr(bundles, "investigate", forgetful)
    run = next(run for run in RUNS if run.name == "eval-oom-no-grad")
    assert cli.run(["bundle", str(run / "job"), "-o", str(tmp_path / "c.tar.zst")]) == 0
    assert "more were kept" in capsys.readouterr().err


def test_s14_a_bundle_is_refused_where_it_cannot_be_made(tmp_path, capsys):
    (tmp_path / "there").write_text("x")
    assert cli.run(["bundle", str(RUNS[0] / "job"), "-o", str(tmp_path / "there")]) == 4
    assert cli.run(["bundle", str(tmp_path / "missing"), "-o", str(tmp_path / "new")]) == 3
    assert not (tmp_path / "new").exists()


FAULT = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n"


def test_s14_names_that_would_be_one_in_a_bundle_stay_apart(tmp_path):
    job = tmp_path / "job"
    (job / "x").mkdir(parents=True)
    (job / "rank_1.log").write_text(FAULT)
    for name, text in {"rank_1.log.gz": "one\n", "x.gz": "two\n", "x/a.log": "three\n", "BUNDLE.md": "four\n"}.items():
        data = text.encode()
        (job / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (job / ("ab1-" * 62 + ".log")).write_text("host=ab1 five\n")  # longer with the other name
    assert make_bundle([str(job)], tmp_path / "c.tar.zst").files == 6
    texts = [path.read_text() for path in unpacked(tmp_path / "c.tar.zst", tmp_path / "u").rglob("*") if path.is_file()]
    assert all(any(word in text for text in texts) for word in ("ValueError", "one", "two", "three", "four", "five"))


def test_s14_paths_of_files_lead_nowhere_out_of_a_bundle(tmp_path, monkeypatch):
    (tmp_path / "d" / "e" / "f").mkdir(parents=True)
    for name in ("d/a.log", "d/e/b.log"):
        (tmp_path / name).write_text(FAULT)
    monkeypatch.chdir(tmp_path / "d" / "e" / "f")
    make_bundle(["../../a.log", "../b.log"], tmp_path / "c.tar.zst")
    listed = subprocess.run(
        ["tar", "--zstd", "-tf", tmp_path / "c.tar.zst"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.split() == ["job/BUNDLE.md", "job/a.log", "job/e/b.log"]


def test_s14_neither_a_giant_line_nor_thousands_of_names_take_long(tmp_path):
    letters = "abcdefghij"
    names = ["".join(letters[int(digit)] for digit in f"{number:05}") for number in range(20_000)]
    told = "".join(f"host={name}1 user={name}x goes on with some other text\n" for name in names)
    (tmp_path / "rank_1.log").write_text(told + "ab/cd.e@f:1 -" * 2_000_000 + "\n" + FAULT)
    command = [sys.executable, "-m", "aggregator", "postmortem", "--anonymise", "--json", "--no-history", tmp_path]
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (512 << 20, 512 << 20))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, preexec_fn=limit)
    assert json.loads(done.stdout)["first_failure"]["ranks"] == [1]
