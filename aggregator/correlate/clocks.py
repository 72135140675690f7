"""How far the clocks of a job's hosts stand apart, from moments that they shared.

Ranks that step together print the same step at the same moment, and end their initialisation together: stamps of one
such event on two hosts differ by their clocks and by how late each line was written. The median over many events is
the offset; their scatter is its uncertainty. Nothing is assumed of hosts without such events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aggregator.correlate.evidence import NS
from aggregator.correlate.identity import Identity
from parsers.records import Role, Signal, StampQuality

UNKNOWN_NS = 600 * NS
"""How far apart two hosts' stamps must be to order them while nothing is known of their clocks: a machine whose
time service is down is off by minutes after some months."""
_LEAST_NS = NS // 20
_ZONE_NS = 1800 * NS
_ZONE_SLACK_NS = 60 * NS
_MOST_ZONES = 52
"""Between the first time zone and the last, in half hours."""
_EVENTS = 3

Event = tuple[str, str]
"""Signature, and the step where it has one."""


@dataclass(frozen=True, slots=True)
class HostClock:
    """One host against the reference: `offset_ns` is what its clock shows too much, `epsilon_ns` how sure that is."""

    offset_ns: int
    epsilon_ns: int
    method: str


@dataclass(frozen=True, slots=True)
class ClockModel:
    """The clocks of a job. Hosts that are not in `hosts` are unknown."""

    reference: str | None = None
    hosts: dict[str, HostClock] = field(default_factory=dict)
    one_host: bool = True
    """Whether the job ran on one host only, as far as is known."""

    def slack_ns(self, one: str | None, other: str | None) -> int:
        """How far two hosts' corrected stamps must be apart to order their events."""
        if one == other and one is not None:
            return 0
        if one is None or other is None:
            return 0 if self.one_host else UNKNOWN_NS
        left, right = self.hosts.get(one), self.hosts.get(other)
        return UNKNOWN_NS if left is None or right is None else left.epsilon_ns + right.epsilon_ns

    def precedes(self, one_ns: int, one: str | None, other_ns: int, other: str | None, margin_ns: int = 0) -> bool:
        """Whether a stamp of one host is certainly the earlier, by `margin_ns` at least.

        Of hosts whose clocks nothing ties together one may run in another time zone.
        """
        gap = self.common(other_ns, other) - self.common(one_ns, one) - margin_ns
        slack = self.slack_ns(one, other)
        if gap < slack:
            return False
        zones = round(gap / _ZONE_NS)
        return slack < UNKNOWN_NS or not (0 < zones <= _MOST_ZONES and abs(gap - zones * _ZONE_NS) <= _ZONE_SLACK_NS)

    def common(self, ns: int, host: str | None) -> int:
        """A host's stamp in the reference's time."""
        clock = self.hosts.get(host) if host is not None else None
        return ns - clock.offset_ns if clock is not None else ns


def estimate(signals: Iterable[Signal], table: Identity) -> ClockModel:
    """The offsets of all hosts that share events, against the one whose clock is taken for right.

    That is the host in the middle, or of two the one of rank 0, whose logs and launcher are read most.
    """
    moments = _shared_moments(signals, table)
    one_host = len(table.hosts) <= 1
    if not moments:
        return ClockModel(one_host=one_host)
    events_of: dict[str, set[Event]] = defaultdict(set)
    for event, by_host in moments.items():
        for host in by_host:
            events_of[host].add(event)
    busiest = max(sorted(events_of), key=lambda host: len(events_of[host]))
    hosts = _against(busiest, events_of, moments)
    if len(hosts) > 2:  # noqa: PLR2004 - of two none is in the middle
        reference = sorted(hosts, key=lambda host: (hosts[host].offset_ns, host))[len(hosts) // 2]
    else:
        reference = table.host_of_rank.get(0, busiest)
    if reference != busiest and reference in hosts:
        again = _against(reference, events_of, moments)
        if len(again) == len(hosts):
            return ClockModel(reference, again, one_host=one_host)
    return ClockModel(busiest, hosts, one_host=one_host)


def _against(
    reference: str, events_of: Mapping[str, set[Event]], moments: Mapping[Event, Mapping[str, tuple[int, int]]]
) -> dict[str, HostClock]:
    hosts = {reference: HostClock(0, 0, "reference")}
    for host, events in events_of.items():
        shared = [moments[event] for event in events if reference in moments[event]]
        if host != reference and shared:
            hosts[host] = _offset([(row[host], row[reference]) for row in shared])
    return hosts


def loosen_bounds(signals: Sequence[Signal], table: Identity) -> None:
    """In a file of several hosts the next stamp is another clock's: it bounds nothing."""
    hosts: dict[int, set[str]] = defaultdict(set)
    for signal in signals:
        host = table.host_of_rank.get(signal.rank) if signal.rank is not None else None
        if host is not None:
            hosts[signal.source].add(host)
    shared = {source for source, names in hosts.items() if len(names) > 1}
    for signal in signals if shared else ():
        if signal.source in shared:
            signal.until_ns = None


def _shared_moments(signals: Iterable[Signal], table: Identity) -> dict[Event, dict[str, tuple[int, int]]]:
    """For each event that several hosts saw: the earliest stamp of it on each, with its resolution."""
    moments: dict[Event, dict[str, tuple[int, int]]] = defaultdict(dict)
    for signal in signals:
        stamp = signal.stamp
        if stamp is None or stamp.boot or signal.quality is not StampQuality.OWN:
            continue
        host = (table.host_of_rank.get(signal.rank) if signal.rank is not None else None) or signal.host
        event = _event(signal)
        if host is None or event is None:
            continue
        known = moments[event].get(host)
        if known is None or stamp.ns < known[0]:
            moments[event][host] = (stamp.ns, stamp.resolution_ns)
    return {event: row for event, row in moments.items() if len(row) > 1}


def _event(signal: Signal) -> Event | None:
    if signal.role is Role.PROGRESS and "step" in signal.fields:
        return signal.signature, f"{signal.fields.get('epoch', '')}/{signal.fields['step']}"
    if signal.role is Role.PHASE and signal.phase == "init":
        return signal.signature, "init"
    return None


def _offset(pairs: list[tuple[tuple[int, int], tuple[int, int]]]) -> HostClock:
    differences = [mine[0] - theirs[0] for mine, theirs in pairs]
    resolution = max(max(mine[1], theirs[1]) for mine, theirs in pairs)
    from statistics import median  # noqa: PLC0415 - brings fractions and decimals, for jobs of several hosts

    offset = int(median(differences))
    scatter = int(median([abs(difference - offset) for difference in differences]))
    epsilon = max(3 * scatter, resolution, _LEAST_NS)
    if len(pairs) < _EVENTS:
        epsilon = max(epsilon, 5 * NS)
    zones = round(offset / _ZONE_NS)
    zoned = zones != 0 and abs(offset - zones * _ZONE_NS) <= epsilon
    return HostClock(offset, epsilon, "time zone" if zoned else "collectives")
