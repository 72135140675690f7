"""Who keeps a running job waiting, told from what arrives and when."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.live.progress import Sighting, Tracker
from aggregator.live.view import RankState

sys.path.insert(0, str(Path(__file__).parent))  # test modules are not packages: the job driver stands beside this one
from progress_jobs import NOON_NS, Job, hang_time, suspicions, utc

ONE = frozenset({3})


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(Job(ranks=16), id="in step"),
        pytest.param(Job(step_s=0.2), id="many steps from one look to the next"),
        pytest.param(Job(step_s=30), id="steps of 30 s"),
        pytest.param(Job(jitter=0.9), id="lines that come late"),
        pytest.param(Job(log_every=100), id="each 100th step logged"),
        pytest.param(Job(log_every=100, offsets=True), id="each 100th step logged, at offsets"),
        pytest.param(Job(log_s=7, step_s=0.5), id="progress bars that write when they like"),
        pytest.param(Job(loggers=frozenset({0})), id="rank 0 logs alone"),
        pytest.param(Job(ranks=16, stages=4), id="pipeline stages"),
        pytest.param(Job(scale=dict.fromkeys(range(4, 8), 8)), id="half of the ranks count samples"),
        pytest.param(Job(scale={3: 2}), id="one rank counts micro-batches"),
        pytest.param(Job(start_s=800), id="compilation of minutes"),
        pytest.param(Job(eval_every=200, eval_s=50), id="short silent evaluations"),
        pytest.param(Job(eval_every=200, eval_s=250, eval_says="Saving checkpoint to /ckpt"), id="announced pauses"),
        pytest.param(Job(eval_every=200, eval_s=400, eval_line_s=20), id="evaluations in which rank 0 writes"),
        pytest.param(Job(epoch=60), id="counters that begin again at each epoch"),
        pytest.param(Job(buffered_s=40), id="buffered output"),
        pytest.param(Job(in_step=False), id="each at its own pace"),
        pytest.param(Job(in_step=False, slow={3: 1.2}), id="a slow rank"),
        pytest.param(Job(in_step=False, ends={2: 300}), id="a rank that ends before the others"),
    ],
)
def test_a_healthy_job_is_never_suspected(job):
    assert suspicions(job, 1500) == []


@pytest.mark.parametrize(
    ("job", "within_s"),
    [
        pytest.param(Job(ranks=64), 70, id="64 ranks in step"),
        pytest.param(Job(step_s=0.2, hang_at=600), 70, id="many steps from one look to the next"),
        pytest.param(Job(step_s=20, hang_at=20), 210, id="steps of 20 s: ten of them"),
        pytest.param(Job(log_every=10), 70, id="each 10th step logged"),
        pytest.param(Job(log_every=50, hang_at=600), 110, id="each 50th step logged: twice that pause"),
        pytest.param(Job(epoch=100, hang_at=250), 70, id="in the third epoch"),
        pytest.param(Job(eval_every=50, eval_s=100), 210, id="after pauses of 100 s: twice that"),
        pytest.param(Job(ranks=16, others_write_s=5), 20, id="the others write that they wait"),
        pytest.param(Job(ranks=16, in_step=False), 60, id="the others go on"),
    ],
)
def test_the_rank_that_hangs_is_named_soon_and_alone(job, within_s):
    job = replace(job, hung=ONE, hang_at=job.hang_at or 120)
    hung_at = hang_time(job)
    found = [(now, suspicion) for now, suspicion in suspicions(job, hung_at + 400) if now > hung_at]
    assert {suspicion.ranks for _, suspicion in found} == {(3,)}
    assert found[0][0] - hung_at <= within_s
    assert found[0][1].hosts == ("node-0",)


def test_the_reason_tells_where_the_rank_and_the_others_stand_and_since_when():
    job = Job(ranks=64, hung=ONE, hang_at=120)
    _, last = suspicions(job, hang_time(job) + 100)[-1]
    assert last.reason == "rank 3 at step 119 while 63 others reached 120, silent since 2026-03-04 12:02:20Z"
    assert (last.since - NOON_NS) / 1e9 == pytest.approx(140, abs=2)


def test_all_ranks_of_one_host_are_named_with_the_host():
    job = Job(ranks=16, hung=frozenset({4, 5, 6, 7}), hang_at=120)
    _, last = suspicions(job, hang_time(job) + 100)[-1]
    assert (last.ranks, last.hosts) == ((4, 5, 6, 7), ("node-1",))
    assert last.reason.startswith("ranks 4-7 (all on node-1) at step 119 while 12 others reached 120")


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(Job(loggers=frozenset({0})), id="only rank 0 tells its steps"),
        pytest.param(Job(loggers=frozenset()), id="nobody tells steps"),
        pytest.param(Job(ranks=2), id="one of two"),
        pytest.param(Job(per_host=1, hung=frozenset({0, 3, 5})), id="many ranks on several hosts"),
        pytest.param(Job(log_every=50, offsets=True), id="steps logged at offsets"),
        pytest.param(Job(buffered_s=40), id="buffered output"),
        pytest.param(Job(hang_at=4), id="too early to have learned"),
        pytest.param(Job(hung=frozenset(range(8))), id="all stand at the same step"),
    ],
)
def test_a_hang_that_shows_no_culprit_is_a_stall_without_a_name(job):
    job = replace(job, hung=job.hung or frozenset({job.ranks // 2}), hang_at=job.hang_at or 400)
    found = suspicions(job, 1500)
    assert {suspicion.ranks for _, suspicion in found} == {()}


def test_a_stall_tells_how_long_and_what_is_usual():
    job = Job(step_s=2, loggers=frozenset({0}), hung=ONE, hang_at=60)
    now, first = suspicions(job, 300)[0]
    assert first.reason in {f"no rank has made progress for {s} s (a step usually takes 2 s)" for s in range(60, 67)}
    assert first.since == pytest.approx(utc(now - 63), abs=3.5e9)


def test_a_job_that_never_makes_a_second_step_is_a_stall_after_15_minutes():
    now, first = suspicions(Job(start_s=10_000), 1200)[0]
    assert 900 < now <= 910
    assert first.reason == "no rank has made progress for 905 s"


def test_an_evaluation_may_be_quiet_twice_as_long_as_the_longest_before():
    job = Job(eval_every=100, eval_s=150)
    found = [now for now, _ in suspicions(job, 3000)]
    assert found
    assert max(found) < 300  # the first of ten


def feed(tracker, steps, start=0.0, ended=()):
    """Looks 5 s apart; `steps` yields what each rank has reached, None where it is as before."""
    for look, reached in enumerate(steps):
        now = start + 5.0 * look
        tracker.look(
            now,
            [
                Sighting(rank, None, step, now, f"step {step}", f"{rank}.log", ended=rank in ended)
                for rank, step in enumerate(reached)
                if step is not None
            ],
        )
    return now


def test_while_this_process_sleeps_no_time_passes():
    tracker = Tracker()
    now = feed(tracker, [[look] * 4 for look in range(20)])
    assert tracker.suspicion(now + 3600, 0) is None
    tracker.look(now + 3600, [])
    tracker.look(now + 3605, [])
    assert tracker.suspicion(now + 3605, 0) is None
    for later in range(3610, 3675, 5):
        tracker.look(now + later, [])
    assert tracker.suspicion(now + 3670, 0) is not None


def test_after_a_sleep_the_pace_is_learned_anew():
    tracker = Tracker()
    now = feed(tracker, [[look] * 4 for look in range(20)])
    now = feed(tracker, [[900 + look] * 3 + [900 + look if look < 10 else None] for look in range(20)], now + 3600)
    found = tracker.suspicion(now, utc(now))
    assert found is not None
    assert found.ranks == (3,)


def test_a_rank_that_falls_behind_but_goes_on_is_slow():
    tracker = Tracker()
    now = feed(tracker, [[10 * look, 10 * look, 10 * look, 9 * look] for look in range(30)])
    assert tracker.suspicion(now, 0) is None
    assert [told.state for told in tracker.health(now)] == [RankState.OK] * 3 + [RankState.SLOW]


def test_health_tells_suspects_the_ended_and_in_a_stall_the_silent():
    tracker = Tracker()
    now = feed(tracker, [[look] * 4 + [look if look < 20 else None, 3] for look in range(40)], ended=(5,))
    health = tracker.health(now)
    assert [told.state for told in health] == [RankState.OK] * 4 + [RankState.SUSPECT, RankState.ENDED]
    assert (health[4].step, health[4].idle_s, health[4].last_line, health[4].path) == (19, 100.0, "step 19", "4.log")
    for _ in range(14):
        now += 5
        tracker.look(now, [])
    assert [told.state for told in tracker.health(now)][:4] == [RankState.SILENT] * 4


def test_a_suspect_that_writes_again_is_none():
    tracker = Tracker()
    now = feed(tracker, [[look] * 4 + [look if look < 20 else None] for look in range(40)])
    assert tracker.suspicion(now, utc(now)).ranks == (4,)
    now = feed(tracker, [[40] * 5], now + 5)
    assert tracker.suspicion(now, utc(now)) is None


def test_when_all_have_ended_nobody_is_waited_for():
    tracker = Tracker()
    now = feed(tracker, [[look] * 4 for look in range(20)])
    now = feed(tracker, [[20] * 4] + [[None] * 4] * 40, now + 5, ended=range(4))
    assert tracker.suspicion(now, 0) is None


def test_before_the_first_look_and_without_ranks_there_is_nothing_to_tell():
    tracker = Tracker()
    assert (tracker.suspicion(5.0, 0), tracker.health(5.0)) == (None, [])
    tracker.look(5.0, [])
    assert (tracker.suspicion(5.0, 0), tracker.health(5.0)) == (None, [])


def test_numbers_that_no_job_reaches_are_no_steps():
    tracker = Tracker()
    now = feed(tracker, [[10**30 + look, -look] for look in range(20)])
    assert [told.step for told in tracker.health(now)] == [None, 0]


JOBS = st.builds(
    Job,
    ranks=st.sampled_from([2, 3, 4, 8, 12]),
    step_s=st.sampled_from([0.7, 1.0, 3.0, 10.0]),
    jitter=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    in_step=st.sampled_from([True, True, False]),
    log_every=st.sampled_from([1, 1, 3, 10]),
    offsets=st.booleans(),
    log_s=st.sampled_from([0.0, 0.0, 2.0, 20.0]),
    stages=st.sampled_from([1, 1, 2]),
    scale=st.dictionaries(st.integers(0, 11), st.sampled_from([2, 8]), max_size=4),
    start_s=st.sampled_from([5.0, 120.0]),
    eval_every=st.sampled_from([0, 40]),
    eval_s=st.sampled_from([20.0, 120.0]),
    eval_line_s=st.sampled_from([0.0, 7.0]),
    epoch=st.sampled_from([0, 0, 50]),
    buffered_s=st.sampled_from([0.0, 0.0, 30.0]),
    seed=st.integers(0, 1 << 30),
)


@settings(max_examples=25)
@given(JOBS)
def test_no_healthy_job_has_a_rank_named(job):
    assert not [found for _, found in suspicions(job, 800) if found.ranks]


@settings(max_examples=25)
@given(JOBS, st.integers(0, 11), st.integers(2, 300), st.sampled_from([0.0, 8.0]))
def test_no_hang_has_a_wrong_rank_named(job, rank, step, others_write_s):
    culprit = rank % job.ranks
    job = replace(job, hung=frozenset({culprit}), hang_at=step, others_write_s=others_write_s)
    assert {found.ranks for _, found in suspicions(job, 800)} <= {(), (culprit,)}
