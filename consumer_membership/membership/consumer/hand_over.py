"""The hand-over of an instance id from its holder, the predecessor, to a new process, the successor.

With `group.instance.id.conflict.policy=hand-over` a new process does not take the id of a live holder. It prepares for
the holder's partitions, which the description of the group shows (`on_warm`), and then announces itself to the holder.
The holder looks for an announcement about once a second. If one names it, the holder releases its partitions as in a
leave, and leaves with epoch -2. Then the id is free, and the successor receives the same partitions at the same epoch,
without a rebalance of other members.

An announcement is committed metadata of the helper group `<group.id>.hand-over`, at the first partition that the
predecessor owns, so that announcements to several holders never collide. Announcements are hints, and the coordinator
decides which member holds an id: a lost, late or wrong announcement costs time and never a partition. A crash therefore
ends as it does with `wait`.

- If the successor ends before its announcement, nothing has happened. If it ends after its announcement, the id stays
  free for `RESERVED_S`; then the predecessor joins with its id again, keeps the same partitions, and ignores this
  successor.
- If the leave of the predecessor is lost, it releases its id again as soon as a description shows that it still has it.
- If the predecessor ends, its id is released by its leave, or at the end of its session, and the successor joins.

Only a member that the application just made join requests a hand-over, so two processes never take an id from each
other in turns. With a fixed id it announces itself to one holder in each such join. With a pool, it announces itself to
the oldest holder, so that a deployment never replaces a process that it has just started; if other successors were
faster, to the next one. A predecessor announces itself to no holder: with a fixed id it ends as soon as its successor
holds the id, with a pool it waits for another id.

| module | content |
|---|---|
| `successor` | the states of a member that requests a hand-over |
| `predecessor` | the states of a holder that may hand its id over |
| `reservations` | the free ids that members with a pool leave to an announced successor |
| this one | the helper group, which all three use |
"""

from __future__ import annotations

from consumer_membership.membership.effects import Warned
from consumer_membership.membership.event_context import EventContext
from consumer_membership.types import LEAVE_STATIC_EPOCH, BrokerError, Holder, TopicPartition

#: The helper group of a group is named after it, with this suffix.
HELPER_SUFFIX = ".hand-over"
#: The interval at which a holder reads its announcement; no partition stalls meanwhile, because the holder continues.
READ_EVERY_S = 1.0
#: How long a predecessor leaves its released id to the successor. The successor describes the group every few
#: milliseconds, so it needs this time only if its process pauses or its connection is lost. If the predecessor took the
#: id back too early, its successor would have to wait until it ends.
RESERVED_S = 3.0


def announcement_partition(partitions: frozenset[TopicPartition]) -> TopicPartition | None:
    """Return the partition with the announcement to the owner of these partitions; None without partitions."""
    return min(partitions, default=None)


def is_present(holder: Holder) -> bool:
    """Return whether this member holds its id now."""
    return holder.member_epoch != LEAVE_STATIC_EPOCH


class HelperGroup:
    """The helper group, as one member sees it: its refusal is logged once."""

    def __init__(self, event: EventContext, group_id: str) -> None:
        self._event = event
        self._name = group_id + HELPER_SUFFIX
        self._has_warned = False

    def refused(self, error: BrokerError) -> None:
        """Warn that the brokers refuse the helper group, unless the log has the warning already."""
        if self._has_warned:
            return
        self._has_warned = True
        message = (
            f"Hand-overs need READ on the helper group '{self._name}', which the brokers refuse ({error}); grant it. "
            "Until then group.instance.id.conflict.policy=hand-over works like wait"
        )
        self._event.emit(Warned(message=message))
