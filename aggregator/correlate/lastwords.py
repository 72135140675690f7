"""Whose last words are of something that all others have told of and gone on from.

A rank that reached the same point as the others, to the same numbers, and was not heard again is the one that they
wait for, whatever it was doing: no message has to be known for that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aggregator.correlate.evidence import NS, JobEvidence, number
from aggregator.correlate.hangs import WAITING_KINDS, Suspect
from aggregator.correlate.identity import Identity, stream_rank
from aggregator.correlate.stories import Story
from parsers.records import Role, Signal
from parsers.scan import Told

_LEAST = 3
"""Ranks that make a majority."""
_STILL_NS, _STILL_TIMES = 600 * NS, 20
"""For so long, and so many times as long as the slowest of the others took for it, nobody is just slow."""
_ZONE_NS, _ROUND_NS = 1800 * NS, 120 * NS
"""Clocks of two time zones are a multiple of this apart, and their lines a little more."""
_STRENGTH = 0.8
_NUMBER = re.compile(r"(\d{1,18})")
_BLOCKED = "kernel.hung_task"
_FAULTS = frozenset({Role.ROOT, Role.EITHER, Role.SYMPTOM, Role.TEARDOWN})


@dataclass(frozen=True, slots=True)
class _Others:
    """What the others did after the words that were the last of one rank."""

    slowest_ns: int
    heard_ns: int | None
    """When the last of them was last heard."""

    def left(self, ns: int | None, until: int | None) -> bool:
        """Whether so much time went by after a moment that who was last heard then is not just slow.

        They told of it themselves, or nobody told of anything more until the job was ended from outside.
        """
        if ns is None or self.heard_ns is None:
            return False
        enough = max(_STILL_NS, _STILL_TIMES * self.slowest_ns)
        silent = until - self.heard_ns if until is not None else 0
        zones = silent % _ZONE_NS < max(_ROUND_NS, self.slowest_ns)
        return self.heard_ns - ns > enough or (silent > enough and not zones)


def left_behind(
    evidence: JobEvidence, signals: Sequence[Signal], stories: Mapping[int, Story], table: Identity,
    until: int | None = None,
) -> list[Suspect]:  # fmt: skip
    """The few ranks whose last words all others have told too and gone on from.

    Only where the job stood still: others waited in vain, went on telling for long, or a kernel tells of a process
    that it keeps waiting; or it was silent for long when it was ended from outside, at `until`.
    """
    words = _words(evidence, signals, table)
    if len(words) < _LEAST:
        return []
    after: dict[int, _Others] = {}
    known: dict[str, _Others | None] = {}
    for rank, told in sorted(words.items()):
        if stories[rank].spoke_of_trouble or stories[rank].success or stories[rank].exits:
            continue
        said = _without_own(told[-1].text, rank)
        if said not in known:  # asked once for all ranks that stand there: the others are asked each time
            known[said] = _gone_on(rank, told[-1], words)
        if (others := known[said]) is not None:
            after[rank] = others
    behind = tuple(after)
    if not behind or len(behind) * _LEAST > len(words):
        return []
    last = words[behind[0]][-1].text
    if not all(_same(last, behind[0], words[rank][-1].text, rank) for rank in behind):
        return []
    waited = any(s.kind in WAITING_KINDS for rank in words for s in stories[rank].symptoms)
    blocked = [s for s in signals if s.signature == _BLOCKED and _since(s, words[behind[0]][-1].ns, behind[0], table)]
    still = bool(blocked) or all(others.left(words[rank][-1].ns, until) for rank, others in after.items())
    if not waited and not still:
        return []
    who = f"rank {behind[0]}" if len(behind) == 1 else "ranks " + ", ".join(map(str, behind))
    count = len(words) - len(behind)
    reason = f"the last words of {who} are of what the other {count} ranks told too and went on from"
    support = tuple(blocked[:1])
    return [Suspect(behind, "collective_timeout", reason, _STRENGTH, witnesses=count, still=still, support=support)]


def kept_by_kernel(signals: Sequence[Signal], stories: Mapping[int, Story], until: int | None) -> list[Suspect]:
    """The one rank of whose process a kernel tells that it keeps waiting, where nobody spoke for long up to `until`.

    It was kept since its last words, by the same clock or by one in another time zone.
    """
    blocked: dict[int, Signal] = {}
    for signal in signals:
        if signal.signature == _BLOCKED and signal.rank is not None and signal.rank in stories:
            blocked.setdefault(signal.rank, signal)
    lasts = [story.last_ns for story in stories.values() if story.last_ns is not None]
    if len(blocked) != 1 or len(stories) < _LEAST or until is None or max(lasts, default=until) > until - _STILL_NS:
        return []
    ((rank, signal),) = blocked.items()
    last, seconds = stories[rank].last_ns, number(signal.fields.get("seconds")) or 0
    since = signal.ns - seconds * NS + _ROUND_NS - last if signal.ns is not None and last is not None else None
    if since is None or (since < 0 and since % _ZONE_NS > 2 * _ROUND_NS):
        return []
    stored = any(s.kind == "storage_io" and s.host == signal.host for s in signals)
    reason = (
        f"its host's kernel tells of rank {rank}'s process alone that it is kept waiting, and no rank spoke after that"
    )
    kind = "storage_io" if stored else "collective_timeout"
    return [Suspect((rank,), kind, reason, _STRENGTH, witnesses=len(stories) - 1, still=True, support=(signal,))]


def _since(blocked: Signal, ns: int | None, rank: int, table: Identity) -> bool:
    """Whether a process has been kept waiting on a rank's host, as far as it is known, since the rank's last words."""
    host, seconds = table.host_of_rank.get(rank), number(blocked.fields.get("seconds")) or 0
    if ns is None or blocked.ns is None or blocked.stamp is None or blocked.stamp.boot:
        return False
    here = host is None or blocked.host is None or table.runs_on(host, blocked.host)
    return here and blocked.ns - seconds * NS >= ns - _ROUND_NS


def _words(evidence: JobEvidence, signals: Sequence[Signal], table: Identity) -> dict[int, tuple[Told, ...]]:
    """The last lines of each rank's fullest stream, up to the first trouble that its file tells of."""
    trouble: dict[int, int] = {}
    for signal in signals:
        if signal.role in _FAULTS:
            trouble[signal.source] = min(signal.line, trouble.get(signal.source, signal.line))
    attempts = {evidence.source(signal).attempt for signal in signals}
    fullest: dict[int, tuple[int, tuple[Told, ...]]] = defaultdict(lambda: (0, ()))
    for source, key, activity in evidence.activities:
        rank = stream_rank(source, key, table)
        if rank is None or activity.lines <= fullest[rank][0] or source.attempt not in {None, *attempts}:
            continue
        first = trouble.get(source.index)
        told = tuple(item for item in activity.recent if first is None or item.line < first)
        fullest[rank] = (activity.lines, told)
    return {rank: told for rank, (_, told) in fullest.items() if told and rank in table.ranks}


