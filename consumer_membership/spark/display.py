"""The members of a run on a terminal: a line for each and a bar for all, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from consumer_membership.spark.link import MemberProgress


class _Screen(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def show(self, members: Sequence[MemberProgress]) -> None: ...


class Display:
    """Shows members while it is entered; `todo`: records until the end, None where there is none.

    `is_wanted` None: shown where stderr is a terminal. Without rich (`consumer-membership[cli]`) nothing is shown
    unless it was asked for, and then one plain line at each change.
    """

    def __init__(self, is_wanted: bool | None, todo: int | None) -> None:  # noqa: FBT001 - the caller's parameter
        self._screen: _Screen | None = None
        if is_wanted or (is_wanted is None and sys.stderr.isatty()):
            with suppress(ImportError):
                self._screen = _Rich(todo)
            if self._screen is None and is_wanted:
                self._screen = _Plain(todo)

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._screen is not None:
            self._screen.start()
        return self

    def show(self, members: Sequence[MemberProgress]) -> None:
        """The members as they are now."""
        if self._screen is not None:
            self._screen.show(members)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._screen is not None:
            self._screen.stop()


def line_of(member: MemberProgress) -> str:
    """One member in one line."""
    waits = f", waits for {member.waits_for}" if member.waits_for else ""
    return (
        f"{member.instance}: {member.state} epoch {member.epoch}, {len(member.owned)} partitions, "
        f"{member.records:,} records, {member.rate:,.0f}/s, lag {member.lag:,}{waits}"
    )


class _Plain:
    """One line, when the sum has changed."""

    def __init__(self, todo: int | None) -> None:
        self._todo = todo
        self._shown = -1

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def show(self, members: Sequence[MemberProgress]) -> None:
        records = sum(member.records for member in members)
        if records != self._shown:
            self._shown = records
            of_all = "" if self._todo is None else f" of {self._todo:,}"
            rate = sum(member.rate for member in members)
            sys.stderr.write(f"{records:,}{of_all} records, {rate:,.0f}/s, {len(members)} members\n")


class _Rich:
    """A table of the members, and a bar where there is an end."""

    def __init__(self, todo: int | None) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra
        from rich.live import Live  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), auto_refresh=False
        )
        self._task = self._bar.add_task("records", total=todo)
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def show(self, members: Sequence[MemberProgress]) -> None:
        from rich.console import Group  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        table = Table(box=None, pad_edge=False)
        for name in ("member", "state", "epoch", "partitions", "records", "records/s", "lag", "waits for"):
            table.add_column(name, justify="left" if name in ("state", "waits for") else "right")
        for member in members:
            table.add_row(
                str(member.instance),
                member.state,
                str(member.epoch),
                str(len(member.owned)),
                f"{member.records:,}",
                f"{member.rate:,.0f}",
                f"{member.lag:,}",
                member.waits_for or "",
            )
        self._bar.update(self._task, completed=sum(member.records for member in members))
        self._live.update(Group(table, self._bar), refresh=True)
