"""The command `logs`, as its user sees it."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aggregator import cli

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_runs"
OOM = SAMPLES / "eval-oom-no-grad" / "job"
SEGFAULT = SAMPLES / "two-node-segfault" / "job"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "PAGER", "DENPEX_PAGER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def logs(capsys):
    """The lines that the command shows."""

    def run(path, *options, code=0):
        assert cli.run(["logs", str(path), *options]) == code
        out, err = capsys.readouterr()
        assert not code or not out
        return err if code else out.splitlines()

    return run


@pytest.fixture
def events(logs):
    def run(path, *options):
        return [json.loads(line) for line in logs(path, *options, "-o", "json")]

    return run


@pytest.fixture
def job(tmp_path):
    """Makes a job of files, by their names."""

    def make(**files):
        for name, text in files.items():
            path = tmp_path / "job" / f"{name.replace('__', '/')}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / "job"

    return make


def lines_of(path):
    text = [file.read_bytes() for file in sorted(path.rglob("*")) if file.suffix in {".log", ".out", ".err"}]
    return sum(len(part.splitlines()) for part in text)


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
def test_no_line_of_a_sample_is_lost_or_out_of_its_file_s_order(sample, events, tmp_path):
    folder = SAMPLES / sample / "job"
    told = events(folder)
    exported = tmp_path / "e.ndjson"
    assert cli.run(["export", str(folder), "-f", "ndjson", "-o", str(exported), "-q"]) == 0
    there = [json.loads(line) for line in exported.read_text().splitlines()]
    assert sorted((row["path"], row["line"]) for row in told) == sorted((row["path"], row["line"]) for row in there)
    last = {}
    for row in told:
        assert row["line"] == last.get(row["path"], 0) + 1
        last[row["path"]] = row["line"]


def test_the_first_failure_is_marked_by_a_sign_and_words(logs):
    marked = [line for line in logs(OOM) if line.startswith("> ")]
    assert len(marked) == 1
    assert re.match(r"> rank 3 +seg-gpu07 \| \[first failure\] .*CUDA out of memory", marked[0])


def test_a_failure_that_no_line_of_its_rank_tells_is_not_marked(events, logs):
    """A dump tells of the rank that did not come; what the others print is no failure of theirs."""
    hang = SAMPLES / "hang-flight-recorder" / "job"
    assert not any(row["first_failure"] for row in events(hang))
    assert "nothing tells when" in logs(hang, "--around", "first-failure", code=3)


def test_around_shows_the_failure_with_its_traceback_and_what_was_near(logs, events):
    near = events(OOM, "--around", "first-failure:2")
    assert [row["first_failure"] for row in near].count(True) == 1
    assert any("Traceback" in row["body"] for row in near)
    assert any("SIGTERM" in row["body"] for row in near)
    wide = events(OOM, "--around", "first-failure")
    assert len(near) < len(wide) < len(events(OOM))
    assert "first-failure:90" in logs(OOM, "--around", "last-failure", code=2)
    assert "not a duration" in logs(OOM, "--around", "first-failure:soon", code=2)
    assert "--since" in logs(OOM, "--around", "first-failure", "--since", "1m", code=2)


def test_a_failure_in_a_file_without_stamps_stands_where_it_happened(events):
    """The segfault's own file has no stamp at all near it."""
    near = events(SEGFAULT, "--around", "first-failure:5")
    first = next(index for index, row in enumerate(near) if row["first_failure"])
    assert "Segmentation fault" in near[first]["body"]
    assert any(row["body"].startswith("  File") for row in near[first : first + 10])


def test_a_job_without_failure_has_nothing_to_be_around(logs):
    assert "no first failure" in logs(SAMPLES / "completed-noisy-shutdown" / "job", "--around", "first-failure", code=3)


def test_ranks_and_hosts_select(events, logs):
    assert {row["rank"] for row in events(SEGFAULT, "--rank", "0,2-3")} == {0, 2, 3}
    assert {row["rank"] for row in events(SEGFAULT, "--rank", "1", "--rank", "3")} == {1, 3}
    for word in ("dgx-r7-02", "DGX-r7-02", "*-02"):
        assert {row["host"] for row in events(SEGFAULT, "--node", word)} == {"dgx-r7-02"}
    assert "its ranks are 0-3" in logs(SEGFAULT, "--rank", "12", code=2)
    assert "not a list of ranks" in logs(SEGFAULT, "--rank", "3-1", code=2)
    assert "not a list of ranks" in logs(SEGFAULT, "--rank", "-1", code=2)
    assert "dgx-r7-02" in logs(SEGFAULT, "--node", "dgx-r7-03", code=2)


