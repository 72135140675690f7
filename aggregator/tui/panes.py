"""The two widgets that draw rows: a list, and the grid of ranks. Only what is on the screen is ever built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from aggregator.live.view import RankHealth
from aggregator.tui.display import RANK_MARKS, Clean, wide

Row = TypeVar("Row")
_CURSOR = Style(reverse=True)
_MAX_LABEL_CELLS = 24
_GAP = 2


class Pane(ScrollView, Generic[Row], can_focus=True):
    """Rows with a cursor, moved by the keys that all screens share. Where a row is drawn is the subclass's matter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("g,home", "select(0)", show=False),
        Binding("G,end", "select(-1)", show=False),
        Binding("enter", "open", "open"),
    ]

    class Moved(Message):
        """The user moved the cursor."""

    class Opened(Message):
        """The user asked for the row under the cursor."""

    rows: Sequence[Row] = ()
    cursor = 0

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def line_of(self, index: int) -> int:
        """The line on which a row is drawn."""
        raise NotImplementedError

    def moved(self, lines: int) -> int:
        """The row so many lines below the cursor (above, if negative), within the rows."""
        raise NotImplementedError

    def put_cursor(self, index: int) -> None:
        """Put the cursor on a row, and scroll so that it can be seen."""
        before, self.cursor = self.cursor, index
        if self.rows:
            for line in {self.line_of(min(before, len(self.rows) - 1)), self.line_of(index)}:
                self.refresh_line(line)
        self.reveal()

    def reveal(self) -> None:
        """Scroll so that the cursor can be seen."""
        height = self.scrollable_content_region.height
        if self.rows and height:
            line = self.line_of(self.cursor)
            top = min(max(self.scroll_offset.y, line - height + 1), line)
            self.scroll_to(y=top, animate=False)

    def action_select(self, index: int) -> None:
        """Go to a row; negative indices count from the end."""
        if self.rows:
            self.put_cursor(index % len(self.rows))
            self.post_message(self.Moved())

    def action_move(self, lines: int) -> None:
        """Go down so many lines."""
        if self.rows:
            self.action_select(self.moved(lines))

    def action_page(self, pages: int) -> None:
        """Go down so many screens."""
        self.action_move(pages * max(self.scrollable_content_region.height - 1, 1))

    def action_open(self) -> None:
        """Ask for the row under the cursor."""
        if self.rows:
            self.post_message(self.Opened())

    def on_resize(self, _event: events.Resize) -> None:
        """Keep the cursor in sight."""
        self.reveal()

    def strip(self, segments: Iterable[Segment]) -> Strip:
        """The visible part of a line, in the colours of the widget."""
        left, width = self.scroll_offset.x, self.scrollable_content_region.width
        return Strip(segments).crop_extend(left, left + width, None).apply_style(self.rich_style)


