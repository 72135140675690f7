"""What `--engine` takes, and what is told where Dask is not installed."""

import sys

import pytest
import typer

from aggregator.cli import run
from aggregator.engines import engine_of

NO_ENGINES = ("", "dask", "dask://", "dask://h", "dask://h:0", "dask://h:99999", "dask://u@h:1", "dask://h:1/x",
              "dask-slurm:0", "dask-slurm:x")  # fmt: skip


@pytest.mark.parametrize("word", NO_ENGINES)
def test_what_is_no_engine_is_refused(word, tmp_path, capsys):
    with pytest.raises(typer.BadParameter):
        engine_of(word)
    assert run(["postmortem", str(tmp_path), "--engine", word]) == 2
    assert "--engine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [("dask://host:8786", "tcp://host:8786"), ("dask://[::1]:1", "tcp://[::1]:1"), ("dask-slurm:2", "2"),
     ("dask-slurm", "4")],
)  # fmt: skip
def test_an_engine_is_known_by_its_word(word, told):
    engine = engine_of(word)
    assert told == str(getattr(engine, "address", None) or engine.workers)
    assert engine_of("local") is None


@pytest.mark.parametrize("word", ["dask://127.0.0.1:9", "dask-slurm"])
def test_without_dask_the_user_is_told_what_to_install(word, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.log").write_text("step 1\n")
    monkeypatch.setitem(sys.modules, "dask", None)
    assert run(["postmortem", str(tmp_path), "--engine", word, "--no-history"]) == 2
    assert "error: this engine needs dask\n  = help: pip install 'denpex-agg[dask]'" in capsys.readouterr().err
