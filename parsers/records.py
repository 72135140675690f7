"""What passes between the stages: sources, stamps, lines, signals.

Times are int nanoseconds since the epoch, UTC. Offsets are bytes from the start of the (decompressed) file, line
numbers count from 1. Everything here is immutable but `Signal`, whose identity fields the correlator completes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

_HALF_YEAR_NS = 180 * 86400 * 10**9


class SourceKind(StrEnum):
    """What a file is, which decides who reads it."""

    LOG = "log"
    KERNEL = "kernel"
    ERROR_JSON = "error_json"
    FLIGHT_RECORDER = "flight_recorder"
    STATUS = "status"
    """Text that a person or script saved beside the logs: `kubectl describe`, `sacct`, `df`, a submit script."""


class Known(StrEnum):
    """How an identity (rank, host …) is known, from the surest to the weakest."""

    FILE = "file name"
    TAG = "launcher tag"
    PREFIX = "line prefix"
    CONTENT = "line content"
    MAP = "identity table"
    EXIT = "launcher's exit report"
    GUESS = "elimination"
    NONE = "unknown"


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a file behind a URL is: the URL that the user named, and the path in its file system.

    The URL may hold secrets: never shown.
    """

    url: str = field(repr=False)
    path: str


@dataclass(frozen=True, slots=True)
class Source:
    """One input file and what its name and place tell.

    `path` is relative to the job folder with forward slashes (what evidence cites); `real`, `remote` or `held` is where
    the bytes are, none of them for standard input. `rank` is global. `layout` names the discovery rule that matched.
    """

    index: int
    path: str
    real: Path | None
    kind: SourceKind
    layout: str = "plain"
    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    host: str | None = None
    stream: str | None = None
    attempt: int | None = None
    pid: int | None = None
    job_id: str | None = None
    compression: str | None = None
    size: int = 0
    mtime_ns: int | None = None

    @property
    def is_stdin(self) -> bool:
        """Whether its bytes come from standard input."""
        return self.real is None and self.remote is None and self.held is None

    @property
    def is_shared(self) -> bool:
        """Whether another process of this machine can read it, too."""
        if self.remote is not None:
            return not self.remote.url.startswith("memory:")
        return self.real is not None

    @property
    def reference_ns(self) -> int | None:
        """What completes stamps without a year: half a year before the last change, after which no line was written."""
        return None if self.mtime_ns is None else self.mtime_ns - _HALF_YEAR_NS

    group: str | None = None
    """Sources that describe the same launcher incarnation share it (torchrun's `<run-id>_<random>` folder, say)."""
    remote: Remote | None = None
    held: bytes | None = field(default=None, repr=False, compare=False)
    """The bytes themselves, of a file that is in memory only."""

    def __reduce__(self) -> tuple[type[Source], tuple[object, ...]]:
        """Pickled by its fields: what frozen dataclasses do by themselves takes ten times as long."""
        return Source, tuple([getattr(self, name) for name in self.__match_args__])


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was not read, and why; shown in every report."""

    path: str
    reason: str


class StampQuality(StrEnum):
    """How a row's time is known."""

    OWN = "own"
    INHERITED = "inherited"
    BOUNDED = "bounded"
    NONE = "none"


class Stamp(NamedTuple):
    """A time read from a line. A tuple, since each line makes one, and processes exchange them by the hundred thousand.

    `ns` is UTC if `zoned`, else the local time of the writing host taken as UTC. `resolution_ns` is the step of the
    format (1 s for c10 lines, whose nine digits are not the fraction of the second). `year_known` is False where the
    format has none and it was completed from context. `boot` marks seconds since boot: comparable within one host
    only, and not a wall clock.
    """

    ns: int
    resolution_ns: int = 1_000_000_000
    zoned: bool = False
    year_known: bool = True
    boot: bool = False


class Role(StrEnum):
    """Where a message sits in the chain of a failure; what it may prove is in docs/formats.md."""

    ROOT = "root"
    """A fault of the rank that prints it, with no other rank needed to explain it."""
    EITHER = "either"
    """A fault of its own or the echo of a peer's: decided by what else is known."""
    SYMPTOM = "symptom"
    """A consequence of another rank's failure or absence."""
    TEARDOWN = "teardown"
    """The process is being stopped, by its launcher, watchdog or scheduler."""
    EXIT = "exit"
    """A launcher's or scheduler's report of how a process ended."""
    EXTERNAL = "external"
    """The scheduler, the user or the node, acting on the whole job."""
    IDENTITY = "identity"
    """Ties rank, pid, host, GPU or address together."""
    PROGRESS = "progress"
    """A step, epoch or batch was reached."""
    PHASE = "phase"
    """The job entered a phase (evaluation, checkpoint …)."""
    SUCCESS = "success"
    """Work ended as meant."""
    RECOVERED = "recovered"
    """A fault that the program caught and went on from."""
    STATE = "state"
    """Evidence about collectives or memory that is neither fault nor symptom by itself."""
    CONTEXT = "context"
    """Worth citing, proves nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python traceback, outermost first in `ExceptionInfo.frames`."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class ExceptionInfo:
    """An assembled traceback.

    `type` is qualified as printed. In a chain ("During handling …", "direct cause", DataLoader's "Original
    Traceback") `root_type`/`root_message`/`frames` are those of the innermost original exception, `type`/`message`
    those of the last one raised.
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    root_type: str = ""
    root_message: str = ""
    outer_frames: tuple[Frame, ...] = ()


@dataclass(slots=True)
class Signal:
    """One typed fact read from one place.

    `fields` holds the named groups of the pattern (conventions in docs/formats.md). `order` is the position in its
    source, monotone over the file. `rank` is global; `rank_how` says how it is known.
    """

    signature: str
    role: Role
    source: int
    line: int
    offset: int
    text: str
    kind: str | None = None
    layer: str | None = None
    phase: str | None = None
    rank: int | None = None
    rank_how: Known = Known.NONE
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    attempt: int = 0
    stamp: Stamp | None = None
    quality: StampQuality = StampQuality.NONE
    stream: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    exception: ExceptionInfo | None = None
    until_ns: int | None = None
    """The next stamp below it in its file: an upper bound where the time is not its own."""

    @property
    def ns(self) -> int | None:
        """Wall time in ns, None where unknown or counted from boot."""
        return self.stamp.ns if self.stamp is not None and not self.stamp.boot else None
