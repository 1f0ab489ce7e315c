"""Topics that are created, deleted or unknown, and subscriptions that change, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.integration.environments import Environment
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, delete_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_regex_subscription_includes_a_topic_created_later(environment: Environment) -> None:
    """C13, B03: The broker resolves a pattern; a topic that matches later is assigned when the broker sees it."""
    name = unique("events")
    early = create_topic(environment.bootstrap_servers, f"{name}-early", 2)
    with environment.member(unique("group"), [f"^{name}-.*"]) as worker:
        worker.settled(2)
        late = create_topic(environment.bootstrap_servers, f"{name}-late", 2)
        worker.settled(4)
        assert {topic for topic, _ in worker.owned} == {early, late}


def test_invalid_regex_is_fatal_until_the_subscription_changes(broker: Broker) -> None:
    """B03: The application gets RE2/J's error (here for a lookahead); another subscription leads out of FATAL."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    with Worker(broker.bootstrap_servers, unique("group"), ["^(?!internal).*"]) as worker:
        worker.wait(lambda w: bool(w.notes.errors) and w.state is MemberState.FATAL, "the broker's refusal")
        assert worker.notes.errors[0].code() == KafkaError.INVALID_REGULAR_EXPRESSION
        worker.order(lambda consumer: consumer.subscribe([topic]))
        worker.settled(2)


def test_unknown_topic_is_assigned_once_it_exists(environment: Environment) -> None:
    """A member of a missing topic is STABLE without partitions, and gets them when the topic is created."""
    topic = unique("later")
    with environment.member(unique("group"), [topic]) as worker:
        worker.settled(0)
        worker.wait(lambda w: bool(w.consumer.membership().missing_topics), "a look at the topics")
        words = f"subscribed topics: topic '{topic}' does not exist (UNKNOWN_TOPIC_OR_PART)"
        assert worker.consumer.membership().waits_for_text == words
        create_topic(environment.bootstrap_servers, topic, 3)
        produce(environment.bootstrap_servers, topic, 30)
        worker.settled(3)
        worker.wait(lambda w: len(w.notes.records) == 30, "30 records")


def test_deleted_topic_is_revoked_and_other_topics_continue(environment: Environment) -> None:
    """The partitions of a deleted topic are revoked; the member continues to read the others."""
    keeps = create_topic(environment.bootstrap_servers, unique("keeps"), 2)
    goes = create_topic(environment.bootstrap_servers, unique("goes"), 2)
    with environment.member(unique("group"), [keeps, goes]) as worker:
        worker.settled(4)
        delete_topic(environment.bootstrap_servers, goes)
        worker.settled(2)
        produce(environment.bootstrap_servers, keeps, 20)
        worker.wait(lambda w: len(w.notes.records) == 20, "20 records")
        assert worker.owned == {(keeps, 0), (keeps, 1)}


def test_recreated_topic_is_read_from_its_start(environment: Environment) -> None:
    """A topic that was deleted and created again is another topic: its partitions are revoked and assigned again."""
    topic = create_topic(environment.bootstrap_servers, unique("again"), 2)
    produce(environment.bootstrap_servers, topic, 20)
    with environment.member(unique("group"), [topic]) as worker:
        worker.wait(lambda w: len(w.notes.records) == 20, "20 records")
        delete_topic(environment.bootstrap_servers, topic)
        worker.settled(0)
        create_topic(environment.bootstrap_servers, topic, 2)
        produce(environment.bootstrap_servers, topic, 10)
        worker.settled(2)
        worker.wait(lambda w: len(w.notes.records) == 30, "ten more records")


def test_subscription_change_while_a_member_changes_the_assignment(environment: Environment) -> None:
    """C10, C11: Another subscription changes the assignment; `unsubscribe` leaves and `subscribe` joins again."""
    one = create_topic(environment.bootstrap_servers, unique("one"), 2)
    two = create_topic(environment.bootstrap_servers, unique("two"), 3)
    with environment.member(unique("group"), [one]) as worker:
        worker.settled(2)
        worker.order(lambda consumer: consumer.subscribe([two]))
        worker.wait(lambda w: w.owned == {(two, p) for p in range(3)}, "the other topic")
        worker.order(lambda consumer: consumer.unsubscribe())
        worker.wait(lambda w: w.state is MemberState.UNSUBSCRIBED and not w.owned, "UNSUBSCRIBED")
        worker.order(lambda consumer: consumer.subscribe([one, two]))
        worker.settled(5)


def test_unsupported_assignor_is_fatal_with_the_broker_s_text(broker: Broker) -> None:
    """H15: The error UNSUPPORTED_ASSIGNOR names the supported assignors."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 2)
    with Worker(broker.bootstrap_servers, unique("group"), [topic], group_remote_assignor="nonsense") as worker:
        worker.wait(lambda w: bool(w.notes.errors), "the fatal error")
        error = worker.notes.errors[0]
        assert (error.code(), error.fatal()) == (KafkaError.UNSUPPORTED_ASSIGNOR, True)
        assert "uniform" in error.str()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_remote_assignor_gives_each_partition_one_owner(broker: Broker, assignor: str) -> None:
    """S10: With either server assignor, each partition has exactly one owner after each join."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), 6)
    group = unique("group")
    with (
        Worker(broker.bootstrap_servers, group, [topic], group_remote_assignor=assignor) as one,
        Worker(broker.bootstrap_servers, group, [topic], group_remote_assignor=assignor) as two,
    ):
        one.settled(3)
        two.settled(3)
        assert one.owned | two.owned == {(topic, p) for p in range(6)}
