"""The job as a file for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from aggregator.metrics import JOB_LIMIT, JobMetrics, exposition, require_client
from aggregator.reports import words
from aggregator.reports.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from aggregator.case import Case
    from aggregator.reports import ReportOptions
    from aggregator.verdict import Verdict


class PrometheusReporter:
    """The metrics of one job. When it was written, node_exporter tells by the file's own time."""

    name = "prometheus"
    suffix = ".prom"

    def __init__(self, options: ReportOptions) -> None:
        """Check that the form can be had.

        Raises:
            UsageError: the package `prometheus_client` is missing.
        """
        require_client("--format prometheus")
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the metrics."""
        text = exposition(self._metrics(case.verdict))
        if not words.is_utf8(out.encoding):
            text = text.encode("ascii", "replace").decode()  # the format has no escape for a character
        out.write(text)

    def _metrics(self, verdict: Verdict) -> Iterator[Metric]:
        job, coverage = verdict.job, verdict.coverage
        metrics = JobMetrics(Summary(verdict, redact=self._options.redact).safe(job.id or job.path, JOB_LIMIT))
        yield from metrics.verdict(verdict)
        first = verdict.first_failure.ranks if verdict.first_failure else ()
        failed = {*first, *(item.rank for item in verdict.collateral if item.rank is not None)}
        yield metrics.ranks_failed(len(failed))
        yield from metrics.read(coverage.bytes, coverage.lines)
        yield metrics.files_skipped(len(coverage.files_skipped))
        if job.ended is not None:
            yield metrics.last_event(job.ended, "When the job's logs end.")
