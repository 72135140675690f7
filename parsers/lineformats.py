"""Loads and checks `formats/*.toml`: one file a log format, patterns and samples together.

A format has `[[prefix]]` items, stripped from the front of a line (launcher tags, stamps, logger names), and
`[[message]]` items, searched in what remains. docs/formats.md is the guide for whoever adds one. Patterns stay in the
subset that Python's `re` and RE2 share, so that whole columns can be matched in linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from parsers.records import Role
from parsers.tomlfile import TomlError, read_toml

FORMATS_DIR = Path(__file__).parent / "formats"

KINDS = frozenset(
    [
        "cuda_oom",
        "host_oom",
        "shm_exhausted",
        "gpu_ecc",
        "gpu_lost",
        "nvlink_error",
        "gpu_xid",
        "cuda_illegal_access",
        "cuda_device_assert",
        "cuda_error",
        "ib_error",
        "network_error",
        "rendezvous_failure",
        "nccl_error",
        "collective_timeout",
        "collective_mismatch",
        "deadlock",
        "python_exception",
        "import_error",
        "segfault",
        "abort",
        "killed",
        "bus_error",
        "dataloader_worker_died",
        "data_error",
        "nan_loss",
        "disk_full",
        "storage_io",
        "checkpoint_corrupt",
        "time_limit",
        "preempted",
        "cancelled",
        "node_failure",
        "config_error",
        "unknown",
    ]
)
PHASES = frozenset(
    [
        "init",
        "data_loading",
        "forward",
        "backward",
        "optimizer",
        "communication",
        "evaluation",
        "checkpoint",
        "shutdown",
        "unknown",
    ]
)
LAYERS = frozenset(["software", "gpu", "host", "network", "storage", "scheduler", "user", "unknown"])

STAMP_FORMS = frozenset(
    ["iso", "glog", "c10", "asctime", "syslog", "epoch", "boot", "short", "us", "slash", "elastic", "clock"]
)
"""Names of the readers in `timestamps.py` that a prefix may ask for."""


_FIELD = re.compile(r"""\w+["']\s?:""")
_NEVER_QUOTED = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM, Role.EXTERNAL})
_OPEN_QUOTE = re.compile(
    r"""(?<!message["'][:=])(?<!message["'][:=] )(?<!error[:=] )(?<!msg=)(?<!error=)"""
    r"""(?<![("'`\\\w])(["'`])(?:(?!\1).)*$"""
)
"""A quote that is still open where a message begins: options, rules and help texts name errors that did not happen.

Not after a parenthesis (`RuntimeError('…')`), nor where a record's own field holds the message (`msg="…"`).
"""


class FormatError(Exception):
    """A format file is wrong: says which file, which item and what to change. `line` is in the file, if it is known."""

    def __init__(self, what: str, path: Path | None = None, line: int | None = None) -> None:
        super().__init__(what)
        self.path = path
        self.line = line


@dataclass(frozen=True)
class Sample:
    """A line that an item must match, and what it must yield."""

    line: str
    fields: dict[str, str] = field(default_factory=dict)
    rest: str | None = None


@dataclass(frozen=True, eq=False)
class Prefix:
    """A tag at the front of a line.

    `pattern` is anchored at the start; what follows its match is the rest of the line. Named groups: `ts` (with
    `stamp` naming its form), `rank`, `local_rank`, `host`, `pid`, `tid`, `stream`, `level`, `logger`, `attempt`,
    `task`, `pod`, `actor`, `ip`. `starts` lists the characters a match can begin with (a cheap test first).
    `layer` orders them: collector < launcher < library.
    """

    id: str
    pattern: str
    starts: str
    stamp: str | None
    tags: dict[str, str]
    samples: tuple[Sample, ...]
    origin: str

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


@dataclass(frozen=True, eq=False)
class Message:
    """A message worth a signal. Field names are listed in docs/formats.md."""

    id: str
    role: Role
    pattern: str
    keywords: tuple[str, ...]
    kind: str | None
    layer: str | None
    phase: str | None
    unless: tuple[str, ...]
    ends_only: bool
    samples: tuple[Sample, ...]
    no_match: tuple[str, ...]
    origin: str
    priority: int = 0

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def unless_regexes(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(pattern) for pattern in self.unless)

    def match(self, body: str) -> dict[str, str] | None:
        """The named groups that took part if `body` holds this message, else None."""
        found = self.regex.search(body)
        if found is None or any(regex.search(body) for regex in self.unless_regexes):
            return None
        if self.role in _NEVER_QUOTED:
            quote = _OPEN_QUOTE.search(body, max(0, found.start() - 160), found.start())
            # A path is quoted in a message of its own, and so is the name of a record's field.
            if quote is not None and not found[0].startswith("/") and _FIELD.match(found[0]) is None:
                return None
        return {name: text for name, text in found.groupdict().items() if text is not None}


