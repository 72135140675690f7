"""Which files a job has now, and when it is worth looking again."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import kinds
from aggregator.errors import InputError
from aggregator.opening import ReadNotes
from aggregator.walk import expand, walk

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent

_LOG = logging.getLogger(__name__)
_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "virtiofs", "wekafs",
})  # fmt: skip
"""Types of file systems that other machines write to, of which inotify says nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file that may be a log: where it is, what it is called (see `Source.path`), and its status."""

    real: str
    shown: str
    status: os.stat_result


class Folder:
    """The files under what the user named. Patterns are expanded anew each time; nothing needs to exist yet."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = [os.path.abspath(path) for path in paths]  # noqa: PTH100 - patterns are no paths
        self.root = self._root()
        self.notes = ReadNotes()
        """What the last listing could not look at, or passed over."""

    def _root(self) -> Path:
        """What names are relative to: as `discover` has it, once everything exists."""
        try:
            named = [Path(os.path.realpath(path)) for path in expand(self._paths)]
        except InputError:
            named = [Path(os.path.realpath(path)) for path in self._paths]
        return Path(os.path.commonpath([path.parent if path.is_file() else path for path in named]))

    @property
    def named(self) -> list[str]:
        """What exists of what the user named, patterns expanded; links resolved."""
        there = []
        for path in self._paths:
            with contextlib.suppress(InputError):
                there += [os.path.realpath(match) for match in expand([path])]
        return there

    def list(self) -> list[Found]:
        """Every regular file that is not known by its name to be something else than a log, in order of names."""
        self.notes = ReadNotes()
        found, named = [], self.named
        by_user = frozenset(named)
        for path in named:
            with contextlib.suppress(InputError):
                for real, shown in walk([Path(path)], self.root, self.notes):
                    name = shown.rpartition("/")[2]
                    reason = "hidden file" if name.startswith(".") and real not in by_user else kinds.skip_reason(name)
                    if reason is not None:
                        self.notes.add(shown, reason)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        found.append(Found(real, shown, os.lstat(real)))
        return found


def is_remote(path: Path, mounts: Path = _MOUNTS) -> bool:
    """Whether `path` is on a file system that other machines write to; False where that cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    best, kind, place = "", "", str(path)
    for line in lines:
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw (proc_pid_mountinfo(5))
        fields, _, rest = line.partition(" - ")
        words, types = fields.split(), rest.split()
        if len(words) < 5 or not types:  # noqa: PLR2004 - the fifth word is the mount point
            continue
        point = words[4].encode().decode("unicode_escape")
        if len(point) >= len(best) and (place == point or place.startswith(point.rstrip("/") + "/")):
            best, kind = point, types[0]
    return kind in _REMOTE or kind.startswith("fuse.")


class Hints:
    """Tells that files came, went or were renamed. Only a hint: what it misses, the next regular look finds."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._changed = threading.Event()
        self._warn = warn
        self._observer: object = None
        self._overflow = _Overflow(self._changed)

    def start(self, folder: Path) -> bool:
        """Begin; False, and one warning, where the system cannot watch the folder: then regular looks must do."""
        try:
            from watchdog import events  # noqa: PLC0415 - costs 60 ms, and post-mortems do without
            from watchdog.observers import Observer  # noqa: PLC0415

            changed = self._changed

            class Handler(events.FileSystemEventHandler):
                def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - that it came is enough
                    changed.set()

            # It tells of every folder that goes while it looks, with all that it watches.
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="watchdog")
            observer = Observer()
            observer.schedule(
                Handler(), str(folder), recursive=True,
                event_filter=[
                    events.FileCreatedEvent, events.FileMovedEvent, events.FileDeletedEvent,
                    events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
                ],
            )  # fmt: skip
            observer.start()
        except (ImportError, OSError, RuntimeError) as error:
            self._warn(f"new files are looked for every few seconds only: the folder cannot be watched ({error})")
            return False
        logging.getLogger("watchdog").addHandler(self._overflow)
        self._observer = observer
        return True

    def taken(self) -> bool:
        """Whether something changed since the last call."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def stop(self) -> None:
        """End the observer's threads."""
        logging.getLogger("watchdog").removeHandler(self._overflow)
        if self._observer is not None:
            self._observer.stop()  # type: ignore[attr-defined]  # imported only where it is used
            self._observer.join(2)  # type: ignore[attr-defined]


class _Overflow(logging.Handler):
    """The watcher tells only its log that the kernel dropped events."""

    def __init__(self, changed: threading.Event) -> None:
        super().__init__(logging.WARNING)
        self._changed = changed

    def emit(self, record: logging.LogRecord) -> None:
        _LOG.debug("%s", record.getMessage())
        self._changed.set()
