"""How the screens say things: foreign text without its power, states as signs, the head that every screen shares.

Whatever is foreign reaches a widget as a `rich.text.Text` whose characters went through a `Clean`: Textual would parse
a plain string as markup, and passes escape sequences on from any string.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import set_cell_size
from rich.filesize import decimal
from rich.text import Text

from aggregator import safe
from aggregator.live.view import LiveEvent, LiveState, LiveView, RankHealth, RankState
from aggregator.reports import words
from aggregator.verdict import NS_PER_S

ROW_LIMIT = 400
"""Characters of foreign text on one line of the screen."""
BLOCK_LIMIT = 16_384
"""Characters of a line that is shown whole."""


class Clean:
    """Makes foreign text one line that is safe to show, its secrets masked first if `redact`."""

    def __init__(self, *, redact: bool) -> None:
        self.redact = redact
        self._shown = lru_cache(maxsize=256)(self._show)  # a screenful: its lines are drawn again and again

    def __call__(self, text: str, limit: int = ROW_LIMIT) -> str:
        """The text in at most about `limit` characters, tabs opened: a tab would shift all that is behind it."""
        return self._shown(text, limit)

    def _show(self, text: str, limit: int) -> str:
        return safe.show(safe.mask(text) if self.redact else text, limit).expandtabs(4)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a state looks: the sign tells it without the colour."""

    sign: str
    style: str


RANK_MARKS = {
    RankState.FAILED: Mark("X", "bold white on red"),
    RankState.SUSPECT: Mark("?", "bold black on yellow"),
    RankState.VICTIM: Mark("x", "red"),
    RankState.SILENT: Mark("z", "bold magenta"),
    RankState.SLOW: Mark("s", "bold yellow"),
    RankState.OK: Mark("o", "green"),
    RankState.ENDED: Mark("-", "blue"),
    RankState.UNKNOWN: Mark("_", "bright_black"),
}
"""The worst first."""
TROUBLE = {state: place for place, state in enumerate(RANK_MARKS)}
"""Sorts states, the worst first."""
FAILURES = frozenset({RankState.FAILED, RankState.SUSPECT})
"""What `e` looks for: of victims there may be thousands."""

_STATE_STYLES = {
    LiveState.WAITING: "bold blue",
    LiveState.HEALTHY: "bold green",
    LiveState.SUSPECT: "bold black on yellow",
    LiveState.FAILED: "bold white on red",
    LiveState.FINISHED: "bold cyan",
}
_LEVEL_MARKS = {"error": Mark("E", "bold red"), "warning": Mark("W", "yellow"), "info": Mark(" ", "")}


def clock(ns: int | None) -> str:
    """A moment as `12:03:04Z`; dashes if it is not known."""
    return (words.moment(ns) or "")[11:] or "--:--:--Z"


def span(seconds: float) -> str:
    """A length of time to whole seconds, so that it does not flicker."""
    return words.span_words(max(round(seconds), 1))


def wide(text: str, cells: int) -> str:
    """Text cut or filled to that many columns, however wide its characters."""
    return set_cell_size(text, cells)


def place(path: str | None, line: int | None) -> str:
    """`path:line`, as far as it is known."""
    return "" if path is None else path if line is None else f"{path}:{line}"


def head(view: LiveView, clean: Clean) -> Text:
    """State, since when, attempt, job; then the headline."""
    facts = [f" for {span((view.now - view.since) / NS_PER_S)} since {clock(view.since)}", f"attempt {view.attempt}"]
    facts += [words.counted(view.world_size, "rank")] if view.world_size is not None else []
    return Text.assemble(
        (f" {view.state.upper()} ", _STATE_STYLES[view.state]),
        ", ".join([*facts, clean(view.job)]),
        "\n",
        (clean(view.headline), "bold"),
    )


