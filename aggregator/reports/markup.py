"""Foreign text inside Markdown, so that it stays text whoever renders it.

A backslash is not enough: GitHub and its kin make mentions (`@name`), references (`#12`, `owner/name#1`), addresses
and emoji of what a renderer gives them, escaped or not. What they leave alone is code. So only words and numbers stay
prose; all else becomes a code span. (`www.` is an address to GitHub, so `www` is no word.) Syntax:
https://spec.commonmark.org/0.31.2/, https://github.github.com/gfm/
"""

from __future__ import annotations

import re

_WORD = r"(?!(?i:www)\b)[^\W\d_]+(?:['\u2019-][^\W\d_]+)*"
_NUMBER = r"[±+]?\d+(?:[.,-]\d+)*%?|\d\d:\d\d:\d\d(?:\.\d+)?Z"
_PLAIN = re.compile(rf"(?:{_WORD}|{_NUMBER}|…)?")
_TOKEN = re.compile(r"[^\s`]*`[^`]+`[^\s`]*|\S+")
_SPAN = re.compile(r"`([^`]+)`")
_LIST_MARKER = re.compile(r"(\d+)([.)])")
_TICKS = re.compile("`+")
_LEAST_FENCE = 3


def prose(text: str) -> str:
    """One line of text that is safe to show, as Markdown in a sentence of ours: words as they are, the rest as code.

    What stands between backticks, as in the catalogue's texts, is one piece of code.
    """
    said = " ".join(map(_said, _TOKEN.findall(text)))
    return _LIST_MARKER.sub(r"\1\\\2", said, count=1) if _LIST_MARKER.match(said) else said


def _said(token: str) -> str:
    lead = "(" if token.startswith("(") and ")" not in token.rstrip("),;:.!?") else ""
    core = token[len(lead) :].rstrip(",;:.!?")
    if core.endswith(")") and "(" not in core:
        core = core[:-1]
    trail = token[len(lead) + len(core) :]
    if _PLAIN.fullmatch(core):
        return token
    span = _SPAN.fullmatch(core)
    return f"{lead}{code(span[1] if span else core)}{trail}"


def code(text: str) -> str:
    """One line of text that is safe to show, as a code span; nothing for nothing."""
    if not text:
        return ""
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fenced(lines: list[str], language: str = "text") -> list[str]:
    """Lines that are safe to show, between fences that none of them can close. `language` is a word of ours."""
    ticks = "`" * max(_LEAST_FENCE, 1 + max(map(_longest_run, lines), default=0))
    return [ticks + language, *lines, ticks]


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
