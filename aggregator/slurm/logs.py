"""Finds a job's logs from what Slurm tells of it: where its output goes, and what has its number in the name.

To be called with the rights of the job's user only: all that Slurm tells of paths is what that user wrote.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
import time
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from aggregator.opening import open_regular
from aggregator.slurm.filenames import FileName, Part, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aggregator.slurm.job import SlurmJob

MAX_ENTRIES = 50_000
"""Names that are looked at."""
MAX_FOUND = 4096
LIMIT_S = 5.0
_CLOCKS_APART_S = 120
"""By so much the clock of a file server may be behind."""
_JUST_NOW_S = 60
_NEWEST = 64
_TAIL = 64 << 10
_LOG_FOLDERS = 64
_LOG_FOLDER = re.compile(r"(?i)log|out|err|run|result|slurm|exp")
_OUR_REPORT = re.compile(r"denpex-\d")
_DATE = re.compile(r"-[01]\d-[0-3]\d(?!\d)")
_GLUED = re.compile(r"(?i)(?:^|[^a-z])(?:job|jobid|slurm|run|id|j|out|log|err)$")
"""Words after which a job's number may stand without anything between: in `cn123` it is the node's."""
_COUNTED = re.compile(
    r"(?i)(?:^|[^a-z])(?:rank|node|host|task|gpu|worker|proc|local|step|epoch|iter|part|shard|version|checkpoint|ckpt)[_.-]$"
)
_TOP = 2
"""Parts that the path of a folder has at least if it is one job's."""
_DEFAULT_NAMES = ("slurm-%j.out", "slurm-%A_%a.out")
"""The second for array jobs, which an epilog is not told that they are."""
_TELLS_JOB = re.compile(rb"(?:StepId=|\*\*\* (?:STEP|JOB) )(\d{1,10})\b")


def log_paths(job: SlurmJob, roots: Sequence[str] = ()) -> list[str]:
    """Absolute paths of the files and folders that belong to a job, its output first; none lies in another.

    Args:
        job: what is known of the job.
        roots: more places, with the same marks (`/scratch/%u/runs/%j`). Of one without the job's number only what has
            that number in its name is taken.
    """
    return _Search(job).run(roots)


