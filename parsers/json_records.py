"""Reads JSON log records: docker's json-file, fluentd's, journald's, and those of common JSON formatters and loguru.

Keys vary with the formatter; the names below are those in use. A dictionary of metrics, or torchrun's `error.json`, is
not a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from parsers.stacks import TRACEBACK_HEAD

_MAX_LENGTH: Final = 1 << 20
_MICROS: Final = 6
_OCTET: Final = 0xFF
TIME_KEYS: Final = ("time", "timestamp", "@timestamp", "ts", "asctime", "datetime")
_KEYS: Final = {
    "ts": TIME_KEYS,
    "level": ("level", "levelname", "severity", "log.level", "lvl"),
    "rank": ("rank", "global_rank", "process_index", "RANK", "labels.rank"),
    "local_rank": ("local_rank", "LOCAL_RANK", "labels.local_rank"),
    "host": ("host", "hostname", "node", "host.hostname", "host.name"),
    "pid": ("pid", "process", "process.pid"),
    "stream": ("stream",),
    "logger": ("logger", "logger_name", "name", "log.logger"),
    "attempt": ("attempt", "restart_count"),
}
_BODY: Final = ("message", "msg", "event", "text", "log", "textPayload", "line")
_TRACE: Final = (
    "exc_info", "exception", "traceback", "stack_trace", "stacktrace", "exc_text", "stack", "err.stack",
    "error.stack_trace", "error.stack", "exception.stacktrace",
)  # fmt: skip
_RAISED: Final = ("exc_type", "exception_type", "exception.type", "error.type", "error.kind", "error_type", "err.type")
_REASON: Final = (
    "exc_message", "exc_value", "exception_message", "exception.message", "exception.value", "error.message",
    "error_message", "err.message",
)  # fmt: skip
_IN_CHAIN: Final = (("exc_type", "type"), ("exc_value", "value", "message"))
_WHILE_HANDLING: Final = "During handling of the above exception, another exception occurred:"
_PROGRESS: Final = ("epoch", "step", "global_step", "iteration", "iter", "batch")
_JOURNAL_TIMES: Final = ("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP")
"""Microseconds since 1970: when the line was written, and when it was received."""
_LAUNCHERS: Final = frozenset(
    {"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun", "prterun", "srun", "composer"}
    | {"colossalai", "bash", "sh", "conda", "dockerd", "podman"}
)
"""Whose lines in a journal are those of the processes they started: the pid beside them is no rank's."""
_POD: Final = (("pod", "pod_name"), ("container", "container_name"), ("host", "host"), ("pod", "task_name"))
"""Below `kubernetes` (fluentd) or `resource.labels` (Cloud Logging, where Vertex AI calls its replicas tasks)."""
_LABELS: Final = (("pod", "pod"), ("pod", "pod_name"), ("container", "container"), ("container", "container_name"))
"""In the record itself, or below `labels` (Loki)."""


_NAMES: Final = tuple(_KEYS)
_NAME_OF: Final = {key: name for name, keys in _KEYS.items() for key in keys}
_NESTED: Final = frozenset(key.partition(".")[0] for key in _NAME_OF if "." in key)
"""What holds fields below it: `{"labels": {"rank": 3}}`."""
_TELLS_OF_ERRORS: Final = frozenset(
    part for key in (*_TRACE, *_RAISED, *_REASON) for part in (key, key.partition(".")[0])
)
"""Few records have one of these; to look for each of them takes longer than to read the record."""


def _named_in(raw: dict[str, object]) -> Iterable[str]:
    """The fields that a flat record has, in the order of all."""
    names = {_NAME_OF[key] for key in raw if key in _NAME_OF}
    return [name for name in _NAMES if name in names]


def _plain(value: object) -> str | None:
    """A JSON value as the text of a field: no objects, no booleans, no empty text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = f"{value:.6f}" if isinstance(value, float) else str(value)
    return text or None


_SURROGATES = re.compile(r"(?i)\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}")
_ONE_ESCAPE = len(r"\ud800")


def without_lone_surrogates(text: str) -> str:
    """JSON text in which half a character's escape is U+FFFD: it could not be written anywhere."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _SURROGATES.sub(lambda found: "\\ufffd" if len(found[0]) == _ONE_ESCAPE else found[0], text)


def parse_record(text: str) -> dict[str, str] | None:
    """The fields of a line that is a JSON log record.

    Returns:
        `body`, and of `ts`, `level`, `rank`, `local_rank`, `host`, `pid`, `stream`, `logger`, `attempt`, `pod` and
        `container` those that the record has, as text. `body` is the message without its last line break, with the
        step or epoch that the record counts, and the traceback on lines of its own, as Python prints it. None if it is
        no record.
    """
    if len(text) > _MAX_LENGTH or not text[1:3].lstrip().startswith('"') or not text.rstrip().endswith("}"):
        return None
    try:
        raw = json.loads(without_lone_surrogates(text))
    except (ValueError, RecursionError):
        return None
    return _unwrap(raw) if isinstance(raw, dict) else None


