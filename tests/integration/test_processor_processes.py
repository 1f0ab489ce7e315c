"""`Processor` with worker processes on a real broker."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest
import tenacity
from confluent_kafka import Message

from consumer_membership.devbroker import Broker
from consumer_membership.errors import HandlerError, WorkerDiedError
from tests.integration.processors import Run, committed, running
from tests.processing.process_handlers import log_call, log_lease
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ONCE = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))
TWICE = tenacity.Retrying(stop=tenacity.stop_after_attempt(2))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which the handler appends a line for each call."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("HANDLER_LOG", str(path))
    return path


def calls_in(log: Path) -> list[list[str]]:
    """Return process, key, value and attempt of each call."""
    return [line.split() for line in log.read_text().splitlines()]


def test_records_run_in_worker_processes_in_order_within_each_key(broker: Broker, log: Path) -> None:
    """Several processes handle records, those of a key in order; all offsets are committed."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [(f"k{number % 5}", str(number)) for number in range(200)])
    with running(Run(broker.bootstrap_servers, topic, group, log_call, processes=True, concurrency=2)):
        wait_until(lambda: len(calls_in(log)) >= 200, "all records", seen=lambda: len(calls_in(log)))
    values: defaultdict[str, list[int]] = defaultdict(list)
    processes = set()
    for process, key, value, attempt in calls_in(log):
        values[key].append(int(value.strip("b'")))
        processes.add(process)
        assert attempt == "1"
    assert sorted(values) == [f"b'k{number}'" for number in range(5)]
    assert all(found == sorted(found) and len(found) == 40 for found in values.values())
    assert 1 <= len(processes - {str(os.getpid())}) <= 2
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (200, "")


def test_worker_processes_find_the_lease_of_their_record(broker: Broker, log: Path) -> None:
    """The lease holds with the first record, and its token is the epoch."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t"), 1), unique("g")
    produce(broker.bootstrap_servers, topic, 5)
    run = Run(broker.bootstrap_servers, topic, group, log_lease, {"ownership.lease.enable": True}, processes=True)
    with running(run):
        wait_until(lambda: len(calls_in(log)) >= 5, "all records", seen=lambda: calls_in(log))
    assert [words[1:] for words in calls_in(log)] == [["True", "True"]] * 5


def test_end_of_a_worker_process_costs_one_attempt_of_its_record(broker: Broker, log: Path) -> None:
    """The record runs again in another process, before the next record of its key."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("k", "first"), ("k", "crash"), ("k", "last")])
    with running(Run(broker.bootstrap_servers, topic, group, log_call, processes=True, retry=TWICE)) as run:
        wait_until(lambda: len(calls_in(log)) == 4, "four calls", seen=lambda: calls_in(log))
    found = calls_in(log)
    assert [(value, attempt) for _, _, value, attempt in found] == [
        ("b'first'", "1"),
        ("b'crash'", "1"),
        ("b'crash'", "2"),
        ("b'last'", "1"),
    ]
    assert found[1][0] != found[2][0]
    assert run.processor.progress().counts.retries == 1
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (3, "")


def test_handler_beyond_its_timeout_is_killed_and_dead_lettered(broker: Broker, log: Path) -> None:
    """Its process is killed; other keys continue, and the processor does not stop."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("a", "stuck"), ("b", "other"), ("a", "next")])
    failed: list[tuple[Message, Exception, int]] = []

    def keep(record: Message, error: Exception, attempts: int) -> None:
        failed.append((record, error, attempts))

    run = Run(
        broker.bootstrap_servers,
        topic,
        group,
        log_call,
        processes=True,
        concurrency=2,
        dead_letter=keep,
        handler_timeout=5.0,
        retry=ONCE,
    )
    with running(run):
        wait_until(lambda: len(calls_in(log)) == 3, "three calls", seen=lambda: calls_in(log))
    ((record, error, attempts),) = failed
    assert (record.value(), type(error), attempts) == (b"stuck", WorkerDiedError, 1)
    assert {value for _, _, value, _ in calls_in(log)[:2]} == {"b'stuck'", "b'other'"}
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (3, "")


def test_error_of_a_handler_in_a_process_stops_the_processor(broker: Broker, log: Path) -> None:
    """The cause is the handler's own exception, with the stack trace of the worker process."""
    topic, group = create_topic(broker.bootstrap_servers, unique("t")), unique("g")
    produce(broker.bootstrap_servers, topic, [("k", "first"), ("k", "broken")])
    run = Run(broker.bootstrap_servers, topic, group, log_call, processes=True, retry=TWICE)
    error = run.join()
    assert isinstance(error, HandlerError)
    assert (error.offset, type(error.__cause__)) == (1, ValueError)
    assert "process_handlers.py" in error.__cause__.__notes__[0]  # type: ignore[union-attr]
    assert len(calls_in(log)) == 3
    assert committed(broker.bootstrap_servers, group, topic, 1)[0] == (1, "")
