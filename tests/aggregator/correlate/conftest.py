"""Gives the tests of this folder the builders that stand beside them, and a judge that checks every verdict's form."""

import sys
from itertools import count
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from correlate_jobs import judged


@pytest.fixture
def judge(tmp_path):
    """The verdict on a job given as path to text; its form and its evidence are checked each time."""
    folders = count()

    def call(files, *, order=None):
        return judged(tmp_path / f"job-{next(folders)}", files, order)

    return call
