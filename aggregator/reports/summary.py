"""The verdict in sentences, which all reports for people share. Every one is safe to show on one line."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.reports import words
from aggregator.verdict import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.verdict import Collateral, Failure, Verdict

TEXT_LIMIT = 480
"""Characters of one piece of foreign text in a sentence."""
CLOCK_WORTH_TELLING_S = 0.5
_NAMES = 3
"""So many names make the point."""
_HOSTS = 4

NO_FAILURE = {
    Outcome.COMPLETED: "No rank failed.",
    Outcome.RUNNING: "No rank has failed: the job was still at work where the logs end.",
    Outcome.CANCELLED: "No rank failed: the job was stopped from outside.",
    Outcome.UNKNOWN: "The logs show neither a failure nor the end of the job.",
    Outcome.FAILED: "The job failed, but no line tells of a first failure.",
    Outcome.HUNG: "The job hung, but no line tells which rank stopped first.",
}


class Summary:
    """Sentences on one verdict; secrets are masked with `redact`."""

    def __init__(self, verdict: Verdict, *, redact: bool) -> None:
        self._verdict = verdict
        self._redact = redact

    def safe(self, text: str, limit: int = TEXT_LIMIT) -> str:
        """Foreign text on one line, at most `limit` characters of it."""
        return safe.show(safe.mask(text) if self._redact else text, limit)

    def outcome(self) -> str:
        """`FAILED: job 4242, 8 ranks on 2 hosts, 2026-03-04 11:03:04Z to 12:13:04Z`."""
        job = self._verdict.job
        facts = [f"job {self.safe(job.id)}"] if job.id else []
        size = job.world_size if job.world_size is not None else len(job.ranks_seen)
        if size:
            hosts = f" on {words.counted(len(job.hosts), 'host')}" if job.hosts else ""
            facts.append(words.counted(size, "rank") + hosts)
        if period := words.period(job.started, job.ended, job.time_resolution_ns):
            facts.append(period)
        return ": ".join(part for part in (self._verdict.outcome.upper(), ", ".join(facts)) if part)

    def read(self) -> str:
        """`12,000 lines of 8 files read`."""
        coverage = self._verdict.coverage
        return f"{words.counted(coverage.lines, 'line')} of {words.counted(coverage.files, 'file')} read"

    def attempts(self) -> list[str]:
        """One sentence an attempt, where there were several."""
        attempts = self._verdict.attempts
        if len(attempts) < 2:  # noqa: PLR2004 - one is the job itself
            return []
        told = []
        for attempt in attempts:
            first = attempt.first_failure
            what = f": {who(first)}, {words.kind_words(first.kind)}" if first else ""
            told.append(f"attempt {attempt.index}: {attempt.outcome}{what}")
        return told

    def headline(self) -> str:
        """Who failed first, where, when, of what; or that nobody did."""
        failure = self._verdict.first_failure
        if failure is None:
            earlier = any(attempt.first_failure for attempt in self._verdict.attempts)
            return NO_FAILURE[self._verdict.outcome] + (" Earlier attempts did, see above." if earlier else "")
        place = [*map(self.safe, failure.hosts[:_HOSTS])]
        if len(failure.hosts) > len(place):
            place.append(f"{len(failure.hosts) - len(place)} more hosts")
        if failure.gpu is not None:
            place.append(f"GPU {self.safe(failure.gpu)}")
        text = f"First failure: {who(failure)}" + (f" ({', '.join(place)})" if place else "")
        return f"{text}{_at(failure)}: {what(failure)}"

    def candidates(self) -> list[str]:
        """Who else was considered and why not, ranks of the same reason together."""
        failure = self._verdict.first_failure
        groups: defaultdict[tuple[str, str], list[int | None]] = defaultdict(list)
        for item in failure.candidates if failure is not None else ():
            groups[item.kind, item.why_not].append(item.rank)
        told = []
        for (kind, why_not), ranks in groups.items():
            known = [rank for rank in ranks if rank is not None]
            name = words.ranks_words(known) if known else "a process of unknown rank"
            told.append(f"{name}, {words.kind_words(kind)}: {self.safe(why_not)}")
        return told

    def consequences(self) -> list[tuple[str, int]]:
        """Whose errors only follow and how, with the number of ranks: those of the same kind and reason together."""
        failure = self._verdict.first_failure
        groups: defaultdict[tuple[str, str], list[Collateral]] = defaultdict(list)
        for item in self._verdict.collateral:
            groups[item.kind, words.without_lateness(item.because)].append(item)
        told = []
        for (kind, because), items in groups.items():
            when = words.lateness((item.time for item in items), failure.time if failure is not None else None)
            text = f"{self._sufferers(items)}: {words.kind_words(kind)}{' ' + when if when else ''}"
            told.append((f"{text}: {self.safe(because)}" if because else text, len(items)))
        return told

    def _sufferers(self, items: Sequence[Collateral]) -> str:
        ranks = {item.rank for item in items if item.rank is not None}
        hosts = sorted({item.host for item in items if item.rank is None and item.host})
        parts = [words.ranks_words(ranks)] if ranks else []
        parts += [f"{'host' if len(hosts) == 1 else 'hosts'} {', '.join(map(self.safe, hosts))}"] if hosts else []
        unknown = sum(item.rank is None and not item.host for item in items)
        parts += [words.counted(unknown, "process", "processes") + " of unknown rank"] if unknown else []
        return " and ".join(parts)

    def missing(self) -> list[str]:
        """What was not read, and what else a reader should know."""
        verdict = self._verdict
        ranks = verdict.job.ranks_missing
        notes = [f"no log of {words.ranks_words(ranks)}"] if ranks else []
        skipped: defaultdict[str, list[str]] = defaultdict(list)
        for item in verdict.coverage.files_skipped:
            skipped[item.reason].append(item.file)
        for reason, files in skipped.items():
            more = f" and {len(files) - _NAMES:,} more" if len(files) > _NAMES else ""
            notes.append(f"{', '.join(map(self.safe, files[:_NAMES]))}{more}: {self.safe(reason)}")
        return [*notes, *map(self.safe, verdict.warnings)]

    def clocks(self, least_s: float = CLOCK_WORTH_TELLING_S) -> list[str]:
        """How hosts' clocks were corrected, where by `least_s` or more."""
        return [
            f"{self.safe(clock.host or 'unnamed host')}: {clock.offset_s:+.1f} s"
            + (f" ±{words.span_words(clock.uncertainty_s)}" if clock.uncertainty_s is not None else "")
            + f" ({self.safe(clock.method)})"
            for clock in self._verdict.clocks
            if abs(clock.offset_s) >= least_s
        ]


def who(failure: Failure) -> str:
    """The ranks that failed first, as far as that is settled."""
    if failure.status is Status.UNDETERMINED:
        return "rank not told by these logs"
    if not failure.ranks:
        return "the job as a whole"
    if failure.status is Status.AMBIGUOUS:
        return words.one_of(failure.ranks, words.ranks_words(failure.ranks))
    return words.ranks_words(failure.ranks)


def what(failure: Failure) -> str:
    """`CUDA out of memory in evaluation, step 1200`."""
    text = words.kind_words(failure.kind)
    if failure.phase in words.PHASES:
        text += f" {words.PHASES[failure.phase]}"
    return text if failure.step is None else f"{text}, step {failure.step}"


def _at(failure: Failure) -> str:
    moment = words.moment(failure.time, failure.time_resolution_ns)
    if not moment:
        return ""
    sure = f" ±{words.span_words(failure.time_uncertainty_s)}" if failure.time_uncertainty_s else ""
    return f" at {moment}{sure}"
