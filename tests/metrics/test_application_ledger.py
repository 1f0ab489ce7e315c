"""What is counted of an application: its polls, those that nobody counts one by one, and its callbacks."""

from __future__ import annotations

from consumer_membership.metrics.application_ledger import ApplicationLedger, CallbackKind


def polled(ledger: ApplicationLedger, began_at: float, ended_at: float, waiting: int = 0, left: int = 0) -> None:
    """One poll that fetches."""
    ledger.begin_poll(began_at, waiting)
    ledger.end_poll(began_at, ended_at, left)


def test_interval_is_from_the_beginning_of_a_poll_to_that_of_the_next() -> None:
    """As Java's time-between-poll."""
    ledger = ApplicationLedger()
    for began_at in (100.0, 103.0, 104.0):
        polled(ledger, began_at, began_at + 0.5)
    counts = ledger.counts(104.5, 0)
    assert (counts.poll_interval.count, counts.poll_interval.sum_s) == (2, 4.0)
    assert (counts.poll_interval.recent.greatest_s, counts.polled_at) == (3.0, 104.0)
    assert (counts.poll.count, counts.polling_s) == (3, 1.5)


def test_records_from_the_buffer_are_polls_of_the_same_length() -> None:
    """Four records were left and none is: four polls came in between, and this is the fifth interval's end."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=4)
    polled(ledger, 110.0, 110.0)
    interval = ledger.counts(110.0, 5).poll_interval
    assert (interval.count, interval.sum_s, interval.recent.greatest_s) == (5, 10.0, 2.0)


def test_silence_that_is_seen_from_aside_is_not_lost_in_an_average() -> None:
    """No sign of a poll came for so long: the longest interval is at least that."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=9)
    for polls, now in ((3, 102.0), (3, 104.0), (3, 108.0), (10, 110.0)):
        ledger.look(polls, polls, now)
    polled(ledger, 110.0, 110.0)
    assert ledger.counts(110.0, 10).poll_interval.recent.greatest_s == 6.0


def test_poll_that_waits_is_no_silence() -> None:
    """It polls now, and has nothing to do."""
    ledger = ApplicationLedger()
    ledger.begin_poll(100.0, 0)
    for now in (102.0, 110.0):
        ledger.look(1, 0, now)
    counts = ledger.counts(120.0, 0)
    assert (counts.polled_at, counts.polling_s, counts.idle_ratio) == (120.0, 20.0, 1.0)
    assert counts.poll_interval.count == 0


def test_idle_ratio_is_the_part_of_the_time_in_polls() -> None:
    """One second in four, the time since the latest poll included."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 101.0)
    polled(ledger, 104.0, 105.0)
    assert ledger.counts(108.0, 0).idle_ratio == 0.25


def test_poll_that_comes_from_the_buffer_is_seen_from_aside() -> None:
    """It is as old as the look that saw it."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=9)
    ledger.look(1, 1, 102.0)
    ledger.look(2, 2, 104.0)
    assert ledger.counts(105.0, 2).polled_at == 104.0


def test_application_that_never_polled_has_no_share_and_no_moment() -> None:
    """Whatever looks at it."""
    ledger = ApplicationLedger()
    ledger.look(0, 0, 100.0)
    counts = ledger.counts(101.0, 0)
    assert (counts.idle_ratio, counts.polled_at, counts.polling_s) == (None, None, 0.0)


def test_rate_of_records_is_of_the_latest_looks() -> None:
    """What came before the first look is not of them."""
    ledger = ApplicationLedger()
    for records, now in ((1000, 100.0), (1300, 102.0), (1600, 104.0)):
        ledger.look(1, records, now)
    assert ledger.counts(105.0, 1600).records_per_s == 20.0


def test_callbacks_are_timed_by_their_kind() -> None:
    """Each in a distribution of its own."""
    ledger = ApplicationLedger()
    ledger.callbacks[CallbackKind.REVOKED].add(2.0, 100.0)
    counts = ledger.counts(100.0, 0)
    assert {kind.value: found.sum_s for kind, found in counts.callbacks.items()} == {
        "assigned": 0.0,
        "revoked": 2.0,
        "lost": 0.0,
    }
