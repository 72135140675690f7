"""What the program says of its own work, on standard error."""

from __future__ import annotations

import logging
import sys

from aggregator import safe


class _SafeFormatter(logging.Formatter):
    """Log lines quote foreign text as reports do, and are masked as they are."""

    def format(self, record: logging.LogRecord) -> str:
        return safe.show_block(safe.mask(super().format(record)))


def start_logging(level: int) -> None:
    """Send our log to stderr: errors (0), warnings (1), what is done (2), everything (3)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s: %(message)s"))
    for name in ("aggregator", "parsers"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel((logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)[min(level, 3)])
