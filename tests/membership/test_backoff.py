"""Delays between retries."""

from __future__ import annotations

import pytest

from consumer_membership.membership.backoff import Backoff


def test_delays_double_up_to_their_bound() -> None:
    """Delays double up to the bound, as with Kafka's retry.backoff.ms and retry.backoff.max.ms."""
    backoff = Backoff(0.1, 1.0, lambda: 0.5)
    assert [round(backoff.next_delay(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, 0.08), (0.5, 0.1), (1.0, 0.12)])
def test_jitter_spreads_a_delay_by_a_fifth(drawn: float, expected: float) -> None:
    """Jitter changes each delay by at most a fifth in either direction, and no later delay (KAFKA-19813)."""
    assert round(Backoff(0.1, 1.0, lambda: drawn).next_delay(), 6) == expected


def test_reset_restarts_the_delays() -> None:
    """After a reset the delays start at the base again."""
    backoff = Backoff(0.1, 1.0, lambda: 0.5)
    backoff.next_delay()
    backoff.next_delay()
    backoff.reset()
    assert (backoff.failures, round(backoff.next_delay(), 6)) == (0, 0.1)


def test_base_above_the_bound_is_used_unchanged() -> None:
    """A base that is longer than the configured maximum is used unchanged."""
    backoff = Backoff(3.0, 1.0, lambda: 0.5)
    assert [backoff.next_delay() for _ in range(2)] == [3.0, 3.0]


def test_delays_stay_finite_after_many_failures() -> None:
    """Any number of failures gives a finite delay."""
    backoff = Backoff(0.1, 1.0, lambda: 0.5)
    backoff.failures = 100_000
    assert round(backoff.next_delay(), 6) == 1.0
