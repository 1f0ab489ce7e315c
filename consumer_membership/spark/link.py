"""What a task hears from its driver and tells it, whatever lies between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol, Self

from consumer_membership.spark.plan import Partition


class Order(StrEnum):
    """What a driver, or the end of it, tells a task."""

    #: Finish the batch in hand, commit, leave.
    STOP = "stop"
    #: A later attempt of the same task is at work: write nothing more.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """One task's member at one moment, as it told the driver.

    `lag`: records of the owned partitions that are not committed, as far as is known; `rate`: records a second given to
    the sink since the report before; `records`: given to the sink since the attempt's start. `waits_for` says in words
    why nothing is consumed, None where nothing is waited for. `at`: seconds since 1970, by the task's clock.
    """

    instance: int
    attempt: int
    host: str
    pid: int
    state: str
    epoch: int
    owned: tuple[Partition, ...]
    records: int
    batches: int
    rate: float
    lag: int
    waits_for: str | None
    at: float

    def as_words(self) -> dict[str, object]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_words(cls, words: Mapping[str, object]) -> Self:
        """The other way; whatever is not a report raises TypeError, ValueError or KeyError."""
        values = dict(words)
        owned = values.pop("owned")
        if not isinstance(owned, list):
            raise TypeError(f"owned is {owned!r}")
        partitions = tuple((str(topic), int(number)) for topic, number in owned)
        return cls(owned=partitions, **values)  # type: ignore[arg-type]  # a report of this class, by its own words


class Link(Protocol):
    """A task's way to its driver."""

    @property
    def order(self) -> Order | None:
        """What the driver wants; None: that the task goes on."""
        ...

    def report(self, progress: MemberProgress) -> None:
        """Tell the driver; never waits, never raises."""
        ...

    def fail(self, kind: str, text: str) -> None:
        """Tell the driver why the task is about to fail; never raises."""
        ...


class NoLink:
    """For a task whose driver does not listen; it can be told to stop within its own process."""

    def __init__(self) -> None:
        self.order: Order | None = None

    def report(self, progress: MemberProgress) -> None:
        """Nobody listens."""

    def fail(self, kind: str, text: str) -> None:
        """Nobody listens; Spark has the exception."""

    def hang_up(self) -> None:
        """Order the task to stop: its process is asked to end."""
        self.order = self.order or Order.STOP

    def close(self) -> None:
        """Nothing is held."""
