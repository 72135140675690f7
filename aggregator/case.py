"""A judged job with all that a report may show of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

_WORDS = 6
"""So many words in a line tell which it is."""

if TYPE_CHECKING:
    from aggregator.correlate.judge import Judged
    from aggregator.excerpts import Excerpt
    from aggregator.timeline import Timeline
    from aggregator.verdict import Evidence, Verdict
    from parsers.records import ExceptionInfo


@dataclass(frozen=True)
class Case:
    """The verdict; and, where the job itself is at hand and not the verdict alone, its timeline and what stands in its
    files. These are made when they are asked for: most reports need neither.
    """

    verdict: Verdict
    judged: Judged | None = None

    @cached_property
    def timeline(self) -> Timeline:
        """What every rank did when; empty if only the verdict is known."""
        if self.judged is None:
            from aggregator.timeline import Timeline  # noqa: PLC0415 - charts only

            return Timeline()
        from aggregator.correlate.lanes import timeline_of  # noqa: PLC0415 - charts only

        return timeline_of(self.judged)

    @cached_property
    def exception(self) -> ExceptionInfo | None:
        """The traceback of the first failure, if it left one."""
        if self.judged is None:
            return None
        leads = self.judged.attempts[-1].judgement.leads
        signals = [signal for lead in leads for signal in (lead.signal, *lead.support) if signal is not None]
        return next((signal.exception for signal in signals if signal.exception is not None), None)

    def around(self, item: Evidence, before: int, after: int) -> Excerpt | None:
        """The lines of a file around a piece of evidence, None where they are not there as they were read.

        `before` and `after` are numbers of lines.
        """
        if self.judged is None:
            return None
        from aggregator.excerpts import read_excerpt  # noqa: PLC0415 - few reports quote files

        source = next((source for source in self.judged.evidence.sources if source.path == item.file), None)
        found = None if source is None else read_excerpt(source, item.line, before, after)
        if found is None or not _same(found.lines[item.line - found.first], item.text):
            return None
        return found


def _same(line: str, text: str) -> bool:
    """Whether a line of a file is the one that a text was taken of: of a file's end, lines are counted from there."""
    told = text.strip().split("\n", 1)[0].split()
    return not told or all(word in line for word in told[:_WORDS])
