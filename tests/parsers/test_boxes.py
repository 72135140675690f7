"""The summary box with which torchrun's agent ends."""

import pytest
from block_texts import exceptions, signals

from parsers.records import Frame, Known, Role, StampQuality

BOX = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-10-03_18:37:05
  host      : gpu-a1
  rank      : 5 (local_rank: 1)
  exitcode  : -6 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 4242
[2]:
  time      : 2025-10-03_18:37:06
  host      : gpu-a1
  rank      : 6 (local_rank: 2)
  exitcode  : 1 (pid: 4243)
  error_file: /tmp/e6.json
  traceback : Traceback (most recent call last):
    File "/w/t.py", line 8, in g
      return 1 / 0
  ZeroDivisionError: division by zero
  
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-10-03_18:37:01
  host      : gpu-a1
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 4241)
  error_file: /tmp/e4.json
  traceback : Traceback (most recent call last):
    File "/w/t.py", line 4, in f
      return x["k"]
  KeyError: 'k'
  
============================================================
"""  # noqa: W291, W293 - as torch prints it


def entries(text):
    return [signal for signal in signals(text, dedent=False) if signal.signature == "te.box"]


def test_a_box_tells_how_each_rank_ended():
    found = entries(BOX)
    assert [(s.fields["rank"], s.fields["local_rank"], s.fields["exit_code"], s.fields["pid"]) for s in found] == [
        ("5", "1", "-6", "4242"), ("6", "2", "1", "4243"), ("4", "0", "1", "4241"),
    ]  # fmt: skip
    assert [s.fields["section"] for s in found] == ["other", "other", "root_cause"]
    assert {s.role for s in found} == {Role.EXIT}
    assert {s.rank_how for s in found} <= {Known.EXIT, Known.NONE}
    assert {s.fields["host"] for s in found} == {"gpu-a1"}


def test_the_entries_of_a_box_have_the_times_it_tells_and_cite_their_own_lines():
    found = entries(BOX)
    assert {s.quality for s in found} == {StampQuality.OWN}
    assert [s.ns - found[2].ns for s in found] == [4 * 10**9, 5 * 10**9, 0]
    lines = BOX.split("\n")
    assert all(lines[s.line - 1].startswith("  exitcode") and s.fields["pid"] in lines[s.line - 1] for s in found)


def test_a_traceback_in_a_box_belongs_to_the_rank_of_its_entry():
    found = {s.fields["box_rank"]: s for s in exceptions(BOX, dedent=False)}
    assert {rank: s.fields["exception"] for rank, s in found.items()} == {"6": "ZeroDivisionError", "4": "KeyError"}
    assert found["4"].exception.frames == (Frame("/w/t.py", 4, "f"),)
    assert found["4"].quality is StampQuality.OWN
    assert found["4"].fields["box_host"] == "gpu-a1"


def test_the_boxes_of_two_agents_in_one_file_are_both_read():
    second = (
        BOX.replace("gpu-a1", "gpu-b2")
        .replace("rank      : 4", "rank      : 12")
        .replace("rank      : 5", "rank      : 13")
    )
    found = entries(BOX + "between\n" + second.replace("rank      : 6", "rank      : 14"))
    assert [(s.fields["host"], s.fields["rank"]) for s in found] == [
        ("gpu-a1", "5"), ("gpu-a1", "6"), ("gpu-a1", "4"), ("gpu-b2", "13"), ("gpu-b2", "14"), ("gpu-b2", "12"),
    ]  # fmt: skip
    assert [s.fields["section"] for s in found] == ["other", "other", "root_cause"] * 2


def test_the_boxes_of_two_labelled_tasks_may_be_interleaved_line_by_line():
    second = BOX.replace("gpu-a1", "gpu-b2").replace("rank      : 4", "rank      : 12")
    mixed = "".join(f"0: {a}\n1: {b}\n" for a, b in zip(BOX.split("\n"), second.split("\n"), strict=True))
    found = entries(mixed)
    assert sorted((s.fields["host"], s.fields["section"], s.fields["rank"]) for s in found) == [
        ("gpu-a1", "other", "5"), ("gpu-a1", "other", "6"), ("gpu-a1", "root_cause", "4"),
        ("gpu-b2", "other", "5"), ("gpu-b2", "other", "6"), ("gpu-b2", "root_cause", "12"),
    ]  # fmt: skip


def test_a_box_with_nothing_but_its_root_cause_is_read():
    head, rest = BOX.split("[1]:\n")
    found = entries(head + "  <NO_OTHER_FAILURES>\n" + rest[rest.index("-----") :])
    assert [(s.fields["rank"], s.fields["section"]) for s in found] == [("4", "root_cause")]


def test_the_sections_of_a_box_are_told_apart_without_the_rule_between_them():
    found = entries(BOX.replace("-" * 60 + "\nRoot", "Root"))
    assert [s.fields["section"] for s in found] == ["other", "other", "root_cause"]


@pytest.mark.parametrize("size", range(200, len(BOX), 97))
def test_a_box_that_is_cut_off_tells_what_it_has(size):
    found = entries(BOX[:size])
    assert len(found) == BOX[:size].count(" (pid: ") or BOX[:size].endswith(
        ("exitcode  : 1 (pid: 4241", "(pid: 4", "(pid: ")
    )
