"""One message a failure, and nobody waits for a notifier."""

import logging
import threading
import time

import pytest

from aggregator import verdict as v
from aggregator.notify import NotifyError
from aggregator.notify.dispatch import MAX_WAITING, Dispatcher

WAIT_S = 20
"""How long a test may take at worst."""


class Keeper:
    """Keeps what it is told, or fails, or hangs until it is let go."""

    def __init__(self, name="keeper", error=None, *, hangs=False):
        self.name = name
        self.error = error
        self.told = []
        self.asked = threading.Event()
        self.go = threading.Event()
        if not hangs:
            self.go.set()

    def send(self, message):
        self.asked.set()
        self.go.wait(WAIT_S)
        self.told.append(message)
        if self.error:
            raise self.error


def test_refinements_of_one_failure_are_told_once(failed):
    keeper = Keeper()
    dispatcher = Dispatcher([keeper])
    assert dispatcher.failed(failed(ranks=(3, 1)), 0)
    for n in range(50):
        assert not dispatcher.failed(failed(ranks=(1, 3), text=f"line {n}", confidence=n / 50, message=str(n)), 0)
    assert dispatcher.close(WAIT_S) == []
    [told] = keeper.told
    assert told.verdict == failed(ranks=(3, 1))
    assert not told.correction
    assert told.redact


def test_other_ranks_are_told_once_more_as_a_correction(failed):
    keeper = Keeper()
    dispatcher = Dispatcher([keeper], redact=False)
    assert [dispatcher.failed(failed(ranks=ranks), 0) for ranks in ((3,), (5,), (5,))] == [
        True,
        True,
        False,
    ]
    assert dispatcher.close(WAIT_S) == []
    assert [(told.verdict.first_failure.ranks, told.correction) for told in keeper.told] == [
        ((3,), False),
        ((5,), True),
    ]
    assert not keeper.told[0].redact


def test_another_kind_or_outcome_of_the_same_ranks_is_no_news_and_another_attempt_is(failed):
    keeper = Keeper()
    dispatcher = Dispatcher([keeper])
    assert dispatcher.failed(failed(), 0)
    assert not dispatcher.failed(failed(kind="killed"), 0)
    assert not dispatcher.failed(failed(outcome=v.Outcome.HUNG), 0)
    assert dispatcher.failed(failed(), 1)
    assert dispatcher.close(WAIT_S) == []
    assert [told.correction for told in keeper.told] == [False] * 2


def test_blame_that_goes_back_is_told_again(failed):
    keeper = Keeper()
    dispatcher = Dispatcher([keeper])
    assert [dispatcher.failed(failed(ranks=(rank,)), 0) for rank in (1, 2, 1)] == [True] * 3
    assert dispatcher.close(WAIT_S) == []
    assert [told.correction for told in keeper.told] == [False, True, True]


def test_what_an_earlier_watch_has_told_is_not_told_again(failed, tmp_path):
    memory = tmp_path / "told.json"
    first, second = Keeper(), Keeper()
    before = Dispatcher([first], memory=memory)
    assert before.failed(failed(), 0)
    assert before.close(WAIT_S) == []
    after = Dispatcher([second], memory=memory)
    assert not after.failed(failed(), 0)
    assert after.failed(failed(ranks=(6,)), 0)
    assert after.close(WAIT_S) == []
    assert [told.correction for told in second.told] == [True]
    memory.write_text("damaged", encoding="utf-8")
    assert Dispatcher([second], memory=memory).failed(failed(), 0)


def test_a_notifier_that_hangs_blocks_neither_reading_nor_the_end(failed):
    hung, next_one = Keeper("webhook", hangs=True), Keeper("next")
    dispatcher = Dispatcher([hung, next_one])
    start = time.monotonic()
    assert dispatcher.failed(failed(), 0)
    assert hung.asked.wait(WAIT_S)
    assert dispatcher.failed(failed(ranks=(5,)), 0)
    problem = "not told before the end of the watch"
    assert dispatcher.close(0.05) == [f"{name}: {problem}" for name in ("webhook", "next") * 2]
    assert time.monotonic() - start < WAIT_S
    hung.go.set()
    dispatcher._thread.join(WAIT_S)
    assert len(hung.told) == 1
    assert next_one.told == []  # nothing is begun after the end


def test_too_many_messages_are_reported_and_not_kept(failed):
    hung = Keeper("webhook", hangs=True)
    dispatcher = Dispatcher([hung])
    assert dispatcher.failed(failed(), 0)
    assert hung.asked.wait(WAIT_S)
    for rank in range(100, 103 + MAX_WAITING):
        assert dispatcher.failed(failed(ranks=(rank,)), 0)
    hung.go.set()
    assert dispatcher.close(WAIT_S) == ["webhook: not told, as too many messages were waiting"] * 3
    assert len(hung.told) == 1 + MAX_WAITING


@pytest.mark.parametrize(
    ("error", "problem"),
    [(NotifyError("it answered 404"), "it answered 404"), (ValueError("a secret"), "this is a bug: ValueError")],
)
def test_what_goes_wrong_is_logged_and_reported_and_the_others_go_on(failed, caplog, error, problem):
    caplog.set_level(logging.INFO, logger="aggregator")
    broken, sound = Keeper("webhook", error), Keeper("sound")
    dispatcher = Dispatcher([broken, sound])
    dispatcher.failed(failed(), 0)
    assert dispatcher.close(WAIT_S) == [f"webhook: {problem}"]
    assert len(sound.told) == 1
    assert [record.getMessage() for record in caplog.records] == [f"cannot tell of the failure: webhook: {problem}"]
