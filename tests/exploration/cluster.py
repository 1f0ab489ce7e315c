"""A simulated coordinator as a part of a state, without a clock and with requests as values.

The spontaneous events of a group and its times depend on the protocol; the modules `spontaneous_events` of `consumer`
and `classic` define them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.exchanges import Answer, Joined, Released, Request
from consumer_membership.testing.coordinators.journal import CommitAccepted, JoinsCompleted, Loaded, Removed, Replaced
from consumer_membership.translation.announcements import helper_group
from consumer_membership.types import TopicPartition

GROUP = "g"
#: The group with the announcements for hand-overs.
HELPER_GROUP = helper_group(GROUP)
#: The end of sessions and rebalance timeouts, which lies in the future until they end; their length has no meaning.
TO_COME = 1.0


class Address(NamedTuple):
    """The destination of the answer to a waiting request: the process, and the index of its request."""

    name: str
    place: int


#: The destination of answers without a waiter, and of immediate answers.
NO_RECEIVER = Address("", 0)
AT_ONCE = Address("", 1)


class Envelope(NamedTuple):
    """A request, the address of its answer, and its group."""

    address: Address
    request: Request
    group_id: str = GROUP


class SpontaneousEvent(NamedTuple):
    """A spontaneous event at the coordinator, and its members (their ids, or the names of their processes).

    The event costs its budget if it has no members, or if one of its members is live.
    """

    name: str
    about: tuple[str, ...] = ()
    budget: str | None = None
    #: Whether it occurs only for live members.
    needs_live_member: bool = False
    #: Whether it takes so long that no more answers are in flight.
    is_long: bool = False


class SpontaneousEvents(ABC):
    """The spontaneous events of a protocol's groups. It has no state; callers pass a coordinator's group."""

    @abstractmethod
    def spontaneous_events(self, coordinator: Any) -> Iterator[SpontaneousEvent]:
        """Return the events that may occur next."""

    @abstractmethod
    def apply_event(self, coordinator: Any, event: SpontaneousEvent) -> list[Released]:
        """Apply the event; return the answered requests."""

    @abstractmethod
    def canonicalise(self, coordinator: Any) -> None:
        """Rewrite all times to canonical values."""

    @abstractmethod
    def unfinished(self, coordinator: Any, members: int) -> str | None:
        """Return why the group is not settled with this number of members, or None."""

    @abstractmethod
    def key(self, coordinator: Any) -> Hashable:
        """Return the state that determines its answers."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """The coordinator, and its latest actions."""

    coordinator: GroupCoordinator
    events: SpontaneousEvents
    #: Members that the coordinator removed or replaced.
    removed: list[str] = field(default_factory=list)
    committed: list[tuple[str, frozenset[TopicPartition]]] = field(default_factory=list)
    #: Answers to waiting requests, and requests that will never be answered.
    released: list[tuple[Address, Answer]] = field(default_factory=list)
    dropped: list[Address] = field(default_factory=list)

    def execute(self, envelope: Envelope) -> Answer | None:
        """Handle a request; return its answer, or None if the request has to wait."""
        waited = {*self.coordinator.waiting(), envelope.address}
        released = self.coordinator.process(envelope.address, envelope.group_id, envelope.request, 0.0)
        if envelope.group_id == HELPER_GROUP:
            # The helper group has no members, and its offsets have no meaning.
            self.coordinator.journal.clear()
        self._take(waited, released, own=envelope.address)
        return next((one.answer for one in released if one.key == envelope.address), None)

    def apply_event(self, event: SpontaneousEvent) -> None:
        """Apply a spontaneous event."""
        before, waited = self.coordinator.members(GROUP), set(self.coordinator.waiting())
        released = self.events.apply_event(self.coordinator, event)
        if GROUP not in self.coordinator.groups:
            self.removed += sorted(before)
        loaded = [entry for entry in self.coordinator.journal if isinstance(entry, Loaded)]
        self.removed += sorted(one for entry in loaded for one in before - set(entry.members))
        self._take(waited, released)

    def _take(self, waited: set[Hashable], released: list[Released], *, own: Address | None = None) -> None:
        joined = {one.answer.member_id for one in released if isinstance(one.answer, Joined)}
        for key, answer in released:
            assert isinstance(key, Address)
            if key not in (own, NO_RECEIVER):
                self.released.append((key, answer))
        gone = waited - self.coordinator.waiting() - {one.key for one in released} - {NO_RECEIVER}
        self.dropped += sorted(one for one in gone if isinstance(one, Address))
        for entry in self.coordinator.journal:
            match entry:
                case Removed(reason="left for a while"):
                    pass
                case Removed():
                    self.removed.append(entry.member_id)
                case Replaced():
                    self.removed.append(entry.former_id)
                case JoinsCompleted():
                    # Static members that did not join the new generation.
                    self.removed += [one for one in entry.members if one not in joined]
                case CommitAccepted():
                    self.committed.append((entry.member_id, frozenset(entry.offsets)))
                case _:
                    pass
        self.coordinator.journal.clear()

    def spontaneous_events(self) -> Iterator[SpontaneousEvent]:
        """Return the events that may occur next."""
        if GROUP in self.coordinator.groups:
            yield from self.events.spontaneous_events(self.coordinator)

    def canonicalise(self) -> None:
        """Rewrite all times to canonical values."""
        if GROUP in self.coordinator.groups:
            self.coordinator.groups[GROUP].committed.clear()
            self.events.canonicalise(self.coordinator)

    def unfinished(self, members: int) -> str | None:
        """Return why the group is not settled with this number of members, or None."""
        return self.events.unfinished(self.coordinator, members) if GROUP in self.coordinator.groups else None

    def key(self) -> Hashable:
        """Return the state that determines its answers."""
        return self.events.key(self.coordinator)
