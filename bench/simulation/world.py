"""The simulated job: hosts with their clocks, ranks that step together, and all that was printed.

Times are seconds of true time since the start of the job (`START`); every line is stamped by its host's own clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

START = datetime(2026, 12, 1, 20, 32, tzinfo=UTC).timestamp()
PER_HOST = 8
NEVER = float("inf")


class Stamps(StrEnum):
    """What the program's own lines carry."""

    MS = "ms"
    SECONDS = "seconds"
    NONE = "none"
    """No line of a rank has a stamp, those of PyTorch neither (its form before 2.4); launchers' lines do."""


class Layout(StrEnum):
    """How the job's output was kept."""

    RANKS = "ranks"
    """One file a rank in its host's folder, each agent's output beside them."""
    TORCHRUN = "torchrun"
    """The tree of `torchrun --log-dir` of each host, and its console."""
    MERGED = "merged"
    """One file of all hosts, ranks tagged `[rank3]:`, in order of arrival."""
    SRUN = "srun"
    """One file of `srun --label`, no torchrun."""
    SRUN_FILES = "srun-files"
    """One file a task, and the batch job's own output."""

    @property
    def elastic(self) -> bool:
        """Whether torchrun started the ranks."""
        return self not in {Layout.SRUN, Layout.SRUN_FILES}


