"""A static member that returns to a full classic group, beside confluent-kafka (KIP-345, KIP-389)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError

from consumer_membership.devbroker import Broker
from consumer_membership.membership.states import MemberState
from tests.integration.environments import COOPERATIVE, EAGER
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, unique
from tests.support.kinds import STRICT
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FULL = KafkaError.GROUP_MAX_SIZE_REACHED
#: As long as any test, so that the stale member is not removed by its session timeout.
LONG_MS = 300_000
_CRASHES = """
import json, sys
from confluent_kafka import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(params=[NEWEST, OLDEST])
def small(request: pytest.FixtureRequest, broker_pool: RunBrokers) -> Broker:
    """A broker whose groups take two members."""
    return broker_pool.shared(request.param, properties=STRICT)


def raw(broker: Broker, group: str, session_ms: int) -> dict[str, object]:
    """confluent-kafka's configuration of the static member a."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "group.instance.id": "a",
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": 500,
    }


@contextmanager
def crashing(broker: Broker, group: str, topic: str, session_ms: int = LONG_MS) -> Iterator[None]:
    """A static member that holds partitions, and is killed at the end of the block."""
    words = [sys.executable, "-c", _CRASHES, json.dumps(raw(broker, group, session_ms)), topic]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline().strip() in (b"", b"0"):
                assert process.poll() is None
            yield
        finally:
            process.kill()


def crashed(broker: Broker, group: str, topic: str) -> None:
    """Leave a stale static member that was killed while it held partitions."""
    with crashing(broker, group, topic):
        pass


def static(broker: Broker, group: str, topic: str, instance_id: str = "a", **config: object) -> Worker:
    """A static member in a thread."""
    given: dict[str, Any] = {**EAGER, "session_timeout_ms": LONG_MS, **config}
    return Worker(broker.bootstrap_servers, group, [topic], group_instance_id=instance_id, **given)


def test_replacement_of_a_crashed_static_member_joins_a_full_group_at_once(small: Broker) -> None:
    """The stale member is removed long before its session ends.

    A new instance id is refused, and the other member keeps its partitions.
    """
    topic, group = create_topic(small.bootstrap_servers, unique("topic"), 4), unique("group")
    with static(small, group, topic, "stays") as stays:
        stays.settled(4)
        crashed(small, group, topic)
        with static(small, group, topic, "stranger") as stranger:
            stranger.wait(lambda w: bool(w.notes.errors), "the fatal error")
            assert (stranger.notes.errors[0].code(), stranger.notes.errors[0].fatal()) == (FULL, True)
        with static(small, group, topic) as again:
            again.settled(2)
            stays.settled(2)
            assert (again.notes.errors, stays.notes.errors, stays.notes.named("lost")) == ([], [], [])


@pytest.mark.parametrize("mode", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_newest_holder_fences_the_former_one_in_a_full_group(small: Broker, mode: dict[str, Any]) -> None:
    """The former holder is still alive, ends with a fatal error and does not rejoin."""
    topic, group = create_topic(small.bootstrap_servers, unique("topic"), 4), unique("group")
    with static(small, group, topic, "stays", **mode) as stays, static(small, group, topic, **mode) as former:
        stays.settled(2)
        former.settled(2)
        with static(small, group, topic, **mode) as newest:
            former.wait(lambda w: w.state is MemberState.FATAL and bool(w.notes.errors), "its end")
            assert former.notes.errors[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNKNOWN_MEMBER_ID)
            newest.settled(2)
            stays.settled(2)
            assert newest.notes.errors == stays.notes.errors == []


def test_librdkafka_s_replacement_is_refused_until_the_stale_member_s_session_ends(small: Broker) -> None:
    """For comparison: librdkafka reports each refusal as an error that is not fatal and tries again.

    The replacement joins before the member crashes: a busy machine could start it only after the end of the session.
    """
    topic, group = create_topic(small.bootstrap_servers, unique("topic"), 4), unique("group")
    with static(small, group, topic, "stays") as stays:
        stays.settled(4)
        replacement = RawConsumer(raw(small, group, session_ms=4000))
        refusals: list[tuple[int, bool]] = []

        def poll() -> None:
            message = replacement.poll(0.02)
            error = None if message is None else message.error()
            refusals.extend([] if error is None else [(error.code(), error.fatal())])

        try:
            with crashing(small, group, topic, session_ms=4000):
                replacement.subscribe([topic])
                wait_until(lambda: refusals, "the refusal", between=poll)
            wait_until(lambda: len(replacement.assignment()) == 2, "its partitions", between=poll)
        finally:
            replacement.close()
        assert set(refusals) == {(FULL, False)}
