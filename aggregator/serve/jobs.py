"""The jobs under a folder, as a listing of it, the history and the watches tell: no log is opened."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.errors import DenpexError
from aggregator.history import journal
from aggregator.history.record import Record, job_key
from aggregator.live.place import run_folder
from aggregator.named import require_folder
from aggregator.store.lock import is_held
from aggregator.walk import generated_folder

if TYPE_CHECKING:
    from pathlib import Path

MOST_JOBS = 5_000
_NAME = 200


@dataclass(frozen=True, slots=True)
class Job:
    """One folder. `name` is safe to show, `path` resolved and never shown; `changed_ns` is of the folder itself.

    `kept` is its newest verdict in the history; `is_watched` whether a `watch` of it runs.
    """

    id: str
    name: str
    path: str
    changed_ns: int
    kept: Record | None
    is_watched: bool


class Root:
    """A folder of jobs. Each folder in it is one; links are none, wherever they lead."""

    def __init__(self, folder: Path) -> None:
        """Of a folder that is there.

        Raises:
            InputError: it is not.
        """
        require_folder(folder)
        self._path = os.path.realpath(folder)
        self._key = secrets.token_bytes(16)
        self.name = _clean(str(folder))

    def jobs(self) -> list[Job]:
        """The jobs that there are now, those that changed last first; of very many not the oldest.

        Raises:
            OSError: the folder cannot be listed.
        """
        kept = _kept()
        with os.scandir(self._path) as entries:
            found = sorted(filter(None, map(_changed, entries)), reverse=True)[:MOST_JOBS]
        return [self._job(name, changed_ns, kept) for changed_ns, name in found]

    def path_of(self, job: str) -> str | None:
        """Where the job of this id is, if it is there now."""
        with os.scandir(self._path) as entries:
            names = (entry.name for entry in entries if _changed(entry) is not None)
            return next((self._place(name) for name in names if self._id(name) == job), None)

    def _job(self, name: str, changed_ns: int, kept: dict[str, Record]) -> Job:
        path = self._place(name)
        return Job(self._id(name), _clean(name), path, changed_ns, kept.get(job_key([path])), _is_watched(path))

    def _place(self, name: str) -> str:
        return os.path.join(self._path, name)  # noqa: PTH118 - thousands of them

    def _id(self, name: str) -> str:
        """Tells nothing of the name, and is the same while the server runs."""
        return hashlib.blake2s(os.fsencode(name), key=self._key, digest_size=12).hexdigest()


def _changed(entry: os.DirEntry[str]) -> tuple[int, str] | None:
    """When a job's folder changed, and its name; None if it is no job."""
    with suppress(OSError):
        if entry.is_dir(follow_symlinks=False) and not generated_folder(entry.name):
            return entry.stat(follow_symlinks=False).st_mtime_ns, entry.name
    return None


def _kept() -> dict[str, Record]:
    """The newest kept verdict of each job, by its key."""
    try:
        return {record.job: record for record in journal.read(journal.home()).records}
    except DenpexError:  # there is no home folder
        return {}


def _is_watched(path: str) -> bool:
    try:
        return is_held(run_folder([path], None))
    except DenpexError:  # its state would lie among the logs
        return False


def _clean(name: str) -> str:
    return safe.show(safe.mask(name), _NAME)
