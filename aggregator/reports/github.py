"""Annotations for GitHub Actions: workflow commands on standard output, and the Markdown report in the step's summary.

GitHub shows ten annotations of a kind a step, so there are two: the first failure, and the outcome.
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TextIO

from aggregator.reports import words
from aggregator.reports.markdown import MarkdownReporter
from aggregator.reports.places import absolute_path, source_place
from aggregator.reports.summary import Summary
from aggregator.verdict import Outcome, Status

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Failure, Verdict

SUMMARY = "GITHUB_STEP_SUMMARY"
SUMMARY_LIMIT = 1 << 20
"""Bytes that a step may put into its summary; GitHub drops all of a larger one."""

_log = logging.getLogger(__name__)


class GithubReporter:
    """Two workflow commands, a line each."""

    name = "github"
    suffix = ".github"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the commands; add the Markdown report to the file that `GITHUB_STEP_SUMMARY` names, if it does."""
        verdict = case.verdict
        summary = Summary(verdict, redact=self._options.redact)
        lines = []
        if verdict.first_failure is not None:
            file, line = _place(case, verdict.first_failure)
            title = (
                "first failure" if verdict.first_failure.status is Status.IDENTIFIED else "first failure not settled"
            )
            parts = [summary.headline(), *_advice(summary, verdict.first_failure)]
            lines.append(command("error", "\n".join(parts), file=summary.safe(file), line=str(line), title=title))
        level = "notice" if verdict.outcome in {Outcome.COMPLETED, Outcome.RUNNING} else "warning"
        told = [summary.outcome(), *(text for text, _ in summary.consequences()[:3])]
        lines.append(command(level, "\n".join(told), title="denpex-agg"))
        out.writelines(words.fit(f"{line}\n", out.encoding) for line in lines)
        if path := os.environ.get(SUMMARY):
            self._add_to_summary(path, verdict)

    def _add_to_summary(self, path: str, verdict: Verdict) -> None:
        """Append what fits of the report: whole sections, the first ones. A file that cannot be written is logged."""
        try:
            # The runner creates the file; whatever else a step writes to it counts too.
            with open(path, "ab") as file:  # noqa: PTH123 - a path of the runner's
                room = SUMMARY_LIMIT - file.tell()
                for block in MarkdownReporter(self._options).blocks(verdict):
                    data = f"{block}\n\n".encode()
                    if len(data) > room:
                        _log.warning("%s is full: the end of the report is left out", SUMMARY)
                        return
                    room -= len(data)
                    file.write(data)
        except OSError as error:
            _log.warning("%s: cannot write %s: %s", SUMMARY, path, error.strerror)


def command(name: str, message: str, **properties: str) -> str:
    """One workflow command, escaped as GitHub's own toolkit does (actions/toolkit, packages/core/src/command.ts)."""
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {told}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _place(case: Case, failure: Failure) -> tuple[str, int]:
    """The line that failed where it is one of the repository's, else the first line of the proof."""
    place = source_place(failure)
    if place is not None and (inside := _in_workspace(place[0])):
        return inside, place[1]
    if not failure.evidence:
        return case.verdict.job.path, 1
    item = failure.evidence[0]
    return _in_workspace(absolute_path(case, item.file)) or item.file, item.line


def _in_workspace(path: str) -> str:
    """The path relative to the repository's folder; empty if it is elsewhere."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    if not workspace or not os.path.isabs(path) or not path.startswith(workspace.rstrip("/") + "/"):  # noqa: PTH117
        return ""
    return os.path.relpath(path, workspace)


def _advice(summary: Summary, failure: Failure) -> list[str]:
    if failure.diagnosis is None:
        return []
    return [summary.safe(failure.diagnosis.title), f"Fix: {summary.safe(failure.diagnosis.fix, 1000)}"]
