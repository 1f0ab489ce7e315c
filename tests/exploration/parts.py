"""What a model is made of: tables of numbered values, steps, and what the parts of a state show of themselves."""

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
    """Values with a number each, equal ones with the same; the first of them stands for all."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self.values: list[T] = []
        self._key = key
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: T) -> int:
        """The number of this value."""
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
    #: Whether the coordinator may hear of it again without a new join.
    is_member: bool
    #: Whether an answer of the coordinator is on its way to it.
    is_answered: bool


@dataclass(slots=True)
class LocalStep:
    """A step of one process: what it costs, and what becomes of it, once a budget covers it; or the rule it breaks."""

    move: Move
    budget: int
    after: int = UNKNOWN
    violation: str | None = None


class Transition(NamedTuple):
    """What a request or a spontaneous event does to the coordinator."""

    after: int
    reply: int
    #: Answers to others' requests that waited, and requests that will never be answered.
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
        """Whether it has a price wherever it happens."""
        return isinstance(self.detail, Move) and self.detail.budget is not None


class Step(NamedTuple):
    """One step from a state: the next one, or the rule that is broken."""

    label: Label
    state: State
    violation: str | None = None


def summary_of(process: Process) -> ProcessSummary:
    """The summary of this process."""
    return ProcessSummary(
        name=process.name,
        member_id=internals.member_id(process.member),
        instance_id=process.instance_id,
        fetchable=process.application.fetchable,
        is_excused=process.invariants.is_excused,
        is_member=process.is_member,
        is_answered=process.is_answered,
    )