def _gone_on(rank: int, last: Told, words: Mapping[int, tuple[Told, ...]]) -> _Others | None:
    """What the others did after they had told the same; None where one has not, or most stand at the same place."""
    gone, slowest, heard = 0, 0, list[int]()
    for other, told in words.items():
        place = next((n for n in reversed(range(len(told))) if _same(last.text, rank, told[n].text, other)), None)
        if place is None:
            return None
        if place == len(told) - 1:
            continue
        gone += 1
        this, following, newest = told[place].ns, told[place + 1].ns, told[-1].ns
        if this is not None and following is not None:
            slowest = max(slowest, following - this)
        if newest is not None:
            heard.append(newest)
    return _Others(slowest, max(heard, default=None)) if gone * 2 > len(words) else None


def _without_own(text: str, rank: int) -> str:
    """A text with a mark for each number that is the rank's own."""
    return _NUMBER.sub(lambda found: "\0" if int(found[0]) == rank else found[0], text.strip())


def _same(one: str, rank: int, two: str, other: int) -> bool:
    """Whether two ranks told the same, each with its own number where the other has its own, zeros before it or not."""
    parts, others = _NUMBER.split(one.strip()), _NUMBER.split(two.strip())
    return len(parts) == len(others) and all(
        part == peer or (place % 2 and int(part) == rank and int(peer) == other)
        for place, (part, peer) in enumerate(zip(parts, others, strict=True))
    )
