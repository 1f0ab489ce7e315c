"""Two consumers of one process that are to be the same static member: it is said before one of them is fenced."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer

pytestmark = pytest.mark.slow

VARIABLE = "CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of it."""
    return [record.getMessage() for record in caplog.records if "group.instance.id" in record.getMessage()]


def subscribed(consumers: ConsumerFactory, **config: object) -> ScriptedConsumer:
    """A consumer that wants to be a member."""
    consumer = consumers(**config)
    consumer.subscribe(["t"])
    return consumer


def test_second_consumer_with_the_environments_id_is_warned(
    consumers: ConsumerFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the variable and what to do; a consumer that only asks the cluster does not count."""
    monkeypatch.setenv(VARIABLE, "a")
    first = subscribed(consumers)
    consumers()
    first.subscribe(["u"])
    assert warnings(caplog) == []
    subscribed(consumers).subscribe(["u"])
    (said,) = warnings(caplog)
    assert f"group.instance.id 'a', from the environment variable {VARIABLE}, is used by two live consumers" in said
    assert "in the program" in said
    assert f"{VARIABLE}_POOL" in said


def test_id_of_the_program_is_warned_of_too(consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture) -> None:
    """Without a word of the environment."""
    for _ in range(2):
        subscribed(consumers, group_instance_id="b")
    (said,) = warnings(caplog)
    assert "group.instance.id 'b' is used by two live consumers of group 'group'" in said


def test_successor_and_strangers_are_not_warned(consumers: ConsumerFactory, caplog: pytest.LogCaptureFixture) -> None:
    """One that was closed is gone; another group, another id or none is another place."""
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


def test_forked_child_has_members_of_its_own(consumers: ConsumerFactory) -> None:
    """What it inherits is another process's, whose fence it cannot prevent by a word here."""
    parent = subscribed(consumers, group_instance_id="f")
    context = multiprocessing.get_context("fork")
    answer: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    servers = ",".join(f"{host}:{port}" for host, port in parent.member.connection.bootstrap_servers)
    child = context.Process(target=_warned_in_child, args=(servers, answer))
    child.start()
    assert answer.get() == 0
    child.join(20)
    assert child.exitcode == 0