def test_times_select(events, logs):
    def times(*options):
        return [row["ts_common"][11:19] for row in events(OOM, *options) if row["ts_quality"] == "own"]

    assert min(times("--since", "2025-03-06T09:05:00")) >= "09:05:00"
    assert max(times("--until", "2025-03-06T09:05:00Z")) <= "09:05:00"
    assert times("--since", "10:05:00+01:00") == times("--since", "09:05") == times("--since", "2025-03-06 09:05")
    assert 0 < len(times("--since", "10s")) < len(times("--since", "5m"))
    assert "not a time" in logs(OOM, "--since", "yesterday", code=2)
    assert "not a time" in logs(OOM, "--since", "", code=2)
    assert "not a time" in logs(OOM, "--since", "9" * 400, code=2)


def test_lines_without_a_time_come_last_and_are_in_no_window(job, events):
    folder = job(rank_0="2025-03-06 08:00:00 x\n", rank_1="9999-12-31 23:59:59 y\nz\n")
    assert [row["body"][-1] for row in events(folder)] == ["x", "y", "z"]
    for since in ("9999-12-31", "2100-01-01"):
        assert events(folder, "--since", since) == []
    assert [row["rank"] for row in events(folder, "--since", "0001-01-01", "--until", "9999-12-31")] == [0]


def test_patterns_select(logs, events):
    assert all("Error" in row["body"] or "memory" in row["body"] for row in events(OOM, "--grep", "Error|memory"))
    both = events(OOM, "--include", "Error", "--grep", "memory")
    assert len(both) == len(events(OOM, "--grep", "Error|memory"))
    assert not any("rank" in row["body"] for row in events(OOM, "--exclude", "(?i)rank"))
    assert "not a regular expression" in logs(OOM, "--grep", "(", code=2)
    assert "look-around" in logs(OOM, "--exclude", "a(?=b)", code=2)
    assert logs(OOM, "--grep", "nothing is like this") == []


def test_no_pattern_can_be_made_to_work_for_long(job, logs):
    folder = job(rank_0=f"2025-03-06 08:00:00 {'a' * 100_000}!\n")
    start = time.monotonic()
    assert logs(folder, "--grep", "(a+)+(a+)+(a|a)*$") == []
    assert time.monotonic() - start < 20


def test_a_level_takes_what_continues_its_lines(job, events, logs):
    folder = job(
        rank_0="2025-03-06 08:00:00 INFO fine\nmore of it\n2025-03-06 08:00:01 ERROR broken\n  because\n"
        "2025-03-06 08:00:02 INFO again\nTraceback (most recent call last):\n  File x\nValueError: y\n"
        "2025-03-06 08:00:03 DEBUG small\n"
    )
    told = [row["line"] for row in events(folder, "--level", "error")]
    assert told == [3, 4, 6, 7, 8]
    assert [row["line"] for row in events(folder, "--level", "INFO")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "error" in logs(folder, "--level", "eror", code=2)


def test_tail_is_of_each_rank(events):
    told = events(SEGFAULT, "--tail", "2")
    known = [row["rank"] for row in told if row["rank"] is not None]
    assert sorted(known) == [0, 0, 1, 1, 2, 2, 3, 3]
    everything = events(SEGFAULT)
    for rank in range(4):
        mine = [row for row in everything if row["rank"] == rank]
        assert [row for row in told if row["rank"] == rank] == mine[-2:]
    assert events(SEGFAULT, "--tail", "0") == []


def steps(hours, rank, start=0):
    return "".join(
        f"2025-03-06 {8 + hours:02}:00:{n:02},{rank * 100:03} INFO step {n}/50 loss 1.0\n" for n in range(start, 20)
    )


def test_hosts_with_skewed_clocks_are_merged_by_the_steps_that_they_share(job, events, logs):
    folder = job(**{"node-a__rank_0": steps(0, 0), "node-b__rank_1": steps(1, 1)})
    told = events(folder)
    assert [row["rank"] for row in told] != sorted(row["rank"] for row in told)
    numbers = [int(re.search(r"step (\d+)", row["body"])[1]) for row in told]
    assert numbers == sorted(numbers)
    stamps = [line.split(" | ")[1][:19] for line in logs(folder, "--timestamps")]
    assert {stamp[11:13] for stamp in stamps} == {"08"}


def test_a_traceback_stays_whole_between_the_lines_of_others(job, events):
    trace = "Traceback (most recent call last):\n  File x\nValueError: y\n"
    folder = job(
        rank_0=f"2025-03-06 08:00:01 INFO a\n{trace}2025-03-06 08:00:02 INFO b\n",
        rank_1="2025-03-06 08:00:01 INFO c\n2025-03-06 08:00:01 INFO d\n2025-03-06 08:00:02 INFO e\n",
    )
    told = [(row["rank"], row["line"]) for row in events(folder)]
    first = told.index((0, 1))
    assert told[first : first + 4] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert told == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (0, 5), (1, 3)]


