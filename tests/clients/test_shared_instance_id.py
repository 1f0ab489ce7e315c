"""Two consumers in one process with the same instance id: a warning comes before one of them is fenced."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

VARIABLE = "CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about a shared instance id."""
    return [record.getMessage() for record in caplog.records if "group.instance.id" in record.getMessage()]


def subscribed(consumers: ConsumerFactory, **config: object) -> ScriptedConsumer:
    """A consumer that requests a membership."""
    consumer = consumers(**config)
    consumer.subscribe(["t"])
    return consumer


def test_second_consumer_with_the_environment_s_instance_id_logs_a_warning(
    consumers: ConsumerFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the variable and the remedy; a consumer without a subscription does not count."""
    monkeypatch.setenv(VARIABLE, "a")
    first = subscribed(consumers)
    consumers()
    first.subscribe(["u"])
    assert warnings(caplog) == []
    subscribed(consumers).subscribe(["u"])
    (warning,) = warnings(caplog)
    assert f"group.instance.id 'a', from the environment variable {VARIABLE}, is used by two live consumers" in warning
    assert "in your code" in warning
    assert f"{VARIABLE}_POOL" in warning


def test_second_consumer_with_a_configured_instance_id_logs_a_warning(
    consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning does not mention the environment."""
    for _ in range(2):
        subscribed(consumers, group_instance_id="b")
    (warning,) = warnings(caplog)
    assert "group.instance.id 'b' is used by two live consumers of group 'group'" in warning


def test_closed_or_different_members_cause_no_shared_instance_id_warning(
    consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """A closed consumer no longer counts; another group, another id or no id is another member."""
    subscribed(consumers, group_instance_id="c").close()
    abandoned = ScriptedConsumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "group", "group.instance.id": "c"})
    abandoned.subscribe(["t"])
    del abandoned
    subscribed(consumers, group_instance_id="c")
    subscribed(consumers, group_instance_id="c", group_id="other")
    subscribed(consumers, group_instance_id="d")
    subscribed(consumers)
    subscribed(consumers)
    assert warnings(caplog) == []


def _warned_in_child(servers: str, answer: multiprocessing.SimpleQueue[int]) -> None:
    import logging  # noqa: PLC0415 - the child's

    class Count(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            answer.put(int("group.instance.id" in record.getMessage()))

    logging.getLogger("consumer_membership").addHandler(Count())
    consumer = ScriptedConsumer({"bootstrap.servers": servers, "group.id": "group", "group.instance.id": "f"})
    consumer.subscribe(["t"])
    consumer.close()
    answer.put(0)


def test_forked_child_logs_no_shared_instance_id_warning_for_the_parent_s_member(consumers: ConsumerFactory) -> None:
    """The inherited consumer belongs to the parent process, so a warning in the child cannot prevent a fence."""
    parent = subscribed(consumers, group_instance_id="f")
    # After this call librdkafka's threads are connected. A thread that looks up an address during the fork holds a lock
    # of the C library, for which the child would wait forever.
    parent.list_topics(timeout=PATIENCE_S)
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    servers = ",".join(f"{host}:{port}" for host, port in parent.member.connection.bootstrap_servers)
    child = context.Process(target=_warned_in_child, args=(servers, answer))
    child.start()
    assert answer.get() == 0
    child.join(PATIENCE_S)
    assert child.exitcode == 0
