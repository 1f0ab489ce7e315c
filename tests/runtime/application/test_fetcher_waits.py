"""How long the fetching handle waits."""

from __future__ import annotations

from hypothesis import given, strategies

from consumer_membership.runtime.application.fetcher import whole_ms


@given(strategies.floats(min_value=0, max_value=86_400, exclude_min=True))
def test_whole_ms_rounds_a_timeout_up_to_milliseconds(timeout_s: float) -> None:
    """confluent-kafka truncates to whole milliseconds; a remainder below 1 ms would make the caller spin."""
    waited_ms = int(whole_ms(timeout_s) * 1000)
    assert timeout_s * 1000 <= waited_ms <= timeout_s * 1000 + 1


def test_whole_ms_keeps_timeout_0() -> None:
    """`poll(0)` returns immediately."""
    assert whole_ms(0.0) == 0
