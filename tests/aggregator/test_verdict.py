"""The JSON form of a verdict is valid whatever is in it."""

import importlib.resources
import json
from datetime import datetime

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator import verdict as v
from parsers.lineformats import KINDS, LAYERS, PHASES

SCHEMA = json.loads(importlib.resources.files("aggregator").joinpath("verdict.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

texts = st.text(st.characters(), max_size=30)
counts = st.integers(0, 2**40)
ranks = st.integers(0, 5000)
kinds = st.sampled_from(sorted(KINDS))
seconds = st.floats(0, 1e9, allow_nan=False) | st.just(float("inf"))
chances = st.floats(0, 1)
stamps = {
    "time": st.none() | st.integers(-(2**63), 2**63 - 1),
    "time_resolution_ns": st.sampled_from([1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000]),
}


def tuples(strategy):
    return st.lists(strategy, max_size=3).map(tuple)


evidence = st.builds(v.Evidence, file=texts, line=st.integers(1, 10**9), text=texts, why=texts, rank=st.none() | ranks,
                     host=st.none() | texts, **stamps)  # fmt: skip
candidates = st.builds(v.Candidate, rank=st.none() | ranks, kind=kinds, why_not=texts)
diagnoses = st.builds(
    v.Diagnosis, entry=texts, title=texts, root_cause=texts, fix=texts, verify=texts, score=chances,
    matched=tuples(texts), check_next=tuples(texts), references=tuples(texts),
)  # fmt: skip
failures = st.builds(
    v.Failure, status=st.sampled_from(v.Status), confidence=chances, kind=kinds, message=texts, ranks=tuples(ranks),
    hosts=tuples(texts), gpu=st.none() | texts, phase=st.sampled_from(sorted(PHASES)),
    layer=st.sampled_from(sorted(LAYERS)), time_uncertainty_s=st.none() | seconds, step=st.none() | counts,
    exception=st.none() | texts, location=st.none() | texts, evidence=tuples(evidence), reasons=tuples(texts),
    candidates=tuples(candidates), diagnosis=st.none() | diagnoses, would_settle=tuples(texts), **stamps,
)  # fmt: skip
collateral = st.builds(v.Collateral, rank=st.none() | ranks, kind=kinds, message=texts, because=texts,
                       host=st.none() | texts, evidence=tuples(evidence), **stamps)  # fmt: skip
outcomes = st.sampled_from(v.Outcome)
verdicts = st.builds(
    v.Verdict,
    job=st.builds(
        v.Job, path=texts, id=st.none() | texts, world_size=st.none() | st.integers(1, 10**6), ranks_seen=tuples(ranks),
        ranks_missing=tuples(ranks), hosts=tuples(texts), started=stamps["time"], ended=stamps["time"],
    ),
    outcome=outcomes,
    first_failure=st.none() | failures,
    collateral=tuples(collateral),
    attempts=tuples(
        st.builds(v.Attempt, index=counts, outcome=outcomes, first_failure=st.none() | failures,
                  collateral=tuples(collateral))
    ),
    clocks=tuples(
        st.builds(v.Clock, host=st.none() | texts, offset_s=st.floats(-1e9, 1e9), uncertainty_s=st.none() | seconds,
                  method=texts)
    ),
    coverage=st.builds(
        v.Coverage, files=counts, bytes=counts, lines=counts, lines_timestamped=counts,
        files_skipped=tuples(st.builds(v.SkippedFile, file=texts, reason=texts)),
    ),
    warnings=tuples(texts),
    schema_version=st.just(v.SCHEMA_VERSION),
)  # fmt: skip


@settings(deadline=None)
@given(verdicts, st.booleans())
def test_any_verdict_becomes_json_that_the_schema_accepts(verdict, redact):
    document = v.to_json(verdict, redact=redact)
    VALIDATOR.validate(json.loads(json.dumps(document, allow_nan=False)))


def test_the_words_of_the_parsers_are_those_of_the_schema():
    failure = SCHEMA["$defs"]["failure"]["properties"]
    assert set(SCHEMA["$defs"]["kind"]["enum"]) == KINDS
    assert set(failure["phase"]["enum"]) == PHASES
    assert set(failure["layer"]["enum"]) == LAYERS
    assert failure["status"]["enum"] == list(v.Status)
    assert SCHEMA["properties"]["outcome"]["enum"] == list(v.Outcome)


@pytest.mark.parametrize(
    ("name", "cls"),
    [("job", v.Job), ("coverage", v.Coverage), ("evidence", v.Evidence), ("failure", v.Failure),
     ("collateral", v.Collateral)],
)  # fmt: skip
def test_the_classes_have_the_fields_of_the_schema(name, cls):
    described = (SCHEMA["properties"] | SCHEMA["$defs"])[name]["properties"]
    extra = {"time_resolution_ns", "would_settle", "basis"}
    assert set(cls.__dataclass_fields__) - extra == set(described)


@pytest.mark.parametrize(
    ("ns", "resolution", "text"),
    [
        (None, 1, None),
        (0, 1_000_000_000, "1970-01-01T00:00:00Z"),
        (1_772_625_784_120_456_789, 1_000_000_000, "2026-03-04T12:03:04Z"),
        (1_772_625_784_120_456_789, 1_000_000, "2026-03-04T12:03:04.120Z"),
        (1_772_625_784_120_456_789, 1_000, "2026-03-04T12:03:04.120456Z"),
        (1_772_625_784_120_456_789, 1, "2026-03-04T12:03:04.120456Z"),
        (-1, 1_000_000, "1969-12-31T23:59:59.999Z"),
        (10**21, 1, None),
    ],
)
def test_times_are_utc_to_the_precision_of_their_clock(ns, resolution, text):
    assert v.iso_time(ns, resolution) == text
    if text is not None:
        assert datetime.fromisoformat(text).tzinfo is not None


def small(**failure):
    first = v.Failure(status=v.Status.IDENTIFIED, confidence=1.0, kind="unknown", **failure)
    return v.Verdict(
        job=v.Job(path="runs/a"), outcome=v.Outcome.FAILED, first_failure=first, collateral=(), attempts=(), clocks=(),
        coverage=v.Coverage(files=0, bytes=0, lines=0),
    )  # fmt: skip


def test_secrets_are_masked_unless_asked_for_but_control_characters_never_pass():
    verdict = small(message="proxy http://u:hunter2@p \x1b]0;owned\x07")
    masked = v.to_json(verdict)["first_failure"]["message"]
    assert "hunter2" not in masked
    assert "[url-password:" in masked
    raw = v.to_json(verdict, redact=False)["first_failure"]["message"]
    assert "hunter2" in raw
    assert "\x1b" not in masked + raw


def test_paths_are_cited_as_they_are_but_for_secrets():
    line = v.Evidence(file="token=abcdefghij0123456789xyz/rank0.log", line=1, text="", why="")
    verdict = small(message="", evidence=(line,))
    masked, whole = (
        v.to_json(verdict, redact=redact)["first_failure"]["evidence"][0]["file"] for redact in (True, False)
    )
    assert masked.startswith("token=[token:")
    assert whole == line.file


def test_a_block_keeps_its_lines_and_a_giant_line_is_cut():
    message = v.to_json(small(message="a\nb\n" + "x" * 100_000))["first_failure"]["message"]
    assert message.startswith("a\nb\nx")
    assert len(message) < 5000


def test_what_is_not_part_of_a_verdict_is_refused():
    with pytest.raises(TypeError, match="set"):
        v.to_json(small(message="", reasons={"a"}))
