"""An explored configuration: its processes, and the number of possible faults. `catalogue` has all configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from consumer_membership.assignors import BUILT_IN
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, ClassicRules, Rules
from consumer_membership.types import ConflictPolicy, LeaveOption
from tests.exploration.application import Application
from tests.exploration.classic.spontaneous_events import ClassicEvents
from tests.exploration.classic.transport import ClassicTransport
from tests.exploration.cluster import Cluster, SpontaneousEvents
from tests.exploration.consumer.hand_over import HandOverInvariants
from tests.exploration.consumer.spontaneous_events import ConsumerEvents
from tests.exploration.consumer.transport import ConsumerTransport
from tests.exploration.process import TOPIC, Process, half
from tests.simulation.process_invariants import ProcessInvariants

TOPIC_ID = UUID(int=1)
#: The rules of brokers by name: versions of the consumer protocol, and the classic protocol.
CLASSIC = "classic"
RULES: Mapping[str, Rules | ClassicRules] = {
    "4.0": RULES_4_0,
    "4.2": RULES_4_2,
    "4.4": RULES_4_4,
    # The coordinator does not wait for the second member of a group.
    CLASSIC: ClassicRules(initial_rebalance_delay_s=0.0),
}
#: The kinds of steps, each with its own budget; a fault also costs one of "all".
KINDS = (
    "all",
    "loss",
    "duplicate",
    "break",
    "raise",
    "poll",
    "timeout",
    "session",
    "rebalance",
    "forget",
    "crash",
    "start",
    "leave",
    "subscribe",
)
#: The kinds of steps that are not faults.
IN_ORDER = frozenset({"start", "leave", "subscribe"})


@dataclass(slots=True)
class MemberIds:
    """The generator of member ids of one process."""

    name: str
    made: int = 0

    def __call__(self) -> str:
        """Return a new id."""
        self.made += 1
        return f"{self.name}.{self.made}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One configuration. `slots` has the instance id of each slot; the first `present` slots begin with a process.

    `assignor` is the assignor of all members, which are then classic members; None: the members use KIP-848.

    With `is_settled`, the exploration begins after the present processes have joined and share the partitions.
    `opening` contains the names of steps: each is taken and followed by a run without faults, and the exploration
    begins at each state of this path.
    """

    name: str
    description: str
    slots: tuple[str | None, ...]
    budgets: Mapping[str, int]
    assignor: str | None = None
    partitions: int = 2
    present: int = 2
    is_settled: bool = True
    opening: tuple[str, ...] = ()
    auto_commit: bool = False
    #: Whether callbacks are those of the eager protocol.
    is_eager: bool = False
    #: Whether the application's events and the answers to OffsetFetch are delayed.
    is_slow: bool = False
    #: Whether an abandoned request may arrive after a later one; members may then not settle (`fairness`).
    overtakes: bool = False
    pool: tuple[str, ...] = ()
    policy: ConflictPolicy = ConflictPolicy.TAKEOVER
    leave_options: tuple[LeaveOption, ...] = (LeaveOption.DEFAULT,)
    may_end_with: frozenset[str] = frozenset()
    rules: tuple[str, ...] = ("4.2",)

    def settings(self, slot: int) -> MemberSettings:
        """Return the settings of a process in this slot."""
        return MemberSettings(
            group_id="g",
            instance_id=self.slots[slot],
            instance_pool=self.pool,
            conflict_policy=self.policy,
            auto_commit=self.auto_commit,
            auto_commit_interval_s=1e9,
        )

    def cluster(self, rules: str) -> Cluster:
        """Return a coordinator of a broker with these rules, without groups."""
        coordinator: GroupCoordinator
        events: SpontaneousEvents
        match RULES[rules]:
            case Rules() as known:
                coordinator, events = ConsumerCoordinator(known), ConsumerEvents()
            case ClassicRules() as classic:
                coordinator = ClassicCoordinator(classic)
                events = ClassicEvents(may_move=self.budgets.get("forget", 0) > 0)
        coordinator.create_topic(TOPIC, self.partitions, TOPIC_ID)
        return Cluster(coordinator=coordinator, events=events)

    def start(self, name: str, number: int, slot: int, make_member: Callable[..., MemberCore]) -> Process:
        """Return a process that has just subscribed and polled."""
        settings = self.settings(slot)
        transport = ConsumerTransport() if self.assignor is None else ClassicTransport()
        classic = ClassicSettings(assignors=(BUILT_IN[self.assignor or "range"],))
        protocols = ProtocolSettings(classic=classic, protocols=(transport.protocol,))
        process = Process(
            name=name,
            number=number,
            settings=settings,
            member=make_member(settings, protocols, new_member_id=MemberIds(name), jitter=half),
            transport=transport,
            application=Application(name, self.auto_commit, self.is_eager),
            invariants=ProcessInvariants(),
            hand_over=HandOverInvariants(),
            partitions=self.partitions,
            may_end_with=self.may_end_with,
            leave_options=self.leave_options,
            is_slow=self.is_slow,
            overtakes=self.overtakes,
        )
        process.subscribe()
        process.find_coordinator()
        process.canonicalise()
        return process
