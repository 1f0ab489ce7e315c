"""The Kafka sink's errors before it writes anything, and its texts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Message

from consumer_membership.clients.group_metadata import pack_group_metadata
from consumer_membership.errors import ConfigurationError, SinkError
from consumer_membership.processing import transactional_producer as producer
from consumer_membership.spark import BatchFormat
from consumer_membership.spark.sinks import KafkaSink, OutRecord
from tests.spark.sinks.builders import Word, batch, context, use

SERVERS: dict[str, str | int | float | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({}, "bootstrap.servers"),
        (SERVERS | {"enable.idempotence": False}, "enable.idempotence"),
        (SERVERS | {"enable.idempotence": "false"}, "enable.idempotence"),
        (SERVERS | {"transactional.id": ""}, "transactional.id"),
        (SERVERS | {"group.id": "g"}, "group.id"),
        (SERVERS | {"error_cb": "print"}, "error_cb"),
        (SERVERS | {"logger": "mine"}, "logger"),
        (SERVERS | {"log_level": "loud"}, "log_level"),
    ],
)
def test_kafka_sink_refuses_impossible_keys_by_name(config: dict[str, str | int | float | bool], key: str) -> None:
    """The constructor raises on the driver."""
    with pytest.raises(ConfigurationError) as caught:
        KafkaSink(config, lambda _: ())
    assert caught.value.key == key


def test_refused_callback_is_shown_by_its_type_only() -> None:
    """The repr of a callback may contain a secret."""

    class Login:
        def __call__(self, _: str) -> tuple[str, float]:
            return "token", 0.0

        def __repr__(self) -> str:
            return "Login(secret)"

    with pytest.raises(ConfigurationError, match=r"oauth_cb.*Login") as caught:
        KafkaSink(SERVERS | {"oauth_cb": Login()}, lambda _: ())  # type: ignore[arg-type]  # a user's object
    assert "secret" not in str(caught.value)


def test_kafka_sink_refuses_arrow_batches_with_a_remedy() -> None:
    """The sink makes records from messages, so the error asks for the messages format."""
    sink = KafkaSink(SERVERS, lambda _: ())
    with pytest.raises(ConfigurationError, match="batch_format='messages'"):
        sink(batch({0: range(2)}), context({0: range(2)}, batch_format=BatchFormat.ARROW))


def test_check_use_refuses_arrow_before_a_job() -> None:
    """`check_use` raises on the driver, before a task fails."""
    with pytest.raises(ConfigurationError, match="batch_format='messages'"):
        KafkaSink(SERVERS, lambda _: ()).check_use(use(BatchFormat.ARROW, is_on_driver=False))


def test_repr_of_a_kafka_sink_has_no_password() -> None:
    """The repr appears in logs."""
    assert "secret" not in repr(KafkaSink(SERVERS | {"sasl.password": "secret"}, lambda _: ()))


@pytest.mark.slow
def test_unreachable_brokers_raise_sink_error_with_partitions_and_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names partitions and offsets, and `close` does not wait for the brokers."""
    monkeypatch.setattr(producer, "CALL_S", 0.2)
    monkeypatch.setattr(producer, "CALLS_S", 0.5)
    sink = KafkaSink(SERVERS, lambda m: [OutRecord(topic="out", value=m.value())])
    with pytest.raises(SinkError, match=r"orders-0@0..1 failed: .*; nothing was written"):
        sink(batch({0: range(2)}), context({0: range(2)}))
    sink.close()


@pytest.mark.slow
def test_close_is_bounded_if_brokers_vanish_within_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink's `close` is bounded, unlike librdkafka's, which waits for the brokers without end."""
    monkeypatch.setattr(producer, "CALL_S", 0.5)
    monkeypatch.setattr(producer, "CALLS_S", 1.0)
    cluster = subprocess.Popen(
        [sys.executable, "-c", _CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert cluster.stdout is not None
    with cluster:
        servers = cluster.stdout.readline().strip()

        def transform(message: Message) -> list[OutRecord]:
            cluster.kill()
            cluster.wait()
            return [OutRecord(topic="out", value=message.value())]

        sink = KafkaSink(SERVERS | {"bootstrap.servers": servers, "transaction.timeout.ms": 2000}, transform)
        sink.prepare(0, "pipe-0")
        word = Word(metadata=pack_group_metadata("orders-group", 5, "m", "pipe-0"))
        with pytest.raises(SinkError, match=r"orders-0@0..1"):
            sink(batch({0: range(2)}), context({0: range(2)}, ownership=word))
    sink.close()


#: A program that runs librdkafka's mock cluster until the end of stdin.
_CLUSTER = """
import sys
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "-", "log_level": 0})
(broker,) = cluster.list_topics(timeout=20).brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""