def _unwrap(raw: dict[str, object]) -> dict[str, str] | None:
    """The fields of a record, None if the object is not one.

    A record has a text, and says when, how bad, from which stream or from which rank: a dictionary of metrics or an
    `error.json` does not.
    """
    nested = raw.get("record")
    if isinstance(nested, dict) and isinstance(nested.get("message"), str):  # loguru's serialize=True
        raw = _loguru(nested, raw.get("text"))
    if isinstance(payload := raw.get("jsonPayload"), dict):  # an entry of Google's Cloud Logging
        raw = payload | raw
    if any(key in raw for key in _JOURNAL_TIMES):
        raw = _journal(raw)
    body = next((text for key in _BODY if isinstance(text := _at(raw, key), str)), None)
    trace = _trace(raw)
    if body is None and not trace:
        return None
    fields: dict[str, str] = {}
    for name in _NAMES if _NESTED.intersection(raw) else _named_in(raw):
        value = next((text for key in _KEYS[name] if (text := _plain(_at(raw, key))) is not None), None)
        if value is not None:
            fields[name] = value
    if not fields.keys() & {"ts", "level", "rank", "stream"}:
        return None
    places = (
        (raw.get("kubernetes"), _POD),
        (_at(raw, "resource.labels"), _POD),
        (raw.get("labels"), _LABELS),
        (raw, _LABELS),
    )
    for labels, keys in places:
        if isinstance(labels, dict):
            told = ((name, _plain(labels.get(key))) for name, key in keys)
            fields = {name: value for name, value in told if value is not None} | fields
    counts = (f"{key}={value}" for key in _PROGRESS if (value := _plain(raw.get(key))) is not None)
    body = " ".join(((body or "").removesuffix("\n"), *counts))
    fields["body"] = f"{body}\n{trace}" if trace and trace not in body else body
    return fields


def _at(raw: dict[str, object], key: str) -> object:
    """The value of a key; one with a point in it may be nested (`"error": {"stack_trace": …}`)."""
    outer, point, inner = key.partition(".")
    value = raw.get(key)
    if value is None and point and isinstance(nested := raw.get(outer), dict):
        return nested.get(inner)
    return value


def _trace(raw: dict[str, object]) -> str:
    """The traceback of the exception that a record carries, empty if it carries none.

    Formatters keep it as text, as a list of its exceptions with their frames (structlog's `dict_tracebacks`), or tell
    only what was raised.
    """
    if _TELLS_OF_ERRORS.isdisjoint(raw):  # a key of somebody's own
        told = (value for value in raw.values() if isinstance(value, str) and TRACEBACK_HEAD in value)
        return next((value.rstrip() for value in told), "")
    raised = next((text for key in _RAISED if isinstance(text := _at(raw, key), str) and text), None)
    reason = next((text for key in _REASON if isinstance(text := _at(raw, key), str) and text), "")
    for key in _TRACE:
        value = _at(raw, key)
        if isinstance(value, list) and (text := _chain(value)):
            return text
        if isinstance(value, str) and value.strip():
            return _whole(value.rstrip(), raised, reason)
    return _raised([], raised, reason) if raised else ""


def _whole(trace: str, raised: str | None, reason: str) -> str:
    """A traceback's text with the parts that some formatters keep apart: its first line, its last."""
    if trace.lstrip().startswith('File "') and TRACEBACK_HEAD not in trace:
        trace = f"{TRACEBACK_HEAD}\n{trace}"
    last = trace.rpartition("\n")[2]
    if raised is None or TRACEBACK_HEAD not in trace or last[:1] not in {" ", "\t"}:
        return trace
    return f"{trace}\n{_named(raised, reason)}"


def _named(raised: str, reason: str) -> str:
    return f"{raised}: {reason}" if reason else raised


def _chain(told: list[object]) -> str:
    """A list of exceptions, the last raised first, as Python prints them."""
    parts = []
    for item in reversed(told):
        if not isinstance(item, dict):
            return ""
        frames = item.get("frames")
        name, reason = (next((text for key in keys if (text := _plain(item.get(key)))), "") for keys in _IN_CHAIN)
        if not name:
            return ""
        parts.append(_raised(frames if isinstance(frames, list) else [], name, reason))
    return f"\n\n{_WHILE_HANDLING}\n\n".join(parts)


def _raised(frames: list[object], name: str, reason: str) -> str:
    lines = [TRACEBACK_HEAD]
    for frame in (frame for frame in frames if isinstance(frame, dict)):
        lines.append(f'  File "{frame.get("filename")}", line {frame.get("lineno")}, in {frame.get("name")}')
        if isinstance(code := frame.get("line"), str) and code:
            lines.append(f"    {code.strip()}")
    return "\n".join([*lines, _named(name, reason)])


def _loguru(record: dict[str, object], text: object) -> dict[str, object]:
    flat: dict[str, object] = {"message": record["message"], "name": record.get("name")}
    if isinstance(text, str) and isinstance(record.get("exception"), dict):
        flat["traceback"] = TRACEBACK_HEAD + text.partition(TRACEBACK_HEAD)[2]
    for name, key in (("level", "name"), ("time", "timestamp"), ("process", "id")):
        if isinstance(part := record.get(name), dict):
            flat[name] = part.get(key)
    if isinstance(extra := record.get("extra"), dict):
        flat |= {key: extra[key] for key in ("rank", "global_rank", "local_rank") if key in extra}
    return flat


def _journal(entry: dict[str, object]) -> dict[str, object]:
    """An entry of `journalctl -o json`: the message is a list of bytes where it holds control characters."""
    message = entry.get("MESSAGE")
    if isinstance(message, list):
        octets = (byte if isinstance(byte, int) and 0 <= byte <= _OCTET else ord("?") for byte in message)
        message = bytes(octets).decode(errors="replace")
    ident = entry.get("SYSLOG_IDENTIFIER")
    flat: dict[str, object] = {"message": message, "host": entry.get("_HOSTNAME"), "logger": ident}
    flat["pid"] = None if ident in _LAUNCHERS else entry.get("_PID")
    flat["level"] = entry.get("PRIORITY")
    micros = next((text for key in _JOURNAL_TIMES if (text := _plain(entry.get(key))) is not None), "")
    if micros.isdecimal() and len(micros) > _MICROS:
        flat["time"] = f"{micros[:-_MICROS]}.{micros[-_MICROS:]}"
    return flat
