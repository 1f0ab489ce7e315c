"""A whole consumer with its guardian, against the coordinator of floor 3 behind a port."""

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
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A coordinator that keeps to the broker's rules, and a topic of four partitions."""
    coordinator = CoordinatorScript()
    with ScriptedBroker(coordinator, versions=VERSIONS) as running:
        coordinator.create_topic(running, TOPIC, 4)
        yield running


def consumer(broker: ScriptedBroker, folder: Path, **config: object) -> ConsumerProcess:
    """A consumer of that topic."""
    return ConsumerProcess(broker.bootstrap_servers, "g", TOPIC, folder / "log", **config)


def leaves(broker: ScriptedBroker) -> list[Received]:
    """The leaves that came."""
    return [request for request in broker.requests(HEARTBEAT) if request.entity.member_epoch < 0]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_killed_consumer_has_left(broker: ScriptedBroker, tmp_path: Path, instance_id: str | None, epoch: int) -> None:
    """As itself: its member id, and the epoch of its kind of membership."""
    with consumer(broker, tmp_path, **({"group_instance_id": instance_id} if instance_id else {})) as one:
        member_id = one.settled(4).member_id
        guardian = one.guardian()
        one.kill()
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        (leave,) = leaves(broker)
        assert (leave.entity.member_id, leave.entity.member_epoch) == (member_id, epoch)
        assert leave.entity.instance_id == instance_id
        assert len(one.guardian_lines()) == 1


def test_closed_consumer_leaves_the_guardian_nothing(broker: ScriptedBroker, tmp_path: Path) -> None:
    """One leave, the consumer's own; the guardian ends with the process."""
    with consumer(broker, tmp_path) as one:
        one.settled(4)
        guardian = one.guardian()
        one.order("close")
        assert one.process.wait(20) == 0
        wait_until(lambda: has_ended(guardian), "the guardian's end")
        assert len(leaves(broker)) == 1
        assert one.guardian_lines() == []


def test_consumer_that_nobody_closed_has_left(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The interpreter ended without close(): a death without a goodbye, too."""
    with consumer(broker, tmp_path) as one:
        member_id = one.settled(4).member_id
        one.order("exit")
        assert one.process.wait(20) == 0
        wait_until(lambda: bool(leaves(broker)), "the leave")
        assert leaves(broker)[0].entity.member_id == member_id


def test_consumer_killed_while_it_joins_has_left(broker: ScriptedBroker, tmp_path: Path) -> None:
    """The coordinator may have taken it in already; its answer came too late."""
    script = broker.script
    joined: list[Received] = []
    started = threading.Event()

    def kills_at_the_join(request: Received) -> object:
        if request.api_key == HEARTBEAT and not joined:
            joined.append(request)
            assert started.wait(20)
            killed.process.kill()
        return script(request)

    broker.script = kills_at_the_join
    with consumer(broker, tmp_path) as killed:
        started.set()
        wait_until(lambda: bool(leaves(broker)), "the leave")
        assert leaves(broker)[0].entity.member_id == joined[0].entity.member_id


def test_no_guardian_unless_asked_for(broker: ScriptedBroker, tmp_path: Path) -> None:
    """Off by default: a consumer is one process."""
    with consumer(broker, tmp_path, crash_guardian_enable="false") as one:
        one.settled(4)
        assert one.children() == []


def test_guardian_of_a_consumer_is_small_and_listens_nowhere(broker: ScriptedBroker, tmp_path: Path) -> None:
    """Under 25 MB resident, one thread, no port."""
    with consumer(broker, tmp_path) as one:
        one.settled(4)
        guardian = one.guardian()
        assert guardian.memory_info().rss < 25e6
        assert guardian.num_threads() == 1
        assert guardian.net_connections("inet") == []
        assert psutil.Process(guardian.pid).ppid() == one.process.pid
