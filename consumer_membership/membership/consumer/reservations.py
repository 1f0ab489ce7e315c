"""Free ids of a pool that are left to other members, because their last holders released them in a hand-over.

With `group.instance.id.conflict.policy=hand-over`, a member that waits for an id sees other ids become free. If the
last holder handed its id over, its successor joins within milliseconds, and is prepared for the partitions. Every other
free id is taken at once, because its partitions have no owner. The note to the last holder distinguishes the two cases:
it is at the first of the partitions that the group's description still shows for a member that left with epoch -2.

A note is a hint. It reserves an id for `RESERVED_S` at most, and only while its successor is out of the group. A note
that cannot be read reserves nothing: then the coordinator gives the id to the member that joins first.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.consumer.hand_over import RESERVED_S, is_present, note_partition
from consumer_membership.membership.effects import ReadNotes
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import NotesNotRead, NotesRead
from consumer_membership.types import Holder, Instant


class Reservations:
    """The free ids that one waiting member leaves to others."""

    def __init__(self, event: EventContext) -> None:
        self._event = event
        #: The successor for which each last holder (member id) released its id; None: it left for another reason.
        self._successors: dict[str, str | None] = {}
        #: Since when this member sees each of them out of the group.
        self._left_at: dict[str, Instant] = {}
        self._awaited: int | None = None
        #: The last holders whose notes are read.
        self._asked: dict[str, Holder] = {}

    def begin(self) -> None:
        """Begin a join: earlier descriptions do not count."""
        self._successors.clear()
        self._left_at.clear()
        self._asked.clear()
        self._awaited = None

    def reserved(self, released: Mapping[str, Holder], holders: Mapping[str, Holder], own: str) -> frozenset[str]:
        """Return the ids among the `released` ones that are left to others, also while the notes to them are read.

        `holders` are the holders of all ids, with the last ones, and `own` is this member's id.
        """
        now = self._event.now
        self._left_at = {one.member_id: self._left_at.get(one.member_id, now) for one in released.values()}
        unread = {one.member_id: one for one in released.values() if one.member_id not in self._successors}
        self._successors |= {member: None for member, one in unread.items() if not one.partitions}
        self._read({member: one for member, one in unread.items() if one.partitions})
        present = {one.member_id for one in holders.values() if is_present(one)} | {own}
        return frozenset(i for i, one in released.items() if self._is_reserved(one.member_id, present))

    def _is_reserved(self, last: str, present: set[str]) -> bool:
        if last not in self._successors:
            return True
        successor = self._successors[last]
        is_expected = successor is not None and successor not in present
        return is_expected and self._event.now < self._left_at[last] + RESERVED_S

    def _read(self, unread: Mapping[str, Holder]) -> None:
        partitions = frozenset(at for one in unread.values() if (at := note_partition(one.partitions)) is not None)
        if partitions and self._awaited is None:
            self._awaited, self._asked = self._event.next_request_id(), dict(unread)
            self._event.emit(ReadNotes(request_id=self._awaited, partitions=partitions))

    def answered(self, event: NotesRead | NotesNotRead) -> bool:
        """Note the successors that the notes name; return whether the notes were requested here."""
        if event.request_id != self._awaited:
            return False
        notes = event.notes if isinstance(event, NotesRead) else {}
        named = {note.predecessor: note.successor for note in notes.values()}
        self._successors |= {member: named.get(member) for member in self._asked}
        self._awaited = None
        self._asked.clear()
        return True
