"""What `-v` tells of the program's own work."""

import logging

import pytest

from aggregator.diagnostics import start_logging
from aggregator.export import export_events
from aggregator.pipeline import postmortem

LOG = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank_3.log").write_text(LOG)
    (tmp_path / "job" / "core\x1b[2J.bin").write_bytes(bytes(range(256)))
    return tmp_path / "job"


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_post_mortem_tells_its_files_formats_and_times_when_asked(level, job, capsys):
    start_logging(level)
    postmortem([str(job)])
    told = capsys.readouterr().err
    assert ("1 files found (1 log), 1 not or not wholly readable" in told) == (level > 1)
    assert all((f"{stage}: 0." in told) == (level > 1) for stage in ("finding the files", "reading them", "judging"))
    assert ("rank_3.log: log by the rule `rank-named`" in told) == (level > 2)
    assert ("rank_3.log: 1 lines, message formats: pt.oom" in told) == (level > 2)
    assert "\x1b" not in told


def test_an_export_tells_its_files_and_times_when_asked(job, tmp_path, capsys):
    start_logging(2)
    export_events([str(job)], tmp_path / "out.parquet", force=False)
    told = capsys.readouterr().err
    assert "1 files found" in told
    assert "reading and writing: " in told


def test_nothing_is_told_on_the_way_when_it_is_not_asked_for(job, caplog):
    with caplog.at_level(logging.WARNING):
        postmortem([str(job)])
    assert not caplog.records
