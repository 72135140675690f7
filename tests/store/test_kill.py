"""`kill -9` at any moment: what was flushed is there, and the next writer goes on from it."""

import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 5
"""In each of four stores. For a long run, raise it by hand."""


@pytest.mark.parametrize("seed", range(4))
def test_what_was_flushed_survives_any_number_of_kills(tmp_path, seed):
    program = Path(__file__).with_name("killed_writer.py")
    arguments = [str(tmp_path / "store"), str(KILLS), str(seed)]
    done = subprocess.run([sys.executable, str(program), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "store").glob("*.parquet"))
