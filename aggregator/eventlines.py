"""EVENTS as text, for programs that read lines: NDJSON, and OTLP/JSON.

OTLP/JSON is OpenTelemetry's logs data model in the JSON form of its protocol buffers
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): 64-bit numbers are strings, enumerations numbers.
A line is one `LogsData`, which is what the collector's `otlpjsonfile` receiver takes. Attribute names are those of the
semantic conventions; where there are none, `denpex.*`.

Bodies are as they were logged: characters that could act on a terminal are escaped, as JSON allows, and mean the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
import pyarrow as pa

Row: TypeAlias = dict[str, object]
Resource: TypeAlias = tuple[str | None, int | None]
"""Host, and process id."""

ISO = "%Y-%m-%dT%H:%M:%S%.fZ"
"""A moment, with as many of its nine decimals as it needs (chrono's notation)."""
_NON_ASCII = re.compile("[^\0-\x7f]+")
_LINE = 512 << 10
"""Characters of an OTLP line that are not passed, unless one record is longer: the collector's reader cuts at 1 MiB."""
_SEVERITY_TEXT = {1: "TRACE", 5: "DEBUG", 9: "INFO", 10: "INFO2", 13: "WARN", 17: "ERROR", 21: "FATAL"}
"""The short names of the data model's severity numbers."""
_COLUMN_ATTRIBUTES = {
    "log.iostream": "stream",
    "denpex.rank": "rank",
    "denpex.local_rank": "local_rank",
    "denpex.attempt": "attempt",
    "denpex.ts_quality": "ts_quality",
    "denpex.offset": "offset",
    "denpex.line": "line",
}
"""Attributes of a record that are columns as they are."""


def as_json(value: object) -> str:
    """One line of JSON; what is no printable character is escaped, and non-ASCII with it, in lines that have such."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))


def fit_json(line: str, encoding: str | None) -> str:
    """JSON in characters that an encoding has (None has all); the others are escaped, and mean the same."""
    try:
        line.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return _NON_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], line)
    return line


def ndjson(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """A line an event, with the names of the EVENTS table; `ts` in ISO 8601."""
    for batch in batches:
        frame = pl.DataFrame(batch).with_columns(pl.col("ts").dt.strftime(ISO))
        for row in frame.iter_rows(named=True):
            yield as_json(row) + "\n"


def otlp(batches: Iterable[pa.RecordBatch], pids: Mapping[str, int]) -> Iterator[str]:
    """Lines of `LogsData`, the records of each host and process together. `pids` is by path."""
    page = _Page()
    for batch in batches:
        frame = pl.DataFrame(batch).with_columns(pl.col("ts").dt.epoch("ns"))
        for row in frame.iter_rows(named=True):
            text = as_json(_record(row))
            if page.size and page.size + len(text) > _LINE:
                yield page.line()
                page = _Page()
            page.add((row["host"], pids.get(row["path"])), row["logger"], text)
    if page.size:
        yield page.line()


@dataclass(slots=True)
class _Page:
    """The records of one line, already JSON, by resource and logger in the order in which these came."""

    size: int = 0
    records: dict[Resource, dict[str | None, list[str]]] = field(default_factory=dict)

    def add(self, resource: Resource, logger: str | None, record: str) -> None:
        self.records.setdefault(resource, {}).setdefault(logger, []).append(record)
        self.size += len(record) + 1

    def line(self) -> str:
        rows = []
        for (host, pid), scopes in self.records.items():
            attributes = as_json(_attributes({"host.name": host, "process.pid": pid}))
            parts = ",".join(
                f'{{"scope":{as_json({"name": logger} if logger else {})},"logRecords":[{",".join(records)}]}}'
                for logger, records in scopes.items()
            )
            rows.append(f'{{"resource":{{"attributes":{attributes}}},"scopeLogs":[{parts}]}}')
        return f'{{"resourceLogs":[{",".join(rows)}]}}\n'


def _record(row: Row) -> Row:
    record: Row = {}
    if row["ts"] is not None:
        record["timeUnixNano"] = str(row["ts"])
    if row["severity"]:
        record["severityNumber"] = row["severity"]
        record["severityText"] = _SEVERITY_TEXT.get(int(str(row["severity"])), "")
    record["body"] = {"stringValue": row["body"]}
    path = str(row["path"])
    attributes: Row = {"log.file.path": path, "log.file.name": path.rpartition("/")[2]}
    attributes |= {name: row[column] for name, column in _COLUMN_ATTRIBUTES.items()}
    record["attributes"] = _attributes(attributes)
    if row["signature"] is not None:
        record["eventName"] = row["signature"]
    return record


def _attributes(values: Mapping[str, object]) -> list[Row]:
    """A list of KeyValue messages; what is None is left out."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
        if value is not None
    ]


Lines: TypeAlias = Callable[[Iterable[pa.RecordBatch], Mapping[str, int]], Iterator[str]]

LINE_FORMATS: Mapping[str, Lines] = {"ndjson": lambda batches, _pids: ndjson(batches), "otlp": otlp}
"""What `export --format` takes beside `parquet`."""