@dataclass(frozen=True)
class Format:
    """One file of `formats/`."""

    id: str
    title: str
    url: str
    prefixes: tuple[Prefix, ...]
    messages: tuple[Message, ...]


_TOP = {"id", "title", "url", "versions", "prefix", "message"}
_PREFIX = {"id", "pattern", "starts", "stamp", "tags", "sample", "note"}
_MESSAGE = {
    "id", "role", "pattern", "keywords", "kind", "layer", "phase", "unless", "ends_only", "sample", "no_match",
    "note", "versions", "priority",
}  # fmt: skip


_TYPES: dict[str, type | tuple[type, ...]] = {
    "fields": dict, "tags": dict, "sample": list, "prefix": list, "message": list, "keywords": list, "unless": list,
    "no_match": list, "versions": (str, list), "ends_only": bool, "priority": int,
}  # fmt: skip
"""Of the keys whose values are not texts."""
_LISTS_OF_TEXTS = {"keywords", "unless", "no_match"}


def _samples(where: str, raw: list[dict[str, Any]]) -> tuple[Sample, ...]:
    samples = []
    for item in raw:
        if not isinstance(item, dict) or set(item) - {"line", "fields", "rest"} or "line" not in item:
            raise FormatError(f"{where}: a sample needs `line` and may have `fields` and `rest`")
        _check_types(f"{where}: sample", item)
        fields = {key: str(value) for key, value in item.get("fields", {}).items()}
        samples.append(Sample(item["line"], fields, item.get("rest")))
    return tuple(samples)


def _check_types(where: str, item: dict[str, Any]) -> None:
    for key, value in item.items():
        kind = _TYPES.get(key, str)
        all_texts = key not in _LISTS_OF_TEXTS or (isinstance(value, list) and all(isinstance(t, str) for t in value))
        if not isinstance(value, kind) or not all_texts:
            raise FormatError(f"{where}: `{key}` has a value of the wrong type")


