"""Epochs of consumer-protocol members on real brokers: fences, repeated heartbeats and handovers (KIP-848)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.rules import RULES_4_4, Rules
from consumer_membership.types import Assignment
from tests.simulation.consumer.rule_scene import NOTHING, Member
from tests.simulation.real import RealCoordinator
from tests.simulation.under_test import PARTITIONS, TOPIC
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

HALF = PARTITIONS // 2


@pytest.fixture(params=[NEWEST, OLDEST])
def version(request: pytest.FixtureRequest) -> str:
    """The broker's version."""
    return str(request.param)


@pytest.fixture
def coordinator(broker_pool: RunBrokers, version: str) -> Iterator[RealCoordinator[Rules]]:
    """A broker's coordinator of a new group, whose sessions end after 6 s."""
    broker = broker_pool.shared(version, properties=SHORT_SESSIONS)
    with_group = RealCoordinator(broker.bootstrap_servers, RULES_4_4)
    yield with_group
    with_group.close()


def member(coordinator: RealCoordinator[Rules], instance_id: str | None = None, **config: object) -> Worker:
    """A consumer of the coordinator's group."""
    given: dict[str, Any] = {"group_protocol": "consumer", "group_instance_id": instance_id, **config}
    return Worker(coordinator.bootstrap_servers, coordinator.group_id, [TOPIC], **given)


def second_sender(coordinator: RealCoordinator[Rules], worker: Worker, *topics: str) -> Member:
    """Sends requests with the consumer's member id and its present epoch."""
    view = worker.consumer.membership()
    sender = Member(coordinator, view.member_id, topics=topics or (TOPIC,))
    sender.epoch = view.member_epoch
    return sender


def ids_of(coordinator: RealCoordinator[Rules], worker: Worker) -> Assignment:
    """The partitions that the consumer owns, by topic id."""
    numbers = {partition for _, partition in worker.owned}
    return frozenset(one for one in coordinator.topic if one.partition in numbers)


def test_b06_place_of_a_static_member_that_does_not_return_is_free_after_its_session(
    coordinator: RealCoordinator[Rules],
) -> None:
    """B06: After -2 the other member keeps its own half; it receives the rest when the session is over."""
    with member(coordinator, "stays") as stays:
        with member(coordinator, "goes") as goes:
            stays.settled(HALF)
            goes.settled(HALF)
            goes_id = goes.consumer.memberid()
        assert goes_id in coordinator.members()
        assert len(stays.owned) == HALF
        stays.settled(PARTITIONS)
        assert coordinator.members() == {stays.consumer.memberid()}
        assert (stays.notes.errors, stays.notes.named("lost")) == ([], [])


def test_b09_member_with_an_outdated_epoch_is_fenced_and_rejoins(
    coordinator: RealCoordinator[Rules], version: str
) -> None:
    """B09, rules 3.1: FENCED_MEMBER_EPOCH loses all partitions; the member joins again with epoch 0.

    From 4.2 on it keeps its member id. Before, the coordinator refuses epoch 0 of a member that it knows, so the member
    leaves with its id and joins with a new one. Another client sends heartbeats in its name that change its
    subscription, and with that its epoch.
    """
    with member(coordinator) as fenced:
        fenced.settled(PARTITIONS)
        before = fenced.consumer.membership()
        sender = second_sender(coordinator, fenced)
        subscriptions = itertools.cycle([(TOPIC, unique("absent")), (TOPIC,)])

        def is_fenced() -> bool:
            sender.topics = next(subscriptions)
            sender.call(sender.epoch, frozenset(coordinator.topic), is_full=True)
            return fenced.consumer.metrics().membership.fences > 0

        coordinator.until(is_fenced)
        fenced.wait(lambda w: len(w.notes.named("lost")) == 1, "the loss")
        fenced.settled(PARTITIONS)
        view, metrics = fenced.consumer.membership(), fenced.consumer.metrics()
        assert fenced.notes.named("lost") == [tuple((TOPIC, number) for number in range(PARTITIONS))]
        assert (fenced.notes.named("revoke"), fenced.notes.errors) == ([], [])
        assert (view.member_id == before.member_id) is (version == NEWEST)
        assert view.member_epoch > before.member_epoch
        assert metrics.membership.fences >= 1
        assert "FENCED_MEMBER_EPOCH" in metrics.membership.heartbeat_failures
        assert coordinator.members() == {view.member_id}


def test_b11_partitions_move_only_after_the_former_owner_acknowledged(coordinator: RealCoordinator[Rules]) -> None:
    """B11, B10: While on_revoke runs, the second member receives no partition.

    Repeated complete heartbeats of the member that revokes, and of the one that waits, change nothing.
    """
    is_revoking, may_end = threading.Event(), threading.Event()

    def on_call(call: str, _: Consumer, __: list[Partition]) -> None:
        if call == "revoke":
            is_revoking.set()
            assert may_end.wait(PATIENCE_S)

    servers, group = coordinator.bootstrap_servers, coordinator.group_id
    with Worker(servers, group, [TOPIC], on_call, group_protocol="consumer") as first:
        first.settled(PARTITIONS)
        with member(coordinator) as second:
            assert is_revoking.wait(PATIENCE_S)
            # A later epoch than this one would make the repeated heartbeats outdated.
            coordinator.until(
                lambda: second.consumer.membership().member_epoch == coordinator.described().group_epoch > 0
            )
            repeated = second_sender(coordinator, first)
            revoking = [repeated.heartbeat(frozenset(coordinator.topic), is_full=True) for _ in range(2)]
            waiting = [second_sender(coordinator, second).heartbeat(NOTHING, is_full=True) for _ in range(2)]
            assert revoking[0] == revoking[1]
            assert waiting[0] == waiting[1]
            assert (first.state, second.owned) == (MemberState.RECONCILE, frozenset())
            may_end.set()
            first.settled(HALF)
            second.settled(HALF)
            assert not first.owned & second.owned
            assert (len(first.notes.named("revoke")), first.notes.named("lost")) == (1, [])
            assert (first.notes.errors, second.notes.errors) == ([], [])
            may_end.set()


def test_b10_repeated_complete_heartbeat_of_a_stable_member_changes_nothing(
    coordinator: RealCoordinator[Rules],
) -> None:
    """B10: The coordinator repeats its response, and the member notices nothing."""
    with member(coordinator) as worker:
        worker.settled(PARTITIONS)
        before = worker.consumer.membership()
        sender = second_sender(coordinator, worker)
        answers = [sender.heartbeat(ids_of(coordinator, worker), is_full=True) for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0].member_epoch == before.member_epoch
        heard_at = worker.consumer.membership().last_heartbeat_at or 0.0
        worker.wait(lambda w: (w.consumer.membership().last_heartbeat_at or 0.0) > heard_at, "another heartbeat")
        after = worker.consumer.membership()
        assert (after.member_id, after.member_epoch, after.owned) == (
            before.member_id,
            before.member_epoch,
            before.owned,
        )
        assert (len(worker.notes.calls), worker.notes.errors) == (1, [])
