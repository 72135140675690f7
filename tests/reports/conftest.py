"""Golden reports of sample runs; lets the tests of this folder import what stands beside them.

`python -m pytest tests/reports --update-golden` writes the golden files anew: read the diff before you commit it.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(update_golden):
    """Compare text with a file of tests/reports/golden."""

    def check(name, text):
        path = GOLDEN / name
        if update_golden:
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{name} is missing: run with --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def nowhere_on_github(monkeypatch):
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
