"""Long text on a terminal goes through the user's pager, as git's does."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, TextIO, cast

from aggregator.reports.destination import standard_output

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT = "less -FRX"
"""Ends by itself if all fits the screen, shows colours, and leaves the text on the screen."""
_NONE = frozenset({"", "cat"})


@contextlib.contextmanager
def paged(*, wanted: bool = True) -> Iterator[TextIO]:
    """Standard output, through a pager if it is wanted and there is a terminal.

    The pager is `$DENPEX_PAGER`, else `$PAGER`, else `less -FRX`; one that is not installed is done without. A pager
    that is left early is no error.

    Raises:
        ClosedPipeError, OutputError: as `standard_output`.
    """
    command = _command() if wanted and sys.stdout.isatty() else None
    if command is None:
        with standard_output() as out:
            yield out
        return
    sys.stdout.flush()
    environment = {"LESS": "FRX", "LV": "-c"} | os.environ  # as git does: less shows colours only if it is told to
    with subprocess.Popen(command, stdin=subprocess.PIPE, encoding="utf-8", env=environment) as process:
        out = cast("TextIO", process.stdin)
        try:
            with contextlib.suppress(BrokenPipeError):
                yield out
        except SystemExit:  # we are told to terminate: nobody is to be waited for
            process.terminate()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                out.close()
            _wait(process)


def _wait(process: subprocess.Popen[str]) -> None:
    """Ctrl-C is the pager's now, which reaches us too."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.wait()
    finally:
        signal.signal(signal.SIGINT, earlier)


def _command() -> list[str] | None:
    words = next((os.environ[name] for name in ("DENPEX_PAGER", "PAGER") if name in os.environ), _DEFAULT)
    if words.strip() in _NONE:
        return None
    with contextlib.suppress(ValueError):  # an open quote
        command = shlex.split(words)
        if shutil.which(command[0]) is not None:
            return command
    return None
