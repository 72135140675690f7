"""The node's own kernel log, reduced to what concerns one job.

Run as root, on text in which users choose a few words (names of their processes and control groups): only fixed forms
are taken, from their beginning on, and nothing that another process wrote into the kernel's log.
"""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aggregator.slurm.job import SlurmJob

KMSG = "/dev/kmsg"
LIMIT_S = 2.0
MAX_LINES = 100
"""Of the kills of the job's processes, and of the node's troubles; of more, the first and the last."""
_MAX_TEXT = 1024
_RECORD = 8192
"""The kernel has no longer ones (PRINTKRB_RECORD_MAX)."""
_NAMED_S = 24 * 3600.0
_UNNAMED_S = 600.0
"""How long ago the job may have begun, if Slurm does not tell: for lines that name it, and for those that do not."""
_SLACK_S = 2.0

_HEAD = re.compile(rb"(\d{1,4}),\d+,(\d{1,18}),[^;]*;(.*)")
_JOB = re.compile(r"(?:/uid_(\d{1,10}))?/job_(\d{1,10})(?=[/, ]|$)")
_NODE = re.compile(r"/slurm_([\w.-]+)/uid_|/([\w.-]+)_slurmstepd\.scope")
"""The node's name in that of a control group, where several share one kernel."""
_KILL = re.compile(r"oom-kill:constraint=\w+,.*,task_memcg=(/[^,]*),task=.*,pid=(\d{1,10}),uid=(\d{1,10})$")
_KILLS_FOLLOW = re.compile(
    r"Task in /\S* killed as a result of limit of /|Tasks in /\S* are going to be killed due to memory\.oom\.group set"
)
"""The first before Linux 5.0: the pids are in the lines after it."""
_KILLED = re.compile(r"(?:(?:Memory cgroup out|Out) of memory[^:]{0,30}: )?Kill(ed)? process (\d{1,10})[, ]")
_REAPED = re.compile(r"oom_reaper: (?:reaped process |unable to reap pid:)(\d{1,10}) ")
_TROUBLE = re.compile(
    # Graphics cards and the switches between them.
    r"NVRM: |nvidia-nvswitch\d+: "
    # Processors and memory.
    r"|(?:mce: |\{\d+\})?\[Hardware Error\]: |EDAC \S+: \d+ [CU]E |Memory failure: "
    # Buses, network cards, disks.
    r"|(?:nvidia|amdgpu|pcieport) \S+: (?:AER: |PCIe Bus Error: |pciehp: Slot\()"
    r"|(?:mlx5_core|bnxt_en|ice|irdma|i40e|ena|efa) \S+(?: \S+)?: .{0,90}(?:[Ll]ink (?:down|up)|Link Down)"
    r"|mlx5_core \S+: .{0,90}(?:health|Fatal error|start reset|mlx5_\w+err)"
    r"|nvme \S+: .{0,60}(?:controller is down|timeout)|(?:blk_update_request: |Buffer )?I/O error(?:,| on) dev "
    # File systems.
    r"|EXT4-fs error |EXT4-fs \(\S+\): Remounting |XFS \(\S+\): .{0,60}(?:[Ee]rror|[Ss]hut)|BTRFS error"
    r"|nfs: server |Lustre(?:Error)?: |libceph: |ceph: |beegfs: |CIFS: VFS: |mmfs: "
    # Processes and processors that do not go on.
    r"|INFO: task .{1,40} blocked for more than |(?:watchdog: )?BUG: soft lockup |kernel BUG at |BUG: unable to handle "
    r"|(?:NMI )?[Ww]atchdog.{0,12}detected hard LOCKUP|rcu: INFO: rcu_\w+ "
)


