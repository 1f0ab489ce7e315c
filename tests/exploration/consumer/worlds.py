"""The small worlds of KIP-848 members that are explored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.types import ConflictPolicy
from tests.exploration.consumer.cluster import ConsumerCluster, cluster_of
from tests.exploration.consumer.process import TOPIC_ID, ConsumerProcess, MemberIds
from tests.exploration.consumer.watch import ConsumerWatch
from tests.exploration.process import TOPIC, Core, half
from tests.exploration.worlds import World
from tests.simulation.rules import RULES_4_0, RULES_4_2, RULES_4_3, Rules
from tests.support.members import Member

RULES: Mapping[str, Rules] = {"4.0": RULES_4_0, "4.2": RULES_4_2, "4.3": RULES_4_3}
_CONFLICTS = frozenset({"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"})
_NETWORK = {"loss": 2, "duplicate": 1, "break": 1}
_REMOVALS = {"poll": 1, "session": 1, "crash": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerWorld(World):
    """A world of KIP-848 members."""

    def cluster(self, rules: str) -> ConsumerCluster:
        """A coordinator of a broker of this version."""
        return cluster_of(RULES[rules], TOPIC, TOPIC_ID, self.partitions)

    def process(self, name: str, number: int, seat: int, member_class: type[Core] | None) -> ConsumerProcess:
        """A process that was just started."""
        settings = self.settings(seat)
        make = Member
        if member_class is not None:
            assert issubclass(member_class, Member)
            make = member_class
        return ConsumerProcess(
            name=name,
            number=number,
            settings=settings,
            member=make(settings, new_member_id=MemberIds(name), jitter=half),
            application=self.application(name),
            watch=ConsumerWatch(),
            may_end_with=self.may_end_with,
            leave_options=self.leave_options,
            is_slow=self.is_slow,
            overtakes=self.overtakes,
        )


CONSUMER_WORLDS: Mapping[str, ConsumerWorld] = {
    world.name: world
    for world in (
        ConsumerWorld(
            name="dynamic",
            words="2 members join at once",
            seats=(None, None),
            is_settled=False,
            budgets={"all": 1, "start": 1, "forget": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        ConsumerWorld(
            name="rebalance",
            words="a second member joins, with commits, callbacks that raise, and delays between the threads",
            seats=(None, None),
            present=1,
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "start": 1, "raise": 1, "timeout": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        ConsumerWorld(
            name="leaving",
            words="one of 2 members leaves, with commits, and comes back",
            seats=(None, None),
            auto_commit=True,
            is_slow=True,
            budgets={"all": 1, "leave": 1, "subscribe": 1, "raise": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="three partitions",
            words="a second member joins, and one of the 2 leaves",
            seats=(None, None),
            partitions=3,
            present=1,
            budgets={"all": 1, "start": 1, "leave": 1, "rebalance": 1} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="static",
            words="2 members with an instance id each; they crash and restart, leave and come back",
            seats=("i0", "i1"),
            budgets={"all": 1, "start": 1, "leave": 1, "subscribe": 1, "loss": 1} | _REMOVALS,
            rules=("4.0", "4.3"),
        ),
        ConsumerWorld(
            name="shared",
            words="a newcomer with a living holder's instance id, and one more after a crash",
            seats=("i", "i"),
            present=1,
            may_end_with=_CONFLICTS,
            budgets={"all": 1, "start": 2} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="twins",
            words="2 newcomers at once with a living holder's instance id",
            seats=("i", "i", "i"),
            present=1,
            may_end_with=_CONFLICTS,
            budgets={"all": 0, "start": 2} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="waiting",
            words="a newcomer that waits until the holder of its instance id has gone",
            seats=("i", "i"),
            present=1,
            policy=ConflictPolicy.WAIT,
            may_end_with=_CONFLICTS,
            budgets={"all": 1, "start": 1, "leave": 1, "timeout": 1} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="pool",
            words="2 members claim ids of a pool of 2",
            seats=(None, None),
            is_settled=False,
            pool=("i0", "i1"),
            policy=ConflictPolicy.WAIT,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
        ConsumerWorld(
            name="late requests",
            words="requests that were given up arrive after later ones: what must never happen, not who settles",
            seats=(None, None),
            present=1,
            overtakes=True,
            budgets={"all": 1, "start": 1} | _NETWORK | _REMOVALS,
        ),
    )
}
