"""The screens: what they show, and what each key does."""

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("textual", reason="needs the extra `tui`")
from tui_views import NOON, VERDICT, Feed, event, failed, health, healthy, press, ranks, screen_text, suspect

from aggregator.live.view import LiveState, LiveView, RankState
from aggregator.tui.events import EventScreen, EventsScreen
from aggregator.tui.ranks import GridScreen, RanksScreen, TimelineScreen
from aggregator.tui.reading import HelpScreen, VerdictScreen


def chosen(feed):
    return (feed.front or feed.app.screen).pane.chosen


def test_it_opens_on_the_grid_with_a_sign_a_rank_by_host():
    shown = Feed(suspect()).drive()
    assert "SUSPECT  for 600 s since 12:00:00Z, attempt 0, 16 ranks, runs/4242" in shown
    assert "node-00 ooooo?sz  node-01 oooooooo" in shown
    assert "? 1 suspect  z 1 silent  s 1 slow  o 13 ok" in shown
    assert "suspect since 12:09:20Z: rank 5 (node-00): 15 ranks" in shown


def test_ranks_of_unknown_host_are_labelled_by_rank():
    view = healthy(40)
    view = replace(view, ranks=tuple(replace(rank, host=None) for rank in view.ranks))
    shown = Feed(view).drive(size=(40, 20))
    assert f"rank 0  {30 * 'o'}" in shown
    assert "rank 30 oooooooooo" in shown


def test_a_job_that_has_written_nothing_is_shown():
    shown = Feed(LiveView("runs/1", LiveState.WAITING, NOON, NOON, "Nothing has been written yet.")).drive(
        "down", "enter", "e", "n", "G", "right", "y"
    )
    assert "WAITING" in shown
    assert "Nothing to copy here." in shown


def test_what_was_not_read_is_counted_on_the_grid_and_told_with_the_verdict():
    assert "! rank 7's log ends in the middle of a line (and 1 more: p)" in Feed(failed()).drive()
    assert "not read: core.4242: not text" in Feed(failed()).drive("p")


def test_keys_move_the_cursor_over_the_grid():
    feed = Feed(healthy(64))
    steps = [
        ("right", 1), ("left", 0), ("left", 0), ("up", 0), ("down", 16), ("down", 32), ("right", 33), ("up", 17),
        ("G", 63), ("down", 63), ("right", 63), ("g", 0), ("pagedown", 48), ("pageup", 0), ("end", 63), ("home", 0),
    ]  # fmt: skip

    async def move(pilot):
        for key, rank in steps:
            await press(pilot, key)
            assert (key, chosen(feed).rank) == (key, rank)
            assert f"o ok rank {rank}, node-" in screen_text(feed.app)

    feed.drive(size=(40, 24), act=move)


def test_keys_move_the_cursor_over_a_list():
    feed = Feed(healthy(100))
    steps = [("up", 0), ("down", 1), ("down", 2), ("up", 1), ("G", 99), ("down", 99), ("g", 0), ("pagedown", 16)]

    async def move(pilot):
        for key, index in [*steps, ("pageup", 0)]:
            await press(pilot, key)
            assert (key, feed.app.screen.pane.cursor) == (key, index)
            assert f"\n{index:>6} node-" in screen_text(feed.app)

    feed.drive("r", act=move)


def test_keys_lead_from_screen_to_screen():
    feed = Feed(replace(failed(), events=(event(0, rank=3), event(1))))
    steps = [
        ("r", RanksScreen), ("enter", EventsScreen), ("enter", EventScreen), ("escape", EventsScreen),
        ("escape", RanksScreen), ("escape", GridScreen), ("escape", GridScreen), ("enter", EventsScreen),
        ("t", TimelineScreen), ("f", EventsScreen), ("question_mark", HelpScreen), ("question_mark", HelpScreen),
        ("escape", EventsScreen), ("p", VerdictScreen), ("escape", GridScreen), ("question_mark", HelpScreen),
        ("r", RanksScreen), ("escape", GridScreen),
    ]  # fmt: skip

    async def go(pilot):
        for key, screen in steps:
            await press(pilot, key)
            assert type(feed.app.screen) is screen

    feed.drive(act=go)


def test_the_table_lists_the_worst_first_and_enter_shows_the_events_of_that_rank():
    feed = Feed(suspect())
    lines = feed.drive("r").splitlines()
    assert [line.split()[:4] for line in lines[3:6]] == [
        ["5", "node-00", "?", "suspect"], ["7", "node-00", "z", "silent"], ["6", "node-00", "s", "slow"],
    ]  # fmt: skip
    feed = Feed(replace(failed(), events=(event(0, "mine", rank=3), event(1, "not mine"))))
    shown = feed.drive("r", "enter")
    assert "1 event of rank 3" in shown
    assert "not mine" not in shown


