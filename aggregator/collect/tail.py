"""One file that is followed: where it is, whose content it holds, and when to look at it again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aggregator.collect.archive import Archive
    from aggregator.store import Stream


@dataclass(slots=True, eq=False)
class Tail:
    """A file under its identity (device, inode, and the inode's generation where it is known).

    `stream` is the content that it holds, None until its first bytes have told. Times are monotonic seconds.
    """

    number: int
    real: str
    shown: str
    device: int
    inode: int
    size: int
    """As it was listed last."""
    mtime_ns: int = 0
    checked_ns: int | None = None
    """When it was modified last before it was seen to hold what its stream has, if it had been quiet for a while."""
    generation: int | None = None
    stream: Stream | None = None
    due: float = 0.0
    wait: float = 0.0
    """Seconds until the next look, while nothing comes."""
    busy: bool = False
    """There is more to read at once."""
    grown: float = 0.0
    """When bytes came last, or it was met."""
    gone: bool = False
    """It is in the folder no more; its descriptor may still give bytes."""
    dropped: bool = False
    """It is not followed any more."""
    passed: str | None = None
    """Why it is not followed."""
    held_since: float | None = None
    """It may be a copy of a log that is about to be truncated: until that is clear, it begins no stream."""
    copy_of: Stream | None = None
    """It has nothing that this stream does not have, as long as it is as it was then (`copy_state`: size, mtime)."""
    copy_state: tuple[int, int] = (0, 0)
    shrunk_since: float | None = None
    """It seems to have been cut; on a remote file system that must be seen twice."""
    archive: Archive | None = None
    """It is compressed."""
    faults: int = 0
    """Errors of reading in a row; `problem` is the last of them."""
    problem: str | None = None

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from other files of one file system, as long as it exists."""
        return self.device, self.inode

    def seen(self, real: str, shown: str, status: os.stat_result) -> None:
        """Takes up what a listing tells."""
        self.real, self.shown, self.size, self.mtime_ns = real, shown, status.st_size, status.st_mtime_ns
        self.gone = False
