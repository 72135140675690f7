"""What a chat message says, and what no log line can make it do."""

import re
from dataclasses import replace

import pytest

from aggregator import verdict as v
from aggregator.notify.slack import TEXT_LIMIT, slack_text

TOKEN = "hf_" + "Ab1" * 12


def test_it_says_what_failed_where_how_sure_that_is_and_the_proof(message):
    assert slack_text(message()) == (
        "FAILED: first failure: rank 3: CUDA out of memory in evaluation, step 1200\n"
        "Confidence: very high (0.97)\n"
        "```\n"
        "job 4242\n"
        "node-b, GPU 1, 2026-03-04 12:03:04Z\n"
        "rank3.log:1234\n"
        "torch.OutOfMemoryError: CUDA out of memory.\n"
        "```"
    )


def test_a_correction_says_so_first(message):
    assert slack_text(message(correction=True)).startswith("Correction: an earlier message blamed other ranks.\nFAILED")


def test_ambiguous_and_undetermined_blame_nobody(message):
    ambiguous = slack_text(message(status=v.Status.AMBIGUOUS, ranks=(3, 5)))
    assert "one of ranks 3, 5, which one the logs do not settle" in ambiguous
    single = slack_text(message(status=v.Status.AMBIGUOUS, ranks=(3,)))
    assert "rank 3, or something that the logs do not name" in single
    assert "rank not told by these logs" in slack_text(message(status=v.Status.UNDETERMINED, ranks=()))
    assert "the job as a whole: preempted" in slack_text(message(kind="preempted", ranks=()))


def test_a_hang_without_a_first_failure_is_told(message):
    told = message(outcome=v.Outcome.HUNG)
    told = replace(told, verdict=replace(told.verdict, first_failure=None))
    assert slack_text(told) == "HUNG: no first failure was found\n```\njob 4242\n```"


@pytest.mark.parametrize(
    "hostile",
    [
        "<!channel>",
        "<@U1>",
        "<http://x|y>",
        "```\n@here ```",
        "@everyone",
        "http://phish.example",
        "&lt;!here&gt;",
        "\x1b]52;c;aGk=\x07",
        "\u202eevil\u2066",
        "a\rb\x00\x9b2J",
    ],
)
def test_hostile_text_stays_in_the_fence_and_is_harmless(message, hostile):
    told = message(text=hostile, job=hostile, hosts=(hostile,) * 9, gpu=hostile, file=hostile)
    head, body, rest = slack_text(told).split("```")
    assert rest == ""
    assert head == slack_text(message()).split("```")[0]
    assert not re.search("[<>`\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|&(?!amp;|lt;|gt;)", body)
    assert len(slack_text(told).split("\n")) <= 12


def test_a_secret_is_masked_wherever_it_stands_unless_asked_not_to_be(message):
    where = {"text": f"login with {TOKEN}", "job": TOKEN, "file": f"{TOKEN}.log", "hosts": (TOKEN,)}
    masked = slack_text(message(**where))
    assert TOKEN not in masked
    assert masked.count("[hf-token:") == 4
    assert slack_text(message(redact=False, **where)).count(TOKEN) == 4


@pytest.mark.parametrize(
    "text",
    ["x" * 10_000_000, "<" * 10_000, "&\n" * 10_000, f"{'<' * 300}{TOKEN}{'<' * 300}"],
    ids=["10 MB", "brackets", "many lines", "a secret where it is cut"],
)
def test_no_line_makes_it_longer_than_the_limit(message, text):
    told = slack_text(message(text=text, ranks=tuple(range(0, 9000, 2)), hosts=("<" * 500,) * 9))
    assert len(told) <= TEXT_LIMIT
    assert told.endswith("\n```")
    assert not re.search("&(?!amp;|lt;|gt;)", told)
    assert TOKEN not in told


def test_of_a_traceback_its_end_is_cited_and_nothing_else_of_the_log(message):
    traceback = "Traceback (most recent call last):\n" + "\n".join(f"  frame {n}" for n in range(9)) + "\nValueError: x"
    told = slack_text(message(text=traceback))
    assert "  frame 6\n  frame 7\n  frame 8\nValueError: x\n```" in told
    assert "frame 5" not in told
    assert "not cited" not in told
