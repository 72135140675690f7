"""What the server and the children that read for it say to each other."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOT_A_JOB, TOO_MUCH, BUG, BUSY, TIME_OUT = 200, 422, 413, 500, 503, 504
"""How it went, as HTTP has it."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to read, in how many seconds: the folder `path`, or, if that is empty, an upload; see `discover_upload`."""

    time_s: float
    path: str = ""
    name: str = ""
    changed_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict in words, and its reports; or, if `status` is not OK, what is wrong and what to do.

    `outcome` is the verdict's; `changed_ns` the last change of the job's files.
    """

    status: int
    headline: str
    help: str = ""
    outcome: str = ""
    changed_ns: int | None = None
    html: str = ""
    json: str = ""
