"""Every run of sample_runs/ gives the verdict that a careful reader wrote beside it, and cites lines that exist."""

import io
import json
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from aggregator import pipeline, safe
from aggregator.case import Case
from aggregator.reports import reporter
from aggregator.verdict import to_json

ROOT = Path(__file__).parents[1]
RUNS = sorted(path.parent for path in (ROOT / "sample_runs").glob("*/expected.json"))
SCHEMA = json.loads((ROOT / "aggregator" / "verdict.schema.json").read_text(encoding="utf-8"))
SIZE_LIMIT = 2 << 20
QUOTED = 80
"""Characters of a cited line that are compared: long lines are cut in a verdict."""

pytestmark = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


@cache
def postmortem(run: Path):
    return pipeline.postmortem([str(run / "job")])


@cache
def document(run: Path):
    return to_json(postmortem(run))


def expected(run: Path):
    return json.loads((run / "expected.json").read_text(encoding="utf-8"))


def cited(run: Path):
    said = document(run)
    found = list(said["first_failure"]["evidence"]) if said["first_failure"] else []
    return found + [item for row in said["collateral"] for item in row["evidence"]]


def strings(value):
    """Every string of a JSON value, shown as a verdict shows it."""
    if isinstance(value, str):
        try:
            inner = json.loads(value) if value[:1] in {"{", "["} else None
        except ValueError:
            inner = None
        return [safe.show(line) for line in safe.mask(value).split("\n")] + (strings(inner) if inner else [])
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


def test_the_verdict_is_the_one_a_careful_reader_gives(run):
    want, said = expected(run), document(run)
    failure = said["first_failure"] or {"status": None, "ranks": [], "hosts": [], "kind": None}
    got = {"outcome": said["outcome"], **{key: failure[key] for key in ("status", "ranks", "hosts", "kind")}}
    assert got == {key: want[key] for key in got}
    if want["phase"] is not None:
        assert failure["phase"] == want["phase"]


def test_every_rank_that_only_followed_is_listed_and_none_is_blamed(run):
    want, said = expected(run), document(run)
    listed = [row["rank"] for row in said["collateral"]]
    assert len(listed) == len(set(listed)), "a rank is listed twice"
    assert not set(listed) & set(want["ranks"])
    if want["collateral"] is not None:
        assert sorted(listed) == want["collateral"]


def test_the_verdict_is_valid_by_the_schema(run):
    jsonschema.Draft202012Validator(SCHEMA).validate(document(run))


def test_a_failure_cites_the_files_that_prove_it(run):
    want, failure = expected(run), document(run)["first_failure"]
    files = {item["file"] for item in failure["evidence"]} if failure else set()
    missing = [pattern for pattern in want["evidence"] if not any(fnmatch(file, pattern) for file in files)]
    assert not missing, f"cited are {sorted(files)}"


def test_each_cited_line_is_in_its_file_at_its_number(run):
    wrong = []
    for item in cited(run):
        path = run / "job" / item["file"]
        assert path.is_file(), f"{item['file']} does not exist"
        assert path.resolve().is_relative_to((run / "job").resolve())
        data = path.read_bytes()
        if "_trace_rank_" in path.name:  # a dump: one record, told in words
            assert item["line"] == 1
            continue
        if path.name == "error.json":
            assert item["line"] == 1
            lines = strings(json.loads(data))
        else:
            numbered = data.decode("utf-8", "replace").split("\n")
            assert 1 <= item["line"] <= len(numbered), f"{item['file']} has no line {item['line']}"
            lines = [safe.show(safe.mask(numbered[item["line"] - 1].rstrip("\r")))]
        quote = item["text"][:QUOTED].split(" … ")[0]
        if not quote.strip() or not any(quote in line for line in lines):
            wrong.append(f"{item['file']}:{item['line']}: {item['text'][:QUOTED]!r} is not {lines[-1][:QUOTED]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["text", "json"])
def test_the_reports_render(run, name):
    out = io.StringIO()
    reporter(name).render(Case(postmortem(run)), out)
    text = out.getvalue()
    assert text.endswith("\n")
    assert "\x1b" not in text
    if name == "json":
        assert json.loads(text)["outcome"] == expected(run)["outcome"]
    else:
        assert expected(run)["outcome"] in text.lower()


def test_the_run_says_where_it_comes_from_and_is_small(run):
    readme = (run / "README.md").read_text(encoding="utf-8")
    assert "real run" in readme or "public report: https://" in readme
    assert "## How one knows" in readme
    total = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    assert total < SIZE_LIMIT // len(RUNS)
