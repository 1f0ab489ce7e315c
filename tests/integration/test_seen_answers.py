"""Broker responses of docs/project/protocol.md that tests/simulation does not cover, shown with raw requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from consumer_membership.clients.group_metadata import pack_group_metadata
from consumer_membership.devbroker import SUPPORTED_VERSIONS
from consumer_membership.devbroker.readiness import Probe
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import (
    ClassicHeartbeat,
    Joined,
    LeaveGroup,
    LeavingMember,
    Synced,
)
from consumer_membership.testing.coordinators.rules import RULES_4_4, Granted, Refused, Rules
from tests.simulation.classic.rule_scene import join
from tests.simulation.classic.scene import A, expect, sync
from tests.simulation.consumer.rule_scene import NOTHING, Member
from tests.simulation.real import RealCoordinator
from tests.simulation.under_test import TOPIC
from tests.support.brokers import RunBrokers
from tests.support.kafka import delete_topic, unique
from tests.support.kinds import BIDIRECTIONAL, SHORT_SESSIONS
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

JOIN = Heartbeat(member_id="m1", member_epoch=0, rebalance_timeout_s=60.0, topics=(TOPIC,), owned=NOTHING)
#: The error codes of a node that is not, or not yet, the group's coordinator.
NOT_YET = {code.NOT_COORDINATOR, code.COORDINATOR_NOT_AVAILABLE, code.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.fixture
def coordinator(broker_pool: RunBrokers) -> Iterator[RealCoordinator[Rules]]:
    """A broker's coordinator of a new group, with the topic of the rule tests."""
    with_group = RealCoordinator(broker_pool.shared().bootstrap_servers, RULES_4_4)
    yield with_group
    with_group.close()


@pytest.fixture
def converting(broker_pool: RunBrokers) -> Iterator[RealCoordinator[Rules]]:
    """A broker's coordinator that converts groups with members."""
    with_group = RealCoordinator(broker_pool.shared(properties=BIDIRECTIONAL).bootstrap_servers, RULES_4_4)
    yield with_group
    with_group.close()


def test_librdkafka_ends_if_its_instance_id_is_held(coordinator: RealCoordinator[Rules]) -> None:
    """Rules 3.3: The replacement of a process that released nothing is refused, and its first error is fatal."""
    holder = Member(coordinator, "m1", "i")
    holder.has_all()
    replacement = Consumer(
        {
            "bootstrap.servers": coordinator.bootstrap_servers,
            "group.id": coordinator.group_id,
            "group.instance.id": "i",
            "group.protocol": "consumer",
            "log_level": 0,
        }
    )
    replacement.subscribe([TOPIC])
    errors: list[KafkaError] = []

    def has_failed() -> bool:
        holder.heartbeat()
        message = replacement.poll(0.1)
        errors.extend(error for error in [message.error() if message is not None else None] if error is not None)
        return bool(errors)

    wait_until(has_failed, "an error of librdkafka's")
    replacement.close()
    assert errors[0].code() == KafkaError._FATAL
    assert "The instance ID is still used by another member in the consumer group" in errors[0].str()
    assert coordinator.members() == {"m1"}


def test_transaction_is_accepted_only_with_the_member_s_current_epoch(coordinator: RealCoordinator[Rules]) -> None:
    """Rules 3.8: Another epoch gets ILLEGAL_GENERATION, and a replaced member gets UNKNOWN_MEMBER_ID."""
    former, newest = Member(coordinator, "m1", "i"), Member(coordinator, "m2", "i")
    former.has_all()
    epoch = former.epoch
    codes = [_code_of_transaction(coordinator, former, "m1", at) for at in (epoch, epoch - 1, epoch + 1)]
    assert codes == [0, code.ILLEGAL_GENERATION, code.ILLEGAL_GENERATION]
    former.call(-2)
    newest.has_all()
    codes = [_code_of_transaction(coordinator, newest, member_id, newest.epoch) for member_id in ("m1", "m2")]
    assert codes == [code.UNKNOWN_MEMBER_ID, 0]


