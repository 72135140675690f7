"""What the program says of its own work, on standard error."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from aggregator import safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from parsers.records import Skipped, Source
    from parsers.scan import Scan

_log = logging.getLogger(__name__)
_MOST = 8
"""Message formats that are told of a file."""


class _SafeFormatter(logging.Formatter):
    """Log lines quote foreign text as reports do, masked as they are; a message is one line whatever it quotes."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        return safe.show(safe.mask(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 - as the library has them
        return safe.show_block(safe.mask(super().formatException(ei)))


def start_logging(level: int) -> None:
    """Send our log to stderr: errors (0), warnings (1), what is done (2), everything (3)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s: %(message)s"))
    for name in ("aggregator", "parsers"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel((logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)[min(level, 3)])


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Say how long a part of the work took."""
    began = time.monotonic()
    yield
    _log.info("%s: %.2f s", name, time.monotonic() - began)


def tell_sources(sources: Sequence[Source], skipped: Sequence[Skipped]) -> None:
    """Say which files were found, and what each was taken for."""
    kinds = Counter(str(source.kind) for source in sources)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    _log.info("%d files found (%s), %d not or not wholly readable", len(sources), counts, len(skipped))
    if not _log.isEnabledFor(logging.DEBUG):
        return
    for source in sources:
        told = {"rank": source.rank, "host": source.host, "attempt": source.attempt, "compression": source.compression}
        known = "".join(f", {name} {value}" for name, value in told.items() if value is not None)
        _log.debug("%s: %s by the rule `%s`, %d bytes%s", source.path, source.kind, source.layout, source.size, known)
    for item in skipped:
        _log.debug("%s: %s", item.path, item.reason)


def tell_scans(sources: Sequence[Source], scans: Sequence[Scan]) -> None:
    """Say what was read of the logs, and which message formats were met in them."""
    lines, size = sum(scan.counts.lines for scan in scans), sum(scan.counts.bytes for scan in scans)
    _log.info("%d logs read: %s lines, %s bytes", len(scans), f"{lines:,}", f"{size:,}")
    if not _log.isEnabledFor(logging.DEBUG):
        return
    for source, scan in zip(sources, scans, strict=True):
        met = Counter(signal.signature for signal in scan.signals)
        formats = ", ".join(f"{name} ({count:,})" for name, count in met.most_common(_MOST)) or "none"
        _log.debug("%s: %s lines, message formats: %s", source.path, f"{scan.counts.lines:,}", formats)
