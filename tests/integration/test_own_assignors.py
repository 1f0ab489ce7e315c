"""A user's own assignor in real groups: as object and import path, elected by vote, and failing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import KafkaError

from consumer_membership import Assignor, MemberState
from tests.integration.assignors import Alphabetical, Incomplete, Raising
from tests.integration.environments import Environment, on
from tests.support.consumer_thread import Worker
from tests.support.kafka import produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OWN = "tests.integration.assignors:Alphabetical"


def by_rank(workers: list[Worker]) -> list[set[int]]:
    """The partitions of each member, in the order of member ids."""
    ranked = sorted(workers, key=lambda worker: worker.consumer.memberid() or "")
    return [{partition for _, partition in worker.owned} for worker in ranked]


#: The partitions of each of three members that share twelve.
INTERLEAVED = [set(range(rank, 12, 3)) for rank in range(3)]
CONTIGUOUS = [set(range(4 * rank, 4 * rank + 4)) for rank in range(3)]


@contextmanager
def group_of(environment: Environment, *strategies: object) -> Iterator[list[Worker]]:
    """Settled members with these strategies in their own group."""
    group, topic = unique("group"), environment.topic(12)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(environment.member(group, [topic], partition_assignment_strategy=strategy))
            for strategy in strategies
        ]
        for worker in workers:
            worker.settled(12 // len(workers))
        yield workers


@on("newest-eager", "oldest-eager")
def test_own_assignor_decides_the_assignment_of_a_group_of_three(environment: Environment) -> None:
    """The assignor is given by import path, as an object and as a class.

    The assignment of any leader is applied.
    """
    with group_of(environment, OWN, [Alphabetical()], [Alphabetical]) as workers:
        assert by_rank(workers) == INTERLEAVED
        for worker in workers:
            assert (worker.notes.errors, worker.notes.raised, worker.notes.named("lost")) == ([], [], [])


@on("newest-eager")
@pytest.mark.parametrize(
    ("strategies", "shares"),
    [
        ((f"range,{OWN}", f"range,{OWN}", f"{OWN},range"), CONTIGUOUS),
        ((f"range,{OWN}", f"{OWN},range", f"{OWN},range"), INTERLEAVED),
        ((f"range,{OWN}", f"range,{OWN}", OWN), INTERLEAVED),
    ],
    ids=["voted for range", "voted for the own one", "in common"],
)
def test_group_elects_the_assignor_that_most_members_prefer(
    environment: Environment, strategies: tuple[str, ...], shares: list[set[int]]
) -> None:
    """The vote is among the assignors that all members have."""
    with group_of(environment, *strategies) as workers:
        workers[0].wait(lambda _: by_rank(workers) == shares, "the shares of the assignor that was voted for")


@on("newest-eager", "oldest-eager")
def test_group_changes_its_assignor_by_two_rolling_restarts(environment: Environment) -> None:
    """S30: Two rolling restarts lead from range over [roundrobin, range] to roundrobin.

    No member is refused and no record is missed.
    """
    group, topic = unique("group"), environment.topic(12)
    everybody: list[Worker] = []
    with ExitStack() as stack:

        def member(strategy: str) -> Worker:
            worker = stack.enter_context(environment.member(group, [topic], partition_assignment_strategy=strategy))
            everybody.append(worker)
            return worker

        workers = [member("range") for _ in range(3)]
        for worker in workers:
            worker.settled(4)
        for strategy in ("roundrobin,range", "roundrobin"):
            for old in workers:
                produce(environment.bootstrap_servers, topic, 120)
                old.stop()
                workers = [*(worker for worker in workers if worker is not old), member(strategy)]
                for worker in workers:
                    worker.settled(4)
        workers[0].wait(lambda _: by_rank(workers) == INTERLEAVED, "what roundrobin gives to each")
        workers[0].wait(lambda _: sum(len(w.notes.records) for w in everybody) >= 720, "720 records")
    places = [(partition, offset) for w in everybody for _, partition, offset, _ in w.notes.records]
    assert (len(places), len(set(places))) == (720, 720)
    assert [error for w in everybody for error in w.notes.errors] == []


def is_told(worker: Worker) -> bool:
    """Whether the member ended because of its assignor's error."""
    return worker.state is MemberState.FATAL and bool(worker.notes.errors)


@pytest.mark.parametrize(
    ("environment", "broken", "words"),
    [
        ("newest-eager", Raising, "KeyError: 'the lag of a partition'"),
        ("oldest-eager", Incomplete, "topic-"),
    ],
    indirect=["environment"],
)
def test_leader_whose_assignor_fails_ends_and_leaves_the_group(
    environment: Environment, broken: Callable[[], Assignor], words: str
) -> None:
    """The leader ends FATAL with the assignor's error, and so does the next leader.

    A member with a working assignor remains.
    """
    group, topic = unique("group"), environment.topic(4)
    with ExitStack() as stack:

        def member(assignor: Assignor) -> Worker:
            return stack.enter_context(environment.member(group, [topic], partition_assignment_strategy=[assignor]))

        good = member(Alphabetical())
        good.settled(4)
        bad = [member(broken()), member(broken())]
        good.wait(
            lambda w: len(w.owned) in (1, 2) and all(len(other.owned) in (1, 2) for other in bad), "a group of three"
        )
        good.stop()
        for worker in bad:
            worker.wait(is_told, "the failure")
            error, *_ = worker.notes.errors
            assert (error.code(), error.fatal()) == (KafkaError._FATAL, True)
            assert "the assignor 'alphabetical' failed" in error.str()
            assert words in error.str()
        member(Alphabetical()).settled(4)
