"""The file for node_exporter's textfile collector, read by Prometheus' own parser."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import COMPLETED, hostile, rendered, sample, without_root

from aggregator import metrics, verdict
from aggregator.errors import UsageError
from aggregator.reports import reporter

parser = pytest.importorskip("prometheus_client.parser")


def samples(case, **options):
    families = parser.text_string_to_metric_families(rendered(case, "prometheus", **options))
    found = [sample for family in families for sample in family.samples]
    assert not any(sample.timestamp for sample in found)
    return {sample.name: sample for sample in found}


def test_the_file_of_a_sample_run_is_the_golden_one(golden):
    golden("eval-oom-no-grad.prom", without_root(rendered(sample("eval-oom-no-grad"), "prometheus")))


def test_what_is_known_is_told():
    found = samples(sample("eval-oom-no-grad"))
    assert found["denpex_job_outcome"].labels["kind"] == "cuda_oom"
    assert found["denpex_first_failure_rank"].value == 3
    assert found["denpex_ranks_failed"].value == 8


def test_what_is_not_known_is_left_out():
    assert {"denpex_first_failure_rank", "denpex_last_event_timestamp_seconds"}.isdisjoint(samples(COMPLETED))
    assert "denpex_first_failure_rank" not in samples(hostile("x", status=verdict.Status.AMBIGUOUS))


@given(st.text(max_size=200))
def test_no_label_is_text_of_a_log_but_the_job_as_the_user_named_it(text):
    for found in samples(hostile(text)).values():
        assert set(found.labels) <= {"job", "kind", "outcome"}
        assert found.labels.get("kind", "cuda_oom") == "cuda_oom"
        assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f]", found.labels["job"])
        assert len(found.labels["job"]) <= metrics.JOB_LIMIT


def test_without_the_extra_the_form_is_refused_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="--format prometheus needs"):
        reporter("prometheus")
