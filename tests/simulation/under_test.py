"""A coordinator under test for the rule tests: a simulated coordinator, or the coordinator of a real broker.

A test sends requests, receives responses, and lets time pass until a condition is true. It reads no clock, so that the
same test runs in virtual time here and in real time on a broker (`tests.simulation.real`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar
from uuid import uuid4

from consumer_membership.testing.coordinators.coordinator import GroupCoordinator, Topic
from consumer_membership.testing.coordinators.exchanges import Answer, Key, Released, Request
from consumer_membership.testing.coordinators.rules import ClassicRules, Rules
from consumer_membership.types import Instant

T = TypeVar("T")
RulesT = TypeVar("RulesT", bound=Rules | ClassicRules)

#: The topic of the rule tests and its partitions; other tests that share a broker do not use this name.
TOPIC: Final = f"rules-{uuid4().hex[:10]}"
PARTITIONS: Final = 4

#: The length of a step of virtual time, and the maximum number of steps.
_STEP_S: Final = 0.1
_MOST_STEPS: Final = 6000


class CoordinatorUnderTest(ABC, Generic[RulesT]):
    """The coordinator of one group, which has no members at first, in a cluster with the topic `topic`."""

    def __init__(self, group_id: str, rules: RulesT, topic: Topic) -> None:
        self.group_id = group_id
        #: The rules of this coordinator, which follow from its version and configuration.
        self.rules = rules
        self.topic = topic

    @abstractmethod
    def send(self, key: Key, request: Request, *, group_id: str | None = None) -> None:
        """Send a request to the group under test or to `group_id`; `key` identifies its response."""

    @abstractmethod
    def has_answer(self, key: Key) -> bool:
        """Return whether the response has arrived. On a real broker, it may arrive just after False was returned."""

    @abstractmethod
    def receive(self, key: Key) -> Answer:
        """Let time pass until the response to this request arrives, and return it."""

    @abstractmethod
    def until(self, attempt: Callable[[], T]) -> T:
        """Let time pass until this returns a true value, and return that value."""

    @abstractmethod
    def members(self) -> frozenset[str]:
        """Return the ids of the group's members."""

    @abstractmethod
    def state(self) -> str:
        """Return the state of a classic group by its name in DescribeGroups."""

    @abstractmethod
    def create_topic(self, partitions: int) -> Topic:
        """Create another topic, with a unique name."""

    @abstractmethod
    def grow_topic(self, topic: Topic, partitions: int) -> Topic:
        """Add partitions to a topic."""

    @abstractmethod
    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic."""

    def call(self, request: Request, *, group_id: str | None = None) -> Answer:
        """Send a request and return its response."""
        key = object()
        self.send(key, request, group_id=group_id)
        return self.receive(key)


class SimulatedCoordinator(CoordinatorUnderTest[RulesT]):
    """A simulated coordinator, in virtual time."""

    def __init__(self, coordinator: GroupCoordinator, rules: RulesT) -> None:
        coordinator.create_topic(TOPIC, PARTITIONS)
        super().__init__("g", rules, coordinator.topics[TOPIC])
        self.coordinator = coordinator
        self.now: Instant = 0.0
        self._answers: dict[Key, Answer] = {}

    def send(self, key: Key, request: Request, *, group_id: str | None = None) -> None:
        """Let the coordinator handle the request."""
        self._keep(self.coordinator.process(key, group_id or self.group_id, request, self.now))

    def has_answer(self, key: Key) -> bool:
        """Return whether the coordinator has sent the response."""
        return key in self._answers

    def receive(self, key: Key) -> Answer:
        """Let one deadline after the other pass until the response is available."""
        while key not in self._answers:
            deadline = self.coordinator.next_deadline()
            assert deadline is not None, f"nothing will ever answer {key}"
            self._pass_to(max(self.now, deadline))
        return self._answers.pop(key)

    def until(self, attempt: Callable[[], T]) -> T:
        """Let virtual time pass in small steps."""
        for _ in range(_MOST_STEPS):
            if result := attempt():
                return result
            self._pass_to(self.now + _STEP_S)
        raise AssertionError(f"this did not happen within {_MOST_STEPS * _STEP_S:.0f} virtual seconds")

    def members(self) -> frozenset[str]:
        """Return the ids of the group's members."""
        return self.coordinator.members(self.group_id)

    def state(self) -> str:
        """Return the state of the classic group."""
        return str(self.coordinator.groups[self.group_id].state.value)

    def create_topic(self, partitions: int) -> Topic:
        """Create another topic."""
        name = f"{TOPIC}-{len(self.coordinator.topics)}"
        self.coordinator.create_topic(name, partitions)
        return self.coordinator.topics[name]

    def grow_topic(self, topic: Topic, partitions: int) -> Topic:
        """Add partitions to a topic."""
        self.coordinator.create_topic(topic.name, partitions, topic.topic_id)
        return self.coordinator.topics[topic.name]

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic."""
        self.coordinator.delete_topic(topic.name)

    def _pass_to(self, now: Instant) -> None:
        self.now = now
        self._keep(self.coordinator.pass_time(now))

    def _keep(self, released: list[Released]) -> None:
        self._answers |= dict(released)
