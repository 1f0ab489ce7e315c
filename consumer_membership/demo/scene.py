"""One picture of the demo: plain values for the screens to draw, and nothing that could change meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Progress(Enum):
    """How far a step is."""

    TO_COME = "to come"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step of the scenario and, when it is done, what it showed."""

    title: str
    progress: Progress
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLine:
    """One member: what it reported, and what the demo knows of its records.

    `fate` is empty while the member runs, else "left" or "killed".
    """

    name: str
    pid: int
    fate: str
    state: str
    epoch: int | None
    owned: tuple[int, ...]
    handled: int
    lag: int
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything at one moment; `at` counts seconds from the demo's start."""

    at: float
    title: str
    remarks: tuple[str, ...]
    partitions: int
    steps: tuple[StepLine, ...]
    members: tuple[MemberLine, ...]
    produced: int
    seen: int
    twice: int
