"""The free ids of a pool that a waiting member leaves to announced successors (`hand_over`).

With `group.instance.id.conflict.policy=hand-over`, a member that waits for an id sees other ids become free. If the
last holder handed its id over, its successor joins within milliseconds, and is prepared for the partitions. Every other
free id is taken at once, because its partitions have no owner. The announcement to the last holder distinguishes the
two cases: it is at the first of the partitions that the group's description still shows for a member that left with
epoch -2.

An announcement is a hint. It reserves an id only while its successor is out of the group, and for a limited time, since
the successor may have ended. An announcement that cannot be read reserves nothing: then the coordinator gives the id to
the member that joins first.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.consumer.hand_over import RESERVED_S, announcement_partition, is_present
from consumer_membership.membership.effects import ReadAnnouncements
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import AnnouncementsNotRead, AnnouncementsRead
from consumer_membership.types import Holder, Instant

#: How long a member leaves an id to the successor of another holder. The successor describes the group every few
#: milliseconds, so it joins far earlier, unless it has ended. A successor that was paused for longer prepares for
#: another holder; meanwhile the partitions have an owner. The holder itself waits longer (`RESERVED_S`).
RESERVED_FOR_OTHERS_S = 0.5


class Reservations:
    """The free ids that one waiting member leaves to others."""

    def __init__(self, event: EventContext) -> None:
        self._event = event
        #: The successor for which each last holder (member id) released its id; None: it left for another reason.
        self._successors: dict[str, str | None] = {}
        #: Since when this member sees each of them out of the group.
        self._left_at: dict[str, Instant] = {}
        self._awaited: int | None = None
        #: The last holders whose announcements are read.
        self._unread: dict[str, Holder] = {}

    def begin(self) -> None:
        """Begin a join: earlier descriptions do not count."""
        self._successors.clear()
        self._left_at.clear()
        self._unread.clear()
        self._awaited = None

    def reserved(self, released: Mapping[str, Holder], holders: Mapping[str, Holder], own: str) -> frozenset[str]:
        """Return the `released` ids that are left to others, including ids whose announcements are still being read.

        `holders` are the holders of all ids, with the last ones, and `own` is this member's id.
        """
        now = self._event.now
        self._left_at = {one.member_id: self._left_at.get(one.member_id, now) for one in released.values()}
        unread = {one.member_id: one for one in released.values() if one.member_id not in self._successors}
        self._successors |= {member: None for member, one in unread.items() if not one.partitions}
        self._read({member: one for member, one in unread.items() if one.partitions})
        present = {one.member_id for one in holders.values() if is_present(one)} | {own}
        return frozenset(i for i, one in released.items() if self._is_reserved(one.member_id, present, own))

    def _is_reserved(self, last: str, present: set[str], own: str) -> bool:
        if last not in self._successors:
            return True
        successor = self._successors[last]
        if successor is None or successor in present:
            return False
        return self._event.now < self._left_at[last] + (RESERVED_S if last == own else RESERVED_FOR_OTHERS_S)

    def _read(self, unread: Mapping[str, Holder]) -> None:
        found = (announcement_partition(one.partitions) for one in unread.values())
        partitions = frozenset(partition for partition in found if partition is not None)
        if partitions and self._awaited is None:
            self._awaited, self._unread = self._event.next_request_id(), dict(unread)
            self._event.emit(ReadAnnouncements(request_id=self._awaited, partitions=partitions))

    def answered(self, event: AnnouncementsRead | AnnouncementsNotRead) -> bool:
        """Keep the successors that the announcements name; return whether this class requested them."""
        if event.request_id != self._awaited:
            return False
        announcements = event.announcements if isinstance(event, AnnouncementsRead) else {}
        named = {one.predecessor: one.successor for one in announcements.values()}
        self._successors |= {member: named.get(member) for member in self._unread}
        self._awaited = None
        self._unread.clear()
        return True
