"""A state folder for each test; lets the tests of this folder import what stands beside them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of the history, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DENPEX_HISTORY", raising=False)
    return tmp_path / "state" / "denpex-agg" / "history"
