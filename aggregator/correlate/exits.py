"""How processes ended, as launchers and schedulers report it, and what each ending proves.

An exit report is one host's opinion at the resolution of a poll: torchelastic stamps signal deaths when it looks,
DeepSpeed prints the command of the last process it started, srun reports in the order of receipt.
"""

from __future__ import annotations

import re
import signal as signals_of_system
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aggregator.correlate.evidence import JobEvidence, ints, number
from aggregator.correlate.identity import Identity
from parsers.records import Role, Signal, StampQuality

_NAMES = {
    "killed": 9, "terminated": 15, "aborted": 6, "segmentation fault": 11, "bus error": 7, "hangup": 1,
    "illegal instruction": 4, "floating point exception": 8, "interrupt": 2, "user defined signal 1": 10,
    "user defined signal 2": 12,
    "getötet": 9, "processus arrêté": 9, "terminado": 9, "已杀死": 9,
    "speicherzugriffsfehler": 11, "erreur de segmentation": 11, "violación de segmento": 11, "段错误": 11,
    "abgebrochen": 6, "abandon": 6, "abortado": 6, "已放弃": 6, "已中止": 6,
    "bus-zugriffsfehler": 7, "erreur de bus": 7, "总线错误": 7,
}  # fmt: skip
"""As glibc names them, and as it translates these names."""
_FATAL_KINDS = {11: "segfault", 7: "bus_error", 4: "abort", 8: "abort", 6: "abort"}
_SIGNAL_NAME = re.compile(r"^(?:Signals\.)?SIG(?P<name>[A-Z0-9]+)$")


class Ending(StrEnum):
    """What an exit proves about the process itself."""

    CLEAN = "clean"
    ERROR = "error"
    """A status above 0 that the program chose."""
    CRASH = "crash"
    """A signal that the process brought on itself."""
    KILLED = "killed"
    """SIGKILL: the sender is unknown."""
    OOM = "oom"
    """The reporter says that the memory limit killed it."""
    STOPPED = "stopped"
    """SIGTERM and the like: someone asked it to end."""


@dataclass(frozen=True, slots=True)
class Exit:
    """One process's end, by one report. `order` is the report's position among all of its source."""

    rank: int | None
    ending: Ending
    code: int | None
    signum: int | None
    host: str | None
    ns: int | None
    report: Signal
    first: bool
    """The launcher says that it was the first it noticed."""

    @property
    def kind(self) -> str:
        """The failure kind that the ending alone shows."""
        if self.ending is Ending.OOM:
            return "host_oom"
        if self.signum is not None:
            return _FATAL_KINDS.get(self.signum, "killed")
        return "killed" if self.ending is Ending.KILLED else "unknown"

    @property
    def told(self) -> str:
        """For a sentence: `exit code 1`, `SIGKILL`."""
        if self.ending is Ending.OOM:
            return "killed by the memory limit"
        if self.signum is not None:
            return signal_name(self.signum)
        return f"exit code {self.code}" if self.code is not None else "a sudden end"


def signal_name(signum: int) -> str:
    """`SIGKILL` for 9; the number where it has no name."""
    try:
        return signals_of_system.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def read_exits(evidence: JobEvidence, signals: Iterable[Signal], table: Identity) -> list[Exit]:
    """Every exit report, one entry a rank, in order of source and position."""
    found: list[Exit] = []
    of_pods: list[Signal] = []
    for signal in signals:
        if signal.role is not Role.EXIT:
            continue
        if signal.signature in _OF_A_POD and signal.rank is None and signal.host is not None:
            of_pods.append(signal)
            continue
        code, signum, ending = _status(signal)
        if ending is None:
            continue
        host = signal.fields.get("host") or signal.fields.get("box_host") or signal.host or evidence.source(signal).host
        first = signal.fields.get("section") == "root_cause" or signal.signature in _NAMES_FIRST
        ranks: tuple[int | None, ...] = (signal.rank,)
        tasks = ints(signal.fields.get("tasks"))
        if tasks and table.reports_count_ranks:
            ranks = tasks
        elif tasks:
            ranks = (None,)
        elif ints(signal.fields.get("ranks")):
            ranks = ints(signal.fields.get("ranks"))
        if table.world_size is not None:  # the launcher counts otherwise, or the line is no report of this job's
            ranks = tuple(rank if rank is None or rank < table.world_size else None for rank in ranks)
        when = signal.ns if signal.quality is StampQuality.OWN else None
        found.extend(Exit(rank, ending, code, signum, host, when, signal, first) for rank in ranks)
    # Why a rank was killed stands before that it was.
    return [*(item for signal in of_pods for item in _ends_of_pod(signal, found, table)), *found]


def _ends_of_pod(signal: Signal, found: Sequence[Exit], table: Identity) -> list[Exit]:
    """The ends of a container's ranks that was killed for memory: of those that a launcher saw killed, else of all."""
    ranks = table.ranks_on(signal.host or "")
    told = {item.rank: item for item in found if item.rank in ranks}
    killed = [rank for rank in ranks if rank in told and told[rank].ending is Ending.KILLED]
    struck: Sequence[int | None] = (killed if told else ranks) or [None]
    when = signal.ns if signal.quality is StampQuality.OWN else None
    return [Exit(rank, Ending.OOM, None, 9, signal.host, when, signal, first=False) for rank in struck]


_NAMES_FIRST = frozenset({"te.failed", "composer.exit", "pl.observer", "hvd.exit", "mpi.exit", "pt.spawn"})
"""Launchers that report just the first process they found dead."""


_OF_A_POD = frozenset({"k8s.oom_killed", "k8s.pod_status.oom"})
"""A container, or some process of it, was killed for memory; what is left of it ends with it."""

_VANISHED = frozenset({"ray.worker.died", "ray.actor.died", "ray.worker.exit"})
"""Reports of a process that was gone all at once, without an exit code."""


def _status(signal: Signal) -> tuple[int | None, int | None, Ending | None]:
    fields = signal.fields
    if fields.get("oom") or signal.kind == "host_oom":
        return None, 9, Ending.OOM
    code = number(fields.get("exit_code"))
    signum = _signum(fields.get("signal"))
    if signum is None and code is not None:
        if code < 0:
            signum = -code
        elif code > 128 and code - 128 in {1, 2, 4, 6, 7, 8, 9, 11, 15}:  # noqa: PLR2004 - a shell adds 128
            signum = code - 128
    if signum is not None:
        return code, signum, _ending_of_signal(signum)
    if code is None and signal.signature in _VANISHED:
        return None, None, Ending.KILLED
    if code is None:
        return None, None, Ending.ERROR if signal.kind or fields.get("peer_rank") or signal.rank is not None else None
    return code, None, Ending.CLEAN if code == 0 else Ending.ERROR


def _signum(text: str | None) -> int | None:
    if text is None:
        return None
    text = text.strip()
    if text.lstrip("-").isdigit():
        return abs(int(text)) or None
    named = _SIGNAL_NAME.match(text)
    if named:
        try:
            return signals_of_system.Signals["SIG" + named["name"]].value
        except KeyError:
            return None
    return _NAMES.get(text.lower().split(" (")[0])


def _ending_of_signal(signum: int) -> Ending:
    if signum in _FATAL_KINDS:
        return Ending.CRASH
    return Ending.KILLED if signum == 9 else Ending.STOPPED  # noqa: PLR2004 - SIGKILL
