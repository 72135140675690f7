"""Reads the TOML files that people write for the program: formats, entries, samples.

Somebody may name a pipe, a device, a log of gigabytes: each is refused in a sentence, and nothing waits.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from parsers.later import later

MAX_BYTES = 2 << 20
_MAX_DEPTH = 100
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = later(rf"(?:^|[{{,\[])[ \t]*+{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_MAX_DEPTH}}}", re.MULTILINE)
"""A key of very many parts: the time for it grows with the square of their number."""
_HUGE_NUMBER = later(r"[=,\[][ \t]*+0[xob]\w{1000}")
"""A number that can be read, but not be shown."""
_PLACE = later(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class TomlError(Exception):
    """A file that cannot be read as TOML: what is wrong, and the line if there is one to name."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.line = line


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        TomlError: it cannot be read, is no regular file, too large, nested too deeply or no TOML.
    """
    return parse_toml(read_text(path))


def read_text(path: Path) -> str:
    """The text of a file that a person named.

    Raises:
        TomlError: it cannot be read, is no regular file, too large or no UTF-8.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise TomlError("not a regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TomlError(error.strerror or str(error)) from None
    if len(data) > MAX_BYTES:
        raise TomlError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TomlError("not UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a TOML text.

    Raises:
        TomlError: it is nested too deeply, holds a number that is too large, or is no TOML.
    """
    for bad, what in ((_DEEP_KEY, f"a key of more than {_MAX_DEPTH} parts"), (_HUGE_NUMBER, "a number is too large")):
        if (found := bad.search(text)) is not None:
            raise TomlError(what, text.count("\n", 0, found.start()) + 1)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = str(error)
        place = _PLACE.search(told)
        line = int(place[1]) if place is not None and place[1] else None
        raise TomlError(told[: place.start()] if place is not None and line else told, line) from None
    except RecursionError:
        raise TomlError("nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits, the 31st of February
        raise TomlError(str(error)) from None
