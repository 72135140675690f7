"""The epilog's words, for the system's log. They go to standard error too: for who runs it by hand."""

from __future__ import annotations

import syslog

from aggregator import safe

_LINE_LIMIT = 900
_TEXT_LIMIT = 10_000
"""Characters of a message that are looked at: what the reader says may be long."""


def open_log() -> None:
    """Name ourselves."""
    syslog.openlog("denpex-agg", syslog.LOG_PID | syslog.LOG_PERROR, syslog.LOG_DAEMON)


def say(text: str, priority: int = syslog.LOG_INFO) -> None:
    """One line, safe to show and without secrets."""
    syslog.syslog(priority, safe.show(safe.mask(text[:_TEXT_LIMIT]), _LINE_LIMIT))


def warn(text: str) -> None:
    """As `say`, of something that an admin should look at."""
    say(text, syslog.LOG_WARNING)
