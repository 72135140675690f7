"""The marks that Slurm replaces in the names of output files: `train-%j-%2t-%N.log`.

Source: src/slurmd/common/fname.c and src/srun/fname.c of Slurm 20.11 to 26.05, and the manual of sbatch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aggregator.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aggregator.slurm.job import SlurmJob

Part: TypeAlias = str | re.Pattern[str]
"""One part of a path: its name, or what its name must match in full."""

_MARK = re.compile(r"%(?:(?P<percent>%)|(?P<width>[0-9]{0,9})(?P<mark>[AaJjNnstuxrb]))")
_MAX_WIDTH = 10
_NUMBER = re.compile("[0-9]{1,10}")
_TEXT = re.compile("[^/]{1,255}")
_HOST = re.compile("[A-Za-z0-9_.-]{1,255}")
_MAX_HOSTS = 1024
_MAX_WILD = 3
"""Unknown texts in one name: with more of them it takes long to see that a name does not match."""


@dataclass(frozen=True, slots=True)
class FileName:
    """What a pattern stands for in one job."""

    parts: tuple[Part, ...]
    names_job: bool = False
    """Whether the job's own number is in it: what matches is this job's."""
    may_be_others: bool = False
    """Whether files of several jobs may match, because Slurm did not tell what makes the difference."""
    counts_runs: bool = False
    """Whether the number of the run is in it. The epilog of a requeued run is already told that of the next one."""


def file_name(pattern: str, job: SlurmJob) -> FileName | None:
    """What a pattern stands for; None if it names no file, or has too many unknown texts to be looked for."""
    if not pattern or "\0" in pattern:
        return None
    if "\\" in pattern:  # by this sign the user asks for the name as it stands
        return FileName(tuple(pattern.replace("\\", "").split("/")))
    marks = {found["mark"] for found in _MARK.finditer(pattern) if found["mark"]}
    values = _values(job, is_array="a" in marks)
    tokens: list[Part] = []
    at = 0
    for found in _MARK.finditer(pattern):
        tokens.append(pattern[at : found.start()])
        at = found.end()
        value = "%" if found["percent"] else values[found["mark"]]
        if isinstance(value, str) and value.isdecimal():
            value = value.zfill(min(int(found["width"] or 0), _MAX_WIDTH))
        tokens.append(value)
        if found["mark"] == "J":
            tokens.append(re.compile(r"(?:\.[0-9]{1,10})?"))
    parts = _parts([*tokens, pattern[at:]])
    if parts is None:
        return None
    names_job = bool(marks & {"j", "J"}) or (marks >= {"A", "a"} and job.array_task is not None)
    unknown = any(not isinstance(values[mark], str) for mark in marks & set("Aabxu"))
    return FileName(parts, names_job, may_be_others=unknown and not names_job, counts_runs="r" in marks)


def _values(job: SlurmJob, *, is_array: bool) -> Mapping[str, Part]:
    """What each mark stands for. Where the job is no array, `%A` is its id; what is not known may be anything."""
    array, task = job.array_id, job.array_task
    hosts = {host.partition(".")[0] for host in expand(job.nodes, _MAX_HOSTS)}
    return {
        "j": str(job.id),
        "J": str(job.id),
        "A": str(array) if array is not None else _NUMBER if is_array else str(job.id),
        "a": _NUMBER if task is None else str(task),
        "b": _NUMBER if task is None else str(task % 10),
        "u": job.user or _TEXT,
        "x": job.name or _TEXT,
        "N": re.compile(f"(?:{'|'.join(map(re.escape, sorted(hosts)))})") if hosts else _HOST,
        "s": re.compile("[a-z0-9]{1,12}"),
        "n": _NUMBER,
        "r": _NUMBER,
        "t": _NUMBER,
    }


def _parts(tokens: Sequence[Part]) -> tuple[Part, ...] | None:
    parts: list[list[Part]] = [[]]
    for token in tokens:
        if isinstance(token, str):
            head, *rest = token.split("/")
            parts[-1].append(head)
            parts += [[name] for name in rest]
        elif parts[-1][-1:] != [token]:  # the same unknown text twice is one
            parts[-1].append(token)
    if any(sum(not isinstance(token, str) for token in part) > _MAX_WILD for part in parts):
        return None
    return tuple(map(_part, parts))


def _part(tokens: Sequence[Part]) -> Part:
    if all(isinstance(token, str) for token in tokens):
        return "".join(token for token in tokens if isinstance(token, str))
    return re.compile("".join(re.escape(token) if isinstance(token, str) else token.pattern for token in tokens))
