"""Exceptions that a program only names in a warning: it has handled them and goes on."""

from __future__ import annotations

import re

from parsers.multiline import Block
from parsers.prefixes import Origin
from parsers.records import Role

_MILD = frozenset({"W", "WARN", "WARNING", "I", "INFO", "D", "DEBUG"})
_HANDLED = _MILD - {"I", "INFO"}
"""Collectors call all that comes from one stream INFO, an uncaught exception too."""
_NAMED = re.compile(r"^\s{0,8}(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Timeout)\b(?:\(|:|$)")
_OWN = frozenset({Role.ROOT, Role.EITHER})


def role_of(role: Role, origin: Origin) -> Role:
    """The role of a message in one line: an exception that is logged below the level of an error ended nothing."""
    mild = origin.level is not None and origin.level.upper() in _MILD
    return Role.CONTEXT if mild and role in _OWN and _NAMED.match(origin.body) else role


def role_in_record(role: Role, block: Block) -> Role:
    """The role of a traceback: one that a log record carries, and calls no error, ended nothing."""
    whole = len(block.places) > 1 and block.places[0] == block.places[-1]
    mild = block.origin.level is not None and block.origin.level.upper() in _HANDLED
    return Role.CONTEXT if whole and mild and role in _OWN else role
