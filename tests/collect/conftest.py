"""A followed job in a temporary folder, at a clock of its own, without waiting for the disk."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from followed import Followed


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """No test takes the power away."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None)
        yield


@pytest.fixture
def job(tmp_path):
    """Files in `job.logs`, followed."""
    with Followed(tmp_path) as followed:
        yield followed


@pytest.fixture
def start(tmp_path):
    """The same with options of the collector."""
    begun = []

    def begin(**options):
        begun.append(Followed(tmp_path, **options))
        return begun[-1]

    yield begin
    for followed in begun:
        followed.close()
