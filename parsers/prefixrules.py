"""Makes the prefixes of the formats ready for stripping: as alternatives of one pattern, and as chains.

A line is stripped prefix by prefix; which ones came off is remembered as a chain, one pattern for the whole front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from parsers.lineformats import Format, FormatError, Prefix
from parsers.records import Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AT_START: Final = frozenset({"start", "numbered"})
_GROUP: Final = re.compile(r"\(\?P<\w+>")
_GROUP_NAME: Final = re.compile(r"\(\?P<(\w+)>")
# Words that programs number in brackets as torchrun does its roles; none of them is a process.
_NOT_ROLES: Final = frozenset(
    {"batch", "block", "bucket", "chunk", "cuda", "cycle", "device", "dp", "ep", "epoch", "expert", "fold", "gpu"}
    | {"group", "head", "it", "item", "iter", "iteration", "job", "layer", "level", "line", "loop", "node", "part"}
    | {"pass", "phase", "pp", "rank", "request", "round", "run", "sample", "seed", "shard", "split", "stage", "step"}
    | {"test", "thread", "tp", "trial", "try", "update"}
)


class Slot(NamedTuple):
    """One group of a pattern: what it names, the form of a stamp, how a rank is known."""

    name: str
    form: str = "iso"
    how: Known = Known.PREFIX


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A prefix made ready: `source` without anchor and group names, a slot for each group."""

    prefix: Prefix
    source: str
    slots: tuple[Slot, ...]
    constants: tuple[tuple[str, str], ...]
    only: str

    @property
    def at_start(self) -> bool:
        """Whether it matches at the very start of a line alone."""
        return self.only in _AT_START


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Rules that stripped a line one after the other, as one pattern."""

    regex: re.Pattern[str]
    slots: tuple[Slot, ...]
    rules: tuple[Rule, ...]
    constants: tuple[tuple[str, str], ...]
    role: int | None
    """index of the group that holds a torchrun role"""


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """All rules that can match at a character, in order, as alternatives of one pattern.

    An empty group closes each alternative: `lastindex` tells which it was, and the rule's own groups are before it.
    """

    regex: re.Pattern[str]
    rules: Mapping[int, Rule]


@dataclass(slots=True, eq=False)
class RuleSet:
    """Rules and the patterns made of them as lines ask for them; shared by all files of a job."""

    rules: tuple[Rule, ...]
    outer: dict[str, Fork | None] = field(default_factory=dict)
    inner: dict[str, Fork | None] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    built: dict[tuple[Rule, ...], Chain] = field(default_factory=dict)


class PrefixRules:
    """The prefixes of all formats, made ready once for any number of strippers."""

    def __init__(self, formats: Iterable[Format]) -> None:
        """Take the prefixes of `formats` (those of `load_formats()`), in their order; messages are not used.

        Raises:
            FormatError: `rank_how` of a prefix is no value of `Known`.
        """
        rules = tuple(_ready(prefix) for fmt in formats for prefix in fmt.prefixes)
        self._rules = rules
        self._sets: dict[frozenset[str], RuleSet] = {}

    def fitting(self, forms: frozenset[str]) -> RuleSet:
        """The rules of a file in which the lines have `forms`: values of `only`."""
        found = self._sets.get(forms)
        if found is None:
            chosen = tuple(rule for rule in self._rules if not rule.only or rule.only in forms)
            found = self._sets[forms] = RuleSet(chosen)
        return found


def _ready(prefix: Prefix) -> Rule:
    tags = dict(prefix.tags)
    try:
        how = Known(tags.pop("rank_how", Known.PREFIX))
    except ValueError:
        raise FormatError(f"{prefix.origin}: rank_how is not one of {', '.join(Known)}") from None
    only = tags.pop("only", "")
    pattern = prefix.pattern.removeprefix("^")
    names = _GROUP_NAME.findall(prefix.pattern)
    slots = tuple(Slot(name, prefix.stamp or "iso", how) for name in names)
    return Rule(prefix, f"(?:{_GROUP.sub('(', pattern)})", slots, tuple(tags.items()), only)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    """The pattern of a prefix without groups."""
    return re.compile(f"(?:{_GROUP.sub('(?:', pattern.removeprefix('^'))})")


def link(rules: tuple[Rule, ...], every: tuple[Rule, ...]) -> Chain:
    """Chain rules into one pattern that matches where stripping one by one would take the same way.

    Each rule is atomic, as it is when stripped alone. A rule that comes earlier in the order and has a sample that
    this one matches too is a rival with the right of way: it must not match there.
    """
    parts = []
    for number, rule in enumerate(rules):
        rivals = [
            _matcher(other.prefix.pattern).pattern
            for other in every[: every.index(rule)]
            if (number == 0 or not other.at_start)
            and any(_matcher(rule.prefix.pattern).match(sample.line) is not None for sample in other.prefix.samples)
        ]
        parts.append(f"(?!{'|'.join(rivals)})" if rivals else "")
        parts.append(f"(?>{rule.source})")
    slots = tuple(slot for rule in rules for slot in rule.slots)
    role = next((index for index, slot in enumerate(slots) if slot.name == "role"), None)
    constants = tuple(constant for rule in rules for constant in rule.constants)
    return Chain(re.compile("".join(parts)), slots, rules, constants, role)


def fork_at(rules: tuple[Rule, ...], letter: str, *, at_start: bool) -> Fork | None:
    """What can match at a character, None if nothing does."""
    chosen = [
        rule
        for rule in rules
        if (not rule.prefix.starts or letter in rule.prefix.starts) and (at_start or not rule.at_start)
    ]
    ends = accumulate(len(rule.slots) + 1 for rule in chosen)
    # Alternatives that begin with the same literal stand together: `re` then tests it once for all of them.
    literal = f"(?:{re.escape(letter)}"
    runs = groupby(chosen, key=lambda rule: rule.source.startswith(literal))
    source = "|".join(f"(?:{'|'.join(f'{rule.source}()' for rule in run)})" for _, run in runs)
    return Fork(re.compile(source), dict(zip(ends, chosen, strict=True))) if chosen else None


def refused(role: str | None) -> bool:
    """Whether what looks like a torchrun tag is none: the role is a word that programs number for other reasons."""
    return role is not None and role.lower().strip("_-.") in _NOT_ROLES
