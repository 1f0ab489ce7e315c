"""The membership's log lines in the places of librdkafka's, beside confluent-kafka on the same broker."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading

import confluent_kafka
import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, unique
from tests.support.texts import is_of_busy_broker
from tests.support.waiting import PROCESS_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLASSES = {"ours": Consumer, "confluent-kafka": confluent_kafka.Consumer}
#: Joins, polls until a heartbeat was sent after the assignment, and leaves; `{module}` has the consumer's class.
PROGRAM = """
import sys
from {module} import Consumer
consumer = Consumer({{"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "debug": "cgrp"}})
consumer.subscribe([sys.argv[3]])
while not consumer.assignment():
    consumer.poll(0.1)
consumer.close()
"""


class Kept(logging.Handler):
    """Keeps each log record with its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def facilities(self) -> set[str]:
        """The facilities of the lines."""
        return {str(record.args[0]) for record in self.records if isinstance(record.args, tuple)}


def logger_of(kept: Kept) -> logging.Logger:
    """The application's logger, unregistered, so that the test runner adds no handlers to it."""
    made = logging.Logger("application", logging.DEBUG)  # noqa: LOG001 - see above
    made.addHandler(kept)
    return made


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> str:
    """An empty topic."""
    return create_topic(kafka.bootstrap_servers, unique("topic"))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("kind", CLASSES)
def test_logger_gets_group_lines_in_librdkafka_s_form_while_polling(
    kafka: Broker, topic: str, kind: str, protocol: str
) -> None:
    """The lines have librdkafka's form, thread and moment: none before the first poll, and the leave's at the close."""
    kept = Kept()
    logger = logger_of(kept)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group"), "group.protocol": protocol}
    consumer = CLASSES[kind]({**config, "debug": "cgrp"}, logger=logger)
    consumer.subscribe([topic])
    assert kept.records == []
    wait_until(
        lambda: consumer.assignment() and "HEARTBEAT" in kept.facilities(),
        "a heartbeat after the assignment",
        between=lambda: consumer.poll(0.1),
        seen=kept.facilities,
    )
    before = len(kept.records)
    consumer.close()
    assert {"CGRPJOINSTATE", "HEARTBEAT", "ASSIGN", "CGRPCOORD"} <= kept.facilities()
    assert len(kept.records) > before
    assert {record.msg for record in kept.records} == {"%s [%s] %s"}
    assert {record.thread for record in kept.records} == {threading.get_ident()}
    texts = [record.getMessage() for record in kept.records]
    assert [text for text in texts if not re.match(r"[A-Z_0-9]+ \[rdkafka#\w+-\d+\] \[thrd:.+?\]: ", text)] == []
    if kind == "ours":
        own = [text for text in texts if "#member-" in text]
        assert [text for text in own if "transitioned from" in text]
        assert len({text.split()[1] for text in own}) == 1


def test_logger_without_debug_gets_joins_and_assignments_but_no_heartbeats(kafka: Broker, topic: str) -> None:
    """Without `debug`, the logger gets the join and the assignment, and no heartbeat."""
    kept = Kept()
    logger = logger_of(kept)
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}
    with Consumer(config, logger=logger) as consumer:
        consumer.subscribe([topic])
        wait_until(consumer.assignment, "an assignment", between=lambda: consumer.poll(0.1))
    assert {record.levelno for record in kept.records if not is_of_busy_broker(record.getMessage())} == {logging.INFO}
    texts = " ".join(record.getMessage() for record in kept.records)
    assert f"Adding newly assigned partitions: {topic}-0" in texts
    assert "Revoking previously assigned partitions" in texts


@pytest.mark.parametrize("module", ["consumer_membership", "confluent_kafka"])
def test_debug_without_a_logger_writes_librdkafka_s_form_to_stderr(kafka: Broker, topic: str, module: str) -> None:
    """Tools that parse librdkafka's lines can parse these, because the form is the same."""
    arguments = [kafka.bootstrap_servers, unique("group"), topic]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module), *arguments],
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if not is_of_busy_broker(line)]
    assert [
        line for line in lines if not re.match(r"%\d\|\d+\.\d{3}\|[A-Z_0-9]+\|rdkafka#\w+-\d+\| \[thrd:", line)
    ] == []
    assert {"CGRPJOINSTATE", "ASSIGN"} <= {line.split("|")[2] for line in lines}
    if module == "consumer_membership":
        assert any("|HEARTBEAT|" in line and "#member-" in line for line in lines)
