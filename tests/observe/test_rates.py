"""The read rate of a group, computed from samples of its offsets at times that the test sets."""

from __future__ import annotations

from consumer_membership.observe.rates import Position, Rate, Rates, position_of
from consumer_membership.translation.offset_metadata import FinishedOffsets, encode
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(committed: int | None, end: int | None) -> Position:
    """Return a position."""
    return Position(committed=committed, end=end)


def test_rates_need_two_samples() -> None:
    """One sample gives no rate."""
    rates = Rates()
    assert (rates.of(P0), rates.of_all(), rates.stalled_for_s(P0)) == (None, None, None)
    rates.add(0.0, {P0: at(0, 10)})
    assert (rates.of(P0), rates.of_all()) == (None, None)


def test_rate_is_difference_over_window() -> None:
    """Samples before the window do not count; the rates of partitions add up."""
    rates = Rates(window_s=10.0)
    rates.add(0.0, {P0: at(0, 1_000), P1: at(5, 5)})
    rates.add(10.0, {P0: at(100, 1_000), P1: at(5, 25)})
    assert rates.of(P0) == Rate(consumed=10.0, produced=0.0)
    assert rates.of_all() == Rate(consumed=10.0, produced=2.0)
    rates.add(20.0, {P0: at(400, 1_000), P1: at(5, 25)})
    assert rates.of(P0) == Rate(consumed=30.0, produced=0.0)


def test_drained_in_s_requires_reading_faster_than_writing() -> None:
    """At equal rates the group never catches up (None); without lag it already has (0)."""
    assert Rate(consumed=30.0, produced=10.0).drained_in_s(100) == 5.0
    assert Rate(consumed=10.0, produced=10.0).drained_in_s(100) is None
    assert Rate(consumed=0.0, produced=0.0).drained_in_s(0) == 0.0


def test_stalled_for_s_counts_only_partition_with_lag() -> None:
    """The time starts at the last progress and ends with a commit; an idle partition never stalls."""
    rates = Rates()
    rates.add(0.0, {P0: at(5, 10), P1: at(10, 10)})
    rates.add(4.0, {P0: at(5, 12), P1: at(10, 10)})
    assert (rates.stalled_for_s(P0), rates.stalled_for_s(P1)) == (4.0, None)
    rates.add(6.0, {P0: at(6, 12), P1: at(10, 10)})
    rates.add(7.0, {P0: at(6, 12), P1: at(10, 10)})
    assert rates.stalled_for_s(P0) == 1.0


def test_rates_count_offsets_that_are_finished_beyond_the_committed_offset() -> None:
    """A partition whose committed offset is held back makes progress, also when the committed offset finally moves."""
    rates = Rates()
    rates.add(0.0, {P0: Position(committed=5, end=100)})
    rates.add(10.0, {P0: Position(committed=5, end=100, finished_beyond=40)})
    assert (rates.of(P0), rates.stalled_for_s(P0)) == (Rate(consumed=4.0, produced=0.0), 0.0)
    rates.add(15.0, {P0: Position(committed=46, end=100)})
    assert rates.of(P0) == Rate(consumed=41 / 15, produced=0.0)
    assert [one.lag for one in (Position(committed=5, end=100, finished_beyond=40), at(46, 100))] == [55, 54]


def test_position_of_reads_metadata_of_the_commit() -> None:
    """A position includes finished offsets only from valid metadata for this committed offset."""
    finished = FinishedOffsets(base=5, high=8, unfinished=(5,))
    found = OffsetAndMetadata(offset=5, metadata=encode(finished, 100))
    assert position_of(found, 9) == Position(committed=5, end=9, finished_beyond=2)
    assert position_of(OffsetAndMetadata(offset=5, metadata="note"), 9) == at(5, 9)
    assert position_of(BrokerError(code=1, name="X"), 9) == position_of(None, 9) == at(None, 9)


def test_rates_of_unknown_offsets_are_none() -> None:
    """A partition without a commit or an end has no rate, and a reset to earlier offsets is not a negative rate."""
    rates = Rates()
    rates.add(0.0, {P0: at(None, 10), P1: at(50, 100)})
    rates.add(2.0, {P0: at(4, 10), P1: at(10, 110)})
    assert rates.of(P0) is None
    assert rates.of(P1) == Rate(consumed=0.0, produced=5.0)
    assert (at(11, 10).lag, at(None, 1).lag, at(1, None).lag, at(4, 10).lag) == (None, None, None, 6)
