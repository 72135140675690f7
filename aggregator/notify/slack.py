"""The words of a message to a chat: a few short lines, of which no log line can make a mention, a link or markup.

Slack's rules of text: https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.reports import words
from aggregator.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator.notify import FailureMessage
    from aggregator.verdict import Failure, Verdict

TEXT_LIMIT = 2500
"""Characters of a message, as it is sent."""
LINE_LIMIT = 480
RANKS_LIMIT = 200
MAX_EVIDENCE_LINES = 4
MAX_HOSTS = 4

_FENCE = "```"
_HALF_ENTITY = re.compile(r"&\w{0,3}\Z")


def slack_text(message: FailureMessage) -> str:
    """The message: in words of our own what failed and how sure that is, then, fenced as code, where and the proof.

    The proof is the end of the first piece of evidence; no other log text is in it. Whatever comes from the job is in
    the fence, since services of this kind mention and link outside of it even where Slack does not.
    """

    def clean(text: str) -> str:
        return safe.mask(text) if message.redact else text

    verdict = message.verdict
    failure = verdict.first_failure
    head = ["Correction: an earlier message blamed other ranks."] if message.correction else []
    head.append(f"{verdict.outcome.upper()}: {_what(failure) if failure else 'no first failure was found'}")
    if failure:
        head.append(f"Confidence: {words.confidence_words(failure.confidence)}")
    start = html.escape("\n".join(head), quote=False) + f"\n{_FENCE}\n"
    end = f"\n{_FENCE}"
    body = "\n".join(safe.show(line, LINE_LIMIT) for line in _lines(verdict, clean)).replace("`", "'")
    room = TEXT_LIMIT - len(start) - len(end)
    return start + _HALF_ENTITY.sub("", html.escape(body, quote=False)[:room]) + end


def _what(failure: Failure) -> str:
    ranks = safe.show(words.ranks_words(failure.ranks), RANKS_LIMIT) if failure.ranks else "the job as a whole"
    if failure.status is Status.UNDETERMINED:
        ranks = "rank not told by these logs"
    elif failure.status is Status.AMBIGUOUS:
        ranks = words.one_of(failure.ranks, ranks)
    text = f"first failure: {ranks}: {words.kind_words(failure.kind)}"
    if failure.phase in words.PHASES:
        text += f" {words.PHASES[failure.phase]}"
    return text if failure.step is None else f"{text}, step {failure.step}"


def _lines(verdict: Verdict, clean: Callable[[str], str]) -> list[str]:
    """What comes from the job, a line each, not yet made safe to show but masked by `clean`."""
    lines = [clean(f"job {verdict.job.id or verdict.job.path}")]
    failure = verdict.first_failure
    if failure is None:
        return lines
    place = [*failure.hosts[:MAX_HOSTS]]
    if len(failure.hosts) > MAX_HOSTS:
        place.append(f"{len(failure.hosts) - MAX_HOSTS} more hosts")
    if failure.gpu is not None:
        place.append(f"GPU {failure.gpu}")
    if moment := words.moment(failure.time, failure.time_resolution_ns):
        place.append(moment)
    if place:
        lines.append(clean(", ".join(place)))
    if failure.evidence:
        item = failure.evidence[0]
        lines.append(clean(f"{item.file}:{item.line}"))
        lines += [line for line in clean(item.text).split("\n") if line.strip()][-MAX_EVIDENCE_LINES:]
    return lines
