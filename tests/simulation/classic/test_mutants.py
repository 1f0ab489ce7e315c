"""The classic world's invariants can fail: a member or an assignor that breaks a rule is caught."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from consumer_membership.errors import InternalError
from consumer_membership.membership import effects as ef
from consumer_membership.membership.classic.assignor import Assignor, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership.classic.assignors import BUILT_IN
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.protocol import Conclusion, GroupEffect, GroupEvent
from consumer_membership.types import Instant, TopicPartition
from tests.simulation.classic.world import ClassicWorld, Violation
from tests.support.members import ClassicMember

MOST_SEEDS = 20


class _Hasty(ClassicProtocol):
    def _advance_preparing(self) -> Conclusion | None:
        if self._parts.reconciler.is_idle and self._parts.ownership.surplus():
            self._parts.begin_reconciliation(self.identity)
        self._join(self.rejoins_because or "too early")
        return self._join_if_due()


class JoinsTooEarly(ClassicMember):
    """Joins an eager group's next generation before the application has given anything up."""

    replaced: ClassVar = {"protocol": _Hasty}


class KeepsWhatItLost(ClassicMember):
    """Does not tell the application that everything is lost."""

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Leave the order out."""
        return tuple(effect for effect in super().handle(event, now) if not isinstance(effect, ef.LosePartitions))


@dataclass(frozen=True)
class Impatient:
    """Calls itself cooperative, and gives partitions to new owners before the old ones gave them up."""

    name: str = "impatient"
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.COOPERATIVE})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Nothing."""
        return None

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition]]:
        """In turns, whoever owned what."""
        return BUILT_IN["roundrobin"].assign(topics, subscriptions)


@pytest.mark.parametrize(
    ("member_class", "assignor"),
    [(JoinsTooEarly, "range"), (KeepsWhatItLost, "cooperative-sticky"), (ClassicMember, Impatient())],
    ids=["joins too early", "keeps what it lost", "impatient assignor"],
)
def test_broken_rule_is_caught(member_class: type[ClassicMember], assignor: str | Assignor) -> None:
    """A test that cannot fail is a defect."""
    with pytest.raises((Violation, InternalError), match=r"delivered by|cannot go from|not settled"):
        _run_seeds(member_class, assignor)


def _run_seeds(member_class: type[ClassicMember], assignor: str | Assignor) -> None:
    for seed in range(MOST_SEEDS):
        world = ClassicWorld(seed, member_class=member_class)
        world.coordinator.create_topic("a", 6)
        members = [world.start("a", assignor=assignor) for _ in range(2)]
        world.run(3.0 + world.random.random())
        members.append(world.start("a", assignor=assignor))
        world.run(3.0)
        world.remove(members[0])
        world.run(2.0)
        world.settle(20.0)