def _code_of_transaction(coordinator: RealCoordinator[Rules], holder: Member, member_id: str, epoch: int) -> int:
    """The error code of offsets that a producer commits as this member; 0 if its transaction is committed.

    The holder of the instance id sends a heartbeat meanwhile.
    """
    producer = Producer(
        {"bootstrap.servers": coordinator.bootstrap_servers, "transactional.id": unique("t"), "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    holder.heartbeat()
    metadata = pack_group_metadata(coordinator.group_id, epoch, member_id, "i")
    try:
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 1)], metadata, PATIENCE_S)
    except KafkaException as refused:
        producer.abort_transaction(PATIENCE_S)
        return int(refused.args[0].code())
    producer.commit_transaction(PATIENCE_S)
    return 0


def test_static_member_that_converts_during_a_rebalance_leaves_partitions_unassigned(
    converting: RealCoordinator[Rules],
) -> None:
    """KAFKA-21582: The coordinator computes no assignment for it until another member joins."""
    requests = (join(instance_id="i0"), join(instance_id="i1"))
    first = expect(Joined, converting.call(requests[0]))
    converting.send("second", requests[1])
    wait_until(lambda: len(converting.members()) == 2, "the second member")
    leader = expect(Joined, converting.call(join(first.member_id, instance_id="i0")))
    second = expect(Joined, converting.receive("second"))
    shares = {leader.member_id: A[:2], second.member_id: A[2:]}
    expect(Synced, converting.call(sync(leader, shares, instance_id="i0")))
    converting.call(LeaveGroup(members=(LeavingMember(second.member_id),)))
    rebalancing = ClassicHeartbeat(member_id=leader.member_id, generation=leader.generation, instance_id="i0")
    assert converting.call(rebalancing) == Refused(code.REBALANCE_IN_PROGRESS)
    member = Member(converting, "m1", "i0")
    kept = frozenset(one for one in converting.topic if one.partition < 2)
    assert member.join().assignment == kept
    group = converting.described()
    assert (group.group_epoch, group.group_state) == (group.assignment_epoch, "Stable")
    other = Member(converting, "m2")
    other.join()
    wait_until(lambda: member.whole() | other.whole() == frozenset(converting.topic), "a whole assignment")


@pytest.mark.parametrize("version", list(reversed(SUPPORTED_VERSIONS)))
def test_consumer_group_with_policy_disabled_refuses_classic_members_from_4_2_2_on(
    broker_pool: RunBrokers, version: str
) -> None:
    """B23, rules 7.1: Under the policy `disabled`, brokers before 4.2.2 admit the classic member."""
    broker = broker_pool.shared(version, properties=SHORT_SESSIONS)
    coordinator = RealCoordinator(broker.bootstrap_servers, RULES_4_4)
    Member(coordinator, "m1").join()
    answer = coordinator.call(join(instance_id="i"))
    if tuple(map(int, version.split("."))) >= (4, 2, 2):
        assert answer == Refused(code.INCONSISTENT_GROUP_PROTOCOL)
    else:
        assert expect(Joined, answer).leader_id == ""


def test_fresh_broker_is_not_coordinator_before_its_offsets_topic_exists(broker_pool: RunBrokers) -> None:
    """Rules 2.5: A group request does not create the topic of the committed offsets; FindCoordinator does."""
    with broker_pool.own() as broker:
        coordinator = RealCoordinator(broker.bootstrap_servers, RULES_4_4)
        delete_topic(broker.bootstrap_servers, "__consumer_offsets")

        def is_not_yet() -> bool:
            answer = coordinator.call(JOIN)
            return isinstance(answer, Refused) and answer.code in NOT_YET

        # The coordinator learns of the deletion later than Metadata does.
        wait_until(is_not_yet, "a refusal")
        assert is_not_yet()
        with Probe(broker.bootstrap_servers, PATIENCE_S) as probe:
            wait_until(lambda: probe.find_coordinator(coordinator.group_id)[0] == 0, "a coordinator")
        wait_until(lambda: isinstance(coordinator.call(JOIN), Granted), "a join that is answered")
