"""The first failure as a SARIF 2.1.0 log, for code scanning and viewers of findings.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

from aggregator import __version__, safe
from aggregator.reports import words
from aggregator.reports.places import source_place
from aggregator.reports.summary import Summary
from aggregator.verdict import Status, iso_time

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Diagnosis, Evidence, Failure, Json

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
JOB = "JOB"
"""The name of the base that the evidence's files are relative to."""
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


class SarifReporter:
    """One run with one rule (the catalogue's entry, else the kind of failure) and one result."""

    name = "sarif"
    suffix = ".sarif"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the log, in ASCII. A job without a failure has no result."""
        verdict = case.verdict
        summary = Summary(verdict, redact=self._options.redact)
        failure = verdict.first_failure
        driver: dict[str, Json] = {"name": "denpex-agg", "version": __version__, "rules": []}
        results: list[Json] = []
        if failure is not None:
            driver["rules"] = [_rule(summary, failure)]
            results = [self._result(summary, failure)]
        run: dict[str, Json] = {
            "tool": {"driver": driver},
            "originalUriBaseIds": {JOB: {"uri": _base(self._mask(verdict.job.path))}},
            "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notes(summary)}],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }
        document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
        out.write(json.dumps(document, indent=2, allow_nan=False) + "\n")

    def _result(self, summary: Summary, failure: Failure) -> dict[str, Json]:
        is_settled = failure.status is Status.IDENTIFIED
        lines = [summary.headline(), *map(summary.safe, failure.reasons)]
        places = [self._location(summary, item) for item in failure.evidence]
        if (place := source_place(failure)) is not None:
            places.append(_source_location((self._mask(place[0]), place[1])))
        places = [{"id": number, **place} for number, place in enumerate(places)]
        facts: dict[str, Json] = {
            "status": failure.status.value, "kind": failure.kind, "confidence": round(failure.confidence, 6),
            "ranks": list(failure.ranks), "hosts": [summary.safe(host) for host in failure.hosts],
            "time": iso_time(failure.time, failure.time_resolution_ns), "step": failure.step,
        }  # fmt: skip
        return {
            "ruleId": _rule_id(failure),
            "ruleIndex": 0,
            "level": "error" if is_settled else "warning",
            "message": {"text": _message("\n".join(lines))},
            "locations": list(places[:1]),
            "relatedLocations": list(places[1:]),
            "partialFingerprints": {"denpexFirstFailure/v1": _fingerprint(failure)},
            "properties": facts,
        }

    def _mask(self, text: str) -> str:
        return safe.mask(text) if self._options.redact else text

    def _location(self, summary: Summary, item: Evidence) -> dict[str, Json]:
        location: dict[str, Json] = {
            "physicalLocation": {
                "artifactLocation": {"uri": _uri(self._mask(item.file)), "uriBaseId": JOB},
                "region": {
                    "startLine": max(item.line, 1),
                    "snippet": {"text": safe.show_block(self._mask(item.text), 4096)},
                },
            },
            "message": {"text": _message(summary.safe(item.why))},
        }
        if item.rank is not None:
            host = f"{summary.safe(item.host)}/" if item.host else ""
            location["logicalLocations"] = [{"fullyQualifiedName": f"{host}rank {item.rank}", "kind": "process"}]
        return location


def _source_location(place: tuple[str, int]) -> dict[str, Json]:
    file, line = place
    uri = _uri(file) if not file.startswith("/") else f"file://{_uri(file)}"
    where: dict[str, Json] = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1)}}
    return {"physicalLocation": where, "message": {"text": "the user's code that failed"}}


def _rule_id(failure: Failure) -> str:
    return failure.diagnosis.entry if failure.diagnosis is not None else failure.kind


def _rule(summary: Summary, failure: Failure) -> dict[str, Json]:
    diagnosis = failure.diagnosis
    if diagnosis is None:
        title = words.kind_words(failure.kind)
        return {"id": failure.kind, "name": failure.kind, "shortDescription": {"text": title}}
    rule: dict[str, Json] = {
        "id": diagnosis.entry,
        "name": diagnosis.entry,
        "shortDescription": {"text": _message(summary.safe(diagnosis.title))},
        "fullDescription": {"text": _message(summary.safe(diagnosis.root_cause, 4096))},
        "help": {"text": _help(summary, diagnosis)},
        "properties": {"tags": [failure.kind, failure.layer]},
    }
    if diagnosis.references:
        rule["helpUri"] = quote(diagnosis.references[0], safe=":/?#[]@!$&'()*+,;=%~")
    return rule


def _help(summary: Summary, diagnosis: Diagnosis) -> str:
    parts = [f"Fix: {summary.safe(diagnosis.fix, 4096)}", f"Verify: {summary.safe(diagnosis.verify, 4096)}"]
    code = [safe.show_block(diagnosis.code, 480)] if diagnosis.code else []
    return _message("\n".join([parts[0], *code, parts[1]]))


def _message(text: str) -> str:
    """A plain text message. What it would take for a link (3.11.6) or a placeholder (3.11.5) is taken apart."""
    return _PLACEHOLDER.sub(r"{{\1}}", text.replace("](", "] ("))


def _notes(summary: Summary) -> list[Json]:
    return [{"level": "note", "message": {"text": _message(note)}} for note in summary.missing()]


def _base(path: str) -> str:
    return f"file://{_uri(os.path.abspath(path))}/"  # noqa: PTH100 - links stay as the user knows them


def _uri(path: str) -> str:
    """A path as (part of) a URI."""
    parts = PurePosixPath(path).parts
    return "/".join(quote("" if part == "/" else part, errors="replace", safe="") for part in parts)


def _fingerprint(failure: Failure) -> str:
    """The same for failures of one cause at one place, whichever run they end."""
    told = "\0".join((_rule_id(failure), failure.exception or "", failure.location or ""))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]
