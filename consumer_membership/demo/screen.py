"""What the demo shows: a snapshot of plain values, and lines for a pipe or a log; the table is `table_screen`'s."""

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
    """How far a step is."""

    TO_COME = "to come"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStep:
    """One step of the demo and, when it is done, what it showed."""

    title: str
    state: StepState = StepState.TO_COME
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """Everything at one moment, for a screen to draw; `at` counts seconds from the demo's start."""

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
    """Where the demo is seen while it runs; a context manager that has the terminal."""

    @abstractmethod
    def draw(self, snapshot: GroupSnapshot) -> None:
        """Show the moment, several times a second."""

    @abstractmethod
    def tell(self, at: float, text: str) -> None:
        """Show something that happened, `at` seconds after the start."""

    def begin_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Show that a step begins."""
        del number
        self.draw(snapshot)

    def end_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """Show that a step is done; the snapshot holds its outcome."""
        del number
        self.draw(snapshot)


class LineScreen(Screen):
    """One line for everything that happens, and all members after each step."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __exit__(self, *_: object) -> None:
        self._out.flush()

    def begin_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """A heading."""
        self._write(
            f"\n[{snapshot.at:6.2f} s] STEP {number + 1} of {len(snapshot.steps)}: {snapshot.steps[number].title}"
        )

    def end_step(self, snapshot: GroupSnapshot, number: int) -> None:
        """The outcome and who is where."""
        self._write(f"[{snapshot.at:6.2f} s] {snapshot.steps[number].outcome}")
        for member in snapshot.members:
            self._write(f"             {member_line(member)}")
        self._write(f"             {stream_line(snapshot)}")

    def draw(self, snapshot: GroupSnapshot) -> None:
        """Nothing: lines come with what happens."""

    def tell(self, at: float, text: str) -> None:
        """One line."""
        self._write(f"[{at:6.2f} s] {text}")

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def member_line(member: MemberProcess) -> str:
    """One member in one line."""
    if member.fate:
        return f"{member.name:<9} {member.fate:<13} handled {member.handled:,}"
    standing = member.standing
    epoch = standing.epoch if standing.epoch is not None else "-"
    owns = " ".join(map(str, member.owned)) or "nothing"
    waits = f" (waits for {standing.waits_for})" if standing.waits_for else ""
    text = f"epoch {epoch:<3} owns {owns}, handled {member.handled:,} lag {member.lag:,}"
    return f"{member.name:<9} {standing.state:<13} {text}{waits}"


def stream_line(snapshot: GroupSnapshot) -> str:
    """The records in one line."""
    return (
        f"records: {snapshot.produced:,} produced, {snapshot.seen:,} seen,"
        f" {snapshot.produced - snapshot.seen:,} on their way, {snapshot.twice:,} seen twice"
    )


def result_lines(result: CheckResult) -> list[str]:
    """The check's result, as a small table and one last sentence."""
    rows = (
        ("records produced", result.produced),
        ("records seen", result.seen),
        ("seen twice, all by the killed member and another one", result.twice),
        ("committed offsets, all partitions", result.committed),
        ("end offsets, all partitions", result.end),
    )
    lines = [f"  {text:<54} {count:>10,}" for text, count in rows]
    if result.holds:
        return [*lines, "CHECK PASSED: every record was seen, and committed offsets = end offsets"]
    return [*lines, "CHECK FAILED:", *(f"  {finding}" for finding in result.findings)]


def discard(out: TextIO) -> None:
    """Send everything that is still written to this file to nowhere: nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
