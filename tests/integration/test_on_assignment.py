"""User data from the leader to each member, and assignors that receive it, in real groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer as RawConsumer

from consumer_membership import Assigned, Consumer, MemberState, MemberSubscription, RebalanceProtocol, Topics
from tests.integration.assignors import Alphabetical
from tests.integration.environments import Environment, on
from tests.support.kafka import unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class Ranking:
    """Sends each member its rank and the number of members."""

    name = "ranking"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[tuple[str, int]], generation: int) -> None:
        """Send nothing to the leader."""
        del topics, owned, generation

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]] | Assigned]:
        """Assign in ranges, with the rank as user data."""
        shares = Alphabetical().assign(topics, subscriptions)
        return {
            member: Assigned(partitions=shares[member], user_data=f"{rank} of {len(shares)}".encode())
            for rank, member in enumerate(sorted(shares))
        }


class Listening(Ranking):
    """Records the assignments that its member gets, and when."""

    def __init__(self) -> None:
        self.assignments: list[tuple[int, bytes | None, frozenset[int]]] = []

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        """Record one more assignment."""
        numbers = frozenset(number for _, number in assignment.partitions)
        self.assignments.append((generation, assignment.user_data, numbers))


class Failing(Ranking):
    """Cannot parse its assignment."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        """Fail."""
        raise KeyError(assignment.user_data, generation)


@on("newest-eager", "oldest-eager")
def test_on_assignment_gets_the_assignment_and_the_leader_s_user_data(environment: Environment) -> None:
    """`on_assignment` is called before on_assign, with the generation.

    A member whose assignor lacks the method is in the same group.
    """
    group, topic = unique("group"), environment.topic(6)
    ours = [Listening(), Listening()]
    before: list[bool] = []

    def looks(call: str, consumer: Consumer, _: object) -> None:
        rank = consumers.index(consumer)
        if call == "assign" and rank < len(ours):
            before.append(ours[rank].assignments[-1][0] == consumer.membership().member_epoch)

    with ExitStack() as stack:
        members = [
            environment.member(group, [topic], looks, partition_assignment_strategy=[strategy])
            for strategy in (*ours, Ranking())
        ]
        consumers = [one.consumer for one in members]
        for one in members:
            stack.enter_context(one)
        for one in members:
            one.settled(2)
        ranked = sorted(one.consumer.memberid() or "" for one in members)
        for assignor, one in zip(ours, members, strict=False):
            view = one.consumer.membership()
            rank = ranked.index(view.member_id)
            assert assignor.assignments[-1] == (
                view.member_epoch,
                f"{rank} of 3".encode(),
                frozenset(partition for _, partition in one.owned),
            )
    assert before
    assert all(before)


@on("newest-eager")
def test_on_assignment_that_raises_ends_only_its_own_member(environment: Environment) -> None:
    """The application gets the error, and the other members get the partitions."""
    group, topic = unique("group"), environment.topic(6)
    with environment.member(group, [topic], partition_assignment_strategy=[Ranking()]) as other:
        other.settled(6)
        with environment.member(group, [topic], partition_assignment_strategy=[Failing()]) as failing:
            failing.wait(lambda w: bool(w.notes.errors), "the fatal error")
            assert "on_assignment() of the assignor 'ranking' failed: KeyError" in failing.notes.errors[0].str()
            assert failing.state is MemberState.FATAL
            other.settled(6)


@on("newest-eager")
def test_group_with_librdkafka_sends_no_user_data(environment: Environment) -> None:
    """The group votes for a built-in assignor, which sends no user data, with any leader."""
    group, topic = unique("group"), environment.topic(6)
    assignor = Listening()
    raw = RawConsumer(
        {"bootstrap.servers": environment.bootstrap_servers, "group.id": group, "session.timeout.ms": 6000}
    )
    try:
        raw.subscribe([topic])
        with environment.member(group, [topic], partition_assignment_strategy=["range", assignor]) as ours:
            ours.wait(lambda w: raw.poll(0) is None and len(w.owned) == 3 == len(raw.assignment()), "a half each")
    finally:
        raw.close()
    assert [words for _, words, _ in assignor.assignments] == []
