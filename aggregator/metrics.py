"""The metrics of one job, as Prometheus knows them: what `watch --prometheus` and `--format prometheus` both tell.

No label holds log text: its values would be without number. What is not known has no sample: a 0 would be a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator.errors import UsageError
from aggregator.verdict import NS_PER_S, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

    from aggregator.verdict import Verdict

JOB_LIMIT = 100
"""Characters of the label `job`."""


def require_client(who: str) -> None:
    """Tell at once what `who` lacks.

    Raises:
        UsageError: the package `prometheus_client` is missing.
    """
    try:
        import prometheus_client  # noqa: F401, PLC0415 - an extra
    except ImportError:
        raise UsageError(
            f"{who} needs the package prometheus_client", help="pip install 'denpex-agg[prometheus]'"
        ) from None


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Makes the metrics of one job. `job` is its label, safe to show."""

    job: str

    def verdict(self, verdict: Verdict) -> Iterator[Metric]:
        """How the job ended, and who failed first if that is settled."""
        failure = verdict.first_failure
        kind = failure.kind if failure else "none"
        what = "1 for how the job ended and what failed first."
        yield self.gauge("job_outcome", what, (1, {"outcome": verdict.outcome, "kind": kind}))
        if failure and failure.ranks and failure.status is Status.IDENTIFIED:
            what = "The rank that failed first, the lowest of several."
            yield self.gauge("first_failure_rank", what, (min(failure.ranks), {}))

    def ranks_failed(self, number: int) -> Metric:
        """Of all ranks."""
        return self.gauge("ranks_failed", "Ranks that have failed, first or as a consequence.", (number, {}))

    def read(self, log_bytes: int, lines: int) -> Iterator[Metric]:
        """How much was read."""
        yield self.counter("log_bytes_total", "Bytes of logs read.", log_bytes)
        yield self.counter("log_lines_total", "Lines of logs read.", lines)

    def files_skipped(self, number: int) -> Metric:
        """What could not be read."""
        return self.gauge("log_files_skipped", "Files that could not be read.", (number, {}))

    def last_event(self, ns: int, what: str) -> Metric:
        """The newest moment that is known; `what` says of what."""
        return self.gauge("last_event_timestamp_seconds", what, (ns / NS_PER_S, {}))

    def gauge(self, name: str, what: str, *samples: tuple[float, dict[str, str]]) -> Metric:
        """A gauge with a sample for each pair of value and labels."""
        return self._metric("gauge", name, what, *samples)

    def counter(self, name: str, what: str, value: int) -> Metric:
        """A counter; `name` ends with `_total`."""
        return self._metric("counter", name, what, (value, {}))

    def _metric(self, kind: str, name: str, what: str, *samples: tuple[float, dict[str, str]]) -> Metric:
        from prometheus_client import Metric  # noqa: PLC0415 - an extra

        made = Metric(f"denpex_{name.removesuffix('_total')}", what, kind)
        for value, labels in samples:
            made.add_sample(f"denpex_{name}", {"job": self.job, **labels}, value)
        return made


def exposition(metrics: Iterable[Metric]) -> str:
    """Prometheus' text format, without time stamps: node_exporter's textfile collector refuses those."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(_Collector(tuple(metrics)))
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)
class _Collector:
    """Hands metrics to a registry, by the protocol of `prometheus_client`."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.metrics
