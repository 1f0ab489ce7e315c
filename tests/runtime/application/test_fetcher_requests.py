"""Requests of the handle that are divided into time slices."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer_membership.runtime.application.fetcher import in_slices


class Request:
    """A request that succeeds if one slice is long enough, on a virtual clock."""

    def __init__(self, needs_s: float, fails_after_s: float | None = None) -> None:
        self.clock = 100.0
        self.slices: list[float] = []
        self._needs_s = needs_s
        self._fails_after_s = fails_after_s

    def __call__(self, left_s: float) -> str:
        self.slices.append(round(left_s, 3))
        if self._fails_after_s is not None:
            self.clock += self._fails_after_s
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.clock += min(left_s, self._needs_s)
        if left_s < self._needs_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return "answer"

    def ask(self, timeout_s: float) -> str:
        """Send the request in slices, and return its result."""
        return in_slices(self, timeout_s, lambda: self.clock, 1.0)


def test_in_slices_doubles_the_slice_for_a_slow_response() -> None:
    """Each slice is twice as long as the one before; a broker that takes 3 s would never respond within 1 s."""
    request = Request(needs_s=3)
    assert request.ask(-1) == "answer"
    assert request.slices == [1.0, 2.0, 4.0]


def test_in_slices_raises_when_the_callers_time_is_over() -> None:
    """The last slice is cut to the remaining time, and the caller receives its error."""
    request = Request(needs_s=30)
    with pytest.raises(KafkaException) as caught:
        request.ask(2.5)
    assert request.slices == [1.0, 1.5]
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_in_slices_raises_a_failure_before_the_end_of_a_slice() -> None:
    """A failure before the end of a slice is a response and not a timeout, so it is not repeated."""
    request = Request(needs_s=1, fails_after_s=0.1)
    with pytest.raises(KafkaException):
        request.ask(-1)
    assert request.slices == [1.0]


def test_in_slices_with_timeout_0_tries_once() -> None:
    """As in confluent-kafka, a request with timeout 0 is sent once."""
    request = Request(needs_s=1)
    with pytest.raises(KafkaException):
        request.ask(0)
    assert request.slices == [0.0]
