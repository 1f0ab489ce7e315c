"""What the demo shows while it runs: lines for a pipe or a log here, the live table in `live`."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Protocol, Self, TextIO

from consumer_membership.demo.ledger import Verdict
from consumer_membership.demo.scene import MemberLine, Scene


class Screen(Protocol):
    """Where the demo is seen; a context manager."""

    def __enter__(self) -> Self:
        """Take the terminal."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back."""

    def begin_step(self, scene: Scene, number: int) -> None:
        """A step begins."""

    def end_step(self, scene: Scene, number: int) -> None:
        """A step is done; the scene holds its outcome."""

    def draw(self, scene: Scene) -> None:
        """The moment's picture, several times a second."""

    def tell(self, at: float, text: str) -> None:
        """Something happened, `at` seconds after the start."""


class PlainScreen:
    """One line for everything that happens, and the members' table after each step."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.flush()

    def begin_step(self, scene: Scene, number: int) -> None:
        """A heading."""
        self._write(f"\n[{scene.at:6.2f} s] STEP {number + 1} of {len(scene.steps)}: {scene.steps[number].title}")

    def end_step(self, scene: Scene, number: int) -> None:
        """The outcome and who is where."""
        self._write(f"[{scene.at:6.2f} s] {scene.steps[number].outcome}")
        for member in scene.members:
            self._write(f"             {member_line(member)}")
        self._write(f"             {stream_line(scene)}")

    def draw(self, scene: Scene) -> None:
        """Nothing: lines come with what happens."""

    def tell(self, at: float, text: str) -> None:
        """One line."""
        self._write(f"[{at:6.2f} s] {text}")

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


def member_line(member: MemberLine) -> str:
    """One member in one line."""
    words = [f"{member.name:<9} {member.fate or member.state:<13}"]
    if not member.fate:
        words.append(f"epoch {member.epoch if member.epoch is not None else '-':<3}")
        words.append(f"owns {' '.join(map(str, member.owned)) or 'nothing'},")
    words.append(f"handled {member.handled:,}")
    if not member.fate:
        words.append(f"lag {member.lag:,}")
    if member.waits_for and not member.fate:
        words.append(f"(waits for {member.waits_for})")
    return " ".join(words)


def stream_line(scene: Scene) -> str:
    """The records in one line."""
    return (
        f"records: {scene.produced:,} produced, {scene.seen:,} seen, {scene.produced - scene.seen:,} on their way,"
        f" {scene.twice:,} seen twice"
    )


def verdict_lines(verdict: Verdict) -> list[str]:
    """The check's result, as a small table and one last sentence."""
    rows = (
        ("records produced", verdict.produced),
        ("records seen", verdict.seen),
        ("seen twice, all by the killed member and another one", verdict.twice),
        ("committed offsets, all partitions", verdict.committed),
        ("end offsets, all partitions", verdict.end),
    )
    lines = [f"  {words:<54} {count:>10,}" for words, count in rows]
    if verdict.holds:
        return [*lines, "CHECK PASSED: every record was seen, and committed offsets = end offsets"]
    return [*lines, "CHECK FAILED:", *(f"  {finding}" for finding in verdict.findings)]


def discard(out: TextIO) -> None:
    """Send everything that is still written to this file to nowhere: nobody reads it any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
