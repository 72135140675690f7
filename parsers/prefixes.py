"""Strips what launchers, collectors and loggers put in front of a line, and keeps what it tells.

Prefixes are data: the `[[prefix]]` items of `formats/*.toml`. They are tried from outside to inside, in file order at
each position, until none matches. JSON records are the one form that needs code (`json_records.py`).

Keys of a prefix's `tags` with a meaning of their own; all others are constants copied to the line:

- `rank_how`: a value of `Known` for the ranks that this prefix gives (default: line prefix);
- `only`: matches in files alone whose lines mostly begin so: `start` with a label of `srun --label`, `numbered` with
  one of Hydra and its like, both at the very start of a line; `tagged` with a rank that could be part of a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from parsers.json_records import parse_record
from parsers.later import later
from parsers.numberlabels import TAGGED, looks_numbered, may_be_tagged, most
from parsers.prefixrules import PrefixRules, Rule, Slot, fork_at, link, refused
from parsers.records import Known, Stamp
from parsers.timestamps import StampContext, read_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LAYERS: Final = 10
_MAX_CHAINS: Final = 512
_MAX_DIGITS: Final = 9
_MAX_HOST: Final = 255
_NUMBERS: Final = frozenset({"local_rank", "pid", "attempt"})
_TEXTS: Final = frozenset({"host", "stream", "level", "logger"})
"""Fields of `Origin` that the outermost prefix decides, as numbers and as text."""
_CONTROL: Final = later(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")
_HOSTED: Final = later(
    r"(?P<host>[a-zA-Z][a-zA-Z-]{0,40}\d[\w.-]{0,80}): "
    r"|(?:\[\d[\d:., T-]{6,30}\] )?\[(?P<node>[a-zA-Z][a-zA-Z-]{0,40}\d[\w.-]{0,80})\] (?=[\[(]?(?i:rank|r)[ _=-]?\d)"
)
_NO_HOST: Final = later(
    r"(?:gpu|cuda|npu|dev|device|local|rank|proc|process|worker|task|stage|[tpd]p|step|epoch|iter|run|trial|thread|pid|v)"
    r"[_-]?\d+$",
    re.IGNORECASE,
)
_NAMED: Final = later(r"(?P<host>[a-zA-Z][\w.-]{0,100}): ")
_LISTED: Final = later(r"\bpdsh\b[^\n]{0,400}? -w (?P<hosts>[\w.,-]{1,4000})|'(?P<host>[a-zA-Z][\w.-]{0,100})': \[\d")
"""Where DeepSpeed's launcher lists its hosts: in the command that it starts, and with their ranks."""
_OFTEN: Final = 3
_FIRST_LINES: Final = 400
_LABEL: Final = later(r"(?:P\d{1,4} )? {0,4}\d{1,5}:(?: |$)")
_LABEL_BEGINS: Final = frozenset("P 0123456789")


@dataclass(slots=True)
class Origin:
    """What the prefixes of one line tell, and the line without them.

    `start` is the index of `body` in the line, 0 where the body was unescaped from JSON. `rank` is global, and
    `rank_how` is TAG for a launcher's own numbering, PREFIX for what the process printed. The outermost prefix that
    gives a field wins, but for `level` and `logger`, where the innermost does. `level` is as printed (`E`, `WARN`,
    `err`, a kernel priority digit). `tags` holds all else: `task`, `het`, `pod`, `container`, `actor`, `ip`, `tid`,
    `role`, `gpu`, `step` …; `conflict_rank` is an inner rank that differs from the outer, `inner_ts` a second
    stamp as printed. A body has line breaks only where a JSON record carried a traceback.
    """

    body: str
    start: int = 0
    rank: int | None = None
    rank_how: Known = Known.NONE
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    stream: str | None = None
    level: str | None = None
    logger: str | None = None
    stamp: Stamp | None = None
    attempt: int | None = None
    tags: dict[str, str] = field(default_factory=dict)


def first_lines(head: Iterable[str]) -> list[str]:
    """The first lines of a file that are not empty, as far as its form is judged by them."""
    return list(islice(filter(str.strip, head), _FIRST_LINES))


