"""The demo as a live table in a terminal, by rich; the one module that needs the extra `cli`."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Self, TextIO

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer_membership import MemberState
from consumer_membership.demo.screen import DemoStep, GroupSnapshot, Screen, StepState, stream_line

#: What happened last; more would not fit under the table on a terminal of 24 lines.
_HAPPENINGS = 6
#: Up to so many partitions a member's share is drawn as a strip, one cell each.
_STRIP = 24
_WIDEST_STATE = max(map(len, MemberState.__members__))
_NUMBERS = frozenset({"pid", "epoch", "handled", "lag"})
_COLOURS = {"STABLE": "green", "starting": "dim", "JOINING": "yellow", "RECONCILE": "cyan", "ACK": "cyan"}
_MARKS = {StepState.TO_COME: ("  ", "dim"), StepState.RUNNING: ("> ", "bold cyan"), StepState.DONE: ("✓ ", "green")}


class TableScreen(Screen):
    """Redraws the whole picture in place; the last one stays on the terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._happened: deque[Text] = deque(maxlen=_HAPPENINGS)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, snapshot: GroupSnapshot) -> None:
        """Redraw everything."""
        self._live.update(picture(snapshot, list(self._happened)), refresh=True)

    def tell(self, at: float, text: str) -> None:
        """One more line at the bottom, the oldest goes."""
        self._happened.append(Text(f"{at:6.2f} s  {text}", style="dim", no_wrap=True, overflow="ellipsis"))


def table_on(out: TextIO) -> TableScreen:
    """The table on this terminal."""
    return TableScreen(Console(file=out))


def picture(snapshot: GroupSnapshot, happened: list[Text]) -> RenderableType:
    """The whole picture."""
    return Group(
        Text(f"{snapshot.title}   {snapshot.at:.0f} s", style="bold"),
        *(Text(remark, style="yellow") for remark in snapshot.remarks[:1]),
        *(_step(line) for line in snapshot.steps),
        _table(snapshot),
        Text(stream_line(snapshot)),
        *happened,
    )


def _step(step: DemoStep) -> Text:
    mark, style = _MARKS[step.state]
    line = Text(mark + step.title, style=style, no_wrap=True, overflow="ellipsis")
    return line.append(f": {step.outcome}", style="default") if step.outcome else line


def _table(snapshot: GroupSnapshot) -> Table:
    table = Table(pad_edge=False, box=None, header_style="bold underline")
    # Widths that do not change as members come and go; only the last column gives way on a narrow terminal.
    widths = {"state": _WIDEST_STATE, "lag": 5}
    for heading in ("member", "pid", "state", "epoch", "owns", "handled", "lag"):
        justify: JustifyMethod = "right" if heading in _NUMBERS else "left"
        table.add_column(heading, no_wrap=True, justify=justify, min_width=widths.get(heading))
    table.add_column("waits for")
    for member in snapshot.members:
        is_gone, standing = bool(member.fate), member.standing
        state = member.fate or standing.state
        table.add_row(
            member.name,
            str(member.pid),
            Text(state, style="red" if member.is_killed else _COLOURS.get(state, "dim")),
            "" if is_gone or standing.epoch is None else str(standing.epoch),
            _share(member.owned, snapshot.partitions, "green"),
            f"{member.handled:,}",
            "" if is_gone else f"{member.lag:,}",
            Text("" if is_gone else standing.waits_for or "", no_wrap=True, overflow="ellipsis"),
            style="dim" if is_gone else "",
        )
    orphaned = sorted(set(range(snapshot.partitions)).difference(*(member.owned for member in snapshot.members)))
    if orphaned and not all(member.fate for member in snapshot.members):
        table.add_row("nobody", "", "", "", _share(orphaned, snapshot.partitions, "red"), "", "", "")
    return table


def _share(owned: Collection[int], partitions: int, colour: str) -> Text:
    if partitions > _STRIP:
        return Text(f"{len(owned)} of {partitions}", style=colour)
    share = Text()
    for partition in range(partitions):
        is_owned = partition in owned
        share.append("■" if is_owned else "·", style=colour if is_owned else "dim")
    return share.append(f" {len(owned)}")
