"""How fast a group reads, from looks at its offsets; the times are the test's."""

from __future__ import annotations

from consumer_membership.observe.rates import Position, Rate, Rates
from consumer_membership.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(committed: int | None, end: int | None) -> Position:
    """Where the group is."""
    return Position(committed=committed, end=end)


def test_one_look_gives_no_rate() -> None:
    """A speed needs two."""
    rates = Rates()
    assert (rates.of(P0), rates.of_all(), rates.still_for_s(P0)) == (None, None, None)
    rates.look(0.0, {P0: at(0, 10)})
    assert (rates.of(P0), rates.of_all()) == (None, None)


def test_rate_is_the_difference_of_the_ends_of_the_window() -> None:
    """What lies further back than the window does not count; partitions add up."""
    rates = Rates(window_s=10.0)
    rates.look(0.0, {P0: at(0, 1_000), P1: at(5, 5)})
    rates.look(10.0, {P0: at(100, 1_000), P1: at(5, 25)})
    assert rates.of(P0) == Rate(read=10.0, written=0.0)
    assert rates.of_all() == Rate(read=10.0, written=2.0)
    rates.look(20.0, {P0: at(400, 1_000), P1: at(5, 25)})
    assert rates.of(P0) == Rate(read=30.0, written=0.0)


def test_time_until_the_end_needs_a_group_that_gains() -> None:
    """As fast as it is written to is never; nothing to read is now."""
    assert Rate(read=30.0, written=10.0).drained_in_s(100) == 5.0
    assert Rate(read=10.0, written=10.0).drained_in_s(100) is None
    assert Rate(read=0.0, written=0.0).drained_in_s(0) == 0.0


def test_partition_stands_still_only_while_there_is_something_to_read() -> None:
    """Since it was last seen to move; a commit ends it, and an idle partition never stands still."""
    rates = Rates()
    rates.look(0.0, {P0: at(5, 10), P1: at(10, 10)})
    rates.look(4.0, {P0: at(5, 12), P1: at(10, 10)})
    assert (rates.still_for_s(P0), rates.still_for_s(P1)) == (4.0, None)
    rates.look(6.0, {P0: at(6, 12), P1: at(10, 10)})
    rates.look(7.0, {P0: at(6, 12), P1: at(10, 10)})
    assert rates.still_for_s(P0) == 1.0


def test_what_is_not_known_has_no_rate() -> None:
    """Nothing committed, no end, or an offset beyond the end; a group that was set back has not read backwards."""
    rates = Rates()
    rates.look(0.0, {P0: at(None, 10), P1: at(50, 100)})
    rates.look(2.0, {P0: at(4, 10), P1: at(10, 110)})
    assert rates.of(P0) is None
    assert rates.of(P1) == Rate(read=0.0, written=5.0)
    assert (at(11, 10).lag, at(None, 1).lag, at(1, None).lag, at(4, 10).lag) == (None, None, None, 6)
