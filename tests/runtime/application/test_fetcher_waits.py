"""How long the fetching handle is told to wait."""

from __future__ import annotations

from hypothesis import given, strategies

from consumer_membership.runtime.application.fetcher import whole_ms


@given(strategies.floats(min_value=0, max_value=86_400, exclude_min=True))
def test_librdkafka_waits_no_shorter_than_it_is_asked_to(timeout_s: float) -> None:
    """confluent-kafka cuts to whole milliseconds; what it leaves would be spent in a loop that waits for nothing."""
    waited_ms = int(whole_ms(timeout_s) * 1000)
    assert timeout_s * 1000 <= waited_ms <= timeout_s * 1000 + 1


def test_no_time_is_no_wait() -> None:
    """poll(0) comes back at once."""
    assert whole_ms(0.0) == 0
