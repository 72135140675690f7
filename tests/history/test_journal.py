"""The file of verdicts under many writers, damage and its own limit."""

import fcntl
import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kept_verdicts import failed

from aggregator import cli
from aggregator.history import journal
from aggregator.history.record import DamagedRecordError, from_line, record_of, to_line

WRITER = """
import sys
from pathlib import Path
from aggregator.history import journal
from aggregator.history.record import from_line, to_line
from dataclasses import replace

record = from_line(Path(sys.argv[2]).read_bytes())
for number in range(int(sys.argv[4])):
    journal.append(Path(sys.argv[1]), to_line(replace(record, name=f"{sys.argv[3]}-{number}")))
"""


def line(name="runs/1"):
    return to_line(record_of([name], failed(), 7))


def names(folder):
    return [record.name for record in journal.read(folder).records]


@pytest.mark.parametrize("writers", [2, 8])
def test_concurrent_writers_lose_nothing(tmp_path, folder, writers):
    (tmp_path / "line").write_bytes(line())
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, folder, tmp_path / "line", str(writer), "40"])
        for writer in range(writers)
    ]
    assert [process.wait() for process in started] == [0] * writers
    found = names(folder)
    assert sorted(found) == sorted(f"{writer}-{number}" for writer in range(writers) for number in range(40))
    for writer in range(writers):
        own = [int(name.split("-")[1]) for name in found if name.startswith(f"{writer}-")]
        assert own == sorted(own)


def test_a_record_comes_back_as_it_was():
    record = record_of(["runs/1"], failed(), 7)
    assert from_line(to_line(record)) == record


@given(st.binary(max_size=60))
def test_no_damage_is_taken_for_a_verdict(data):
    with pytest.raises(DamagedRecordError):
        from_line(data)


@pytest.mark.parametrize(
    "change",
    [
        {"attempts": []},
        {"recorded": "x"},
        {"job": 7},
        {"attempts": [{}]},
        {"attempts": 3},
        {"started": True},
        {"v": "1"},
    ],
)
def test_a_line_with_something_else_in_it_is_damaged(change):
    with pytest.raises(DamagedRecordError):
        from_line(json.dumps({**json.loads(line()), **change}).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=1), garbage=st.binary(min_size=1, max_size=30))
def test_damage_is_told_once_set_aside_and_costs_no_other_verdict(tmp_path_factory, cut, garbage):
    folder = tmp_path_factory.mktemp("history")
    torn = line("torn")[: cut % (len(line()) - 1) + 1].rstrip(b"}\n") or b"{"
    for data in (line("a"), line("b"), garbage.replace(b"\n", b" ").strip() + b"x\n", line("c"), torn):
        with (folder / journal.CURRENT).open("ab") as file:
            file.write(data)
    journal.append(folder, line("d"))
    contents = journal.read(folder)
    assert len(contents.records) == 4
    (problem,) = contents.problems
    assert "2 damaged lines" in problem
    assert "set aside in damaged.jsonl" in problem
    assert torn in (folder / journal.DAMAGED).read_bytes()
    again = journal.read(folder)
    assert again.problems == ()
    assert again.records == contents.records


def test_damage_is_a_warning_of_the_command(folder, capsys):
    journal.append(folder, line())
    journal.append(folder, b"nonsense\n")
    assert cli.run(["history"]) == 0
    out, err = capsys.readouterr()
    assert "1 run of 1 job" in out
    assert err.startswith("warning: 1 damaged lines")


def test_verdicts_of_a_newer_version_are_left_where_they_are(folder):
    newer = json.dumps({"v": 99, "who": "knows"}).encode() + b"\n"
    journal.append(folder, newer)
    journal.append(folder, line())
    contents = journal.read(folder)
    assert len(contents.records) == 1
    assert "newer version" in contents.problems[0]
    assert newer in (folder / journal.CURRENT).read_bytes()


def test_a_file_that_is_none_is_told_and_no_error(folder, capsys):
    (folder / journal.CURRENT).mkdir(parents=True)
    assert cli.run(["history"]) == 0
    assert "cannot be read" in capsys.readouterr().err
    journal.remember(["runs/1"], failed())


def test_the_files_stay_within_their_limit_and_keep_the_newest(folder, monkeypatch):
    monkeypatch.setattr(journal, "FULL", 10 * len(line()))
    for number in range(100):
        journal.append(folder, to_line(record_of(["x"], failed(), number)))
    kept = [record.recorded for record in journal.read(folder).records]
    assert kept == list(range(100 - len(kept), 100))
    assert 10 <= len(kept) <= 20
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 2 * journal.FULL


def test_a_writer_that_never_ends_is_waited_for_no_longer_than_a_moment(folder, monkeypatch, caplog):
    monkeypatch.setattr(journal, "_PATIENCE_S", 0.02)
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with caplog.at_level("INFO", logger="aggregator"):
            journal.remember(["runs/1"], failed())
        assert "another process holds its lock" in caplog.text
        assert journal.read(folder).records == ()


def test_a_file_system_without_locks_keeps_verdicts_too(folder, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    journal.append(folder, line())
    assert len(journal.read(folder).records) == 1
