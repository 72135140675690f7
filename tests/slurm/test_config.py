"""The admin's settings: what is accepted, and from whom."""

import os
import subprocess

import pytest
from epilog_runs import COMMAND, FAULT, IS_ROOT, NOBODY, Node

from aggregator.errors import InputError
from aggregator.slurm.config import Config, load_config

ALL = """
report_dir = "/var/lib/denpex-agg"
in_job_folder = false
log_roots = ["/scratch/%u/runs/%j"]
time_limit_s = 7.5
memory_mb = 1024
read_mb = 100
max_files = 50
exclude_file = "/var/lib/denpex-agg/exclude"
prometheus = "/var/lib/node_exporter/denpex.prom"
webhook = "https://hooks.example.org/services/x"
kernel = false
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(ALL)
    path.chmod(0o644)
    return path


def test_every_key_is_read(file):
    assert load_config(str(file)) == Config(
        "/var/lib/denpex-agg", False, ("/scratch/%u/runs/%j",), 7.5, 1024, 100, 50, "/var/lib/denpex-agg/exclude",
        "/var/lib/node_exporter/denpex.prom", "https://hooks.example.org/services/x", False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reports = 1", "no key `reports`"),
        ("report_dir = 'reports'", "absolute"),
        ("report_dir = 7", "string"),
        ('report_dir = "/a\\u0000b"', "string"),
        ("log_roots = '/scratch'", "list"),
        ("log_roots = ['scratch']", "absolute"),
        ("kernel = 1", "true or false"),
        ("time_limit_s = 0", "from 1"),
        ("time_limit_s = nan", "from 1"),
        ("time_limit_s = true", "from 1"),
        ("memory_mb = 10", "from 256"),
        ("max_files = 1.5", "whole number"),
        ("prometheus = '/a/b.txt'", ".prom"),
        ("webhook = 'http://example.org/x'", "https"),
        ("report_dir = ", "end of document"),
        ("a = " + "[" * 5000, ""),
        ("#" * 70_000, "64 KiB"),
        (b"\xff", ""),
    ],
)
def test_what_is_not_understood_is_an_error_that_says_why(file, text, why):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_config(str(file))
    assert why in caught.value.what


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_not_read(file, mode):
    file.chmod(mode)
    with pytest.raises(InputError, match="others than its owner can write it"):
        load_config(str(file))


@pytest.mark.skipif(not IS_ROOT, reason="gives a file away: needs root")
def test_a_file_of_another_user_is_not_read(file):
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(InputError, match="belongs neither"):
        load_config(str(file))


def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="no regular file"):
        load_config(str(tmp_path / "pipe"))


def test_check_config_tells_and_fails(file):
    def check():
        return subprocess.run(
            [*COMMAND, "--check-config", "--config", str(file)], capture_output=True, encoding="utf-8", check=False
        )

    assert (check().returncode, check().stdout) == (0, f"{file}: sound\n")
    file.write_text("oops = 1")
    done = check()
    assert done.returncode == 3
    assert "no key `oops`" in done.stderr


def test_the_epilog_goes_on_without_a_bad_file_and_says_so():
    node = Node()
    try:
        node.write("slurm-123.out", FAULT)
        node.config_file.chmod(0o666)
        ended = node.epilog()
        assert "configuration ignored" in ended.said
        assert "rank 1" in ended.said
        assert not list(node.reports.iterdir())
    finally:
        node.remove()
