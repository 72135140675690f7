"""How the screens look. After a change that is meant, run with --snapshot-update and look at the pictures."""

import pytest

pytest.importorskip("textual", reason="needs the extra `tui`")
pytest.importorskip("pytest_textual_snapshot", reason="needs pytest-textual-snapshot")

from tui_views import Feed, failed, healthy, suspect


@pytest.fixture
def looks_as_before(snap_compare, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)

    def compare(view, *keys, size=(120, 30)):
        return snap_compare(Feed(view).app, press=keys, terminal_size=size)

    return compare


def test_health_grid_of_a_large_job(looks_as_before):
    assert looks_as_before(healthy(1024), size=(200, 60))


def test_health_grid_of_a_suspect_job_on_a_narrow_terminal(looks_as_before):
    assert looks_as_before(suspect(), "e", size=(80, 24))


def test_ranks(looks_as_before):
    assert looks_as_before(suspect(), "r")


def test_timeline(looks_as_before):
    assert looks_as_before(suspect(), "t")


def test_events(looks_as_before):
    assert looks_as_before(failed(), "f")


def test_verdict(looks_as_before):
    assert looks_as_before(failed(), "p")