class Lines(Pane[Row]):
    """One row a line."""

    def __init__(self, draw: Callable[[Row], Text]) -> None:
        super().__init__()
        self._draw = draw
        self._drawn: dict[int, Text] = {}

    def line_of(self, index: int) -> int:
        """A row is a line."""
        return index

    def moved(self, lines: int) -> int:
        """A line is a row."""
        return min(max(self.cursor + lines, 0), len(self.rows) - 1)

    def show_rows(self, rows: Sequence[Row], cursor: int) -> None:
        """Show other rows, the cursor on that one; lines that look as before are left alone."""
        is_longer_or_shorter = len(rows) != len(self.rows)
        self.rows = rows
        if is_longer_or_shorter:
            self.virtual_size = Size(self.size.width, len(rows))
        before, self._drawn = self._drawn, {}
        top = self.scroll_offset.y
        for line in range(top, top + self.size.height):
            if before.get(line) != self._text(line):
                self.refresh_line(line)
        if cursor != self.cursor:
            self.put_cursor(min(cursor, max(len(rows) - 1, 0)))
        elif is_longer_or_shorter:
            self.reveal()

    def redraw(self) -> None:
        """Draw all anew, as the rows look otherwise now."""
        self._drawn.clear()
        self.refresh()

    def _text(self, line: int) -> Text | None:
        if line not in self._drawn and 0 <= line < len(self.rows):
            self._drawn[line] = self._draw(self.rows[line])
        return self._drawn.get(line)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Forget lines that left the screen."""
        self._drawn.clear()
        super().watch_scroll_y(old_value, new_value)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        line = y + self.scroll_offset.y
        text = self._text(line)
        segments = () if text is None else text.render(self.app.console)
        strip = self.strip(segments)
        return strip.apply_style(_CURSOR) if line == self.cursor and text is not None else strip


@dataclass(frozen=True, slots=True)
class _Block:
    """Ranks side by side behind a label: `count` rows from `first` on, the label at column `left`."""

    label: str
    left: int
    first: int
    count: int


class HealthGrid(Pane[RankHealth]):
    """One sign a rank, the ranks of a host together behind its name; `rows` are in the order in which they stand."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", show=False),
        Binding("right", "step(1)", show=False),
    ]

    def __init__(self, clean: Clean) -> None:
        super().__init__()
        self._clean = clean
        self._ranks: Sequence[RankHealth] = ()
        self._order: list[int] = []
        self._lines: list[list[_Block]] = []
        self._spots: list[tuple[int, int]] = []

    def show_ranks(self, ranks: Sequence[RankHealth]) -> None:
        """Show the ranks as they are now; only lines on which a state changed are drawn anew."""
        before, self._ranks = self._ranks, ranks
        is_as_before = len(before) == len(ranks) and all(
            old.rank == new.rank and old.host == new.host for old, new in zip(before, ranks, strict=True)
        )
        if not is_as_before:
            self._arrange()
            return
        old_rows, self.rows = self.rows, [ranks[index] for index in self._order]
        pairs = enumerate(zip(old_rows, self.rows, strict=True))
        for line in {self._spots[index][0] for index, (old, new) in pairs if old.state is not new.state}:
            self.refresh_line(line)

    def on_resize(self, event: events.Resize) -> None:
        """Fill the new width."""
        self._arrange()
        super().on_resize(event)

    def _arrange(self) -> None:
        """Give each rank its place."""
        chosen = self.chosen
        hosts: dict[str | None, list[RankHealth]] = {}
        for health in self._ranks:
            hosts.setdefault(health.host, []).append(health)
        place_of = {health.rank: index for index, health in enumerate(self._ranks)}
        self.rows = [health for group in hosts.values() for health in group]
        self._order = [place_of[health.rank] for health in self.rows]
        self._stack(*self._blocks(hosts))
        same = (index for index, row in enumerate(self.rows) if chosen is not None and row.rank == chosen.rank)
        self.cursor = next(same, 0)
        self.virtual_size = Size(self.size.width, len(self._lines))
        self.refresh()

    def _blocks(self, hosts: dict[str | None, list[RankHealth]]) -> tuple[list[tuple[str, int]], int]:
        """Label and number of ranks of each block, a host's in one if they fit; and the columns that a block takes."""
        names = {host: f"rank {self.rows[-1].rank}" if host is None else self._clean(host) for host in hosts}
        label_cells = min(max(map(cell_len, names.values()), default=0), _MAX_LABEL_CELLS)
        room = max(self.size.width - self.styles.scrollbar_size_vertical - label_cells - 1, 1)
        longest = min(max((len(group) for host, group in hosts.items() if host is not None), default=room), room)
        blocks = []
        for host, group in hosts.items():
            for start in range(0, len(group), longest):
                label = f"rank {group[start].rank}" if host is None else "" if start else names[host]
                # The end of a name tells hosts apart.
                label = label if cell_len(label) <= label_cells else "…" + label[1 - label_cells :]
                blocks.append((wide(label, label_cells) + " ", len(group[start : start + longest])))
        return blocks, label_cells + 1 + longest

    def _stack(self, blocks: list[tuple[str, int]], block_cells: int) -> None:
        """Put as many blocks on a line as fit."""
        width = self.size.width - self.styles.scrollbar_size_vertical
        per_line = max((width + _GAP) // (block_cells + _GAP), 1)
        self._lines, self._spots = [], []
        for number, (label, count) in enumerate(blocks):
            line, column = divmod(number, per_line)
            left = column * (block_cells + _GAP)
            if not column:
                self._lines.append([])
            self._lines[line].append(_Block(label, left, len(self._spots), count))
            self._spots += ((line, left + cell_len(label) + cell) for cell in range(count))

    def line_of(self, index: int) -> int:
        """The line of the rank's block."""
        return self._spots[index][0]

    def moved(self, lines: int) -> int:
        """The rank nearest to the cursor's column, so many lines away."""
        line, column = self._spots[self.cursor]
        target = min(max(line + lines, 0), len(self._lines) - 1)
        on_line = (index for block in self._lines[target] for index in range(block.first, block.first + block.count))
        return min(on_line, key=lambda index: abs(self._spots[index][1] - column))

    def action_step(self, ranks: int) -> None:
        """Go so many ranks on."""
        if self.rows:
            self.action_select(min(max(self.cursor + ranks, 0), len(self.rows) - 1))

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        line = y + self.scroll_offset.y
        segments: list[Segment] = []
        filled = 0
        for block in self._lines[line] if line < len(self._lines) else ():
            segments.append(Segment(" " * (block.left - filled) + block.label))
            cells = range(block.first, block.first + block.count)
            for (state, is_cursor), run in groupby(
                cells, key=lambda index: (self.rows[index].state, index == self.cursor)
            ):
                mark = RANK_MARKS[state]
                # Without the colours of the mark: some of them look reversed already.
                style = _CURSOR if is_cursor else Style.parse(mark.style)
                segments.append(Segment(mark.sign * len(list(run)), style))
            filled = block.left + cell_len(block.label) + block.count
        return self.strip(segments)