def kernel_lines(
    job: SlurmJob, now_s: float, source: str = KMSG, clock: Callable[[], float] = time.monotonic
) -> list[str]:
    """What the node's kernel log tells of a job: kills of its processes, and troubles of the hardware in its time.

    Args:
        job: `start_s` tells where its time begins, `node` how this machine is called.
        now_s: the time, seconds since the epoch.
        source: the kernel's log in the form of `/dev/kmsg`. None of its lines, if it cannot be read.
        clock: the kernel's own: seconds since the machine was started.

    Returns:
        Lines with the UTC time and the node's name, as syslog writes them.
    """
    kills: list[str] = []
    troubles: list[str] = []
    seen = _Kills(job)
    booted_s = now_s - clock()
    node = job.node or socket.gethostname()
    if job.start_s is not None:
        since = named_since = job.start_s - _SLACK_S
    else:
        since = now_s - _UNNAMED_S
        named_since = since if job.restarts else now_s - _NAMED_S  # an earlier run had the same number
    for after_boot_s, text in _records(source):
        at_s = min(booted_s + after_boot_s, now_s)
        if at_s < named_since:
            continue
        if seen.concerns(text, is_recent=at_s >= since):
            chosen = kills
        elif at_s >= since and _TROUBLE.match(text):
            chosen = troubles
        else:
            continue
        stamp = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        chosen.append(f"{stamp} {node} kernel: {text[:_MAX_TEXT]}")
    return sorted(_ends(kills) + _ends(troubles), key=lambda line: line.partition(" ")[0])


@dataclass(slots=True)
class _Kills:
    """Kills of processes for their memory: of the lines on one kill, only the first tells whose process it is."""

    job: SlurmJob
    ours: set[str] = field(default_factory=set)
    """Pids of the job's processes that were killed."""
    follow: bool = False
    """Whether the next lines tell of processes of the job."""

    def concerns(self, text: str, *, is_recent: bool) -> bool:
        """Whether a line tells of the kill of a process of the job."""
        if told := _KILL.match(text):
            path, pid, uid = told.groups()
            is_ours = self._is_named(text)
            if is_ours is None:  # Slurm made no group for the job
                is_ours = is_recent and int(uid) == self.job.uid and not path.startswith("/user.slice/")
            (self.ours.add if is_ours else self.ours.discard)(pid)
            self.follow = False
            return is_ours
        if _KILLS_FOLLOW.match(text):
            self.follow = bool(self._is_named(text))
            return self.follow
        if told := _KILLED.match(text):
            if self.follow:
                self.ours.add(told[2])
                self.follow = told[1] is None or "oom.group" in text
            return told[2] in self.ours
        told = _REAPED.match(text)
        return told is not None and told[1] in self.ours

    def _is_named(self, text: str) -> bool | None:
        """Whether a line names this job, and no other one, on this node; None if it names none.

        A user may call a control group inside those of the job as another job's is called.
        """
        named = _JOB.findall(text)
        if not named:
            return None
        users = {int(uid) for uid, _ in named if uid}
        nodes = {name for found in _NODE.findall(text) for name in found if name}
        return (
            {int(job) for _, job in named} == {self.job.id}
            and (not users or self.job.uid is None or users == {self.job.uid})
            and (not nodes or self.job.node in nodes)
        )


def _records(source: str) -> Iterator[tuple[float, str]]:
    """The kernel's own messages, oldest first: seconds since the start of the machine, and the text."""
    ends = time.monotonic() + LIMIT_S
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return
    rest = b""
    try:
        while time.monotonic() < ends:
            try:
                data = os.read(fd, _RECORD)
            except BrokenPipeError:  # what was next has been overwritten: it goes on with what is there
                continue
            except OSError:  # BlockingIOError: that was all
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for found in filter(None, map(_HEAD.match, lines)):
                if int(found[1]) >> 3 == 0:  # the kernel's; another facility is that of a process that wrote here
                    yield int(found[2]) / 1e6, found[3].decode("utf-8", "backslashreplace")
    finally:
        os.close(fd)


def _ends(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MAX_LINES else lines[: MAX_LINES // 2] + lines[-MAX_LINES // 2 :]
