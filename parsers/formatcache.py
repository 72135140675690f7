"""The message formats as they are kept between runs (`cachefile`): without samples, which only checks need."""

from __future__ import annotations

from dataclasses import asdict

from parsers.cachefile import cached
from parsers.lineformats import FORMATS_DIR, Format, Message, Prefix, Sample, load_formats
from parsers.records import Role

_LAYOUT = 1
"""Changes with the fields of the classes stored."""


def formats_for_reading() -> tuple[Format, ...]:
    """The shipped formats without the samples of their messages.

    Raises:
        FormatError: see `load_formats`.
    """
    return cached("formats", FORMATS_DIR.iterdir, lambda: [_freeze(fmt) for fmt in load_formats()], _thaw, _LAYOUT)


def _freeze(fmt: Format) -> dict[str, object]:
    return {
        "id": fmt.id,
        "title": fmt.title,
        "url": fmt.url,
        "prefixes": [asdict(prefix) for prefix in fmt.prefixes],
        "messages": [
            [
                message.id, message.role.value, message.pattern, message.keywords, message.kind, message.layer,
                message.phase, message.unless, message.ends_only, message.origin, message.priority,
            ]
            for message in fmt.messages
        ],
    }  # fmt: skip


def _thaw(raw: list[dict[str, object]]) -> tuple[Format, ...]:
    if not raw:
        raise ValueError("there are formats")
    return tuple(
        Format(
            str(item["id"]), str(item["title"]), str(item["url"]),
            tuple(_prefix(prefix) for prefix in _rows(item["prefixes"])),
            tuple(_message(message) for message in _rows(item["messages"])),
        )
        for item in raw
    )  # fmt: skip


def _rows(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("a list was stored here")
    return value


def _prefix(raw: object) -> Prefix:
    if not isinstance(raw, dict):
        raise TypeError("an object was stored here")
    samples = tuple(Sample(**sample) for sample in raw.pop("samples"))
    return Prefix(**raw, samples=samples)


def _message(raw: object) -> Message:
    ident, role, pattern, keywords, kind, layer, phase, unless, ends_only, origin, priority = _rows(raw)
    return Message(
        str(ident), Role(str(role)), str(pattern), tuple(map(str, _rows(keywords))),
        _text(kind), _text(layer), _text(phase),
        tuple(map(str, _rows(unless))), bool(ends_only), (), (), str(origin), int(str(priority)),
    )  # fmt: skip


def _text(value: object) -> str | None:
    return None if value is None else str(value)
