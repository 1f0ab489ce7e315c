"""Show the demo as a live table in a terminal with rich; only this module of the demo needs the extra `cli`."""

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

#: The number of recent events; more do not fit below the table on a terminal with 24 lines.
_EVENTS = 6
#: Up to this number of partitions, a member's partitions are drawn as a strip with one cell each.
_STRIP = 24
_WIDEST_STATE = max(map(len, MemberState.__members__))
_NUMBERS = frozenset({"pid", "epoch", "processed", "lag"})
_COLORS = {"STABLE": "green", "starting": "dim", "JOINING": "yellow", "RECONCILE": "cyan", "ACK": "cyan"}
_MARKS = {StepState.TO_COME: ("  ", "dim"), StepState.RUNNING: ("> ", "bold cyan"), StepState.DONE: ("✓ ", "green")}


class TableScreen(Screen):
    """Redraws the screen in place; the last screen stays on the terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._events: deque[Text] = deque(maxlen=_EVENTS)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, snapshot: GroupSnapshot) -> None:
        """Redraw the screen."""
        self._live.update(picture(snapshot, list(self._events)), refresh=True)

    def add_event(self, at: float, text: str) -> None:
        """Add a line at the bottom and remove the oldest one."""
        self._events.append(Text(f"{at:6.2f} s  {text}", style="dim", no_wrap=True, overflow="ellipsis"))


def table_on(out: TextIO) -> TableScreen:
    """Return the table for this terminal."""
    return TableScreen(Console(file=out))


def picture(snapshot: GroupSnapshot, events: list[Text]) -> RenderableType:
    """Return the screen."""
    return Group(
        Text(f"{snapshot.title}   {snapshot.at:.0f} s", style="bold"),
        *(Text(remark, style="yellow") for remark in snapshot.remarks[:1]),
        *(_step(line) for line in snapshot.steps),
        _table(snapshot),
        Text(stream_line(snapshot)),
        *events,
    )


def _step(step: DemoStep) -> Text:
    mark, style = _MARKS[step.state]
    line = Text(mark + step.title, style=style, no_wrap=True, overflow="ellipsis")
    return line.append(f": {step.outcome}", style="default") if step.outcome else line


def _table(snapshot: GroupSnapshot) -> Table:
    table = Table(pad_edge=False, box=None, header_style="bold underline")
    # The widths do not change when members join and leave; on a narrow terminal only the last column is cut.
    widths = {"state": _WIDEST_STATE, "lag": 5}
    for heading in ("member", "pid", "state", "epoch", "owns", "processed", "lag"):
        justify: JustifyMethod = "right" if heading in _NUMBERS else "left"
        table.add_column(heading, no_wrap=True, justify=justify, min_width=widths.get(heading))
    table.add_column("waits for")
    for member in snapshot.members:
        is_gone, status = bool(member.fate), member.status
        state = member.fate or status.state
        table.add_row(
            member.name,
            str(member.pid),
            Text(state, style="red" if member.is_killed else _COLORS.get(state, "dim")),
            "" if is_gone or status.epoch is None else str(status.epoch),
            _share(member.owned, snapshot.partitions, "green"),
            f"{member.handled:,}",
            "" if is_gone else f"{member.lag:,}",
            Text("" if is_gone else status.waits_for or "", no_wrap=True, overflow="ellipsis"),
            style="dim" if is_gone else "",
        )
    unowned = sorted(set(range(snapshot.partitions)).difference(*(member.owned for member in snapshot.members)))
    if unowned and not all(member.fate for member in snapshot.members):
        table.add_row("no owner", "", "", "", _share(unowned, snapshot.partitions, "red"), "", "", "")
    return table


def _share(owned: Collection[int], partitions: int, color: str) -> Text:
    if partitions > _STRIP:
        return Text(f"{len(owned)} of {partitions}", style=color)
    share = Text()
    for partition in range(partitions):
        is_owned = partition in owned
        share.append("■" if is_owned else "·", style=color if is_owned else "dim")
    return share.append(f" {len(owned)}")
