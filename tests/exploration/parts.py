"""The parts of a model: tables of numbered values, steps, and summaries of processes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from consumer_membership.types import TopicPartition
from tests.exploration.cluster import Address
from tests.exploration.moves import Move
from tests.exploration.process import Process
from tests.simulation import internals

T = TypeVar("T")
State: TypeAlias = tuple[int, ...]
EMPTY = 0
UNAFFORDABLE = -1
UNKNOWN = -2
#: The number of the reply to a request that has to wait for it.
WAITS = 0


class Table(Generic[T]):
    """Numbered values; values with equal keys have one number, and the first such value is stored."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self.values: list[T] = []
        self._key = key
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: T) -> int:
        """Return the number of this value."""
        key = self._key(value)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value)
        return number


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """The fields of a process that the model reads."""

    name: str
    member_id: str
    instance_id: str | None
    fetchable: frozenset[TopicPartition]
    is_excused: bool
    #: Whether it may send requests of its membership without a new join.
    is_member: bool
    #: Whether an answer of the coordinator to it is in flight.
    is_answered: bool


@dataclass(slots=True)
class LocalStep:
    """A step of one process: its move, and the process after it if a budget covers the move, or the broken rule."""

    move: Move
    budget: int
    after: int = UNKNOWN
    violation: str | None = None


class Transition(NamedTuple):
    """The change of the coordinator by a request or a spontaneous event."""

    after: int
    reply: int
    #: Answers to waiting requests of other processes, and requests that will never be answered.
    released: tuple[tuple[Address, int], ...]
    dropped: tuple[Address, ...]
    removed: tuple[str, ...]
    committed: tuple[tuple[str, frozenset[TopicPartition]], ...]


class Label(NamedTuple):
    """The name of a step, for the trace."""

    kind: str
    slot: int = -1
    detail: object = None

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.detail.name if isinstance(self.detail, Move) else self.kind

    @property
    def costs(self) -> bool:
        """Whether the step always has a cost."""
        return isinstance(self.detail, Move) and self.detail.budget is not None


class Step(NamedTuple):
    """One step from a state: the next state, or the broken rule."""

    label: Label
    state: State
    violation: str | None = None


def summary_of(process: Process) -> ProcessSummary:
    """Return the summary of this process."""
    return ProcessSummary(
        name=process.name,
        member_id=internals.member_id(process.member),
        instance_id=process.instance_id,
        fetchable=process.application.fetchable,
        is_excused=process.invariants.is_excused,
        is_member=process.is_member,
        is_answered=process.is_answered,
    )