def test_the_cursor_stays_on_its_rank_when_the_order_changes():
    feed = Feed(healthy())

    async def fail_another(pilot):
        await feed.give(pilot, healthy(ranks=ranks(16, rank_9=RankState.FAILED)))
        assert chosen(feed).rank == 2
        assert feed.app.screen.pane.rows[0].rank == 9

    feed.drive("r", "down", "down", act=fail_another)


def test_the_filter_hides_other_rows_until_it_is_taken_off():
    feed = Feed(replace(failed(), events=tuple(event(number, level="error") for number in range(30))))

    async def filter_for(pilot):
        await press(pilot, "slash", *"EVENT 2", "enter")
        assert "11 events of all ranks, following | filter: event 2" in screen_text(feed.app)
        await press(pilot, "slash", *"q9", "escape")
        assert "11 events" in screen_text(feed.app)
        await press(pilot, "escape")
        assert "30 events of all ranks, following " in screen_text(feed.app)
        await press(pilot, "slash", *"nothing", "enter", "enter", "y", "e", "n")
        assert "0 events" in screen_text(feed.app)

    feed.drive("f", act=filter_for)


def test_next_match_goes_round_on_the_grid():
    feed = Feed(healthy())

    async def search(pilot):
        await press(pilot, "slash", *"NODE-01 ", "enter")
        for key, rank in (("n", 8), ("n", 9), ("N", 8), ("N", 15), ("n", 8)):
            await press(pilot, key)
            assert chosen(feed).rank == rank

    feed.drive(act=search)


def test_next_failure_goes_round_ranks_and_events():
    levels = ("info", "error", "warning", "error", "info")
    feed = Feed(replace(suspect(), events=tuple(event(number, level=level) for number, level in enumerate(levels))))

    async def look(pilot):
        await press(pilot, "right", "e")
        assert chosen(feed).rank == 5
        await press(pilot, "f")
        for key, line in (("e", 2), ("e", 4), ("e", 2), ("E", 4)):
            await press(pilot, key)
            assert chosen(feed).line == line

    feed.drive(act=look)


def test_following_keeps_to_the_newest_event_until_the_user_moves():
    feed = Feed(healthy(events=[event(number) for number in range(50)]))

    async def watch(pilot):
        assert "event 49" in screen_text(feed.app)
        await feed.give(pilot, healthy(events=[event(number) for number in range(10, 60)]))
        assert chosen(feed).text == "event 59"
        await pilot.press("up")
        await pilot.pause()
        await feed.give(pilot, healthy(events=[event(number) for number in range(20, 70)]))
        assert chosen(feed).text == "event 58"
        await pilot.press("f")
        await pilot.pause()
        assert chosen(feed).text == "event 69"

    assert "following" in feed.drive("f", act=watch)


def test_the_cursor_goes_to_the_oldest_event_when_its_own_is_dropped():
    feed = Feed(healthy(events=[event(number) for number in range(5)]))

    async def drop(pilot):
        await feed.give(pilot, healthy(events=[event(number) for number in range(10, 14)]))
        assert chosen(feed).text == "event 10"

    feed.drive("f", "g", act=drop)


def test_ten_thousand_events_are_listed_and_searched():
    feed = Feed(healthy(events=[event(number, rank=number % 16) for number in range(10_000)]))
    shown = feed.drive("f", "slash", *"event 471", "enter")
    assert "11 events of all ranks" in shown
    assert "event 4719" in shown


def test_the_whole_event_is_shown_with_its_place():
    shown = Feed(healthy(events=[event(6, "first line\n  second line")])).drive("f", "enter")
    assert "at       logs/rank0.log:7" in shown
    assert "  second line" in shown


def test_post_mortem_asks_each_time_and_shows_the_verdict_when_it_comes():
    feed = Feed(healthy())

    async def judge(pilot):
        assert "No verdict yet" in screen_text(feed.app)
        await feed.give(pilot, healthy(verdict=VERDICT))
        assert "First failure: rank 3 (node-00)" in screen_text(feed.app)
        await pilot.press("p")
        await pilot.pause()

    feed.drive("p", act=judge)
    assert feed.asked == 2


def test_the_timeline_shows_states_over_time_and_steps_over_steps():
    feed = Feed(healthy(now=0, ranks=(health(0, step=0), health(1, step=0))))

    async def go_on(pilot):
        for second in (1, 2):
            slow = RankState.SLOW if second == 2 else RankState.OK
            await feed.give(pilot, healthy(now=second, ranks=(health(0, step=second), health(1, slow, step=0))))
        shown = screen_text(feed.app)
        assert "time 12:00:00Z to 12:00:03Z, a sign is 1 s" in shown
        assert "0 node-00       ooo " in shown
        assert "1 node-00       oos " in shown
        await pilot.press("t")
        await pilot.pause()
        shown = screen_text(feed.app)
        assert "steps 0 to 2" in shown
        assert f"0 node-00       {57 * 'o'} " in shown
        assert "1 node-00       s  " in shown

    feed.drive("t", act=go_on)


