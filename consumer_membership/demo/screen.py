"""The output of the demo: a snapshot of plain values, and lines for a pipe or a log; `table_screen` has the table."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

from consumer_membership.demo.members import MemberProcess
from consumer_membership.demo.records import CheckResult


class StepState(Enum):
    """The state of a step."""

    TO_COME = "to come"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStep:
    """One step of the demo, with its result when it is done."""

    title: str
    state: StepState = StepState.TO_COME
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """All values that a screen shows at one point in time; `at` is in seconds since the start of the demo."""

    at: float
    title: str
    remarks: tuple[str, ...]
    partitions: int
    steps: tuple[DemoStep, ...]
    members: tuple[MemberProcess, ...]
    produced: int
    seen: int
    twice: int


class Screen(AbstractContextManager["Screen"]):
    """An output of the demo; a context manager that owns the terminal."""

    @abstractmethod
    def draw(self, snapshot: GroupSnapshot) -> None:
        """Show the snapshot; called several times a second."""

    @abstractmethod
    def add_event(self, at: float, text: str) -> None:
        """Show an event, `at` seconds after the start."""

    def begin_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Show the start of a step."""
        del number
        self.draw(snapshot)

    def end_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Show the end of a step; the snapshot has its result."""
        del number
        self.draw(snapshot)


class LineScreen(Screen):
    """Prints one line for each event, and all members after each step."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def begin_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Print a heading."""
        self._write(
            f"\n[{snapshot.at:6.2f} s] STEP {number + 1} of {len(snapshot.steps)}: {snapshot.steps[number].title}"
        )

    def end_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Print the result and all members."""
        self._write(f"[{snapshot.at:6.2f} s] {snapshot.steps[number].outcome}")
        for member in snapshot.members:
            self._write(f"             {member_line(member)}")
        self._write(f"             {stream_line(snapshot)}")

    def draw(self, snapshot: GroupSnapshot) -> None:
        """Do nothing: lines are printed for events only."""

    def add_event(self, at: float, text: str) -> None:
        """Print one line."""
        self._write(f"[{at:6.2f} s] {text}")

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def member_line(member: MemberProcess) -> str:
    """Return one member in one line."""
    if member.fate:
        return f"{member.name:<9} {member.fate:<13} processed {member.handled:,}"
    status = member.status
    epoch = status.epoch if status.epoch is not None else "-"
    owns = " ".join(map(str, member.owned)) or "none"
    waits = f" (waits for {status.waits_for})" if status.waits_for else ""
    text = f"epoch {epoch:<3} owns {owns}, processed {member.handled:,}, lag {member.lag:,}"
    return f"{member.name:<9} {status.state:<13} {text}{waits}"


def stream_line(snapshot: GroupSnapshot) -> str:
    """Return the numbers of records in one line."""
    return (
        f"records: {snapshot.produced:,} produced, {snapshot.seen:,} consumed,"
        f" {snapshot.produced - snapshot.seen:,} in flight, {snapshot.twice:,} consumed twice"
    )


def result_lines(result: CheckResult) -> list[str]:
    """Return the result of the check as a small table and a last sentence."""
    rows = (
        ("records produced", result.produced),
        ("records consumed", result.seen),
        ("consumed twice, by the killed member and another one", result.twice),
        ("committed offsets, all partitions", result.committed),
        ("end offsets, all partitions", result.end),
    )
    lines = [f"  {text:<54} {count:>10,}" for text, count in rows]
    if result.holds:
        return [*lines, "CHECK PASSED: every record was consumed, and the committed offsets equal the end offsets"]
    return [*lines, "CHECK FAILED:", *(f"  {finding}" for finding in result.findings)]


def discard(out: TextIO) -> None:
    """Redirect further output of this file to /dev/null, because its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
