"""The progress of a run on a terminal (stderr): a line for each member, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from consumer_membership.spark.control import MemberProgress

if TYPE_CHECKING:
    from rich.table import Table


class Display:
    """Shows the members of a run; a context manager. `todo`: records until the end, None for a run without end.

    `is_wanted` None: the members are shown if stderr is a terminal. Without rich (the extra `cli`), nothing is shown
    unless `is_wanted` is True, and then one plain line at each change.
    """

    def __init__(self, is_wanted: bool | None, todo: int | None) -> None:  # noqa: FBT001 - the caller's parameter
        self._todo = todo
        self._screen: _Rich | None = None
        if is_wanted or (is_wanted is None and sys.stderr.isatty()):
            with suppress(ImportError):
                self._screen = _Rich(todo)
        self._is_plain = bool(is_wanted) and self._screen is None
        self._shown = -1

    def __enter__(self) -> Self:
        """Start the display."""
        if self._screen is not None:
            self._screen.live.start()
        return self

    def show(self, members: Sequence[MemberProgress]) -> None:
        """Show the present progress of the members."""
        records = sum(member.records for member in members)
        if self._screen is not None:
            self._screen.show(members, records)
        elif self._is_plain and records != self._shown:
            self._shown = records
            of_all = "" if self._todo is None else f" of {self._todo:,}"
            rate = sum(member.rate for member in members)
            sys.stderr.write(f"{records:,}{of_all} records, {rate:,.0f}/s, {len(members)} members\n")

    def __exit__(self, *_: object) -> None:
        """End the display; the last lines stay."""
        if self._screen is not None:
            self._screen.live.stop()


class _Rich:
    """A table of the members, and a progress bar."""

    def __init__(self, todo: int | None) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), auto_refresh=False
        )
        self._task = self._bar.add_task("records", total=todo)
        self.live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)

    def show(self, members: Sequence[MemberProgress], records: int) -> None:
        from rich.console import Group

        self._bar.update(self._task, completed=records)
        self.live.update(Group(_table(members), self._bar), refresh=True)


def _table(members: Sequence[MemberProgress]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("member", "state", "epoch", "partitions", "records", "records/s", "lag", "waits for"):
        table.add_column(name, justify="left" if name in ("state", "waits for") else "right")
    for one in members:
        numbers = (one.epoch, len(one.owned), f"{one.records:,}", f"{one.rate:,.0f}", f"{one.lag:,}")
        table.add_row(str(one.instance), one.state, *map(str, numbers), one.waits_for or "")
    return table