def test_every_screen_follows_the_size_of_the_terminal():
    feed = Feed(failed())

    async def resize(pilot):
        for keys in ("", "r", "t", "f", "p", "question_mark"):
            if keys:
                await pilot.press(keys)
            for width, height in ((200, 60), (80, 24), (20, 5)):
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                lines = screen_text(feed.app).splitlines()
                assert (len(lines), {len(line) for line in lines}) == (height, {width})

    feed.drive(act=resize)


def test_the_grid_keeps_its_rank_and_fills_a_new_width():
    feed = Feed(healthy(64))

    async def widen(pilot):
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert chosen(feed).rank == 63
        assert screen_text(feed.app).count("node-") == 9  # eight hosts, and the details

    feed.drive("G", act=widen)


def test_sixteen_thousand_ranks_show_what_changed():
    feed = Feed(healthy(16_384))

    async def fail_the_last(pilot):
        await feed.give(pilot, healthy(ranks=ranks(16_384, rank_16383=RankState.FAILED)))
        assert "X 1 failed  o 16,383 ok" in screen_text(feed.app)
        await pilot.press("e")
        await pilot.pause()
        assert "X failed rank 16383, node-2047" in screen_text(feed.app)
        await pilot.press("r")
        await pilot.pause()
        assert "16383 node-2047        X failed" in screen_text(feed.app)

    feed.drive(act=fail_the_last)


def test_nothing_is_drawn_when_the_source_gives_the_same_picture(monkeypatch):
    feed = Feed(healthy())
    shown = []
    monkeypatch.setattr(GridScreen, "show", lambda self, view: shown.append(view))

    async def poll_again(pilot):
        before = len(shown)
        await feed.give(pilot, feed.view)
        assert len(shown) == before

    feed.drive(act=poll_again)


def test_only_lines_that_look_otherwise_are_drawn_anew(monkeypatch):
    feed = Feed(healthy(64))

    async def change_one(pilot):
        drawn = []
        monkeypatch.setattr(feed.app.screen.pane, "refresh_line", drawn.append)
        changed = list(feed.view.ranks)
        changed[20] = replace(changed[20], state=RankState.SLOW, idle_s=99.0)
        await feed.give(pilot, replace(feed.view, ranks=tuple(changed)))
        assert len(drawn) == 1

    feed.drive(act=change_one)
    feed.view = healthy(64)
    feed = Feed(feed.view)

    async def change_the_top(pilot):
        drawn = []
        monkeypatch.setattr(feed.app.screen.pane, "refresh_line", drawn.append)
        changed = list(feed.view.ranks)
        changed[0] = replace(changed[0], step=7)
        await feed.give(pilot, replace(feed.view, ranks=tuple(changed)))
        assert drawn == [0]

    feed.drive("r", act=change_the_top)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_signs_tell_the_state_in_every_theme(theme):
    feed = Feed(failed())
    feed.app.theme = theme
    assert "xxxXxxxx" in feed.drive()


def test_quit_ends_the_app_and_help_names_every_key():
    feed = Feed(healthy())
    shown = feed.drive("question_mark")
    for key in ("PgUp PgDn", "g G", "enter", "esc", "/", "n N", "e E", "f ", "t ", "r ", "p ", "y ", "? q"):
        assert key in shown

    async def leave():
        async with feed.app.run_test() as pilot:
            await pilot.press("q")
        return feed.app.return_code

    feed = Feed(healthy())
    assert asyncio.run(leave()) == 0


@pytest.fixture
def copied(monkeypatch):
    """What `y` sends to the terminal's clipboard."""
    monkeypatch.setenv("TERM", "xterm-256color")
    texts = []
    monkeypatch.setattr("textual.app.App.copy_to_clipboard", lambda _app, text: texts.append(text))
    return texts


@pytest.mark.parametrize(
    ("keys", "text"),
    [("f y", "logs/rank4.log:3"), ("f enter y", "logs/rank4.log:3"), ("e y", "logs/rank3.log"),
     ("p y", "logs/rank3.log:1234")],
)  # fmt: skip
def test_copy_sends_the_place_of_what_the_cursor_is_on(copied, keys, text):
    shown = Feed(failed()).drive(*keys.split())
    assert copied == [text]
    assert f"Copied {text}" in shown


@pytest.mark.parametrize("path", ["a\nrm -rf ~", "/etc/passwd", "../up.log", "a\x1b]0;x\x07", "\u202egol.log"])
def test_a_path_that_could_mislead_is_not_copied(copied, path):
    shown = Feed(healthy(events=[replace(event(0), path=path)])).drive("f", "y")
    assert copied == []
    assert "Not copied" in shown


def test_where_the_terminal_has_no_clipboard_the_place_is_shown(copied, monkeypatch):
    monkeypatch.setenv("TERM", "linux")
    assert Feed(failed()).drive("f", "y").count("logs/rank4.log:3") == 2
    assert copied == []
