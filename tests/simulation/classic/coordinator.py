"""A pure coordinator of classic groups: requests in, answers out, `now` given; no I/O, no clock, no chance.

It keeps Kafka's rules for groups of the classic protocol (rules 3.4 to 3.7 and 4), after GroupMetadataManager.
JoinGroup and SyncGroup wait for other members, so that every request comes with a key of the asker's, and every call
returns the answers that it releases, in order, each with its request's key: that of the request itself, when it need
not wait, and those of others. A request that its own member repeats, or whose member an administrator removes while
it waits for the leader, is never answered, as at a broker: requests end by the asker's timeout.

A coordinator is a value without references to anything outside: `copy.deepcopy` makes an independent one, and `key`
tells all that it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import assert_never

from consumer_membership.types import Instant, TopicPartition
from tests.simulation import rules as code
from tests.simulation.classic import rules as classic_code
from tests.simulation.classic.exchanges import (
    Alive,
    Answer,
    Beat,
    Commit,
    CommitResults,
    Fetch,
    Fetched,
    Join,
    Key,
    Leave,
    Released,
    Request,
    Sync,
)
from tests.simulation.classic.group import ClassicGroup
from tests.simulation.classic.joining import join
from tests.simulation.classic.journal import Committed, Entry
from tests.simulation.classic.rules import ClassicRules
from tests.simulation.classic.timers import Timer
from tests.simulation.rules import Refusal


class ClassicCoordinator:
    """The coordinator of all classic groups of a cluster, and the number of partitions of each of its topics."""

    def __init__(self, rules: ClassicRules, node_id: int = 1) -> None:
        self.rules = rules
        self.node_id = node_id
        self.topics: dict[str, int] = {}
        self.groups: dict[str, ClassicGroup] = {}
        #: What happened, oldest first, for whoever wants to look at it.
        self.journal: deque[tuple[str, Entry]] = deque(maxlen=10_000)
        self._loading_until: Instant | None = None

    # ---- requests ----

    def ask(
        self, key: Key, group_id: str, request: Request, now: Instant, *, node_id: int | None = None
    ) -> list[Released]:
        """Handle a request; `node_id` is the broker that was asked (None: the coordinator)."""
        try:
            self._check_session_timeout(request)
            self._check_node(node_id, now)
            answer = self._handle(key, group_id, request, now)
        except Refusal as refusal:
            answer = _refused(request, refusal)
        released = self._released()
        return released if answer is None else [*released, Released(key, answer)]

    def _handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        match request:
            case Join():
                return join(self._group_to_join(group_id, request), key, request, now)
            case Sync():
                return self._group(group_id).sync(key, request, now)
            case Beat():
                self._group(group_id).heartbeat(request, now)
                return Alive()
            case Leave():
                return self._group(group_id).leave(request, now)
            case Commit():
                return self._commit(group_id, request, now)
            case Fetch():
                group = self.groups.get(group_id)
                committed = group.committed if group is not None else {}
                return Fetched(offsets={partition: committed.get(partition) for partition in request.partitions})
            case _:
                assert_never(request)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise Refusal(code.UNKNOWN_MEMBER_ID)
        return group

    def _group_to_join(self, group_id: str, request: Join) -> ClassicGroup:
        if not request.member_id:
            self.groups.setdefault(group_id, ClassicGroup(group_id, self.rules))
        return self._group(group_id)

    def _commit(self, group_id: str, request: Commit, now: Instant) -> CommitResults:
        group = self.groups.get(group_id)
        if group is None:
            if request.generation >= 0:
                raise Refusal(code.GROUP_ID_NOT_FOUND)
            group = self.groups[group_id] = ClassicGroup(group_id, self.rules)
        group.check_commit(request, now)
        codes = {p: 0 if self._exists(p) else code.UNKNOWN_TOPIC_OR_PARTITION for p in request.offsets}
        accepted = {partition: offset for partition, offset in request.offsets.items() if codes[partition] == 0}
        group.committed |= accepted
        group.happened.append(Committed(member_id=request.member_id, generation=request.generation, offsets=accepted))
        return CommitResults(codes=codes)

    def _exists(self, partition: TopicPartition) -> bool:
        return partition.partition < self.topics.get(partition.topic, 0)

    def _check_session_timeout(self, request: Request) -> None:
        """Every broker knows the bounds, so that this comes before anything else."""
        rules = self.rules
        if isinstance(request, Join) and not (
            rules.min_session_timeout_s <= request.session_timeout_s <= rules.max_session_timeout_s
        ):
            raise Refusal(classic_code.INVALID_SESSION_TIMEOUT)

    def _check_node(self, node_id: int | None, now: Instant) -> None:
        if node_id is not None and node_id != self.node_id:
            raise Refusal(code.NOT_COORDINATOR)
        if self._loading_until is not None:
            if now < self._loading_until:
                raise Refusal(code.COORDINATOR_LOAD_IN_PROGRESS)
            self._loading_until = None

    def _released(self) -> list[Released]:
        """Take what the groups have to say."""
        released: list[Released] = []
        for group_id, group in self.groups.items():
            released += group.released
            self.journal.extend((group_id, entry) for entry in group.happened)
            group.released.clear()
            group.happened.clear()
        return released

    # ---- the cluster ----

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or give one that exists more partitions."""
        self.topics[name] = partitions

    def delete_topic(self, name: str) -> None:
        """Delete a topic and what was committed of it."""
        self.topics.pop(name)
        for group in self.groups.values():
            for partition in [p for p in group.committed if p.topic == name]:
                del group.committed[partition]

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Let another node be the coordinator: it loads its groups first, as they were last written."""
        self.node_id = node_id
        self._loading_until = now + loading_s
        for group in self.groups.values():
            group.unload()
            group.load(now + loading_s)
        return self._released()

    # ---- time ----

    def timers(self) -> list[tuple[str, Timer]]:
        """Everything that runs, with its group: the soonest first."""
        return sorted(
            ((group_id, timer) for group_id, group in self.groups.items() for timer in group.timers()),
            key=lambda one: (one[1].at, one[0], one[1].kind.value, one[1].member_id),
        )

    def fire(self, group_id: str, timer: Timer, now: Instant) -> list[Released]:
        """End what one of `timers` ends, be it due or not: an exploration has no clock."""
        self.groups[group_id].fire(timer, now)
        return self._released()

    def pass_time(self, now: Instant) -> list[Released]:
        """Let what is due end, each thing at most once; what starts thereby and is due too comes with the next call."""
        released: list[Released] = []
        for group_id, timer in self.timers():
            if timer.at <= now and timer in self.groups[group_id].timers():
                released += self.fire(group_id, timer, now)
        return released

    def next_deadline(self) -> Instant | None:
        """When `pass_time` has something to do."""
        return min((timer.at for _, timer in self.timers()), default=None)

    # ---- looking at it ----

    def waiting(self) -> frozenset[Key]:
        """The keys of the requests that will be answered later."""
        return frozenset().union(*(group.waiting() for group in self.groups.values()))

    def key(self) -> Hashable:
        """Everything that it is and that its answers follow from, as a value: not the journal."""
        groups = frozenset((group_id, group.key()) for group_id, group in self.groups.items())
        return (self.rules, self.node_id, self._loading_until, frozenset(self.topics.items()), groups)


def _refused(request: Request, refusal: Refusal) -> Answer:
    """A refusal in the form of the request's answer."""
    match request:
        case Beat() if refusal.answer.code == code.COORDINATOR_LOAD_IN_PROGRESS:
            # A broker that does not know yet says nothing bad (rules 4.10).
            return Alive()
        case Commit():
            return CommitResults(codes=dict.fromkeys(request.offsets, refusal.answer.code))
        case _:
            return refusal.answer
