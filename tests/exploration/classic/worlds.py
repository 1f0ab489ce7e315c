"""The small worlds of classic members that are explored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.membership.classic.assignors import BUILT_IN
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.types import LeaveOption
from tests.exploration.classic.cluster import ClassicCluster, cluster_of
from tests.exploration.classic.process import ClassicProcess
from tests.exploration.classic.watch import ClassicWatch
from tests.exploration.process import TOPIC, Core, half
from tests.exploration.worlds import World
from tests.simulation.classic.rules import ClassicRules
from tests.support.members import ClassicMember

CLASSIC = "classic"
_FENCED = frozenset({"FENCED_INSTANCE_ID"})
_NETWORK = {"loss": 2, "duplicate": 1, "break": 1}
_REMOVALS = {"poll": 1, "session": 1, "crash": 1, "rebalance": 1}
_OPTIONS = (LeaveOption.DEFAULT, LeaveOption.LEAVE, LeaveOption.REMAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicWorld(World):
    """A world of classic members that all have one assignor."""

    assignor: str = "cooperative-sticky"
    rules: tuple[str, ...] = (CLASSIC,)

    def cluster(self, rules: str) -> ClassicCluster:
        """A coordinator that does not wait for a group's second member."""
        assert rules == CLASSIC, rules
        may_move = self.budgets.get("forget", 0) > 0
        return cluster_of(ClassicRules(initial_rebalance_delay_s=0.0), TOPIC, self.partitions, may_move=may_move)

    def process(self, name: str, number: int, seat: int, member_class: type[Core] | None) -> ClassicProcess:
        """A process that was just started."""
        settings = self.settings(seat)
        make = ClassicMember
        if member_class is not None:
            assert issubclass(member_class, ClassicMember)
            make = member_class
        classic = ClassicSettings(assignors=(BUILT_IN[self.assignor],))
        return ClassicProcess(
            name=name,
            number=number,
            settings=settings,
            member=make(settings, classic, jitter=half),
            application=self.application(name),
            watch=ClassicWatch(),
            may_end_with=self.may_end_with,
            leave_options=self.leave_options,
            is_slow=self.is_slow,
            overtakes=self.overtakes,
            partitions=self.partitions,
        )


CLASSIC_WORLDS: Mapping[str, ClassicWorld] = {
    world.name: world
    for world in (
        ClassicWorld(
            name="classic",
            words="2 cooperative members join; the coordinator may move",
            seats=(None, None),
            present=1,
            opening=("start",),
            budgets={"all": 1, "start": 1, "forget": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic eager",
            words="a second eager member joins, with commits, callbacks that raise, and delays between the threads",
            seats=(None, None),
            present=1,
            opening=("start",),
            assignor="sticky",
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "timeout": 1, "raise": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic slow",
            words="a second cooperative member joins, with commits, callbacks that raise, delays between the threads",
            seats=(None, None),
            present=1,
            opening=("start",),
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic leaving",
            words="one of 2 eager members leaves in any way, with commits, and comes back",
            seats=(None, None),
            opening=("leave", "subscribe"),
            assignor="range",
            auto_commit=True,
            is_slow=True,
            leave_options=(LeaveOption.DEFAULT, LeaveOption.REMAIN),
            budgets={"all": 1, "leave": 2, "subscribe": 2, "raise": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic three",
            words="a third cooperative member joins, and one of the 3 leaves",
            seats=(None, None, None),
            opening=("start",),
            partitions=3,
            budgets={"all": 1, "start": 1, "leave": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic crash",
            words="one of 3 eager members, the leader, dies, and another process comes",
            seats=(None, None, None),
            present=3,
            opening=("crash", "start"),
            assignor="roundrobin",
            partitions=3,
            budgets={"all": 2, "start": 2} | _NETWORK | _REMOVALS | {"crash": 2},
        ),
        ClassicWorld(
            name="classic static",
            words="2 members with an instance id each; they crash and restart, leave in any way, and come back",
            seats=("i0", "i1"),
            opening=("crash", "start"),
            leave_options=_OPTIONS,
            budgets={"all": 2, "start": 2, "leave": 1, "subscribe": 1, "timeout": 1, "forget": 1}
            | _NETWORK
            | _REMOVALS
            | {"crash": 2},
        ),
        ClassicWorld(
            name="classic shared",
            words="a newcomer with a living holder's instance id, beside another member",
            seats=("i0", "i1", "i0"),
            opening=("start",),
            may_end_with=_FENCED,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
        ClassicWorld(
            name="classic late",
            words="requests that were given up arrive after later ones: what must never happen, not who settles",
            seats=(None, None),
            present=1,
            opening=("start",),
            overtakes=True,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
    )
}
