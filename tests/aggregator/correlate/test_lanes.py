"""What the chart of a job shows: where each rank's bars lie, by attempt and by what it did."""

import pytest
from correlate_jobs import KEY, START_NS, glog, hello, lines, say, steps, traceback, write

from aggregator.pipeline import investigate
from aggregator.timeline import Doing, MarkKind

S = 10**9


@pytest.fixture
def drawn(tmp_path):
    def timeline(files):
        write(tmp_path, files)
        return investigate([str(tmp_path)]).timeline

    return timeline


def bars(lane):
    """(from, to, what), in seconds after the start."""
    return [((bar.start - START_NS) / S, (bar.end - START_NS) / S, bar.doing) for bar in lane.bars]


def test_a_rank_trains_again_after_each_evaluation(drawn):
    evaluations = [say(seconds, 0, "Running evaluation") for seconds in (20, 40)]
    trainings = [steps(0, first, first + 9, start=start) for first, start in ((10, 10), (20, 30), (30, 50))]
    text = lines(hello(0, 1), trainings[0], evaluations[0], trainings[1], evaluations[1], trainings[2])
    (lane,) = drawn({"rank_0.log": text}).lanes
    assert [doing for _, _, doing in bars(lane)] == [
        Doing.INIT, Doing.TRAINING, Doing.EVALUATION, Doing.TRAINING, Doing.EVALUATION, Doing.TRAINING,
    ]  # fmt: skip
    assert all(later[0] >= former[1] for former, later in zip(bars(lane), bars(lane)[1:], strict=False))


def test_attempts_in_one_file_do_not_overlap(drawn):
    first = [hello(0, 1), steps(0, 10, 14), traceback(KEY, "[rank0]: ").rstrip("\n")]
    restart = glog(20, "[default] Worker group FAILED. 3/3 attempts left; will restart worker group")
    again = [say(30, 0, "initialised process group: rank 0 of 1 on node-a pid 4200"), steps(0, 40, 44, start=40)]
    timeline = drawn({"train.log": lines(*first, restart, *again)})
    (lane,) = timeline.lanes
    of = {n: [bar for bar in lane.bars if bar.attempt == n] for n in {bar.attempt for bar in lane.bars}}
    assert len(of) == 2
    assert max(bar.end for bar in of[0]) <= min(bar.start for bar in of[1])


def test_the_mark_of_a_failure_without_a_stamp_is_where_the_verdict_puts_it(tmp_path):
    text = lines(hello(0, 2), steps(0, 1, 3)) + traceback(KEY)
    write(tmp_path, {"rank_0.log": text, "rank_1.log": lines(hello(1, 2), steps(1, 1, 3))})
    case = investigate([str(tmp_path)])
    marks = [mark for lane in case.timeline.lanes for mark in lane.marks if mark.what is MarkKind.FIRST]
    assert [mark.time for mark in marks] == [case.verdict.first_failure.time]
