"""The command `watch`: show a group as a live screen, whose partitions can be sorted and filtered with keys."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from consumer_membership.admin import GroupReport, PartitionProgress
from consumer_membership.cli.groups import DONE, MISUSED, GroupQuery, run_query
from consumer_membership.cli.narration import named
from consumer_membership.cli.overview import drain_time, duration, positions
from consumer_membership.observe.rates import Rates
from consumer_membership.text import counted
from consumer_membership.types import TopicPartition

_SORTS = {"l": "lag", "p": "partition", "o": "owner", "s": "stall time"}
_FILTERS = ("all", "with lag", "stalled", "moving")
_KEYS = "sort: l lag p partition o owner s stall  f filter  j k scroll  m members  q quit"
#: The escape sequences of keys without a letter, with the letter of the same function.
_NAMED_KEYS = {"\x1b[B": "j", "\x1b[A": "k", "\x1b[6~": " ", "\x1b[5~": "b", "\x1b[H": "g", "\x1b[F": "G"}
#: Lines of the screen that are not rows: headings, keys, margins.
_FIXED_LINES = 9
_MOST_MEMBERS = 8
_PAGE, _FAR = 10, 1 << 30
#: On a terminal with fewer columns, the table of partitions omits rates, or rates and owners.
_WIDE, _NARROW = 64, 48
_LEAST_NAME = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchView:
    """The sort order, the filter, and the scroll positions of the screen.

    `first` and `first_member` are the numbers of rows above the screen; `scrolls_members` is true if the keys scroll
    the members instead of the partitions.
    """

    sort: str = "lag"
    shown: str = "all"
    first: int = 0
    first_member: int = 0
    scrolls_members: bool = False

    def after(self, key: str, page: int = _PAGE) -> WatchView:
        """Return the view after this key; `page` is the number of lines of a page."""
        if key in _SORTS:
            return replace(self, sort=_SORTS[key], first=0)
        if key == "f":
            return replace(self, shown=_FILTERS[(_FILTERS.index(self.shown) + 1) % len(_FILTERS)], first=0)
        if key == "m":
            return replace(self, scrolls_members=not self.scrolls_members)
        steps = {"j": 1, "k": -1, " ": page, "b": -page, "g": -_FAR, "G": _FAR}
        if self.scrolls_members:
            return replace(self, first_member=max(0, self.first_member + steps.get(key, 0)))
        return replace(self, first=max(0, self.first + steps.get(key, 0)))

    def within(self, rows: int, height: int, members: int) -> WatchView:
        """Return the view scrolled at most to the last row."""
        return replace(
            self,
            first=min(self.first, max(0, rows - height)),
            first_member=min(self.first_member, max(0, members - _MOST_MEMBERS)),
        )


def watch_group(query: GroupQuery, interval_s: float, out: TextIO, err: TextIO) -> int:
    """Show the group until q or Ctrl-C and return the exit code: 2 without a terminal."""
    if not (sys.stdin.isatty() and out.isatty()):
        err.write(
            "consumer-membership watch: stdin and stdout must be a terminal; in scripts use `lag --watch --json`\n"
        )
        return MISUSED

    def show() -> tuple[Iterable[str], int]:
        admin, rates, view, console = query.admin(), Rates(), WatchView(), Console(file=out)
        with _keys(), Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                report = admin.describe(query.group)
                rates.add(time.monotonic(), positions(report))
                due = time.monotonic() + interval_s
                while (left_s := due - time.monotonic()) > 0:
                    live.update(picture(report, rates, view, *reversed(console.size)), refresh=True)
                    if not select.select([sys.stdin], [], [], left_s)[0]:
                        break
                    for key in keys_of(os.read(sys.stdin.fileno(), 256).decode("ascii", "replace")):
                        if key in ("q", ""):
                            return [], DONE
                        view = view.after(key, rows_in(report, console.height))
                    view = view.within(
                        len(chosen(report, rates, view)), rows_in(report, console.height), len(report.group.members)
                    )

    return run_query("watch", show, out, err)


def keys_of(read: str) -> list[str]:
    """Return the keys in the terminal's input, with letters for escape sequences; `""` is the end of the input."""
    for sent, letter in _NAMED_KEYS.items():
        read = read.replace(sent, letter)
    return list(read) or [""]


def rows_in(report: GroupReport, height: int) -> int:
    """Return the number of partitions that fit on the screen."""
    members = len(report.group.members)
    return max(1, height - _FIXED_LINES - min(members, _MOST_MEMBERS) - (members > _MOST_MEMBERS))


