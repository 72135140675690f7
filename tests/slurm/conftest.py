"""What the tests of the Slurm parts share; those of a real cluster start one, once."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "cluster"))

HEALTHY_EPILOG = pytest.StashKey[list[float]]()


def pytest_terminal_summary(terminalreporter, config):
    """A figure, not a test: how long a node is busy after a job that went well."""
    seconds = config.stash.get(HEALTHY_EPILOG, None)
    if seconds:
        shown = ", ".join(f"{value:.2f}" for value in sorted(seconds))
        terminalreporter.write_line(f"epilogs of a healthy job, seconds on each node: {shown}")


@pytest.fixture(scope="session")
def healthy_epilog(request):
    """Where a test puts the seconds that an epilog took."""
    return request.config.stash.setdefault(HEALTHY_EPILOG, [])


@pytest.fixture(scope="session")
def no_worker():
    """A cluster fills the machine, and one is enough."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("not beside other tests: python -m pytest -n 0 tests/slurm/test_real_slurm.py")
