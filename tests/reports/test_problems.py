"""Lines for an editor's problem matcher."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import COMPLETED, ROOT, hostile, rendered, sample, without_root

DOCS = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
MATCHER = json.loads(re.search(r"```json\n(\{\n  \"owner\".*?)```", DOCS, re.DOTALL)[1])
PATTERN = re.compile(MATCHER["pattern"]["regexp"])


def problems(text):
    """As VS Code reads them with the matcher of the documentation."""
    order = [MATCHER["pattern"][key] for key in ("file", "line", "column", "severity", "code", "message")]
    return [tuple(PATTERN.search(line)[group] for group in order) for line in text.splitlines()]


@pytest.mark.parametrize("run", ["eval-oom-no-grad", "two-node-segfault", "slurm-node-failure"])
def test_the_problems_of_a_sample_run_are_the_golden_ones(run, golden):
    golden(f"{run}.problems", without_root(rendered(sample(run), "problems")))


def test_the_first_problem_is_the_answer_at_a_file_that_can_be_opened():
    (file, line, column, severity, code, message), *_ = problems(rendered(sample("eval-oom-no-grad"), "problems"))
    assert file == str(ROOT / "sample_runs/eval-oom-no-grad/job/exp/ade20k/log/rank3.log")
    assert (line, column, severity, code) == ("46", "1", "error", "eval-oom-missing-no-grad")
    assert message.startswith("first failure: rank 3: CUDA out of memory in evaluation")
    assert "OutOfMemoryError" in (ROOT / file).read_text().splitlines()[int(line) - 1]


def test_where_nothing_failed_there_is_no_problem():
    assert rendered(COMPLETED, "problems") == ""


@pytest.mark.parametrize("payload", ["/etc/passwd:1:1: error FAKE x", "a:9:9: ", "x\n/etc/passwd:1:1: error FAKE y"])
def test_a_log_cannot_make_a_problem_elsewhere(payload):
    for file, _, _, _, code, _ in problems(rendered(hostile(payload), "problems")):
        assert not re.search(r":\d+:", file)
        assert code in {"eval-oom-missing-no-grad", "killed"}


@given(st.text(max_size=40))
def test_any_text_gives_one_line_a_problem(text):
    told = rendered(hostile(text), "problems")
    assert len(problems(told)) == len(told.splitlines()) <= 4