def looks_labelled(head: Iterable[str]) -> bool:
    """Whether `srun --label` wrote these lines: nearly all that are not empty begin with a number and a colon.

    Pass the first some hundred lines of a file. The batch script's own lines, and those of srun itself, have no
    label, hence the tolerance.
    """
    return _mostly_labelled(first_lines(head))


def _mostly_labelled(lines: Sequence[str]) -> bool:
    may_be = [line for line in lines if line[0] in _LABEL_BEGINS]
    return len(may_be) * 2 > len(lines) and sum(_LABEL.match(line) is not None for line in may_be) * 2 > len(lines)


def hosts_in_front(lines: Sequence[str]) -> frozenset[str]:
    """The host names that pdsh and its like put before each line (`node-b: text`), empty if that is not the form.

    Loggers put them between the time and the rank (`[21:00:00] [node-2] [r06] text`). Pass the `first_lines` of a
    file. A name holds a digit, or the launcher lists it, and comes often; together they begin most lines.
    """
    if not most(lines, _begins_with_a_name):
        return frozenset()
    names: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    for line in lines:
        if (found := _HOSTED.match(line)) and not _NO_HOST.match(found["node"] or ""):
            names[found["host"] or found["node"]] += 1
        elif found := _NAMED.match(line):
            plain[found["host"]] += 1
    listed: set[str] = set()
    for line in lines:
        if "pdsh" in line or "': [" in line:  # the pattern alone costs twenty times as much
            for told in _LISTED.finditer(line):
                listed.update(told["hosts"].split(",") if told["hosts"] else [told["host"]])
    names.update({name: count for name, count in plain.items() if name in listed})
    often = {name: count for name, count in names.items() if count > _OFTEN}
    return frozenset(often) if sum(often.values()) * 2 > len(lines) else frozenset()


def _begins_with_a_name(line: str) -> bool:
    return (_HOSTED.match(line) or _NAMED.match(line)) is not None


def looks_tagged(origins: Iterable[Origin]) -> bool:
    """Whether most lines, their other prefixes apart, begin with a rank, and each of several ranks with its own."""
    seen = 0
    ranks: Counter[str] = Counter()
    for origin in islice((origin for origin in origins if origin.body.strip()), 400):
        seen += 1
        if origin.rank is None and (found := TAGGED.match(origin.body)):
            if found["host"] and _NO_HOST.match(found["host"]):
                return False
            ranks[found["rank"]] += 1
    return len(ranks) > 1 and ranks.total() > len(ranks) and ranks.total() * 2 > seen


def _blank_at(line: str, position: int) -> bool:
    """Whether just one blank stands behind a prefix: launchers put it there, it is no indentation of the text."""
    return position > 0 and line[position] == " " and line[position + 1 : position + 2].strip() != ""


