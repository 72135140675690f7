"""How a watched job does, as a file for the textfile collector of Prometheus' node_exporter.

No label holds log text: its values would be without number.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.errors import OutputError, UsageError
from aggregator.live.view import LiveState, RankState
from aggregator.reports.destination import refuse_overwrite, replacing
from aggregator.verdict import NS_PER_S, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from prometheus_client import Metric

    from aggregator.live.view import LiveView

PERIOD_S = 15.0
JOB_LIMIT = 100
"""Characters of the label `job`."""

_log = logging.getLogger(__name__)


class PrometheusFile:
    """Keeps one `.prom` file, replaced whole, so that the collector never sees half of it."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Check what can be checked before the job runs; nothing is written yet. `clock` gives seconds.

        Raises:
            UsageError: the package `prometheus_client` is missing, or the file has another ending.
            OutputError: `path` is a folder, or its folder does not exist.
        """
        try:
            import prometheus_client  # noqa: F401, PLC0415 - an extra: told now if it is missing
        except ImportError:
            raise UsageError(
                "--prometheus needs the package prometheus_client", help="pip install 'denpex-agg[prometheus]'"
            ) from None
        if path.suffix != ".prom":
            raise UsageError(
                "the file of --prometheus must end with .prom",
                where=str(path),
                help="node_exporter reads no other files of its textfile folder",
            )
        refuse_overwrite(path, force=True)
        self._path = path
        self._clock = clock
        self._due: float | None = None

    def update(self, view: LiveView, *, is_last: bool = False) -> None:
        """Write the view, unless the file is younger than `PERIOD_S` and more views follow.

        A file that cannot be written is logged, and tried again after the same time.
        """
        now = self._clock()
        if self._due is not None and now < self._due and not is_last:
            return
        self._due = now + PERIOD_S
        try:
            with replacing(self._path, force=True) as out:
                out.write(exposition(view))
        except OutputError as error:
            _log.warning("--prometheus: %s: %s", self._path, error.what)


def exposition(view: LiveView) -> str:
    """The view in Prometheus' text format, without time stamps: the collector refuses those."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(_Collector(tuple(_metrics(view))))
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)
class _Collector:
    """Hands metrics to a registry, by the protocol of `prometheus_client`."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _metrics(view: LiveView) -> Iterator[Metric]:
    """One metric after the other. What is not known has none: a 0 would be a claim."""
    from prometheus_client import Metric  # noqa: PLC0415 - an extra

    job = safe.show(safe.mask(view.job), JOB_LIMIT)

    def metric(kind: str, name: str, what: str, *samples: tuple[float, dict[str, str]]) -> Metric:
        made = Metric(f"denpex_{name.removesuffix('_total')}", what, kind)
        for value, labels in samples:
            made.add_sample(f"denpex_{name}", {"job": job, **labels}, value)
        return made

    def gauge(name: str, what: str, value: float, **labels: str) -> Metric:
        return metric("gauge", name, what, (value, labels))

    def counter(name: str, what: str, value: int) -> Metric:
        return metric("counter", name, what, (value, {}))

    states = [(float(view.state is state), {"state": state.value}) for state in LiveState]
    yield metric("gauge", "job_state", "1 for the state that the job is in.", *states)
    if (verdict := view.verdict) is not None:
        failure = verdict.first_failure
        kind = failure.kind if failure else "none"
        yield gauge(
            "job_outcome", "1 for how the job ended and what failed first.", 1, outcome=verdict.outcome, kind=kind
        )
        if failure and failure.ranks and failure.status is Status.IDENTIFIED:
            yield gauge("first_failure_rank", "The rank that failed first, the lowest of several.", min(failure.ranks))
    failed = sum(rank.state in {RankState.FAILED, RankState.VICTIM} for rank in view.ranks)
    yield gauge("ranks_failed", "Ranks that have failed, first or as a consequence.", failed)
    counters = view.counters
    yield counter("log_bytes_total", "Bytes of logs read.", counters.bytes)
    yield counter("log_lines_total", "Lines of logs read.", counters.lines)
    yield counter("log_bytes_lost_total", "Bytes overwritten or removed before they were read.", counters.unread_bytes)
    yield gauge("log_files_skipped", "Files that could not be read.", len(view.skipped))
    arrivals = [view.now - rank.idle_s * NS_PER_S for rank in view.ranks if rank.idle_s is not None]
    arrivals += [event.seen for event in view.events]
    if arrivals:
        newest = max(arrivals) / NS_PER_S
        yield gauge("last_event_timestamp_seconds", "When the newest line arrived.", newest)
    yield gauge("report_timestamp_seconds", "When this was written.", view.now / NS_PER_S)
