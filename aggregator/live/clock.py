"""Where a watch has the time from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the time comes from: `monotonic` in seconds, `wall` in ns since the epoch, UTC."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], int] = time.time_ns