class PrefixStripper:
    """Strips the prefixes of lines that come from one source.

    Lines may come in any order: what `strip` returns depends on the line alone. What was seen before only decides
    what is tried first.
    """

    def __init__(
        self,
        rules: PrefixRules,
        context: StampContext,
        *,
        labelled: bool = True,
        numbered: bool = False,
        tagged: bool = False,
        hosts: Iterable[str] = (),
    ) -> None:
        """Strip with `rules`.

        Args:
            rules: the prefixes of all formats.
            context: completes stamps.
            labelled: False where no `srun --label` wrote the file, so that a leading number is text.
            numbered: True where `[3] ` at the front of a line is a launcher's label.
            tagged: True where `rank=3 ` or `r3 ` in front of a text is the writer's.
            hosts: names of the job's nodes or pods; only these are stripped in the forms `name: ` and `[name] `,
                which have no mark of their own (pdsh, wrappers of `kubectl logs`).
        """
        self._context = context
        self._hosts = frozenset(hosts)
        asked = {"start": labelled and not numbered, "numbered": numbered, "tagged": tagged}
        chosen = rules.fitting(frozenset(form for form, wanted in asked.items() if wanted))
        self._rules = chosen.rules
        self._outer, self._inner = chosen.outer, chosen.inner
        self._chains, self._built = chosen.chains, chosen.built

    @classmethod
    def fitting(cls, rules: PrefixRules, context: StampContext, head: list[str]) -> PrefixStripper:
        """The stripper that fits a file whose first lines are these."""
        first = first_lines(head)
        labelled, numbered, hosts = _mostly_labelled(first), looks_numbered(first), hosts_in_front(first)
        stripper = cls(rules, context, labelled=labelled, numbered=numbered, hosts=hosts)
        if may_be_tagged(first) and looks_tagged(stripper.strip(line) for line in head):
            stripper = cls(rules, context, labelled=labelled, numbered=numbered, tagged=True, hosts=hosts)
        return stripper

    def completing(self, context: StampContext) -> PrefixStripper:
        """The same stripper, but for what completes stamps."""
        twin = copy(self)
        twin._context = context  # noqa: SLF001 - its own
        return twin

    def strip(self, line: str) -> Origin:
        """Take the prefixes off a line. Never raises on what a line holds."""
        if "\x1b" in line:
            clean = _CONTROL.sub("", line)
            origin = self._strip(clean)
            if origin.start and line.endswith(origin.body):
                origin.start = len(line) - len(origin.body)
            return origin
        return self._strip(line)

    def lines(self, origin: Origin) -> list[Origin]:
        """The lines of a record's text, each under what the record tells; their own tags go as in any line."""
        first, *rest = (line.removesuffix("\r") for line in origin.body.split("\n"))
        below = (_merge(replace(origin, tags=dict(origin.tags)), self._strip(line)) for line in rest)
        return [replace(origin, body=first), *below]

    def _strip(self, line: str) -> Origin:
        origin = Origin(line)
        position = 0
        applied: tuple[Rule, ...] = ()
        chain = self._chains.get(line[:2])
        if chain is not None and (found := chain.regex.match(line)) is not None:
            groups = found.groups()
            if chain.role is None or not refused(groups[chain.role]):
                self._absorb(origin, chain.slots, groups, chain.constants)
                position = found.end()
                applied = chain.rules
        patterns_only = True
        while position < len(line) and len(applied) < MAX_LAYERS:
            if line[position] == "{" and (inner := self._json(origin, line, position)) is not None:
                return inner
            if self._hosts and (end := self._host(origin, line, position)):
                position, patterns_only = end, False
                continue
            step = self._step(origin, line, position)
            if step is None and _blank_at(line, position):
                step, patterns_only = self._step(origin, line, position + 1), False
            if step is None:
                break
            rule, position = step
            applied = (*applied, rule)
        if patterns_only and applied and (chain is None or chain.rules != applied):
            self._remember(line[:2], applied)
        if position:
            origin.body, origin.start = line[position:], position
        return origin

    def _step(self, origin: Origin, line: str, position: int) -> tuple[Rule, int] | None:
        """Strip one prefix: the rule and the index after it, or None if there is none."""
        forks = self._inner if position else self._outer
        letter = line[position]
        try:
            fork = forks[letter]
        except KeyError:
            if len(forks) >= _MAX_CHAINS:
                forks.clear()
            fork = forks[letter] = fork_at(self._rules, letter, at_start=not position)
        if fork is None or (found := fork.regex.match(line, position)) is None or found.end() == position:
            return None
        index = found.lastindex or 0
        rule = fork.rules[index]
        groups = found.groups()[index - 1 - len(rule.slots) : index - 1]
        if any(slot.name == "role" and refused(value) for slot, value in zip(rule.slots, groups, strict=True)):
            return None
        self._absorb(origin, rule.slots, groups, rule.constants)
        return rule, found.end()

    def _remember(self, key: str, rules: tuple[Rule, ...]) -> None:
        if len(self._chains) >= _MAX_CHAINS:
            self._chains.clear()
        chain = self._built.get(rules)
        if chain is None:
            if len(self._built) >= _MAX_CHAINS:
                self._built.clear()
            chain = self._built[rules] = link(rules, self._rules)
        self._chains[key] = chain

    def _host(self, origin: Origin, line: str, position: int) -> int:
        """The index after `name: ` or `[name] ` if a known host is named there, else 0."""
        bracket = line[position] == "["
        start, close = (position + 1, "]") if bracket else (position, ":")
        end = line.find(close, start, start + _MAX_HOST)
        if end < 0 or line[start:end] not in self._hosts:
            return 0
        rest = end + 1
        rest += bracket and line.startswith(":", rest)
        if not line.startswith((" ", "\t"), rest):
            return 0
        if origin.host is None:
            origin.host = line[start:end]
        return rest + 1

    def _absorb(
        self,
        origin: Origin,
        slots: tuple[Slot, ...],
        groups: Iterable[str | None],
        constants: Iterable[tuple[str, str]] = (),
    ) -> None:
        for (name, form, how), value in zip(slots, groups, strict=True):
            if value is None:
                continue
            if name == "level":
                origin.level = value
            elif name == "logger":
                origin.logger = value
            elif name == "ts":
                self._set_stamp(origin, read_stamp(form, value, self._context), value)
            elif name == "rank":
                _set_rank(origin, value, how)
            else:
                _keep(origin, name, value)
        for name, value in constants:
            _keep(origin, name, value)

    def _set_stamp(self, origin: Origin, stamp: Stamp | None, text: str) -> None:
        """The outer stamp wins: all lines of the file have it, by one clock. A wall clock beats time since boot."""
        if stamp is None:
            return
        if origin.stamp is None or (origin.stamp.boot and not stamp.boot):
            origin.stamp = stamp
        else:
            origin.tags.setdefault("inner_ts", text)

    def _json(self, origin: Origin, line: str, position: int) -> Origin | None:
        """Strip a line whose rest is a JSON record; None if it is not one."""
        fields = parse_record(line[position:])
        if fields is None:
            return None
        inner = self._strip(_CONTROL.sub("", fields.pop("body")))
        for name in ("level", "logger"):
            if getattr(inner, name) is not None:
                fields.pop(name, None)
        stamp = fields.pop("ts", "")
        number = stamp.partition(".")[0].isdecimal()
        # A small number counts from the start of the run, not from 1970.
        if not number or len(stamp.partition(".")[0]) >= _MAX_DIGITS:
            self._set_stamp(origin, read_stamp("epoch" if number else "iso", stamp, self._context), stamp)
        self._absorb(origin, tuple(map(Slot, fields)), fields.values())
        return _merge(origin, inner)


