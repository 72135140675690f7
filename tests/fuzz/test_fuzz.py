"""What the fuzzer feeds for hours by hand, for less than a minute; what it found stays found (bench/fuzz.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "bench" / "fuzz.py"


@pytest.mark.timeout(300)
def test_thousands_of_mutated_inputs_are_survived():
    # A process of its own: the fuzzer forks, and libraries with threads may have been used in this one.
    words = [sys.executable, PROGRAM, "--count", "3000", "--seed", "11"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
