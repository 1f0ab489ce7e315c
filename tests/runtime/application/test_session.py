"""A session and the observer that is attached to it."""

from __future__ import annotations

import pytest

from consumer_membership.config import ConsumerConfig
from consumer_membership.runtime.application.callbacks import RebalanceListener
from consumer_membership.runtime.application.handle import HandleCallbacks
from consumer_membership.runtime.application.session import Session
from consumer_membership.runtime.cluster_access import ClusterAccess
from consumer_membership.types import LeaveOption, Subscription
from consumer_membership.wire.otlp import Point
from tests.clients.scripted import ScriptedMember
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


class Observer:
    """An observer that keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_closed: list[bool] = []
        self.session: Session

    def on_subscribed(self) -> None:
        self.calls.append("subscribed")

    def on_statistics(self, text: str) -> None:
        assert text
        self.calls.append("statistics")

    def measure(self) -> tuple[Point, ...]:
        return ()

    def on_closing(self) -> None:
        self.calls.append("closing")
        self.is_closed.append(self.session.life.is_closed)

    def on_closed(self) -> None:
        self.calls.append("closed")

    def on_dropped(self) -> None:
        self.calls.append("dropped")


def observed(**config: object) -> Observer:
    """Return the observer of an open session."""
    observer = Observer()
    given = {"group.id": "g", "bootstrap.servers": "localhost:1", "log_level": 0, **config}
    observer.session = Session(
        ConsumerConfig.from_mapping(given),
        callbacks=HandleCallbacks(),
        on_commit=None,
        access=ClusterAccess(make_thread=ScriptedMember),
        observer=observer,
    )
    return observer


def test_session_calls_its_observer_for_a_subscription_and_the_close() -> None:
    """Calls already raise when the observer stops, and a second close does not call the observer again."""
    observer = observed()
    observer.session.subscribe(Subscription(topics=frozenset({"t"})), RebalanceListener())
    observer.session.close(LeaveOption.DEFAULT)
    observer.session.close(LeaveOption.DEFAULT)
    assert observer.calls == ["subscribed", "closing", "closed"]
    assert observer.is_closed == [True]


def test_session_that_is_dropped_calls_its_observer_once() -> None:
    """The end of an unclosed consumer is not a close: nothing is committed, and the group receives no leave."""
    observer = observed()
    observer.session.abandon()
    observer.session.abandon()
    assert observer.calls == ["dropped"]


def test_statistics_reach_the_observer_without_stats_cb() -> None:
    """Metrics count librdkafka's statistics, also if the application has no `stats_cb`."""
    observer = observed(**{"statistics.interval.ms": 10})
    session = observer.session
    wait_until(lambda: "statistics" in observer.calls, "statistics", between=lambda: session.prepare(1, 0.0))
    session.close(LeaveOption.DEFAULT)
    assert observer.calls[-2:] == ["closing", "closed"]
