"""The trace: what viewers of the Trace Event Format ask of it."""

import json
from collections import defaultdict

import pytest
from report_cases import COMPLETED, ROOT, hostile, rendered, sample, without_root

RUNS = sorted(path.name for path in (ROOT / "sample_runs").iterdir() if path.is_dir())
NEEDS = {"M": {"args"}, "X": {"ts", "dur"}, "i": {"ts", "s"}, "s": {"ts", "id"}, "f": {"ts", "id", "bp"}}


def events(case, **options):
    return json.loads(rendered(case, "trace", **options))["traceEvents"]


@pytest.mark.parametrize("run", ["two-node-segfault", "completed-noisy-shutdown"])
def test_the_trace_of_a_sample_run_is_the_golden_one(run, golden):
    golden(f"{run}.trace.json", without_root(rendered(sample(run), "trace")))


@pytest.mark.parametrize("run", RUNS)
def test_every_event_has_what_its_phase_needs_and_belongs_to_a_named_thread(run):
    found = events(sample(run))
    named = {(event["pid"], event["tid"]) for event in found if event["name"] == "thread_name"}
    for event in found:
        assert {"name", "pid", "ph"} | NEEDS[event["ph"]] <= set(event)
        assert event["ph"] == "M" or (event["pid"], event["tid"]) in named
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    ranks = {lane.rank for lane in sample(run).timeline.lanes}
    assert {tid for _, tid in named} == ranks


@pytest.mark.parametrize("run", RUNS)
def test_slices_of_a_rank_nest_or_follow_each_other(run):
    lanes = defaultdict(list)
    for event in events(sample(run)):
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in lanes.values():
        for first, last in slices:
            assert not [1 for start, end in slices if first < start < last < end]


@pytest.mark.parametrize("run", RUNS)
def test_arrows_go_forward_from_slice_to_slice(run):
    found = events(sample(run))
    slices = {(event["pid"], event["tid"], event["ts"]) for event in found if event["ph"] == "X"}
    starts = {event["id"]: event for event in found if event["ph"] == "s"}
    ends = {event["id"]: event for event in found if event["ph"] == "f"}
    assert set(starts) == set(ends)
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        assert (start["name"], start["cat"]) == (ends[number]["name"], ends[number]["cat"])
        for event in (start, ends[number]):
            assert (event["pid"], event["tid"], event["ts"]) in slices


def test_arrows_lead_from_the_first_failure_to_those_who_followed():
    found = events(sample("two-node-segfault"))
    assert {event["tid"] for event in found if event["ph"] == "s"} == {3}
    assert {event["tid"] for event in found if event["ph"] == "f"} == {0, 1, 2}


def test_a_node_is_a_process_and_a_rank_its_thread():
    found = events(sample("two-node-segfault"))
    nodes = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    assert nodes == {1: "dgx-r7-01", 2: "dgx-r7-02"}
    homes = {event["tid"]: nodes[event["pid"]] for event in found if event["name"] == "thread_name"}
    assert homes == {0: "dgx-r7-01", 1: "dgx-r7-01", 2: "dgx-r7-02", 3: "dgx-r7-02"}


def test_a_failure_that_no_rank_shows_is_told_of_the_whole_job():
    shown = [event for event in events(sample("slurm-node-failure")) if event.get("s") == "g"]
    assert [event["name"] for event in shown] == ["first failure"]


@pytest.mark.parametrize("case", [COMPLETED, hostile("x")])
def test_without_any_known_time_the_trace_is_empty_and_valid(case):
    assert events(case) == []


def test_text_of_a_log_cannot_leave_its_string():
    document = json.loads(rendered(hostile('"}]}\n\\</script>'), "trace"))
    assert document["traceEvents"] == []
    assert document["otherData"]["job"] == '"}]}␊\\</script>'