def facts(view: LiveView, clean: Clean) -> Text:
    """What was read, what went wrong with it, the suspicion, and how many ranks are in which state."""
    count = view.counters
    read = [
        f"{words.counted(count.files, 'file')} ({count.open_files:,} open)",
        decimal(count.bytes),
        words.counted(count.lines, "line"),
        f"{count.lines_per_s:,.0f} lines/s",
    ]
    read += [f"cut {words.counted(count.truncations, 'time')}"] if count.truncations else []
    read += [f"rotated {words.counted(count.rotations, 'time')}"] if count.rotations else []
    read += [f"{decimal(count.unread_bytes)} lost"] if count.unread_bytes else []
    read += [f"{decimal(count.backlog_bytes)} not stored yet"] if count.backlog_bytes else []
    lines = [Text(", ".join(read))]
    if (suspicion := view.suspicion) is not None:
        who = words.ranks_words(suspicion.ranks) if suspicion.ranks else "nobody can be named"
        hosts = f" ({', '.join(map(clean, suspicion.hosts[:4]))})" if suspicion.hosts else ""
        lines.append(Text(f"suspect since {clock(suspicion.since)}: {who}{hosts}: {clean(suspicion.reason)}", "yellow"))
    if notes := watch_notes(view, clean):
        more = f" (and {len(notes) - 1:,} more: p)" if len(notes) > 1 else ""
        lines.append(Text(f"! {notes[-1]}{more}", "yellow"))
    counts = Counter(rank.state for rank in view.ranks)
    legend = [(f"{mark.sign} {counts[state]:,} {state}", mark.style) for state, mark in RANK_MARKS.items()]
    shown = [part for part, state in zip(legend, RANK_MARKS, strict=True) if counts[state]]
    lines.append(Text("  ").join(Text(text, style) for text, style in shown))
    return Text("\n").join(lines)


def watch_notes(view: LiveView, clean: Clean) -> list[str]:
    """What was not read, and the warnings, the newest last."""
    return [f"not read: {clean(item.path)}: {clean(item.reason)}" for item in view.skipped] + [
        clean(warning) for warning in view.warnings
    ]


def rank_details(health: RankHealth, clean: Clean) -> Text:
    """One rank on a line, and the last thing that it wrote."""
    mark = RANK_MARKS[health.state]
    known = [f"rank {health.rank}"]
    known += [clean(health.host)] if health.host is not None else []
    known += [f"step {health.step:,}"] if health.step is not None else []
    known.append("never wrote" if health.idle_s is None else f"wrote {span(health.idle_s)} ago")
    known += [clean(health.path)] if health.path is not None else []
    return Text.assemble(
        (f"{mark.sign} {health.state}", mark.style), f" {', '.join(known)}\n", (clean(health.last_line), "dim")
    )


RANK_COLUMNS = f"{'RANK':>6} {'HOST':16} {'STATE':9} {'STEP':>10} {'IDLE':>8} LAST LINE"


def rank_row(health: RankHealth, clean: Clean) -> Text:
    """One rank under `RANK_COLUMNS`."""
    mark = RANK_MARKS[health.state]
    step = "" if health.step is None else f"{health.step:,}"
    idle = "never" if health.idle_s is None else span(health.idle_s)
    return Text.assemble(
        f"{health.rank:>6} {wide(clean(health.host or ''), 16)} ",
        (f"{mark.sign} {health.state:7}", mark.style),
        f" {step:>10} {idle:>8} {clean(health.last_line)}",
    )


def event_row(event: LiveEvent, clean: Clean) -> Text:
    """When, who, how bad, what."""
    mark = _LEVEL_MARKS.get(event.level, _LEVEL_MARKS["info"])
    who = "" if event.rank is None else f"rank {event.rank}"
    moment = clock(event.seen if event.time is None else event.time)
    return Text.assemble(f"{moment} {who:>10} ", (f"{mark.sign} {clean(event.text)}", mark.style))


def event_details(event: LiveEvent, clean: Clean) -> Text:
    """Where an event stands, and the message that it is known as."""
    known = (event.host, place(event.path, event.line), event.signature)
    return Text(", ".join(clean(part) for part in known if part), "dim")


def whole_event(event: LiveEvent, clean: Clean) -> Text:
    """All that is known of an event, its text in full up to `BLOCK_LIMIT` a line."""
    known = {
        "time": words.moment(event.time),
        "read": words.moment(event.seen),
        "rank": event.rank,
        "host": event.host,
        "at": place(event.path, event.line),
        "level": event.level,
        "known as": event.signature,
    }
    rows = [f"{name:9}{value}" for name, value in known.items() if value not in {None, ""}]
    text = event.text.rstrip("\n").split("\n")
    return Text("\n".join(clean(row, BLOCK_LIMIT) for row in [*rows, "", *text]))
