"""A consumer process with its guardian, connected to the coordinator of the simulation over TCP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.runtime.guardian.consumers import ConsumerProcess
from tests.runtime.guardian.processes import has_ended
from tests.support.coordinator_script import HEARTBEAT, VERSIONS, CoordinatorScript
from tests.support.scripted_broker import Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A coordinator with the broker's rules, and a topic of four partitions."""
    coordinator = CoordinatorScript()
    with ScriptedBroker(coordinator, versions=VERSIONS) as running:
        coordinator.create_topic(running, TOPIC, 4)
        yield running


def consumer(broker: ScriptedBroker, folder: Path, **config: object) -> ConsumerProcess:
    """Return a consumer of that topic."""
    return ConsumerProcess(broker.bootstrap_servers, "g", TOPIC, folder / "log", **config)


def leaves(broker: ScriptedBroker) -> list[Received]:
    """Return the leaves that the broker received."""
    return [request for request in broker.requests(HEARTBEAT) if request.entity.member_epoch < 0]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_guardian_leaves_for_a_killed_consumer(
    broker: ScriptedBroker, tmp_path: Path, instance_id: str | None, epoch: int
) -> None:
    """The leave has the consumer's member id, and the epoch of a dynamic or a static member."""
    with consumer(broker, tmp_path, **({"group_instance_id": instance_id} if instance_id else {})) as one:
        member_id = one.settled(4).member_id
        guardian = one.guardian()
        one.kill()
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        (leave,) = leaves(broker)
        assert (leave.entity.member_id, leave.entity.member_epoch) == (member_id, epoch)
        assert leave.entity.instance_id == instance_id
        assert len(one.guardian_lines()) == 1


def test_guardian_sends_no_leave_for_a_closed_consumer(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The broker receives only the consumer's own leave, and the guardian ends with the process."""
    with consumer(broker, tmp_path) as one:
        one.settled(4)
        guardian = one.guardian()
        one.order("close")
        assert one.process.wait(PATIENCE_S) == 0
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert len(leaves(broker)) == 1
        assert one.guardian_lines() == []


def test_guardian_leaves_for_a_consumer_that_was_not_closed(broker: ScriptedBroker, tmp_path: Path) -> None:
    """An interpreter that exits without close() sends no leave, so the guardian sends it."""
    with consumer(broker, tmp_path) as one:
        member_id = one.settled(4).member_id
        one.order("exit")
        assert one.process.wait(PATIENCE_S) == 0
        wait_until(lambda: bool(leaves(broker)), "the leave")
        assert leaves(broker)[0].entity.member_id == member_id


def test_guardian_leaves_for_a_consumer_that_was_killed_during_its_join(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The coordinator may have added the member although its response arrived too late."""
    script = broker.script
    joined: list[Received] = []
    started = threading.Event()

    def kills_at_the_join(request: Received) -> object:
        if request.api_key == HEARTBEAT and not joined:
            joined.append(request)
            assert started.wait(PATIENCE_S)
            killed.process.kill()
        return script(request)

    broker.script = kills_at_the_join
    with consumer(broker, tmp_path) as killed:
        started.set()
        wait_until(lambda: bool(leaves(broker)), "the leave")
        assert leaves(broker)[0].entity.member_id == joined[0].entity.member_id


def test_consumer_without_crash_guardian_starts_no_guardian(broker: ScriptedBroker, tmp_path: Path) -> None:
    """With crash.guardian.enable=false, a consumer is one process."""
    with consumer(broker, tmp_path, crash_guardian_enable="false") as one:
        one.settled(4)
        assert one.children() == []


def test_guardian_of_a_consumer_is_small_and_opens_no_port(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The guardian has less than 25 MB of resident memory, one thread and no port."""
    with consumer(broker, tmp_path) as one:
        one.settled(4)
        guardian = one.guardian()
        assert guardian.memory_info().rss < 25e6
        assert guardian.num_threads() == 1
        assert guardian.net_connections("inet") == []
        assert psutil.Process(guardian.pid).ppid() == one.process.pid
