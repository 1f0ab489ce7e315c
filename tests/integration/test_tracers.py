"""OpenTelemetry's instrumentation makes the same spans and links of both clients' consumers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from consumer_membership.devbroker import Broker
from tests.integration import traced
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique


def spans(broker: Broker, when: str, whose: str) -> tuple[bool, list[object]]:
    """Return whether the consumer was this package's, and the spans of one program."""
    topic = create_topic(broker.bootstrap_servers, unique("traced"))
    command = [sys.executable, str(traced.__file__), when, whose, broker.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    is_ours, found = json.loads(done.stdout.replace(topic, "TOPIC"))
    return is_ours, found


@pytest.mark.parametrize("when", ["before", "after"])
def test_opentelemetry_spans_equal_confluent_kafka_s(broker_pool: RunBrokers, when: str) -> None:
    """The spans are equal whether the instrumentation precedes or follows the import; idle polls make no spans."""
    broker = broker_pool.shared()
    is_ours, theirs = spans(broker, when, "raw")
    assert (is_ours, len(theirs)) == (False, 5 + 2 * 3 + 2)
    for whose in ("ours", "installed"):
        assert spans(broker, when, whose) == (True, theirs)
