"""`HandlerLedger` counts handler calls and requests the current numbers from the processor."""

from __future__ import annotations

from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger


def test_counts_contain_the_current_numbers_of_the_moment() -> None:
    """The numbers of lanes are requested for each snapshot, at its time."""
    ledger = HandlerLedger(lambda now: HandlerGauges(lanes=2, in_flight=1, oldest_in_flight_s=now - 95.0))
    assert ledger.counts(100.0).now == HandlerGauges(lanes=2, in_flight=1, oldest_in_flight_s=5.0)


def test_counts_do_not_change_after_the_snapshot() -> None:
    """A snapshot keeps its values while the processor continues."""
    ledger = HandlerLedger(lambda _: HandlerGauges())
    ledger.handler_time.add(0.5, 100.0)
    ledger.finished += 1
    before = ledger.counts(101.0)
    ledger.handler_time.add(2.0, 102.0)
    ledger.finished += 1
    ledger.dead_letters += 1
    after = ledger.counts(103.0)
    assert (before.finished, before.dead_letters, before.handler_time.sum_s) == (1, 0, 0.5)
    assert (after.finished, after.dead_letters, after.handler_time.sum_s) == (2, 1, 2.5)
