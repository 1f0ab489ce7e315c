"""When a handle without responses is replaced, on a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.application.handle import (
    BROKER_CHECK_AFTER_S,
    BROKER_RECHECK_S,
    LONGEST_LOST_AFTER_S,
    LOST_AFTER_ALONE_S,
    LOST_AFTER_S,
    HandleCallbacks,
    Handles,
    HandleWatch,
    Reports,
)
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.line import WakeUp


class Handle:
    """A handle, with or without brokers, that the watch checks in every slice of a poll without records."""

    def __init__(self, *, is_member: bool = True) -> None:
        self.clock = 100.0
        self.has_broker = True
        self.is_answered = True
        self.checks = 0
        self._is_member = is_member
        self._heard_at = self.clock
        self.watch = HandleWatch(self._has_broker, lambda: self.clock)

    def _has_broker(self) -> bool:
        self.checks += 1
        return self.has_broker

    def silent_for(self, seconds: float) -> list[float]:
        """Let time pass in slices without a record; return when the handle was reported lost, in seconds from now."""
        started_at, found = self.clock, []
        while self.clock < started_at + seconds:
            self.clock += 0.05
            if self.is_answered:
                self._heard_at = self.clock
            if self.watch.is_newly_lost(self._heard_at if self._is_member else None):
                found.append(round(self.clock - started_at, 2))
        return found


class TakenMeanwhile(HandOutQueue[Callable[[], object]]):
    """A queue from which another thread takes the last report before this thread does."""

    def __bool__(self) -> bool:
        return True


def test_report_that_another_polling_thread_took_is_not_an_error() -> None:
    """If two threads poll and find the same report, one calls the callback and the other returns."""
    reports = Reports(WakeUp())
    reports.waiting = TakenMeanwhile()
    called: list[str] = []
    reports.note(lambda: called.append("error_cb"))
    reports.call_waiting()
    assert called == ["error_cb"]


def test_index_error_of_a_callback_is_raised() -> None:
    """An IndexError that the user's callback raises is not mistaken for an empty queue."""
    reports = Reports(WakeUp())
    reports.note(list[int]().pop)
    with pytest.raises(IndexError):
        reports.call_waiting()


def test_handle_watch_accepts_silence_while_a_broker_is_connected() -> None:
    """An idle topic is not a loss; the watch checks for a broker only occasionally."""
    handle = Handle()
    assert handle.silent_for(600) == []
    assert handle.checks <= 600 / BROKER_CHECK_AFTER_S


def test_handle_watch_makes_no_check_while_records_arrive() -> None:
    """A handle that delivers records is not checked at all."""
    handle = Handle()
    for _ in range(100):
        assert handle.silent_for(BROKER_CHECK_AFTER_S * 0.8) == []
        handle.watch.record_received()
    assert handle.checks == 0


def test_handle_watch_reports_a_handle_without_broker_while_heartbeats_succeed() -> None:
    """Librdkafka's issue 5301: such a handle would stay without a broker forever."""
    handle = Handle()
    handle.has_broker = False
    (found,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S + 2 * BROKER_RECHECK_S)
    assert found >= BROKER_CHECK_AFTER_S + LOST_AFTER_S


def test_handle_watch_reports_no_loss_while_the_cluster_is_unreachable() -> None:
    """Another handle would find no broker either.

    After the cluster is back, librdkafka mostly reconnects on its own.
    """
    handle = Handle()
    handle.has_broker = handle.is_answered = False
    assert handle.silent_for(600) == []
    handle.is_answered = True
    assert handle.silent_for(2 * BROKER_RECHECK_S) != []


def test_handle_watch_reports_no_loss_after_a_reconnect() -> None:
    """A broker that comes back in time resets the count."""
    handle = Handle()
    handle.has_broker = False
    assert handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S * 0.8) == []
    handle.has_broker = True
    assert handle.silent_for(BROKER_CHECK_AFTER_S * 2) == []
    handle.has_broker = False
    assert handle.silent_for(LOST_AFTER_S * 0.8) == []


def test_handle_watch_doubles_the_time_for_each_new_handle_without_broker() -> None:
    """A slow or missing route to the brokers does not replace the handle every few seconds."""
    handle = Handle()
    handle.has_broker = False
    found = handle.silent_for(600)
    gaps = [after - before for before, after in pairwise(found)]
    assert handle.watch.lost_since == pytest.approx(100 + BROKER_CHECK_AFTER_S, abs=BROKER_RECHECK_S)
    assert gaps[:3] == pytest.approx([LOST_AFTER_S * 2, LOST_AFTER_S * 4, LOST_AFTER_S * 8], abs=2 * BROKER_RECHECK_S)
    assert gaps[5:] == pytest.approx([LONGEST_LOST_AFTER_S] * len(gaps[5:]), abs=3 * BROKER_RECHECK_S)
    handle.watch.record_received()
    assert handle.watch.lost_since is None
    (found_again,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S + 2 * BROKER_RECHECK_S)
    assert found_again < gaps[-1]


def test_handle_watch_waits_longer_for_manually_assigned_partitions() -> None:
    """Without heartbeats to compare with, the watch waits longer than librdkafka's longest reconnect backoff."""
    handle = Handle(is_member=False)
    handle.has_broker = False
    (found,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_ALONE_S + 2 * BROKER_RECHECK_S)
    assert found >= BROKER_CHECK_AFTER_S + LOST_AFTER_ALONE_S


def test_handle_without_gssapi_names_the_mechanism_and_the_fix() -> None:
    """Librdkafka in confluent-kafka's wheels has no GSSAPI; the constructor's error names what to compile."""
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "orders",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "log_level": 0,
    }
    handles = Handles(lambda: config, HandleCallbacks(), lambda _: None, WakeUp())
    with pytest.raises(ConfigurationError) as caught:
        handles.make()
    assert (caught.value.key, caught.value.value) == ("sasl.mechanism", "GSSAPI")
    assert "No provider for SASL mechanism GSSAPI" in str(caught.value)
    assert "build librdkafka with libsasl2 and install confluent-kafka from source" in str(caught.value)
