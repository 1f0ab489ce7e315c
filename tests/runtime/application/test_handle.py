"""When a handle that is silent is made anew, on a clock of the test's own."""

from __future__ import annotations

from itertools import pairwise

import pytest

from consumer_membership.runtime.application.handle import (
    BROKER_CHECK_AFTER_S,
    BROKER_RECHECK_S,
    LONGEST_LOST_AFTER_S,
    LOST_AFTER_ALONE_S,
    LOST_AFTER_S,
    HandleWatch,
)


class Handle:
    """A handle with or without brokers, and the member beside it; looked at in every slice of a silent poll."""

    def __init__(self, *, is_member: bool = True) -> None:
        self.clock = 100.0
        self.has_broker = True
        self.is_answered = True
        self.asked = 0
        self._is_member = is_member
        self._heard_at = self.clock
        self.watch = HandleWatch(self._ask, lambda: self.clock)

    def _ask(self) -> bool:
        self.asked += 1
        return self.has_broker

    def silent_for(self, seconds: float) -> list[float]:
        """Let time pass in slices without a record; when it was found lost, in seconds from now."""
        begun, found = self.clock, []
        while self.clock < begun + seconds:
            self.clock += 0.05
            if self.is_answered:
                self._heard_at = self.clock
            if self.watch.is_newly_lost(self._heard_at if self._is_member else None):
                found.append(round(self.clock - begun, 2))
        return found


def test_silence_of_a_handle_with_a_broker_means_nothing() -> None:
    """An idle topic; it costs a question now and then."""
    handle = Handle()
    assert handle.silent_for(600) == []
    assert handle.asked <= 600 / BROKER_CHECK_AFTER_S


def test_records_keep_questions_away() -> None:
    """A handle that delivers is not asked at all."""
    handle = Handle()
    for _ in range(100):
        assert handle.silent_for(BROKER_CHECK_AFTER_S * 0.8) == []
        handle.watch.saw_record()
    assert handle.asked == 0


def test_handle_without_broker_is_found_while_heartbeats_are_answered() -> None:
    """Librdkafka's issue 5301: it would stay so for ever."""
    handle = Handle()
    handle.has_broker = False
    (found,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S + 2 * BROKER_RECHECK_S)
    assert found >= BROKER_CHECK_AFTER_S + LOST_AFTER_S


def test_away_cluster_is_no_loss_and_its_return_is_waited_for() -> None:
    """Nothing would be found by another handle; librdkafka mostly comes back by itself."""
    handle = Handle()
    handle.has_broker = handle.is_answered = False
    assert handle.silent_for(600) == []
    handle.is_answered = True
    assert handle.silent_for(2 * BROKER_RECHECK_S) != []


def test_reconnected_handle_is_left_alone() -> None:
    """A broker that came back in time ends the count."""
    handle = Handle()
    handle.has_broker = False
    assert handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S * 0.8) == []
    handle.has_broker = True
    assert handle.silent_for(BROKER_CHECK_AFTER_S * 2) == []
    handle.has_broker = False
    assert handle.silent_for(LOST_AFTER_S * 0.8) == []


def test_new_handle_without_broker_gets_more_time() -> None:
    """A way to the brokers that is slow, or is not there, does not make a new handle every few seconds."""
    handle = Handle()
    handle.has_broker = False
    found = handle.silent_for(600)
    gaps = [after - before for before, after in pairwise(found)]
    assert handle.watch.lost_since == pytest.approx(100 + BROKER_CHECK_AFTER_S, abs=BROKER_RECHECK_S)
    assert gaps[:3] == pytest.approx([LOST_AFTER_S * 2, LOST_AFTER_S * 4, LOST_AFTER_S * 8], abs=2 * BROKER_RECHECK_S)
    assert gaps[5:] == pytest.approx([LONGEST_LOST_AFTER_S] * len(gaps[5:]), abs=3 * BROKER_RECHECK_S)
    handle.watch.saw_record()
    assert handle.watch.lost_since is None
    (found_again,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_S + 2 * BROKER_RECHECK_S)
    assert found_again < gaps[-1]


def test_partitions_assigned_by_hand_have_no_heartbeats_to_compare_with() -> None:
    """It takes longer than librdkafka's own longest pause."""
    handle = Handle(is_member=False)
    handle.has_broker = False
    (found,) = handle.silent_for(BROKER_CHECK_AFTER_S + LOST_AFTER_ALONE_S + 2 * BROKER_RECHECK_S)
    assert found >= BROKER_CHECK_AFTER_S + LOST_AFTER_ALONE_S
