"""`ApplicationLedger` counts polls, polls served from the buffer, and callbacks."""

from __future__ import annotations

from consumer_membership.metrics.application_ledger import ApplicationLedger, CallbackKind


def polled(ledger: ApplicationLedger, began_at: float, ended_at: float, waiting: int = 0, left: int = 0) -> None:
    """Record one poll that is not served from the buffer."""
    ledger.begin_poll(began_at, waiting)
    ledger.end_poll(began_at, ended_at, left)


def test_poll_interval_is_measured_between_the_starts_of_two_polls() -> None:
    """The poll interval is measured from start to start, like Java's time-between-poll."""
    ledger = ApplicationLedger()
    for began_at in (100.0, 103.0, 104.0):
        polled(ledger, began_at, began_at + 0.5)
    counts = ledger.counts(104.5, 0)
    assert (counts.poll_interval.count, counts.poll_interval.sum_s) == (2, 4.0)
    assert (counts.poll_interval.recent.greatest_s, counts.polled_at) == (3.0, 104.0)
    assert (counts.poll.count, counts.polling_s) == (3, 1.5)


def test_polls_served_from_the_buffer_share_the_interval_equally() -> None:
    """Four buffered records were delivered between two fetching polls, so the time counts as five equal intervals."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=4)
    polled(ledger, 110.0, 110.0)
    interval = ledger.counts(110.0, 5).poll_interval
    assert (interval.count, interval.sum_s, interval.recent.greatest_s) == (5, 10.0, 2.0)


def test_longest_poll_interval_includes_gaps_seen_by_samples() -> None:
    """The longest interval is at least the longest time in which samples saw no poll."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=9)
    for polls, now in ((3, 102.0), (3, 104.0), (3, 108.0), (10, 110.0)):
        ledger.sample(polls, polls, now)
    polled(ledger, 110.0, 110.0)
    assert ledger.counts(110.0, 10).poll_interval.recent.greatest_s == 6.0


def test_waiting_poll_counts_as_polling_and_idle() -> None:
    """A poll that waits for records counts as polling now, and all of its time is idle."""
    ledger = ApplicationLedger()
    ledger.begin_poll(100.0, 0)
    for now in (102.0, 110.0):
        ledger.sample(1, 0, now)
    counts = ledger.counts(120.0, 0)
    assert (counts.polled_at, counts.polling_s, counts.idle_ratio) == (120.0, 20.0, 1.0)
    assert counts.poll_interval.count == 0


def test_idle_ratio_is_the_share_of_time_spent_in_polls() -> None:
    """The idle ratio includes the time since the latest poll."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 101.0)
    polled(ledger, 104.0, 105.0)
    assert ledger.counts(108.0, 0).idle_ratio == 0.25


def test_poll_served_from_the_buffer_is_dated_by_the_sample_that_saw_it() -> None:
    """A poll from the buffer has the time of the sample that saw it."""
    ledger = ApplicationLedger()
    polled(ledger, 100.0, 100.0, left=9)
    ledger.sample(1, 1, 102.0)
    ledger.sample(2, 2, 104.0)
    assert ledger.counts(105.0, 2).polled_at == 104.0


def test_application_without_a_poll_has_no_idle_ratio_and_no_last_poll() -> None:
    """An application that never polled has neither an idle ratio nor a last poll, also after a sample."""
    ledger = ApplicationLedger()
    ledger.sample(0, 0, 100.0)
    counts = ledger.counts(101.0, 0)
    assert (counts.idle_ratio, counts.polled_at, counts.polling_s) == (None, None, 0.0)


def test_record_rate_is_computed_from_the_latest_samples() -> None:
    """The record rate excludes the records that were delivered before the first sample."""
    ledger = ApplicationLedger()
    for records, now in ((1000, 100.0), (1300, 102.0), (1600, 104.0)):
        ledger.sample(1, records, now)
    assert ledger.counts(105.0, 1600).records_per_s == 20.0


def test_callbacks_are_timed_separately_for_each_kind() -> None:
    """Each kind of callback has its own distribution."""
    ledger = ApplicationLedger()
    ledger.callbacks[CallbackKind.REVOKED].add(2.0, 100.0)
    counts = ledger.counts(100.0, 0)
    assert {kind.value: found.sum_s for kind, found in counts.callbacks.items()} == {
        "assigned": 0.0,
        "revoked": 2.0,
        "lost": 0.0,
    }
