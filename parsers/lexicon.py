"""All message formats, indexed for matching."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property

from parsers.formatcache import formats_for_reading
from parsers.lineformats import Format, Message
from parsers.literals import KeywordIndex, StagedFinder
from parsers.multiline import BLOCK_LITERALS as _BLOCK_LITERALS
from parsers.prefixrules import PrefixRules
from parsers.records import Role

_LONG = 4096
"""Characters of a line, from its head and its tail, in which messages are looked for: patterns may be quadratic."""
_KINDS = 4096
"""Sets of keywords whose messages are remembered."""
_GRAVE = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM, Role.EXIT, Role.EXTERNAL})


class Lexicon:
    """All message formats, indexed by keyword. Made once, shared by all files."""

    def __init__(self, formats: Iterable[Format]) -> None:
        self.formats = tuple(formats)
        self.messages = tuple(message for fmt in self.formats for message in fmt.messages)
        by_keyword: dict[str, list[int]] = {}
        for number, message in enumerate(self.messages):
            for keyword in message.keywords:
                by_keyword.setdefault(keyword, []).append(number)
        self._keywords = list(by_keyword)
        self._messages_of = [by_keyword[keyword] for keyword in self._keywords]
        self._index = KeywordIndex(self._keywords)
        self._rare = {
            number
            for number, messages in enumerate(self._messages_of)
            if not all(self.messages[message].ends_only for message in messages)
        }
        self._candidates: dict[frozenset[int], tuple[Message, ...]] = {}
        self.prefixes = PrefixRules(self.formats)

    @cached_property
    def finder(self) -> StagedFinder:
        """Finds lines of interest in raw bytes; made when the first large file needs it."""
        return StagedFinder([text.encode() for text in self.literals])

    @property
    def literals(self) -> list[str]:
        """What whole files are scanned for, sorted."""
        rare = {keyword for message in self.messages if not message.ends_only for keyword in message.keywords}
        return sorted(rare | set(_BLOCK_LITERALS))

    def candidates(self, text: str) -> Sequence[Message]:
        """Messages one of whose keywords is in `text`, in order of their formats."""
        found = self._index.found(text)
        if not found:
            return ()
        known = self._candidates.get(found)
        if known is None:
            if len(self._candidates) >= _KINDS:
                self._candidates.clear()
            numbers = sorted({number for index in found for number in self._messages_of[index]})
            known = self._candidates[found] = tuple(self.messages[number] for number in numbers)
        return known

    def scanned(self, text: str) -> frozenset[int]:
        """Numbers of the literals in `text` that whole files are scanned for; blocks' literals are counted below 0."""
        found = self._index.found(text) & self._rare
        blocks = {-1 - number for number, literal in enumerate(_BLOCK_LITERALS) if literal in text}
        return frozenset(found | blocks)

    @staticmethod
    def begins_block(scanned: frozenset[int]) -> bool:
        """Whether a block may begin where `scanned` gave this."""
        return any(number < 0 for number in scanned)

    def may_be_fault(self, text: str) -> bool:
        """Whether `text` may hold a fault, an end or an act from outside, or begin a block that tells one."""
        return any(message.role in _GRAVE for message in self.candidates(text)) or any(
            literal in text for literal in _BLOCK_LITERALS
        )

    def match(self, text: str, likely: Message | None = None) -> list[tuple[Message, dict[str, str]]]:
        """Messages that `text` holds, with their fields, highest priority first.

        Of progress marks only the first that fits counts; of equal priority `likely` (the one that the same stream
        printed last) is tried before the others.
        """
        if len(text) > _LONG:
            text = text[: _LONG - _LONG // 4] + text[-_LONG // 4 :]
        hits = []
        marks = []
        for message in self.candidates(text):
            if message.role is Role.PROGRESS:
                marks.append(message)
                continue
            fields = message.match(text)
            if fields is not None:
                hits.append((message, fields))
        if len(marks) > 1:
            marks.sort(key=lambda mark: (-mark.priority, mark is not likely))
        for message in marks:
            fields = message.match(text)
            if fields is not None:
                hits.append((message, fields))
                break
        if len(hits) > 1:
            hits.sort(key=lambda hit: -hit[0].priority)
        return hits


@cache
def default_lexicon() -> Lexicon:
    """The lexicon of the shipped formats."""
    return Lexicon(formats_for_reading())