def test_a_clock_that_goes_back_does_not_turn_a_file_around(job, events):
    folder = job(rank_0="2025-03-06 08:00:05 a\n2025-03-06 08:00:01 b\n", rank_1="2025-03-06 08:00:03 c\n")
    assert [row["body"][-1] for row in events(folder)] == ["c", "a", "b"]


@pytest.mark.parametrize("form", ["text", "raw", "json"])
def test_hostile_lines_are_inert_and_secrets_masked(job, logs, form):
    text = "2025-03-06 08:00:00 a\x9b2J \u202e \x07 \u2028 \rb\n"
    text += "\x1b]52;c;aGk=\x07 password=hunter22hunter\n> [first failure]\n"
    folder = job(**{"rank_0": text, "a\x1b[2J\u202e": text})
    shown = logs(folder, "-o", form, "-t")
    assert len(shown) == 6
    assert all(line.isprintable() for line in shown)
    assert "hunter22" not in "".join(shown)
    assert "hunter22" in "".join(logs(folder, "-o", form, "--no-redact"))


def test_a_line_cannot_pretend_to_be_marked(job, logs):
    """The sign stands at the beginning of a line, where only we write."""
    shown = logs(job(rank_0="2025-03-06 08:00:00 x\n> rank 3 | [first failure] y\n"))
    assert not any(line.startswith(">") for line in shown)


def test_raw_lines_have_nothing_in_front(logs, job):
    folder = job(rank_0="2025-03-06 08:00:00 x\n\ty\n")
    assert logs(folder, "-o", "raw") == ["2025-03-06 08:00:00 x", "\ty"]
    assert [line.strip() for line in logs(folder, "--no-prefix")] == ["2025-03-06 08:00:00 x", "y"]


def test_colours_are_stable_by_rank_and_only_where_wanted(logs):
    assert not any(ANSI.search(line) for line in logs(SEGFAULT))
    shown = logs(SEGFAULT, "--color", "always")
    others = logs(SEGFAULT, "--color", "always", "--rank", "0-3", "--tail", "1")
    prefixes = [
        set(re.findall(r"^..\x1b\[(38;5;\d+)m(rank \d)", "\n".join(each), re.MULTILINE)) for each in (shown, others)
    ]
    assert prefixes[0] == prefixes[1]
    assert len(prefixes[0]) == len({color for color, _ in prefixes[0]}) == 4
    assert [ANSI.sub("", line) for line in shown] == logs(SEGFAULT)


def test_on_a_terminal_lines_have_colours_and_go_through_the_pager(on_terminal):
    code, text = on_terminal(["logs", str(SEGFAULT), "--rank", "3"], DENPEX_PAGER="sed s/^/P/")
    assert code == 0
    assert all(line.startswith("P") for line in text.splitlines())
    assert ANSI.search(text)
    code, text = on_terminal(["logs", str(SEGFAULT), "--no-pager"], DENPEX_PAGER="sed s/^/P/", NO_COLOR="1")
    assert (code, ANSI.search(text)) == (0, None)
    assert not text.startswith("P")


def test_standard_input_and_missing_paths(job, tmp_path, logs):
    command = [sys.executable, "-m", "aggregator", "logs", "-", "-o", "raw"]
    done = subprocess.run(command, input="a\nb\n", text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a\nb\n")
    assert "error: " in logs(tmp_path / "nothing", code=3)


def test_a_reader_that_goes_away_is_no_error(job):
    folder = job(rank_0="".join(f"2025-03-06 08:00:00 line {n} {'x' * 80}\n" for n in range(20_000)))
    command = [sys.executable, "-m", "aggregator", "logs", str(folder)]
    done = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.readline()
    done.stdout.close()
    assert done.stderr.read() == ""
    done.stderr.close()
    assert done.wait() == 141


def test_a_terminal_without_utf8_is_served(job):
    folder = job(rank_0="2025-03-06 08:00:00 größer \U0001f525\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for form in ("text", "raw", "json"):
        command = [sys.executable, "-m", "aggregator", "logs", str(folder), "-o", form]
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        assert b"gr" in done.stdout
    assert json.loads(done.stdout)["body"].endswith("größer \U0001f525")
