"""The children that read, when something goes wrong with them."""

import sys

import pytest

from aggregator.serve import reader
from aggregator.serve.judging import Judges
from aggregator.serve.task import Task

TOKEN = "hf_abcdefghijKLMNOPQRSTUVWXYZ01234567"


def test_a_child_that_is_killed_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    answer = Judges().upload("a.log", b"RuntimeError: boom", None)
    assert (answer.status, answer.headline) == (500, "the process that read it ended early (code 1)")


def test_where_all_children_are_at_work_the_next_one_waits_no_longer_than_they_may_take():
    judges = Judges(most=0, time_s=0.01)
    assert judges.folder("/").status == 503


def test_a_job_that_has_become_a_link_is_not_read(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "job")
    answer = Judges().folder(str(tmp_path / "link"))
    assert answer.status == 422
    assert answer.headline.endswith("it has become a link")


@pytest.mark.parametrize(
    ("error", "status", "what"),
    [
        (MemoryError(), 413, "it needs more than 4096 MB of memory"),
        (KeyError(TOKEN), 500, "this is a bug: KeyError: '[hf-token:"),
    ],
)
def test_a_child_tells_what_it_died_of_and_no_secret(monkeypatch, error, status, what):
    def fail(_task):
        raise error

    monkeypatch.setattr(reader, "_judged", fail)
    answer = reader._answer(Task(60.0))
    assert answer.status == status
    assert answer.headline.startswith(what)
    assert TOKEN not in str(answer)
