"""The generation that a classic member joined, and the assignment that it applied.

Each rebalance has two responses. The JoinGroup response has the number of a new generation, the SyncGroup response has
this member's assignment in that generation. Between them, and after a SyncGroup that failed, the member owns the
partitions of an earlier generation:

| generation | set by the response to | named in |
|---|---|---|
| joined | JoinGroup | SyncGroup, heartbeats, commits |
| assigned | SyncGroup | the next JoinGroup, as the generation of the owned partitions (KIP-792) |

A coordinator writes a generation to its log together with the assignments, not before. If another coordinator takes
over before that, it gives the same number to another generation. A dynamic member that misses a generation is removed.
A static member stays, although other members may meanwhile have owned its partitions, read them and committed. So there
are two rules for static members only: `missed_generation` and `forget_unwritten`.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import NAMESPACE_OID, UUID, uuid5

from consumer_membership.assignors.assignor import NO_GENERATION, Assigned, AssignmentObserver, Assignor
from consumer_membership.membership.classic.exchanges import JoinAnswered, NotifyAssignor, SyncAnswered
from consumer_membership.membership.event_context import EventContext
from consumer_membership.types import (
    FATAL_CODE,
    ILLEGAL_GENERATION_CODE,
    BrokerError,
    GroupProtocol,
    TopicIdPartition,
    TopicPartition,
)


def topic_key(topic: str) -> UUID:
    """Return a replacement for the topic's id: the classic protocol has no topic ids, so the name makes one."""
    return uuid5(NAMESPACE_OID, topic)


def key_of(partition: TopicPartition) -> TopicIdPartition:
    """Return the key of the partition in the parts that both protocols share."""
    return TopicIdPartition(topic_key(partition.topic), partition.partition)


class ClassicAssignment:
    """The generations and the assignment of one member; `Ownership` has the partitions that it owns."""

    def __init__(self, event: EventContext, assignors: Sequence[Assignor], *, is_static: bool) -> None:
        self._event = event
        self._is_static = is_static
        self._supported = frozenset(one.name for one in assignors)
        #: The names of the assignors that receive an assignment before it is applied.
        self._observers = frozenset(one.name for one in assignors if isinstance(one, AssignmentObserver))
        #: From the last JoinGroup response: the generation, the type of the group, and the assignor that it chose.
        self.joined_generation = NO_GENERATION
        self.group_protocol = GroupProtocol.CLASSIC
        self.assignor = ""
        #: The applied assignment: an eager member owns nothing when it joins, and its assignor may need this.
        self.partitions: frozenset[TopicPartition] = frozenset()
        #: The generation of that assignment and of the owned partitions.
        self.assigned_generation = NO_GENERATION
        #: Whether that assignment revokes partitions, so that a cooperative member joins once more.
        self.revokes = False
        #: The assignment before it.
        self._previous: frozenset[TopicPartition] = frozenset()
        #: The received assignment while the assignor is notified of it, and the number of that notification.
        self._received: frozenset[TopicPartition] | None = None
        self._notification: int | None = None

    # ---- questions ----

    @property
    def is_joined(self) -> bool:
        """Whether the member is in a generation."""
        return self.joined_generation != NO_GENERATION

    @property
    def is_written(self) -> bool:
        """Whether the coordinator wrote the joined generation to its log: it does that with the assignments."""
        return NO_GENERATION != self.joined_generation == self.assigned_generation

    @property
    def unchanged(self) -> frozenset[TopicPartition]:
        """The partitions that are in this assignment and in the previous one."""
        return self.partitions & self._previous

    @property
    def has_observer(self) -> bool:
        """Whether the group's assignor receives each assignment before it is applied."""
        return self.assignor in self._observers

    @property
    def is_notifying(self) -> bool:
        """Whether an assignment was received, and its assignor has not returned from `on_assignment` yet."""
        return self._received is not None

    def missed_generation(self, event: JoinAnswered) -> BrokerError | None:
        """Return the error of a static member that was not in a generation before this one; None: there is none.

        Other members may have had its partitions. The member may also have joined, and not have received the response:
        the two cannot be distinguished.
        """
        is_gap = NO_GENERATION != self.joined_generation < event.generation - 1
        if not is_gap or not self._is_static or event.group_protocol is not GroupProtocol.CLASSIC:
            return None
        message = (
            f"generations between {self.joined_generation} and {event.generation} of the group did not include this "
            "member"
        )
        return BrokerError(code=ILLEGAL_GENERATION_CODE, name="ILLEGAL_GENERATION", message=message)

    def unsupported_assignor(self) -> BrokerError | None:
        """Return the error if the group chose an assignor that this member does not support; None: it does."""
        if self.assignor in self._supported:
            return None
        message = (
            f"the group chose the assignor {self.assignor!r}, which this member does not support; set "
            "partition.assignment.strategy to the same assignors in every member"
        )
        return BrokerError(code=FATAL_CODE, name="INCONSISTENT_GROUP_PROTOCOL", message=message)

    # ---- one rebalance ----

    def joined(self, event: JoinAnswered) -> None:
        """Join this generation; the assignment of an earlier one stays until its own is applied."""
        self.joined_generation, self.group_protocol = event.generation, event.group_protocol
        self.assignor = event.protocol_name
        self._received = None

    def notify_assignor(self, event: SyncAnswered) -> None:
        """Notify the group's assignor of this assignment."""
        self._received, self._notification = event.assignment, self._event.next_request_id()
        notice = NotifyAssignor(
            request_id=self._notification,
            generation=self.joined_generation,
            assignor=self.assignor,
            assignment=Assigned(partitions=event.assignment, user_data=event.user_data),
        )
        self._event.emit(notice)

    def notified(self, request_id: int) -> frozenset[TopicPartition] | None:
        """Return the assignment to apply, of which the assignor was notified; None: the notification is outdated."""
        if request_id != self._notification:
            return None
        received, self._received = self._received, None
        return received

    def apply(self, partitions: frozenset[TopicPartition], *, revokes: bool) -> None:
        """Store this assignment of the joined generation; `revokes`: the member owns partitions that are not in it."""
        self._previous, self.partitions = self.partitions, partitions
        self.assigned_generation = self.joined_generation
        self.revokes = revokes

    # ---- the end of a generation ----

    def forget_unwritten(self) -> bool:
        """Return to the assigned generation if the coordinator may have changed before it wrote the joined generation.

        Other members may have been assigned the partitions of a static member in a generation with the same number: a
        commit, or a heartbeat, with that number would be accepted. A dynamic member keeps the number, which a
        coordinator that did not change expects. Returns whether a generation was forgotten.
        """
        is_unwritten = self.joined_generation != self.assigned_generation != NO_GENERATION
        if not is_unwritten or not self._is_static:
            return False
        self.joined_generation = self.assigned_generation
        return True

    def forget(self) -> None:
        """Forget the generations and the assignment."""
        self.joined_generation = self.assigned_generation = NO_GENERATION
        self.partitions = frozenset()
