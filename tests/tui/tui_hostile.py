"""Log text that would act on a terminal or on the library that draws on it, and pictures that are full of it."""

from dataclasses import fields, is_dataclass, replace
from enum import Enum

from tui_views import VERDICT, event, failed, suspect

from aggregator import verdict as v

PAYLOADS = (
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]52;c;ZXZpbA==\x1b\\",
    "\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b[?1049l\x1b[?25h",
    "\x1b[31mred\x1b[0m",
    "\x1bP+q544e\x1b\\\x1b_x\x1b\\",
    "\x1bc\x1b(0",
    "\x9b2J\x9d52;c;eA==\x9c\x90x\x9c\x85",
    "a\rb\nc\x08d\x0be\x0cf\x07",
    "tab\there",
    "\u202eevil\u2066x\u2069\u200b\u200d\ufeff\u2028\u2029",
    "\ud800\udfff",
    "\x00\x7f",
    "[/x]",
    "[red]",
    "[@click=app.quit]quit[/]",
    "[b]bold[/b] $error [link=https://evil.example]",
    ":warning: \\[x]",
    "\u6f22\u5b57\u0301\U0001f600",
)

_FULL = replace(
    VERDICT,
    job=replace(VERDICT.job, started=VERDICT.first_failure.time, ended=VERDICT.first_failure.time),
    first_failure=replace(
        VERDICT.first_failure, gpu="0", exception="E", location="a.py:1", would_settle=("x",), basis="x",
        evidence=(replace(VERDICT.first_failure.evidence[0], host="h"),),
        candidates=(v.Candidate(rank=1, kind="abort", why_not="x"),),
        diagnosis=v.Diagnosis(entry="x", title="x", root_cause="x", fix="x", verify="x", score=1.0, matched=("x",),
                              check_next=("x",), references=("x",)),
    ),
    collateral=(v.Collateral(rank=None, kind="abort", message="x", because="x", host="h"),),
    attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=VERDICT.first_failure),) * 2,
    clocks=(v.Clock(host="h", offset_s=2.0, uncertainty_s=1.0, method="x"),),
    coverage=replace(VERDICT.coverage, files_skipped=(v.SkippedFile(file="x", reason="x"),)),
    warnings=("x",),
)  # fmt: skip
FULL = replace(failed(), suspicion=suspect().suspicion, verdict=_FULL,
               events=(replace(event(0, level="error"), signature="x"), replace(event(1), rank=3)))  # fmt: skip
"""A picture in which no field is empty."""


def poisoned(value, text):
    """A copy of a picture in which every string is that text."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(poisoned(item, text) for item in value)
    if is_dataclass(value):
        return type(value)(**{field.name: poisoned(getattr(value, field.name), text) for field in fields(value)})
    return value
