"""Nothing that a log holds acts on the terminal or on the library that draws on it."""

import re
from dataclasses import replace

import pytest

pytest.importorskip("textual", reason="needs the extra `tui`")
from tui_hostile import FULL, PAYLOADS, poisoned
from tui_views import Feed, event, health, healthy, press, screen_text

from aggregator.tui.display import Clean

UNSHOWN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
SCREENS = ("", "t", "t", "r", "enter", "enter", "f", "p", "G", "question_mark")
TOKEN = "hf_" + "Abcdefghij" * 3 + "Klmn"


def test_no_payload_in_any_field_reaches_any_screen():
    feed = Feed(FULL)

    async def walk(pilot):
        for key in SCREENS:
            await press(pilot, *filter(None, [key]))
            for start in range(0, len(PAYLOADS), 4):  # few at a time, so that none falls victim to a cut
                await feed.give(pilot, poisoned(FULL, " ".join(PAYLOADS[start : start + 4])))
                assert not UNSHOWN.search(screen_text(feed.app))

    feed.drive(act=walk, size=(100, 40))


@pytest.mark.parametrize("payload", ["[/x]", "[red]", "[@click=app.quit]quit[/]", "[b]bold[/b] $error"])
def test_markup_is_shown_as_it_was_written(payload):
    view = healthy(job=payload, headline=payload, warnings=(payload,), events=[event(0, payload)],
                   ranks=(replace(health(0, host=payload), last_line=payload),))  # fmt: skip
    assert Feed(view).drive().count(payload) >= 6
    assert payload in Feed(view).drive("f")


def test_a_line_of_a_megabyte_in_every_field_is_cut():
    feed = Feed(poisoned(FULL, "head " + "x" * 1_000_000 + " tail"))

    async def walk(pilot):
        for key in SCREENS[1:]:
            await press(pilot, key)
            assert 40 * "x" in screen_text(feed.app)

    feed.drive(act=walk)


@pytest.mark.parametrize("redact", [True, False])
def test_secrets_are_masked_on_every_screen_unless_asked_otherwise(redact):
    feed = Feed(poisoned(FULL, f"token {TOKEN}"), redact=redact)
    shown = []

    async def walk(pilot):
        for key in SCREENS:
            await press(pilot, *filter(None, [key]))
            shown.append(screen_text(feed.app))

    feed.drive(act=walk, size=(160, 50))
    assert all((TOKEN in text) is not redact for text in shown)


def test_a_tab_does_not_shift_what_follows():
    assert Clean(redact=False)("a\tb") == "a   b"


def test_steps_and_ranks_of_any_size_are_drawn():
    huge = (health(0, step=10**30), health(10**20, step=-5), health(2, step=None, idle_s=None, host=None))
    shown = Feed(healthy(ranks=huge)).drive("t", "t", "r")
    assert "100000000000000000000 node-" in shown


def test_control_characters_are_not_accepted_in_the_filter():
    feed = Feed(healthy())

    async def paste(pilot):
        from textual import events  # noqa: PLC0415 - the library is tested for before

        feed.app.screen.query_one("#search").post_message(events.Paste("a\x1b[2J"))
        await pilot.pause()
        assert feed.app.screen.query_one("#search").value == ""

    feed.drive("slash", act=paste)
