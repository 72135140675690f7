"""How a watched job does, as a file for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from aggregator import metrics, safe
from aggregator.errors import OutputError, UsageError
from aggregator.live.view import LiveState, RankState
from aggregator.reports.destination import refuse_overwrite, replacing
from aggregator.verdict import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prometheus_client import Metric

    from aggregator.live.view import LiveView

PERIOD_S = 15.0

_log = logging.getLogger(__name__)


class PrometheusFile:
    """Keeps one `.prom` file, replaced whole, so that the collector never sees half of it."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Check what can be checked before the job runs; nothing is written yet. `clock` gives seconds.

        Raises:
            UsageError: the package `prometheus_client` is missing, or the file has another ending.
            OutputError: `path` is a folder, or its folder does not exist.
        """
        metrics.require_client("--prometheus")
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
    """The view in Prometheus' text format."""
    return metrics.exposition(_metrics(view))


def _metrics(view: LiveView) -> Iterator[Metric]:
    """One metric after the other."""
    job = metrics.JobMetrics(safe.show(safe.mask(view.job), metrics.JOB_LIMIT))
    states = [(float(view.state is state), {"state": state.value}) for state in LiveState]
    yield job.gauge("job_state", "1 for the state that the job is in.", *states)
    if view.verdict is not None:
        yield from job.verdict(view.verdict)
    yield job.ranks_failed(sum(rank.state in {RankState.FAILED, RankState.VICTIM} for rank in view.ranks))
    counters = view.counters
    yield from job.read(counters.bytes, counters.lines)
    lost = "Bytes overwritten or removed before they were read."
    yield job.counter("log_bytes_lost_total", lost, counters.unread_bytes)
    yield job.files_skipped(len(view.skipped))
    arrivals = [view.now - int(rank.idle_s * NS_PER_S) for rank in view.ranks if rank.idle_s is not None]
    arrivals += [event.seen for event in view.events]
    if arrivals:
        yield job.last_event(max(arrivals), "When the newest line arrived.")
    yield job.gauge("report_timestamp_seconds", "When this was written.", (view.now / NS_PER_S, {}))
