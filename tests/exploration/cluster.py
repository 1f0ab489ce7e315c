"""A coordinator of `tests.simulation` as a part of a state: no clock, and everything it is asked is a value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from consumer_membership.types import TopicPartition

GROUP = "g"
#: Sessions and rebalance timeouts lie in the future until they are over; their length means nothing here.
TO_COME = 1.0


class Address(NamedTuple):
    """Where the answer to a request that waits goes: to which process, and which of its requests it was."""

    name: str
    place: int


class Happening(NamedTuple):
    """What happens at the coordinator by itself, about which members (their ids, or their processes' names).

    It costs its budget where it is about nobody, or about somebody who lives.
    """

    name: str
    about: tuple[str, ...] = ()
    budget: str | None = None
    #: Whether it happens to the living only.
    needs_life: bool = False
    #: Whether it takes so long that no answer is under way any more.
    is_long: bool = False


@dataclass(slots=True, kw_only=True)
class Cluster(ABC):
    """The coordinator, and what it did last."""

    coordinator: Any
    #: Members who are out, or whose place another one has, without being asked.
    removed: list[str] = field(default_factory=list)
    committed: list[tuple[str, frozenset[TopicPartition]]] = field(default_factory=list)
    #: Answers to requests that waited, and requests that will never be answered.
    released: list[tuple[Address, Any]] = field(default_factory=list)
    dropped: list[Address] = field(default_factory=list)

    @abstractmethod
    def execute(self, question: Any) -> Any:  # noqa: ANN401 - each request has its own kind of reply
        """Handle a request; None: its answer has to wait."""

    @abstractmethod
    def happenings(self) -> Iterator[Happening]:
        """What may happen next."""

    @abstractmethod
    def happen(self, happening: Happening) -> None:
        """Let it happen."""

    @abstractmethod
    def canonicalise(self) -> None:
        """Take the journal in, and put every time in its place."""

    @abstractmethod
    def unfinished(self, members: int) -> str | None:
        """Why the group is not settled with so many members; None: it is."""

    @abstractmethod
    def key(self) -> Hashable:
        """Everything that its answers follow from."""