@dataclass(slots=True)
class _Search:
    """One search, with what is left of its limits."""

    job: SlurmJob
    entries: int = MAX_ENTRIES
    ends: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)
    found: dict[str, None] = field(default_factory=dict)
    tasks_follow: str = ""
    """Between the number of an array and that of one of its tasks; empty if the job is surely no array's."""

    def run(self, roots: Sequence[str]) -> list[str]:
        work_dir = self.job.work_dir
        work_dir = os.path.normpath(work_dir) if work_dir.startswith("/") and "\0" not in work_dir else ""
        folders = dict.fromkeys([*self._take_outputs(work_dir), *([work_dir] if work_dir else [])])
        for root in roots:
            self._take_root(root)
        for folder in folders:
            if (whole := self._folder_of_job(folder)) is not None:
                self.found[whole] = None
        for folder in folders:
            self._take_named(folder, with_log_folders=True)
        return _outermost(self.found)

    def _take_outputs(self, work_dir: str) -> list[str]:
        """Takes the files that Slurm writes the job's output to; returns the folders in which they are or should be."""
        job = self.job
        given = [pattern for pattern in (job.stdout, job.stderr) if pattern]
        is_array = job.array_id is not None or any("%a" in re.sub(r"%\d+", "%", pattern) for pattern in given)
        self.tasks_follow = "[_.-]" if is_array else "" if given else "_"
        folders: list[str] = []
        for pattern in given or (_DEFAULT_NAMES if job.array_id is None else _DEFAULT_NAMES[1:]):
            name = file_name(pattern, job)
            if name is None or not (pattern.startswith("/") or work_dir):
                continue
            if not pattern.startswith("/"):  # a mark in the name of the folder is none
                name = replace(name, parts=(*work_dir.split("/"), *name.parts))
            files = self._written(name)
            self.found |= dict.fromkeys(files)
            folders += map(os.path.dirname, files)
            if all(isinstance(part, str) for part in name.parts[:-1]):
                folders.append(os.path.normpath("/".join(map(str, name.parts[:-1])) or "/"))
            if files and not given:
                self.tasks_follow = "" if pattern == _DEFAULT_NAMES[0] else "[_.-]"
                break
        return folders

    def _written(self, name: FileName) -> list[str]:
        """The files that have this name and that the job may have written."""
        times: dict[str, float] = {}
        for path in self._matching(name.parts):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and (name.names_job or not self._is_older(status.st_mtime)):
                    times[path] = status.st_mtime
        newest = sorted(times, key=times.__getitem__, reverse=True)
        if name.may_be_others:
            return self._own(newest[:_NEWEST], times)
        return newest[:1] if name.counts_runs else sorted(newest)

    def _own(self, paths: Sequence[str], times: Mapping[str, float]) -> list[str]:
        """The one of several jobs' files that is this job's: by what Slurm wrote in it, else the only fresh one.

        An epilog is not told the number of a job's array, nor its own in it.
        """
        told = {path: _told_jobs(path) for path in paths}
        sure = [path for path in paths if self.job.id in told[path]]
        fresh = [path for path in paths if not told[path] and time.time() - times[path] < _JUST_NOW_S]
        return sure or (fresh if len(fresh) == 1 else [])

    def _take_root(self, root: str) -> None:
        name = file_name(root, self.job)
        if name is None or name.parts[0] != "":
            return
        for path in self._matching(name.parts):
            if not name.names_job:
                self._take_named(path, with_log_folders=False)
            elif _is_plain(path):
                self.found[path] = None

    def _folder_of_job(self, folder: str) -> str | None:
        """The highest folder, of this one and those above, that has the job's number in its name; never a home."""
        parts = folder.split("/")
        for depth in range(_TOP + 1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if self._names_job(parts[depth - 1]) and not f"{_home()}/".startswith(f"{path}/") and _is_plain(path):
                return path
        return None

    def _take_named(self, folder: str, *, with_log_folders: bool) -> None:
        """Takes what has the job's number in its name, in a folder and in those in it that are called after logs."""
        deeper: list[str] = []
        for entry in self._entries(folder):
            is_folder = _is_folder(entry)
            if self._names_job(entry.name):
                if len(self.found) < MAX_FOUND and (is_folder or self._is_fresh_file(entry)):
                    self.found[f"{folder}/{entry.name}"] = None
            elif is_folder and _LOG_FOLDER.search(entry.name) and not entry.name.startswith("."):
                deeper.append(f"{folder}/{entry.name}")
        for path in sorted(deeper)[:_LOG_FOLDERS] if with_log_folders else ():
            self._take_named(path, with_log_folders=False)

    def _names_job(self, name: str) -> bool:
        """Whether the job's id is in a name as a whole number that counts nothing else."""
        job = self.job
        if name.startswith(".") or _OUR_REPORT.match(name):
            return False
        for found in re.finditer(rf"(?<!\d)0*{job.id}(?!\d)", name, re.ASCII):
            before, after = name[: found.start()], name[found.end() :]
            is_nodes = before[-1:].isalpha() and _GLUED.search(before) is None
            if not (is_nodes or self._is_of_array(before, after) or _COUNTED.search(before) or _DATE.match(after)):
                return True
        if job.array_id is None or job.array_task is None:
            return False
        return re.search(rf"(?<!\d)0*{job.array_id}[_.-]0*{job.array_task}(?!\d)", name, re.ASCII) is not None

    def _is_of_array(self, before: str, after: str) -> bool:
        """Whether a number between these is that of an array, or of a task in one: the second of `slurm-8_8.out`."""
        if not self.tasks_follow:
            return False
        follows = re.match(rf"{self.tasks_follow}\d", after)
        return bool(follows or re.search(rf"(?<!\d)(?!20\d{{6}}\D)\d{{1,10}}{self.tasks_follow}$", before))

    def _is_fresh_file(self, entry: os.DirEntry[str]) -> bool:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and not self._is_older(status.st_mtime)

    def _is_older(self, written_s: float) -> bool:
        """Whether a file was last written before the job began, as far as Slurm tells when that was."""
        return self.job.start_s is not None and written_s < self.job.start_s - _CLOCKS_APART_S

    def _matching(self, parts: Sequence[Part]) -> list[str]:
        """What may exist of a name with unknown texts in it."""
        paths = [""]
        for part in parts[1:]:
            if isinstance(part, str):
                paths = [f"{path}/{part}" for path in paths] if part else paths
            else:
                paths = [
                    f"{path}/{entry.name}"
                    for path in paths for entry in self._entries(path or "/") if part.fullmatch(entry.name)
                ][:MAX_FOUND]  # fmt: skip
        return [os.path.normpath(path) for path in paths if path]

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """What a folder holds, as far as the limits allow."""
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                self.entries -= 1
                if self.entries < 0 or time.monotonic() > self.ends:
                    return
                yield entry


def _told_jobs(path: str) -> set[int]:
    """The jobs of which Slurm itself writes at the end of a file."""
    with contextlib.suppress(OSError), open(open_regular(path), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
        return set(map(int, _TELLS_JOB.findall(file.read(_TAIL))))
    return set()


def _home() -> str:
    try:
        return os.path.normpath(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return ""


def _is_plain(path: str) -> bool:
    """Whether there is a file or folder: no link, which may lead to another job's, nor anything that blocks."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _outermost(found: Iterable[str]) -> list[str]:
    """Paths without those that lie in another of them."""
    paths = set(found)
    return [path for path in found if not any(str(above) in paths for above in PurePath(path).parents)]