def _number(text: str) -> int | None:
    return int(text) if len(text) <= _MAX_DIGITS and text.isdecimal() else None


def _keep(origin: Origin, name: str, value: str) -> None:
    """Sets a field, or a tag, that no outer prefix has set."""
    if name in _NUMBERS:
        if getattr(origin, name) is None:
            setattr(origin, name, _number(value))
    elif name in _TEXTS:
        if getattr(origin, name) is None:
            setattr(origin, name, value)
    else:
        origin.tags.setdefault(name, value)


def _set_rank(origin: Origin, text: str, how: Known) -> None:
    rank = _number(text)
    if rank is None:
        return  # -1 before the process group exists
    if origin.rank is None:
        origin.rank, origin.rank_how = rank, how
    elif origin.rank != rank:
        origin.tags.setdefault("conflict_rank", str(rank))


def _merge(outer: Origin, inner: Origin) -> Origin:
    """What an unescaped text tells, under what the record around it tells."""
    outer.body, outer.start = inner.body, 0
    if inner.rank is not None:
        _set_rank(outer, str(inner.rank), inner.rank_how)
    for name in ("local_rank", "host", "pid", "stream", "stamp", "attempt"):
        if getattr(outer, name) is None:
            setattr(outer, name, getattr(inner, name))
    for name in ("level", "logger"):
        if getattr(inner, name) is not None:
            setattr(outer, name, getattr(inner, name))
    outer.tags = inner.tags | outer.tags
    return outer
