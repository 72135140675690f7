"""Lets the tests of this folder import what they share, and spares them waiting for the disk."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """No test takes the power away; those of failing syncs bring their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda descriptor: None)
        yield
