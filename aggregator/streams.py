"""The standard streams: whoever starts the program may have closed them, or filled what is behind them."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

_STDOUT, _STDERR = 1, 2


def settle() -> None:
    """Open what is closed of the descriptors 0 to 2: a file that gets such a number would get what others write there.

    `sys.stdin` stays None where standard input is closed. Standard output fails when it is written to, as it should;
    where standard error is closed, there is nobody to tell.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == _STDERR else os.O_RDONLY)  # gets the lowest number: this
    if sys.stdout is None:
        sys.stdout = os.fdopen(_STDOUT, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", encoding="utf-8")


def complain(text: str) -> None:
    """Write to standard error, if that can be."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Let a stream that cannot be written lead to nowhere: the interpreter would fail again on what is buffered."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()
