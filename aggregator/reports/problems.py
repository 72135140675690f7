"""Lines that an editor's problem matcher reads: `path:line:column: severity CODE message`.

The matcher for VS Code is in docs/reports.md; paths are absolute.
https://code.visualstudio.com/docs/debugtest/tasks#_defining-a-problem-matcher
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from aggregator import safe
from aggregator.reports import words
from aggregator.reports.places import absolute_path, source_place
from aggregator.reports.summary import Summary, what, who

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Failure

MAX_PROBLEMS = 50
"""The first ones: who opens the fiftieth consequence?"""
_PATH = 4096
_COLON_OF_PLACE = re.compile(r":(?=\d+:)")


class ProblemsReporter:
    """One line a place; the first one is the answer. Nothing where nothing failed."""

    name = "problems"
    suffix = ".problems"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the lines."""
        failure = case.verdict.first_failure
        if failure is not None:
            lines = islice(self._lines(case, failure), MAX_PROBLEMS)
            out.writelines(words.fit(f"{line}\n", out.encoding) for line in lines)

    def _lines(self, case: Case, failure: Failure) -> Iterator[str]:
        summary = Summary(case.verdict, redact=self._options.redact)
        code = failure.diagnosis.entry if failure.diagnosis is not None else failure.kind
        first, *others = failure.evidence or [None]
        answer = f"first failure: {who(failure)}: {what(failure)}"
        if failure.diagnosis is not None:
            answer += f": {failure.diagnosis.title}"
        file, line = (absolute_path(case, first.file), first.line) if first else (absolute_path(case, ""), 1)
        yield _line(summary.safe(file, _PATH), line, "error", code, summary.safe(answer))
        if place := source_place(failure):
            yield _line(
                summary.safe(place[0], _PATH),
                place[1],
                "error",
                code,
                summary.safe(f"raised here: {failure.exception or failure.message}"),
            )
        for item in others:
            if item is not None:
                yield _line(
                    summary.safe(absolute_path(case, item.file), _PATH), item.line, "info", code, summary.safe(item.why)
                )
        for victim in case.verdict.collateral:
            for item in victim.evidence[:1]:
                whose = "a process" if victim.rank is None else f"rank {victim.rank}"
                text = f"only a consequence: {whose}: {victim.because or words.kind_words(victim.kind)}"
                yield _line(
                    summary.safe(absolute_path(case, item.file), _PATH),
                    item.line,
                    "warning",
                    victim.kind,
                    summary.safe(text),
                )


def _line(file: str, line: int, severity: str, code: str, message: str) -> str:
    """One line; `file` is safe to show. A name that looks like a place in a file would lead elsewhere without this."""
    return f"{_COLON_OF_PLACE.sub('?', file)}:{line}:1: {severity} {safe.show(code)} {message}"
