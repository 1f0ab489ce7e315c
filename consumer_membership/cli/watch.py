"""`watch`: a group as a live screen; keys sort and filter its partitions."""

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
from consumer_membership.cli.groups import DONE, MISUSED, Asking, answered
from consumer_membership.cli.narration import named
from consumer_membership.cli.overview import duration, positions
from consumer_membership.observe.rates import Rates
from consumer_membership.types import TopicPartition

_SORTS = {"l": "lag", "p": "partition", "o": "owner", "s": "standstill"}
_FILTERS = ("all", "behind", "still", "moving")
_KEYS = "sort l lag p partition o owner s still  f filter  j k scroll  m members  q quit"
#: What a terminal sends for keys that have no letter.
_NAMED_KEYS = {"\x1b[B": "j", "\x1b[A": "k", "\x1b[6~": " ", "\x1b[5~": "b", "\x1b[H": "g", "\x1b[F": "G"}
#: Lines of the screen that are not rows: heads, keys, margins.
_HEADS = 9
_MOST_MEMBERS = 8
_PAGE, _FAR = 10, 1 << 30
#: Below so many columns the table of partitions leaves out rates, and owners.
_WIDE, _NARROW = 64, 48
_LEAST_NAME = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchView:
    """How the partitions are sorted, which are shown, and how far they and the members are scrolled.

    `first` and `first_member` count what is above the screen; `scrolls_members` says which of both the keys move.
    """

    sort: str = "lag"
    shown: str = "all"
    first: int = 0
    first_member: int = 0
    scrolls_members: bool = False

    def after(self, key: str, page: int = _PAGE) -> WatchView:
        """The view once this key was pressed; a page has so many lines."""
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

    def within(self, rows: int, room: int, members: int) -> WatchView:
        """No further than to the last line of what there is."""
        return replace(
            self,
            first=min(self.first, max(0, rows - room)),
            first_member=min(self.first_member, max(0, members - _MOST_MEMBERS)),
        )


def watch_group(asking: Asking, interval_s: float, out: TextIO, err: TextIO) -> int:
    """Show the group until q or Ctrl-C; the exit code, 2 where there is no terminal."""
    if not (sys.stdin.isatty() and out.isatty()):
        err.write("consumer-membership watch: it needs a terminal; `lag --watch --json` is for programs\n")
        return MISUSED

    def ask() -> tuple[Iterable[str], int]:
        admin, rates, view, console = asking.admin(), Rates(), WatchView(), Console(file=out)
        with _keys(), Live(console=console, auto_refresh=False, screen=True) as live:
            while True:
                report = admin.describe(asking.group)
                rates.look(time.monotonic(), positions(report))
                due = time.monotonic() + interval_s
                while (left_s := due - time.monotonic()) > 0:
                    live.update(picture(report, rates, view, *reversed(console.size)), refresh=True)
                    if not select.select([sys.stdin], [], [], left_s)[0]:
                        break
                    for key in keys_of(os.read(sys.stdin.fileno(), 256).decode("ascii", "replace")):
                        if key in ("q", ""):
                            return [], DONE
                        view = view.after(key, room_of(report, console.height))
                    view = view.within(
                        len(chosen(report, rates, view)), room_of(report, console.height), len(report.group.members)
                    )

    return answered("watch", ask, out, err)


def keys_of(read: str) -> list[str]:
    """The keys in what a terminal sent, those without a letter by the letter that does the same; "": its end."""
    for sent, letter in _NAMED_KEYS.items():
        read = read.replace(sent, letter)
    return list(read) or [""]


def room_of(report: GroupReport, height: int) -> int:
    """How many partitions there is room for."""
    members = len(report.group.members)
    return max(1, height - _HEADS - min(members, _MOST_MEMBERS) - (members > _MOST_MEMBERS))


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come at once and are not shown."""
    # POSIX alone has them; elsewhere every module can be imported all the same.
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
    """A text of which the end is shown where there is no room for all of it: a partition's number, not its topic."""

    text: str

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(len(self.text), _LEAST_NAME), len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        shown = (
            self.text if len(self.text) <= room else f"\N{HORIZONTAL ELLIPSIS}{self.text[len(self.text) - room + 1 :]}"
        )
        yield Text(shown, no_wrap=True)


def picture(report: GroupReport, rates: Rates, view: WatchView, height: int, width: int) -> RenderableType:
    """The group, its members and as many of its partitions as there is room for."""
    group, rate = report.group, rates.of_all()
    lag = "unknown" if report.lag is None else f"{report.lag:,}"
    pace = "" if rate is None else f", reads {rate.read:,.0f}/s of {rate.written:,.0f}/s"
    until = "" if rate is None or report.lag is None else f", drained in {duration(rate.drained_in_s(report.lag))}"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    rows, room = chosen(report, rates, view), room_of(report, height)
    view = view.within(len(rows), room, len(group.members))
    last = min(len(rows), view.first + room)
    where = f", {view.first + 1} to {last}" if len(rows) > room else ""
    return Group(
        Text(f"Group {group.group_id}: {group.protocol.value}, {group.state}{epoch}", style="bold", no_wrap=True),
        Text(f"lag {lag}{pace}{until}", no_wrap=True),
        _members(report, view),
        Text(f"{len(rows)} partitions, {view.shown}, by {view.sort}{where}", style="dim"),
        _partitions(rows[view.first : last], rates, width),
        Text(_KEYS, style="dim", no_wrap=True),
    )


def chosen(report: GroupReport, rates: Rates, view: WatchView) -> list[PartitionProgress]:
    """The partitions that the filter lets through, in the order of the sort."""

    def still_s(one: PartitionProgress) -> float:
        return rates.still_for_s(TopicPartition(one.topic, one.partition)) or 0.0

    kept = [
        one
        for one in report.partitions
        if view.shown == "all"
        or (view.shown == "behind" and one.lag)
        or (view.shown == "still" and still_s(one))
        or (view.shown == "moving" and one.next_owner)
    ]
    match view.sort:
        case "lag":
            return sorted(kept, key=lambda one: -(one.lag or 0))
        case "owner":
            return sorted(kept, key=lambda one: (one.owner or "", one.topic, one.partition))
        case "standstill":
            return sorted(kept, key=lambda one: -still_s(one))
        case _:
            return kept


def _members(report: GroupReport, view: WatchView) -> RenderableType:
    table = Table("member", "epoch", "has", "gives up, or waits for", box=None, expand=True)
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
    shown += ["read/s", "drained"] if width >= _WIDE else []
    shown += ["still"]
    table = Table("partition", box=None, expand=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= _NARROW:
        table.add_column("owner", no_wrap=True)
    for one in rows:
        partition = TopicPartition(one.topic, one.partition)
        rate, still_s = rates.of(partition), rates.still_for_s(partition)
        owner = (one.owner or "nobody")[:12] + (f" -> {one.next_owner[:12]}" if one.next_owner else "")
        cells = {
            "lag": "-" if one.lag is None else f"{one.lag:,}",
            "read/s": "-" if rate is None else f"{rate.read:,.0f}",
            "drained": "-" if rate is None or one.lag is None else duration(rate.drained_in_s(one.lag)),
            "still": duration(still_s) if still_s else "",
        }
        row = [cells[name] for name in shown] + ([owner] if width >= _NARROW else [])
        table.add_row(_Tail(f"{one.topic}[{one.partition}]"), *row)
    return table
