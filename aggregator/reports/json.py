"""The verdict as one JSON object of `verdict.schema.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from aggregator.reports import words
from aggregator.verdict import to_json

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.reports import ReportOptions


class JsonReporter:
    """One object, indented, nothing around it."""

    name = "json"
    suffix = ".json"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the object. Non-ASCII is escaped unless `out` is UTF-8."""
        document = to_json(case.verdict, redact=self._options.redact)
        is_ascii = not words.is_utf8(out.encoding)
        out.write(json.dumps(document, indent=2, ensure_ascii=is_ascii, allow_nan=False) + "\n")
