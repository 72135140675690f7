"""The only way for foreign text (log lines, names, paths) to a terminal, a file or another program.

`show` takes the power to act away from text: what a terminal would obey becomes a symbol that can be seen. `mask` takes
secrets out, by the patterns of `redact.toml`. Use both: mask first, so that a cut never halves a secret.
"""

from __future__ import annotations

import os
import re
import tomllib
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REDACT_FILE = Path(__file__).with_name("redact.toml")

_SGR = re.compile(r"(?:\x1b\[|\x9b)[0-9;:]*m")
CSI = re.compile(r"(?:\x1b\[|\x9b)[0-9;:?]{0,64}[A-Za-z]")
"""What colours text, or clears the rest of a line; `grep --color` writes both."""
_SYMBOL_OF_DEL = "\u2421"
_CONTROL_PICTURES = 0x2400
_ELLIPSIS = " … "
_TAIL_SHARE = 4
_KEY = os.urandom(16)
_MASKED = re.compile(r"\[[a-z-]+:[0-9a-f]{4}\]")


@cache
def _visible(char: str) -> str:
    """What stands for one character: itself, or a symbol if a terminal or a reader could be misled by it."""
    code = ord(char)
    if char == "\t":
        return char
    if code < 0x20:  # noqa: PLR2004 - the C0 block, for which Unicode has pictures
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:  # noqa: PLR2004 - DEL
        return _SYMBOL_OF_DEL
    category = unicodedata.category(char)
    if category == "Cs":
        return "\ufffd"
    if category in {"Cc", "Cf", "Zl", "Zp"}:
        return f"<U+{code:04X}>"
    return char


def show(text: str, limit: int | None = None) -> str:
    """One line of text that is safe to print: no control character but tab, none that is invisible or turns the line.

    Colour sequences (SGR) are dropped, all other control characters replaced by symbols (ESC by ␛, newline by ␊, a
    bidirectional override by <U+202E>), lone surrogates by U+FFFD. Longer text than `limit` characters keeps its head
    and its tail around an ellipsis.
    """
    if "\x1b" in text or "\x9b" in text:
        text = _SGR.sub("", text)
    if limit is not None and len(text) > limit:
        text = _cut(text, limit)
    if text.isprintable():
        return text
    shown = "".join(map(_visible, text))
    return shown if limit is None else _cut(shown, limit)


def show_block(text: str, limit: int | None = None) -> str:
    """As `show`, line by line: newlines stay. For places that quote or indent every line, JSON strings among them."""
    return "\n".join(show(line.removesuffix("\r"), limit) for line in text.split("\n"))


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    room = limit - len(_ELLIPSIS)
    if room < _TAIL_SHARE:
        return text[:limit]
    tail = room // _TAIL_SHARE
    return text[: room - tail].rstrip() + _ELLIPSIS + text[len(text) - tail :].lstrip()


class RedactError(Exception):
    """`redact.toml` is wrong: says which item and why."""


@dataclass(frozen=True)
class SecretPattern:
    """One kind of secret. The group `secret` of `regex` is what is masked; `keywords` are lower-case literals, one of
    which is in every line (in lower case) that the pattern can match. `match` and `no_match` are samples.
    """

    id: str
    regex: re.Pattern[str]
    keywords: tuple[str, ...]
    match: tuple[tuple[str, str], ...]
    no_match: tuple[str, ...]


@cache
def secret_patterns(path: Path = REDACT_FILE) -> tuple[SecretPattern, ...]:
    """The patterns of `redact.toml`, in file order.

    Raises:
        RedactError: an item lacks a key, its pattern has no group `secret`, or does not compile. Of our own file tests
            tell that.
    """
    from parsers.later import later  # noqa: PLC0415 - help masks nothing

    patterns = []
    for item in tomllib.loads(path.read_text(encoding="utf-8"))["secret"]:
        where = f"{path.name} [{item.get('id', '?')}]"
        try:
            regex = later(item["pattern"])  # of most no keyword is ever met
            if path != REDACT_FILE and "secret" not in regex.groupindex:
                raise RedactError(f"{where}: the pattern has no group `secret`")
            samples = tuple((sample["line"], sample["secret"]) for sample in item["match"])
            pattern = SecretPattern(
                item["id"], regex, tuple(item["keywords"]), samples, tuple(item.get("no_match", ()))
            )
        except KeyError as error:
            raise RedactError(f"{where}: `{error.args[0]}` is missing") from None
        except re.error as error:
            raise RedactError(f"{where}: {error}") from None
        patterns.append(pattern)
    return tuple(patterns)


def mask(text: str, *, key: bytes = _KEY) -> str:
    """Text with each secret replaced by its kind and a keyed hash, such as `[hf-token:3fa2]`.

    Equal secrets get equal masks within one process, so that a reader can still see that two lines hold the same one;
    the key is random and never leaves the process, so that a mask can't be tested against guesses.
    """
    bare = CSI.sub("", text) if "\x1b" in text or "\x9b" in text else text  # colours may begin within a secret
    masked, lowered = bare, bare.lower()
    for pattern in secret_patterns():
        if any(keyword in lowered for keyword in pattern.keywords):
            masked = _mask_one(pattern, masked, key)
    return text if masked == bare else masked


def mask_lines(lines: Sequence[str]) -> list[str]:
    """Lines that follow each other in one log, masked, with them those between the first and the last of a private key.

    Either of the two may be beyond them.
    """
    from aggregator.keyblocks import KeyBlock  # noqa: PLC0415 - few outputs show lines one by one

    block = KeyBlock.before(lines)
    return [mask(block.masked(line)) for line in lines]


def mark(kind: str, secret: str, key: bytes = _KEY) -> str:
    """What stands for a secret."""
    import hashlib  # noqa: PLC0415 - brings OpenSSL, for lines that hold a secret

    digest = hashlib.blake2s(secret.encode("utf-8", "surrogatepass"), key=key, digest_size=2).hexdigest()
    return f"[{kind}:{digest}]"


def _mask_one(pattern: SecretPattern, text: str, key: bytes) -> str:
    masked = [found.span() for found in _MASKED.finditer(text)]
    ends = [end for _, end in masked]

    def replace(found: re.Match[str]) -> str:
        first, last = found.span("secret")
        next_mask = bisect_right(ends, first)
        if next_mask < len(masked) and masked[next_mask][0] < last:  # an earlier pattern masked it
            return found[0]
        start, end = first - found.start(), last - found.start()
        return f"{found[0][:start]}{mark(pattern.id, found['secret'], key)}{found[0][end:]}"

    return pattern.regex.sub(replace, text)