class Line(NamedTuple):
    """One printed line: when, in true time, and its text with whatever stamp the host's clock gave it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """A process's end; `code` as Python's subprocess has it (negative: signal)."""

    at: float
    code: int
    raised_at: float | None = None
    """When its exception was raised, where one was."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One job to simulate. `skew` bounds the hosts' clock errors in s, `drift` their rates in ppm, both uniform."""

    ranks: int
    skew: float
    stamps: Stamps
    layout: Layout
    seed: str
    drift: float = 50.0
    steps: int = 12


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened. `ranks` are those that began it, none where nothing failed. `at` is when, in true time."""

    outcomes: frozenset[str]
    ranks: frozenset[int] = frozenset()
    hosts: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    at: float = 0.0


@dataclass(slots=True)
class World:
    """A job while it is made. `rank_lines`, `agent_lines` and `launcher_lines` are what ends up in files."""

    setting: Setting
    rng: random.Random = field(init=False)
    hosts: list[str] = field(init=False)
    offsets: list[float] = field(init=False)
    """What each host's clock showed too much at the start, s."""
    rates: list[float] = field(init=False)
    late: list[float] = field(init=False)
    """How much later than others a host always writes, s: no log can tell it from its clock."""
    taus: list[float] = field(init=False)
    """When each step's last collective ended; the first is the end of initialisation."""
    rank_lines: list[list[Line]] = field(init=False)
    exits: list[Exit | None] = field(init=False)
    agent_lines: list[list[Line]] = field(init=False)
    launcher_lines: list[Line] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    """Hosts that stopped to exist; their agents say nothing."""
    pids: list[int] = field(init=False)
    uptimes: list[int] = field(init=False)
    end: float = NEVER
    """Where the logs are cut off."""
    kill_on_bad_exit: bool = True
    raised: dict[int, str] = field(default_factory=dict)
    """The traceback of each rank that raised."""
    recorded: bool = field(init=False)
    """Whether the program's entry point is wrapped so that torchrun gets an error file of each exception."""
    _days: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        setting = self.setting
        self.rng = rng = random.Random(setting.seed)
        count = -(-setting.ranks // PER_HOST)
        prefix = rng.choice(("gpu-", "node", "dgx-r7-", "gn", "cn-a"))
        self.hosts = [f"{prefix}{number + 1:04d}" for number in range(count)]
        self.offsets = [rng.uniform(-setting.skew, setting.skew) for _ in self.hosts]
        self.rates = [rng.uniform(-setting.drift, setting.drift) * 1e-6 for _ in self.hosts]
        self.late = [rng.uniform(0, 0.015) for _ in self.hosts]
        self.uptimes = [rng.randrange(10**9) for _ in self.hosts]
        self.rank_lines = [[] for _ in range(setting.ranks)]
        self.exits = [None] * setting.ranks
        self.agent_lines = [[] for _ in self.hosts]
        self.pids = [20000 + rng.randrange(3000) + rank % PER_HOST for rank in range(setting.ranks)]
        self.recorded = setting.layout is Layout.TORCHRUN and rng.random() < 0.5
        duration = rng.uniform(0.8, 3.0)
        self.taus = [rng.uniform(6, 12)]
        for _ in range(setting.steps + 1):
            slow = rng.uniform(0.5, 2.0) if rng.random() < 0.1 else rng.uniform(0, 0.15)  # the slowest rank of the step
            self.taus.append(self.taus[-1] + duration * (1 + slow))

    @property
    def ranks(self) -> range:
        return range(self.setting.ranks)

    def host_of(self, rank: int) -> int:
        return rank // PER_HOST

    def ranks_of(self, host: int) -> range:
        return range(host * PER_HOST, min((host + 1) * PER_HOST, self.setting.ranks))

    def shown(self, host: int, at: float) -> float:
        """What a host's clock shows, seconds since the epoch."""
        return START + at + self.offsets[host] + self.rates[host] * at

    def lag(self, rank: int) -> float:
        """How late a rank's line is written after what it tells."""
        slow = self.rng.uniform(0, 0.2) if self.rng.random() < 0.05 else 0.0
        return self.late[self.host_of(rank)] + self.rng.expovariate(250.0) + slow

    def clock(self, host: int, at: float, form: str) -> str:
        """A host's clock as text: `iso` (ms), `day` (whole s), `c10`, `torch` (both without year), `box`."""
        shown = self.shown(host, at)
        second = int(shown)
        day = self._days.get(second)
        if day is None:
            if len(self._days) > 100_000:
                self._days.clear()
            day = self._days[second] = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"
        if form == "iso":
            return f"{day},{int((shown - second) * 1000):03d}"
        if form == "day":
            return day
        if form == "slurm":
            return day.replace(" ", "T")
        if form == "box":
            return day.replace(" ", "_")
        month, date, time = day[5:7], day[8:10], day[11:]
        if form == "torch":
            return f"{month}{date} {time}.{int((shown - second) * 1000):03d}000"
        # The nine digits are the host's monotonic clock, not the fraction of the second.
        return f"{int(month)}{date} {time}.{(self.uptimes[host] + int(at * 1e9)) % 10**9:09d}"

    def say(self, rank: int, at: float, message: str, level: str = "INFO") -> None:
        """A line of the program's logger."""
        stamps = self.setting.stamps
        host = self.host_of(rank)
        when = "" if stamps is Stamps.NONE else self.clock(host, at, "iso" if stamps is Stamps.MS else "day") + " "
        self.rank_lines[rank].append(Line(at, f"{when}[rank {rank}] {level} tinylm: {message}"))

    def put(self, rank: int, at: float, text: str) -> None:
        """Text that a rank printed as it is, of one line or several."""
        self.rank_lines[rank].extend(Line(at, line) for line in text.split("\n"))

    def c10(self, rank: int, at: float, place: str, message: str, level: str = "E", *, tag: bool = True) -> None:
        """A line of PyTorch's C++ logger."""
        who = f"[rank{rank}]:" if tag else ""
        when = "" if self.setting.stamps is Stamps.NONE else self.clock(self.host_of(rank), at, "c10") + " "
        start = f"{level}{when}" if when else f"{level} "
        self.put(rank, at, f"{who}[{start}{place}] {message}")

    def tell(
        self, host: int, at: float, message: str, level: str = "W", place: str = "multiprocessing/api.py:900"
    ) -> None:
        """A line of a host's torchrun."""
        when = self.clock(host, at, "torch")
        line = f"{level}{when} {19000 + host % 900} torch/distributed/elastic/{place}] {message}"
        self.agent_lines[host].append(Line(at, line))

    def error_file(self, rank: int) -> str:
        """Where torchrun keeps a rank's files, below its host's folder."""
        host = self.host_of(rank)
        run = f"none_{(self.uptimes[host] * 7919) % 36**6:08x}"
        return f"logs/{run}/attempt_0/{rank % PER_HOST}/error.json"

    @property
    def label(self) -> str:
        """What `srun --label` puts before the lines of the first task."""
        return "0: " if self.setting.layout is Layout.SRUN else ""

    def cut(self, rank: int, at: float) -> None:
        """The rank prints nothing from here on."""
        lines = self.rank_lines[rank]
        if lines and lines[-1].at > at:
            self.rank_lines[rank] = [line for line in lines if line.at <= at]
