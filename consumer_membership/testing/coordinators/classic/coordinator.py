"""The coordinator of groups of the classic protocol (rules 3.4 to 3.7 and 4), after GroupMetadataManager.

JoinGroup and SyncGroup wait for other members. As at a broker, two kinds of requests never get a response and end with
the client's timeout: a request that its member has repeated, and a SyncGroup that waits for the leader while an
administrator removes its member.

A coordinator has no references to outside objects: `copy.deepcopy` makes an independent copy, and `key` returns its
state as a value.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import assert_never

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.group import ClassicGroup, Timer
from consumer_membership.testing.coordinators.classic.joining import join
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Describe,
    Fetch,
    Fetched,
    Join,
    Key,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    Released,
    Request,
    Sync,
)
from consumer_membership.testing.coordinators.journal import CommitAccepted
from consumer_membership.testing.coordinators.rules import ClassicRules, RequestRefusal
from consumer_membership.types import Instant


class ClassicCoordinator(GroupCoordinator):
    """The coordinator of all classic groups of a cluster."""

    def __init__(self, rules: ClassicRules, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.rules = rules
        self.groups: dict[str, ClassicGroup] = {}

    # ---- requests ----

    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        """Return the response to a request; None: `take_released` returns it later. Raises RequestRefusal."""
        match request:
            case Join():
                return join(self._group_to_join(group_id, request), key, request, now)
            case Sync():
                return self._group(group_id).sync(key, request, now)
            case ClassicHeartbeat():
                self._group(group_id).heartbeat(request, now)
                return Alive()
            case LeaveGroup():
                if group_id not in self.groups:
                    return LeaveResults(codes=(code.UNKNOWN_MEMBER_ID,) * len(request.members))
                return self._group(group_id).leave(request, now)
            case Commit():
                return self._commit(group_id, request, now)
            case Fetch():
                group = self.groups.get(group_id)
                committed = group.committed if group is not None else {}
                return Fetched(offsets={partition: committed.get(partition) for partition in request.partitions})
            case Heartbeat() | Describe():
                # This coordinator has no consumer-protocol groups.
                raise RequestRefusal(code.GROUP_ID_NOT_FOUND)
            case _:
                assert_never(request)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise RequestRefusal(code.UNKNOWN_MEMBER_ID)
        return group

    def _group_to_join(self, group_id: str, request: Join) -> ClassicGroup:
        if not request.member_id:
            self.groups.setdefault(group_id, ClassicGroup(group_id, self.rules))
        return self._group(group_id)

    def _commit(self, group_id: str, request: Commit, now: Instant) -> CommitResults:
        group = self.groups.get(group_id)
        if group is None:
            if request.generation >= 0:
                raise RequestRefusal(code.GROUP_ID_NOT_FOUND)
            group = self.groups[group_id] = ClassicGroup(group_id, self.rules)
        group.check_commit(request, now)
        codes = self.commit_errors(request.offsets)
        accepted = {partition: offset for partition, offset in request.offsets.items() if codes[partition] == 0}
        group.committed |= accepted
        group.happened.append(
            CommitAccepted(member_id=request.member_id, generation=request.generation, offsets=accepted)
        )
        return CommitResults(codes=codes)

    def check(self, request: Request, node_id: int | None, now: Instant) -> None:
        """Check the limits of the session timeout first, because every broker knows them. Raises RequestRefusal."""
        rules = self.rules
        if isinstance(request, Join) and not (
            rules.min_session_timeout_s <= request.session_timeout_s <= rules.max_session_timeout_s
        ):
            raise RequestRefusal(code.INVALID_SESSION_TIMEOUT)
        super().check(request, node_id, now)

    def take_released(self) -> list[Released]:
        """Return and clear the responses that the groups have released; move the groups' events to the journal."""
        released: list[Released] = []
        for group in self.groups.values():
            released += group.released
            self.journal.extend(group.happened)
            group.released.clear()
            group.happened.clear()
        return released

    # ---- the cluster ----

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Make another node the coordinator, which first loads the groups as they were last written.

        Loading takes `loading_s`. Returns the responses to requests that waited: NOT_COORDINATOR.
        """
        self.node_id = node_id
        self._loading_until = now + loading_s
        for group in self.groups.values():
            group.unload()
            group.load(now + loading_s)
        return self.take_released()

    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:
        """Remove a member as an administrator does; return the responses to requests that waited for this member."""
        released = self.process("administrator", group_id, LeaveGroup(members=(LeavingMember(member_id),)), now)
        return [one for one in released if one.key != "administrator"]

    def members(self, group_id: str) -> frozenset[str]:
        """Return the ids of the group's members."""
        return frozenset(self.groups[group_id].roster.members) if group_id in self.groups else frozenset()

    def is_settled(self, group_id: str) -> bool:
        """Return whether every member has its assignment and no request is waiting; an empty group is settled."""
        return not self.members(group_id) or self.groups[group_id].is_settled

    # ---- time ----

    def timers(self) -> list[tuple[str, Timer]]:
        """Return the running timers of all groups with their group ids, the earliest timer first."""
        return sorted(
            ((group_id, timer) for group_id, group in self.groups.items() for timer in group.timers()),
            key=lambda one: (one[1].at, one[0], one[1].kind.value, one[1].member_id),
        )

    def fire(self, group_id: str, timer: Timer, now: Instant) -> list[Released]:
        """Fire one of `timers`, due or not, because an exploration has no clock; return the released responses."""
        self.groups[group_id].fire(timer, now)
        return self.take_released()

    def pass_time(self, now: Instant) -> list[Released]:
        """Fire each due timer at most once; timers that this makes due fire at the next call."""
        released: list[Released] = []
        for group_id, timer in self.timers():
            if timer.at <= now and timer in self.groups[group_id].timers():
                released += self.fire(group_id, timer, now)
        return released

    def next_deadline(self) -> Instant | None:
        """Return when the next timer is due; None: no timer is running."""
        return min((timer.at for _, timer in self.timers()), default=None)

    # ---- inspection ----

    def waiting(self) -> frozenset[Key]:
        """Return the keys of the requests that wait for a response."""
        return frozenset().union(*(group.waiting() for group in self.groups.values()))

    def key(self) -> Hashable:
        """Return the state that determines later responses, as a hashable value; the journal is not part of it."""
        groups = frozenset((group_id, group.key()) for group_id, group in self.groups.items())
        return (self.rules, self.node_id, self._loading_until, frozenset(self.topics.items()), groups)
