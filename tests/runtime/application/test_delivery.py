"""Delivery fetches one slice at a time, and returns a whole batch only if nothing stops delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic

import pytest
from confluent_kafka import Consumer, Message

from consumer_membership.config import ConsumerConfig
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.runtime.application import delivery, fetcher
from consumer_membership.runtime.application.delivery import CancelledRevocations, Delivery
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.lifetime import Lifetime, Registry
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue, PrefetchBuffer
from consumer_membership.runtime.line import Line, Snapshot
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.types import TopicPartition
from tests.clients.scripted import ScriptedMember, Thread
from tests.support.mock_cluster import MockCluster
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S, wait_until

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTLED = replace(view_of(MemberState.STABLE), owned={P0: 1})
RECONCILING = replace(SETTLED, state=MemberState.RECONCILE)
LIMIT = 5


def among(*snapshots: MembershipView) -> list[set[TopicPartition]]:
    """Return the partitions with a cancelled revocation at each view; both are frozen from the first view on."""
    cancelled = CancelledRevocations()
    frozen = {P0, P1}
    return [set(cancelled.among(frozen, Snapshot(version, view))) for version, view in enumerate(snapshots)]


def test_cancelled_revocations_are_those_of_owned_partitions_in_a_later_settled_view() -> None:
    """A later view of a settled member proves a cancelled revocation; a partition that the member lost stays frozen."""
    assert among(SETTLED, RECONCILING, SETTLED) == [set(), set(), {P0}]


def test_cancelled_revocations_start_over_with_each_freeze() -> None:
    """After a time without frozen partitions, the view of the next freeze counts, and earlier views do not."""
    cancelled = CancelledRevocations()
    cancelled.among({P0}, Snapshot(1, RECONCILING))
    cancelled.among(set(), Snapshot(2, SETTLED))
    assert cancelled.among({P0}, Snapshot(3, SETTLED)) == set()
    assert cancelled.among({P0}, Snapshot(4, SETTLED)) == {P0}


class Scene:
    """A delivery on a real handle that fetches one partition, with a scripted member."""

    def __init__(self, cluster: MockCluster, topic: str) -> None:
        given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        config = ConsumerConfig.from_mapping(given)
        self.line = Line()
        buffer = PrefetchBuffer()
        settings = ThreadSettings(
            member=config.member_settings(),
            protocols=config.protocol_settings(),
            connection=config.connection_settings(),
            start=config.start_settings(),
            progress=buffer.progress,
        )
        self.member = ScriptedMember(self.line, settings)
        self.fetcher = Fetcher(lambda: Consumer({**given, "log_level": 0}), buffer)
        self.life = Lifetime(self.fetcher, self.line.wake_up, Registry())
        log = PackageLog("consumer_membership.session", "SESSION", None)
        self.delivery = Delivery(self.fetcher, self.line, self.member, self.life, log)
        self.fetcher.replace([PartitionOffset(topic, 0, 0)])
        self.whole: HandOutQueue[list[Message]] = HandOutQueue()

    def gather(self) -> None:
        """Fetch a full batch into the buffer, or return it whole."""
        self.delivery.gather(LIMIT, PATIENCE_S, self.whole)

    def offsets(self) -> list[int | None]:
        """The offsets in the buffer."""
        return [message.offset() for message in self.delivery.buffer.ready]


@pytest.fixture
def scene(cluster: MockCluster, topic: str) -> Iterator[Scene]:
    """A delivery that is closed at the end of the test."""
    made = Scene(cluster, topic)
    yield made
    made.delivery.close()


def nothing(_: Scene) -> None:
    """Change nothing, so that delivery continues."""


def order(scene: Scene) -> None:
    """Set the wake-up, as a new order does."""
    scene.line.wake_up.set()


def lease_over(scene: Scene) -> None:
    """Let the member's lease expire before a timer notices it."""
    scene.line.show(replace(scene.line.view, lease_until=monotonic() - 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "is_whole"), [(nothing, True), (order, False), (lease_over, False)])
def test_gather_returns_a_whole_batch_only_if_nothing_stops_delivery(
    scene: Scene, stop: Callable[[Scene], None], *, is_whole: bool
) -> None:
    """A batch that bypasses the buffer would escape a revocation or the end of the lease."""
    stop(scene)
    scene.gather()
    assert (bool(scene.whole), bool(scene.delivery.buffer.ready)) == (is_whole, not is_whole)


@pytest.mark.slow
def test_wait_idle_ends_with_a_record_that_it_leaves_in_the_buffer(scene: Scene) -> None:
    """The record waits for the next slice of the call, which performs the member's orders first."""
    deadline = monotonic() + PATIENCE_S
    while not scene.delivery.buffer.ready and monotonic() < deadline:
        scene.delivery.wait_idle(deadline)
    assert scene.offsets() == [0]


@pytest.mark.slow
def test_wait_idle_ends_when_the_wake_up_is_set(scene: Scene, topic: str) -> None:
    """An order that arrives during the wait is performed after the current slice, long before the deadline."""
    scene.fetcher.replace([PartitionOffset(topic, 0, 1 << 40)])  # no record arrives
    waiting = Thread(lambda: scene.delivery.wait_idle(monotonic() + 10 * PATIENCE_S))
    wait_until(lambda: scene.delivery.buffer.turns > 0, "a slice of the wait")
    scene.line.wake_up.set()
    waiting.outcome()


@pytest.mark.slow
def test_wait_idle_leaves_available_records_to_a_larger_fetch(scene: Scene) -> None:
    """A fetch that returned records without a wait probably left others behind."""
    scene.gather()
    scene.delivery.wait_idle(monotonic() + PATIENCE_S)
    assert scene.offsets() == []


@pytest.mark.slow
@pytest.mark.parametrize(("least_wait_s", "is_drained"), [(0.0, True), (2 * PATIENCE_S, False)])
def test_handle_counts_as_drained_after_a_wait_for_its_record(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, least_wait_s: float, *, is_drained: bool
) -> None:
    """A record for which the fetch waited was the only one; a record that came without a wait may have followers."""
    monkeypatch.setattr(fetcher, "LEAST_WAIT_S", least_wait_s)
    assert scene.fetcher.is_drained
    assert scene.fetcher.wait(PATIENCE_S)
    assert scene.fetcher.is_drained == is_drained


@pytest.mark.slow
def test_wait_idle_keeps_short_slices_for_a_member_that_waits_for_something(
    scene: Scene, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order may end the wait, and a slice of librdkafka delays it."""
    monkeypatch.setitem(delivery._WHOLE_SLICES_S, True, (0.001, 0.001))
    monkeypatch.setitem(delivery._WHOLE_SLICES_S, False, (10 * PATIENCE_S, 10 * PATIENCE_S))
    scene.fetcher.replace([PartitionOffset(topic, 0, 1 << 40)])  # no record arrives
    scene.member.view = replace(SETTLED, waits_for=WaitsFor.OTHER_MEMBERS)
    waiting = Thread(lambda: scene.delivery.wait_idle(monotonic() + PATIENCE_S))
    wait_until(lambda: scene.delivery.buffer.turns > 2, "several slices")
    scene.line.wake_up.set()
    waiting.outcome()


@pytest.mark.slow
def test_gather_fetches_nothing_after_the_session_is_closed(scene: Scene) -> None:
    """Another thread may have closed the handle while this one waited for the lock."""
    scene.life.close()
    assert not scene.delivery.gather(LIMIT, PATIENCE_S, scene.whole)
    assert (scene.offsets(), list(scene.whole)) == ([], [])
