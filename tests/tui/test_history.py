"""What the timeline remembers."""

import pytest

pytest.importorskip("textual", reason="needs the extra `tui`")

from tui_views import health, healthy

from aggregator.live.view import RankState
from aggregator.tui.history import COLUMNS, History

OK, SLOW, FAILED = RankState.OK, RankState.SLOW, RankState.FAILED


def filled(*pictures):
    """A history of one rank from `(second, state, step)`."""
    history = History()
    for second, state, step in pictures:
        history.add(healthy(now=second, ranks=(health(0, state, step=step),)))
    return history


def test_a_second_without_a_picture_stays_empty():
    assert filled((0, OK, 1), (2, SLOW, 2)).over_time(0, 10) == [OK, None, SLOW]


def test_a_cell_shows_the_worst_of_its_time():
    history = filled(*((second, FAILED if second == 2 else OK, 1) for second in range(8)))
    assert history.over_time(0, 4) == [OK, FAILED, OK, OK]
    assert history.seconds_per_cell(4) == 2


def test_a_long_run_stays_in_view_in_bounded_memory():
    history = filled(*((second, SLOW if second == 3 else OK, second) for second in range(4 * COLUMNS)))
    assert history.columns <= COLUMNS
    assert history.period_s == 4
    assert history.over_time(0, COLUMNS) == [SLOW] + [OK] * (COLUMNS - 1)
    assert history.step_range == (0, 4 * COLUMNS - 1)


def test_a_pause_longer_than_all_columns_is_bridged():
    history = filled((0, OK, 1), (10 * COLUMNS, SLOW, 2))
    states = history.over_time(0, COLUMNS)
    assert (states[0], states[-1], set(states[1:-1])) == (OK, SLOW, {None})


def test_a_clock_that_goes_back_adds_to_the_last_column():
    assert filled((5, OK, 1), (9, OK, 2), (3, FAILED, 3)).over_time(0, 10)[-1] == FAILED


def test_ranks_that_appear_later_have_an_empty_past():
    history = filled((0, OK, 1))
    history.add(healthy(now=1, ranks=(health(0), health(7, SLOW))))
    assert history.over_time(7, 10) == [None, SLOW]
    assert history.over_time(3, 10) == []
    assert history.over_steps(3, 4) == [None] * 4


def test_steps_between_pictures_count_as_reached_and_later_ones_do_not():
    history = History()
    history.add(healthy(now=0, ranks=(health(0, step=0), health(1, step=0))))
    history.add(healthy(now=1, ranks=(health(0, step=10), health(1, SLOW, step=5))))
    assert history.over_steps(0, 11) == [OK] * 11
    assert history.over_steps(1, 11) == [OK] * 5 + [SLOW] + [None] * 5


def test_without_steps_there_is_no_range():
    assert filled((0, OK, None)).step_range == ()
    assert filled((0, OK, None)).over_steps(0, 3) == [None] * 3
