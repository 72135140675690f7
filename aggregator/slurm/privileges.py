"""Rights and limits of the process that reads a job's files: they are given up before the first look, for good."""

from __future__ import annotations

import os
import pwd
import resource
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aggregator.slurm.job import SlurmJob

_NO_GROUP = 65534
"""The group of nobody's files."""
_MAX_FILE = 64 << 20
_DESCRIPTORS = 256


class PrivilegeError(Exception):
    """The process could not become the user whose files it is to read. It must not go on."""


def limit_itself(memory_mb: int, time_s: float) -> None:
    """Bounds memory, CPU time, files and life: beyond `time_s` seconds of either the system ends the process."""
    seconds = int(time_s) + 1
    for what, most in (
        (resource.RLIMIT_AS, memory_mb << 20),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, _MAX_FILE),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, bound))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def become(job: SlurmJob) -> None:
    """Gives up root for the job's user: groups, group, user, each verified. Only for root.

    A user without an account on this node (Slurm can do without one) gets no groups.

    Raises:
        PrivilegeError: Slurm did not tell the user, it is root, the name belongs to somebody else, or the system did
            not do what it was asked to.
    """
    uid = job.uid
    if not uid:
        raise PrivilegeError("the job's user is root" if uid == 0 else "SLURM_JOB_UID does not tell the job's user")
    gid, groups = _groups(uid, job.user)
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except (OSError, OverflowError) as error:
        raise PrivilegeError(f"cannot become user {uid}: {error}") from error
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3 or set(os.getgroups()) != set(groups):
        raise PrivilegeError(f"cannot become user {uid}: the system kept other ids")
    with suppress(OSError):
        os.setresuid(0, 0, 0)
        raise PrivilegeError(f"cannot become user {uid}: there is a way back to root")


def _groups(uid: int, name: str) -> tuple[int, list[int]]:
    """The user's group, and all of them."""
    if name:
        with suppress(KeyError):
            if pwd.getpwnam(name).pw_uid != uid:
                raise PrivilegeError(f"SLURM_JOB_USER and SLURM_JOB_UID name different users: {name}, {uid}")
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return _NO_GROUP, []
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    if 0 in {account.pw_gid, *groups}:
        raise PrivilegeError(f"user {uid} is in root's group")
    return account.pw_gid, groups
