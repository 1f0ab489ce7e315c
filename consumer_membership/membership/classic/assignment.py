"""The generation that a classic member joined, and the assignment that it applied.

Each rebalance has two responses. The one to JoinGroup has the number of a new generation, the one to SyncGroup has this
member's assignment in it. Between them, and after a SyncGroup that failed, the member owns the partitions of an earlier
generation:

| generation | set by the response to | named in |
|---|---|---|
| joined | JoinGroup | SyncGroup, heartbeats, commits |
| assigned | SyncGroup | the next JoinGroup, as the generation of the owned partitions (KIP-792) |

A coordinator writes a generation to its log together with the assignments, not before. A coordinator that takes over
earlier gives the same number to another generation. A dynamic member that misses a generation is removed. A static one
stays, although other members may have been assigned its partitions, have read on and have committed. So there are two
rules for static members only: `missed_generation` and `forget_unwritten`.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumer_membership.assignors.assignor import NO_GENERATION, Assigned, AssignmentObserver, Assignor
from consumer_membership.membership.classic.exchanges import JoinAnswered, NotifyAssignor, SyncAnswered
from consumer_membership.membership.event_context import EventContext
from consumer_membership.types import GroupProtocol, TopicPartition


class ClassicAssignment:
    """The generations and the assignment of one member; `Ownership` has the partitions that it owns."""

    def __init__(self, event: EventContext, assignors: Iterable[Assignor], *, is_static: bool) -> None:
        self._event = event
        self._is_static = is_static
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

    def missed_generation(self, event: JoinAnswered) -> bool:
        """Whether a static member was not in a generation before this one: others may have had its partitions.

        It may also have joined, and not have received the response: the two cannot be distinguished.
        """
        is_gap = NO_GENERATION != self.joined_generation < event.generation - 1
        return is_gap and self._is_static and event.group_protocol is GroupProtocol.CLASSIC

    # ---- one rebalance ----

    def joined(self, event: JoinAnswered) -> None:
        """Join this generation; the assignment of an earlier one stays until its own is applied."""
        self.joined_generation, self.group_protocol = event.generation, event.group_protocol
        self.assignor = event.protocol_name
        self._received = None

    def notify_assignor(self, event: SyncAnswered) -> None:
        """Have the group's assignor receive this assignment."""
        self._received, self._notification = event.assignment, self._event.next_request_id()
        notice = NotifyAssignor(
            request_id=self._notification,
            generation=self.joined_generation,
            assignor=self.assignor,
            assignment=Assigned(partitions=event.assignment, user_data=event.user_data),
        )
        self._event.emit(notice)

    def notified(self, request_id: int) -> frozenset[TopicPartition] | None:
        """The assignor has returned: return the assignment to apply; None: it is not awaited."""
        if request_id != self._notification:
            return None
        received, self._received = self._received, None
        return received

    def apply(self, partitions: frozenset[TopicPartition], *, revokes: bool) -> None:
        """Take this assignment of the joined generation; `revokes`: the member owns partitions that are not in it."""
        self._previous, self.partitions = self.partitions, partitions
        self.assigned_generation = self.joined_generation
        self.revokes = revokes

    # ---- the end of a generation ----

    def forget_unwritten(self) -> bool:
        """Return to the assigned generation if the coordinator of the joined one may have changed before it wrote it.

        Other members may have been assigned the partitions of a static member in a generation with the same number: a
        commit, or a heartbeat, with that number would be accepted. A dynamic member keeps the number, which a
        coordinator that did not change expects. The result is whether a generation was forgotten.
        """
        is_unwritten = self.joined_generation != self.assigned_generation != NO_GENERATION
        if not is_unwritten or not self._is_static:
            return False
        self.joined_generation = self.assigned_generation
        return True

    def forget(self) -> None:
        """Be in no generation, with no assignment."""
        self.joined_generation = self.assigned_generation = NO_GENERATION
        self.partitions = frozenset()
