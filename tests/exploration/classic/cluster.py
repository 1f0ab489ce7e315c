"""The classic coordinator of `tests.simulation.classic` as a part of a state."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.exploration.cluster import GROUP, TO_COME, Address, Cluster, Happening
from tests.simulation.classic.coordinator import ClassicCoordinator
from tests.simulation.classic.exchanges import Answer, Joined, Released, Request
from tests.simulation.classic.group import ClassicGroup
from tests.simulation.classic.journal import Committed, JoinsCompleted, Loaded, Replaced
from tests.simulation.classic.roster import ClassicMember
from tests.simulation.classic.rules import ClassicRules
from tests.simulation.classic.timers import InitialDelay, Timer, TimerKind
from tests.simulation.classic.written import WrittenGroup
from tests.simulation.coordinator import Removed

#: Where answers go that nobody waits for, and those that are given at once.
NOBODY = Address("", 0)
AT_ONCE = Address("", 1)
_TIMERS = {"end_session": TimerKind.SESSION, "end_joins": TimerKind.JOIN, "end_syncs": TimerKind.SYNC}


class Asked(NamedTuple):
    """A request, and where its answer goes."""

    address: Address
    request: Request


@dataclass(slots=True, kw_only=True)
class ClassicCluster(Cluster):
    """The coordinator, and what it did last."""

    coordinator: ClassicCoordinator
    #: Whether another broker may become the coordinator: else what is written for that does not matter.
    may_move: bool

    # ---- requests ----

    def execute(self, question: Asked) -> Answer | None:
        """Handle a request; None: its answer has to wait."""
        waited = {*self.coordinator.waiting(), question.address}
        released = self.coordinator.ask(question.address, GROUP, question.request, 0.0)
        own = next((one.answer for one in released if one.key == question.address), None)
        self._take(waited, released, own=question.address)
        return own

    def _take(self, waited: set[Hashable], released: list[Released], *, own: Address | None = None) -> None:
        joined = {one.answer.member_id for one in released if isinstance(one.answer, Joined)}
        for key, answer in released:
            assert isinstance(key, Address)
            if key not in (own, NOBODY):
                self.released.append((key, answer))
        gone = waited - self.coordinator.waiting() - {one.key for one in released} - {NOBODY}
        self.dropped += sorted(one for one in gone if isinstance(one, Address))
        self._take_journal(joined)

    def _take_journal(self, joined: set[str]) -> None:
        """Who is out without being asked, and a static member that a generation goes on without."""
        for _, entry in self.coordinator.journal:
            match entry:
                case Removed():
                    self.removed.append(entry.member_id)
                case Replaced():
                    self.removed.append(entry.former_id)
                case JoinsCompleted():
                    self.removed += [one for one in entry.members if one not in joined]
                case Committed():
                    self.committed.append((entry.member_id, frozenset(entry.offsets)))
                case _:
                    pass
        self.coordinator.journal.clear()

    # ---- by itself ----

    def happenings(self) -> Iterator[Happening]:
        """What may happen next."""
        group = self.group
        if group is None:
            return
        roster = group.roster
        for member in roster.members.values():
            if not member.satisfies_heartbeat:
                about = (member.member_id, *_asker(member))
                yield Happening("end_session", about, "session", is_long=True)
        for member_id in roster.pending:
            yield Happening("end_session", (member_id,), "session", is_long=True)
        if group.initial_delay is not None:
            yield Happening("end_joins")
        elif group.join_ends_at is not None:
            missing = tuple(one.member_id for one in roster.members.values() if one.join is None)
            yield Happening("end_joins", (*missing, *roster.pending), "rebalance", is_long=True)
        if group.sync_ends_at is not None:
            yield Happening("end_syncs", tuple(sorted(group.pending_sync)), "rebalance", is_long=True)
        yield Happening("move", budget="forget")

    def happen(self, happening: Happening) -> None:
        """Let it happen."""
        coordinator, group = self.coordinator, self.group
        assert group is not None
        waited = set(coordinator.waiting())
        if happening.name == "move":
            before = set(group.roster.members)
            released = coordinator.move(coordinator.node_id, 0.0, loading_s=0.0)
            coordinator._loading_until = None
            loaded = next(entry for _, entry in coordinator.journal if isinstance(entry, Loaded))
            self.removed += sorted(before - set(loaded.members))
        else:
            kind = _TIMERS[happening.name]
            member_id = happening.about[0] if kind is TimerKind.SESSION else ""
            released = coordinator.fire(GROUP, Timer(0.0, kind, member_id), 0.0)
        self._take(waited, released)

    # ---- its place ----

    @property
    def group(self) -> ClassicGroup | None:
        """The group, if it exists."""
        return self.coordinator.groups.get(GROUP)

    def canonicalise(self) -> None:
        """Put every time in its place."""
        group = self.group
        if group is None:
            return
        group.committed.clear()
        if not self.may_move:
            group.written = WrittenGroup()
        group.join_ends_at = None if group.join_ends_at is None else TO_COME
        group.sync_ends_at = None if group.sync_ends_at is None else TO_COME
        group.initial_delay = None if group.initial_delay is None else InitialDelay(0.0, TO_COME)
        group.roster.pending = dict.fromkeys(group.roster.pending, TO_COME)
        for member in group.roster.members.values():
            member.session_ends_at = TO_COME

    def unfinished(self, members: int) -> str | None:
        """Why the group is not settled with so many members."""
        group = self.group
        if group is None:
            return None
        known = group.roster.members
        if len(known) != members or group.roster.pending or (members and not group.is_settled):
            return f"the coordinator is not done: {group.state.value}, {sorted(known)}, {sorted(group.roster.pending)}"
        return None

    def key(self) -> Hashable:
        """Everything that its answers follow from; the order of its members counts."""
        return self.coordinator.key()


def _asker(member: ClassicMember) -> tuple[str, ...]:
    """The process whose request waits: it may not know its member id."""
    keys = (member.join, member.sync)
    return tuple(one.name for one in keys if isinstance(one, Address) and one != NOBODY)


def cluster_of(rules: ClassicRules, topic: str, partitions: int, *, may_move: bool) -> ClassicCluster:
    """A coordinator without groups."""
    coordinator = ClassicCoordinator(rules)
    coordinator.create_topic(topic, partitions)
    return ClassicCluster(coordinator=coordinator, may_move=may_move)