@contextmanager
def _keys() -> Iterator[None]:
    """Switch the terminal to unbuffered input without echo."""
    # Imported here because these modules exist only on POSIX.
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@dataclass(frozen=True, slots=True)
class _Tail:
    """A text that is cut at its start on a narrow terminal, so that the partition number stays visible."""

    text: str

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.text), _LEAST_NAME), len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        shown = self.text
        if len(self.text) > width:
            shown = f"\N{HORIZONTAL ELLIPSIS}{self.text[len(self.text) - width + 1 :]}"
        yield Text(shown, no_wrap=True)


def picture(report: GroupReport, rates: Rates, view: WatchView, height: int, width: int) -> RenderableType:
    """Return the screen: the group, its members, and the partitions that fit."""
    group, rate = report.group, rates.of_all()
    lag = "unknown" if report.lag is None else f"{report.lag:,}"
    pace = "" if rate is None else f", consumed {rate.consumed:,.0f}/s, produced {rate.produced:,.0f}/s"
    until = "" if rate is None or report.remaining is None else f", {drain_time(rate, report.remaining)}"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    rows, shown = chosen(report, rates, view), rows_in(report, height)
    view = view.within(len(rows), shown, len(group.members))
    last = min(len(rows), view.first + shown)
    where = f", {view.first + 1} to {last}" if len(rows) > shown else ""
    return Group(
        Text(f"Group {group.group_id}: {group.protocol.value}, {group.state}{epoch}", style="bold", no_wrap=True),
        Text(f"lag {lag}{pace}{until}", no_wrap=True),
        _members(report, view),
        Text(f"{counted(len(rows), 'partition')} ({view.shown}), sorted by {view.sort}{where}", style="dim"),
        _partitions(rows[view.first : last], rates, width),
        Text(_KEYS, style="dim", no_wrap=True),
    )


def chosen(report: GroupReport, rates: Rates, view: WatchView) -> list[PartitionProgress]:
    """Return the partitions that match the filter, sorted."""

    def stalled_s(one: PartitionProgress) -> float:
        return rates.stalled_for_s(TopicPartition(one.topic, one.partition)) or 0.0

    kept = [
        one
        for one in report.partitions
        if view.shown == "all"
        or (view.shown == "with lag" and one.lag)
        or (view.shown == "stalled" and stalled_s(one))
        or (view.shown == "moving" and one.next_owner)
    ]
    match view.sort:
        case "lag":
            return sorted(kept, key=lambda one: -(one.lag or 0))
        case "owner":
            return sorted(kept, key=lambda one: (one.owner or "", one.topic, one.partition))
        case "stall time":
            return sorted(kept, key=lambda one: -stalled_s(one))
        case _:
            return kept


def _members(report: GroupReport, view: WatchView) -> RenderableType:
    table = Table("member", "epoch", "assigned", "to revoke (-) or assign (+)", box=None, expand=True)
    members, first = report.group.members, view.first_member
    for member in members[first : first + _MOST_MEMBERS]:
        target = member.assignment if member.target is None else member.target
        moving = [*(f"-{named([one])}" for one in sorted(member.assignment - target))]
        moving += [f"+{named([one])}" for one in sorted(target - member.assignment)]
        epoch = "away" if member.is_away else "" if member.epoch is None else str(member.epoch)
        name = f"{member.instance_id or member.client_id} {member.member_id[:8]}"
        table.add_row(*(Text(one, no_wrap=True) for one in (name, epoch, named(member.assignment), " ".join(moving))))
    if len(members) > _MOST_MEMBERS:
        last = min(len(members), first + _MOST_MEMBERS)
        table.add_row(Text(f"{first + 1} to {last} of {len(members)} members", no_wrap=True))
    return table


def _partitions(rows: list[PartitionProgress], rates: Rates, width: int) -> RenderableType:
    shown = ["lag"]
    shown += ["consumed/s", "drained in"] if width >= _WIDE else []
    shown += ["stalled"]
    table = Table("partition", box=None, expand=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= _NARROW:
        table.add_column("owner", no_wrap=True)
    for one in rows:
        partition = TopicPartition(one.topic, one.partition)
        rate, stalled_s = rates.of(partition), rates.stalled_for_s(partition)
        owner = (one.owner or "none")[:12] + (f" -> {one.next_owner[:12]}" if one.next_owner else "")
        cells = {
            "lag": "-" if one.lag is None else f"{one.lag:,}",
            "consumed/s": "-" if rate is None else f"{rate.consumed:,.0f}",
            "drained in": "-" if rate is None or one.remaining is None else duration(rate.drained_in_s(one.remaining)),
            "stalled": duration(stalled_s) if stalled_s else "",
        }
        row = [cells[name] for name in shown] + ([owner] if width >= _NARROW else [])
        table.add_row(_Tail(f"{one.topic}[{one.partition}]"), *row)
    return table