def _check_keys(where: str, item: object, known: set[str], needed: set[str]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise FormatError(f"{where}: a table is wanted")
    if unknown := set(item) - known:
        raise FormatError(f"{where}: unknown key {min(unknown)!r}; known are {', '.join(sorted(known))}")
    if missing := needed - set(item):
        raise FormatError(f"{where}: `{min(missing)}` is missing")
    _check_types(where, item)
    return item


def _one_of(where: str, key: str, value: str | None, known: frozenset[str]) -> str | None:
    if value is not None and value not in known:
        raise FormatError(f"{where}: {key} {value!r} is not one of {', '.join(sorted(known))}")
    return value


def _prefix(where: str, told: object) -> Prefix:
    item = _check_keys(where, told, _PREFIX, {"id", "pattern"})
    where = f"{where} [{item['id']}]"
    return Prefix(
        id=item["id"],
        pattern=item["pattern"],
        starts=item.get("starts", ""),
        stamp=_one_of(where, "stamp", item.get("stamp"), STAMP_FORMS),
        tags=dict(item.get("tags", {})),
        samples=_samples(where, item.get("sample", [])),
        origin=where,
    )


def _message(where: str, told: object) -> Message:
    item = _check_keys(where, told, _MESSAGE, {"id", "role", "pattern", "keywords"})
    where = f"{where} [{item['id']}]"
    try:
        role = Role(item["role"])
    except ValueError:
        raise FormatError(f"{where}: role {item['role']!r} is not one of {', '.join(Role)}") from None
    return Message(
        id=item["id"],
        role=role,
        pattern=item["pattern"],
        keywords=tuple(item["keywords"]),
        kind=_one_of(where, "kind", item.get("kind"), KINDS),
        layer=_one_of(where, "layer", item.get("layer"), LAYERS),
        phase=_one_of(where, "phase", item.get("phase"), PHASES),
        unless=tuple(item.get("unless", [])),
        ends_only=bool(item.get("ends_only", False)),
        samples=_samples(where, item.get("sample", [])),
        no_match=tuple(item.get("no_match", [])),
        origin=where,
        priority=int(item.get("priority", 0)),
    )


def load_format(path: Path) -> Format:
    """Read one format file.

    Raises:
        FormatError: it cannot be read, is not TOML, or a key, role, kind, phase or layer is unknown or missing.
    """
    try:
        raw = read_toml(path)
    except TomlError as error:
        raise FormatError(f"{path.name}: {error.what}", path, error.line) from None
    _check_keys(path.name, raw, _TOP, {"id", "title", "url"})
    return Format(
        id=raw["id"],
        title=raw["title"],
        url=raw["url"],
        prefixes=tuple(_prefix(path.name, item) for item in raw.get("prefix", [])),
        messages=tuple(_message(path.name, item) for item in raw.get("message", [])),
    )


@cache
def load_formats(folder: Path = FORMATS_DIR) -> tuple[Format, ...]:
    """Every format of a folder, in file order. Ids of prefixes and messages are unique over all of them.

    Raises:
        FormatError: see `load_format`; or an id is used twice.
    """
    formats = tuple(load_format(path) for path in sorted(folder.glob("*.toml")))
    seen: dict[str, str] = {}
    for fmt in formats:
        items: list[Prefix | Message] = [*fmt.prefixes, *fmt.messages]
        for item in items:
            if item.id in seen:
                raise FormatError(f"{item.origin}: the id is already used in {seen[item.id]}")
            seen[item.id] = item.origin
    return formats


def check_format(fmt: Format) -> list[str]:
    """What is wrong with a format's patterns and samples, one sentence each; empty if it is sound.

    Every pattern compiles and has a sample, every sample is matched with the fields it states, one keyword of a
    message is in each of its samples (the literal scan would otherwise never show it the line), no `no_match` line
    is matched.
    """
    items: list[Prefix | Message] = [*fmt.prefixes, *fmt.messages]
    return [problem for item in items for problem in check_item(item)]


def check_item(item: Prefix | Message) -> list[str]:
    """What is wrong with one item of a format, as `check_format` tells it."""
    try:
        patterns = [item.regex, *(item.unless_regexes if isinstance(item, Message) else ())]
    except (re.error, RecursionError, OverflowError) as error:
        return [f"{item.origin}: a pattern does not compile: {error}"]
    problems = [] if item.samples else [f"{item.origin}: no sample"]
    if isinstance(item, Prefix):
        if patterns[0].groups != len(patterns[0].groupindex):
            problems.append(f"{item.origin}: a group has no name: write `(?:`")
        problems.extend(_check_prefix_sample(item, sample) for sample in item.samples)
    else:
        problems.extend(_check_message_sample(item, sample) for sample in item.samples)
        problems.extend(
            f"{item.origin}: matches what it must not: {line!r}"
            for line in item.no_match
            if item.match(line) is not None
        )
    return [problem for problem in problems if problem]


def _check_prefix_sample(prefix: Prefix, sample: Sample) -> str:
    found = prefix.regex.match(sample.line)
    if found is None:
        return f"{prefix.origin}: does not match its sample {sample.line!r}"
    if prefix.starts and sample.line[:1] not in prefix.starts:
        return f"{prefix.origin}: `starts` lacks {sample.line[:1]!r}, with which its sample begins"
    got = {name: text for name, text in found.groupdict().items() if text is not None}
    if wrong := {key: got.get(key) for key, value in sample.fields.items() if got.get(key) != value}:
        return f"{prefix.origin}: {sample.line!r} gives {wrong}, its sample says otherwise"
    if sample.rest is not None and sample.line[found.end() :] != sample.rest:
        return f"{prefix.origin}: leaves {sample.line[found.end() :]!r} of {sample.line!r}"
    return ""


def _check_message_sample(message: Message, sample: Sample) -> str:
    if not any(keyword in sample.line for keyword in message.keywords):
        return f"{message.origin}: none of its keywords is in its sample {sample.line!r}"
    got = message.match(sample.line)
    if got is None:
        return f"{message.origin}: does not match its sample {sample.line!r}"
    if wrong := {key: got.get(key) for key, value in sample.fields.items() if got.get(key) != value}:
        return f"{message.origin}: {sample.line!r} gives {wrong}, its sample says otherwise"
    return ""
