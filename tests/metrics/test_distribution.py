"""Durations: buckets for good, and the latest ones in Java's two samples of 30 seconds."""

from __future__ import annotations

from math import isnan

from consumer_membership.metrics.distribution import BOUNDS_S, Distribution, Durations


def test_duration_counts_in_the_first_bucket_that_it_fits_in() -> None:
    """A bound belongs to its bucket, as Prometheus' `le` has it; what is above all bounds counts, too."""
    durations = Durations()
    for seconds in (0.0, 0.001, 0.0015, 300.0, 301.0):
        durations.add(seconds, 0.0)
    seen = durations.seen(0.0)
    assert {BOUNDS_S[place]: count for place, count in enumerate(seen.buckets[:-1]) if count} == {
        0.001: 2,
        0.0025: 1,
        300.0: 1,
    }
    assert (seen.buckets[-1], seen.count, seen.sum_s) == (1, 5, 601.0025)


def test_latest_ones_are_of_thirty_to_sixty_seconds() -> None:
    """A sample that began a minute ago is no more of the latest."""
    durations = Durations()
    durations.add(4.0, 100.0)
    durations.add(2.0, 129.0)
    durations.add(1.0, 131.0)
    recent = durations.seen(140.0).recent
    assert (recent.count, recent.average_s, recent.greatest_s, recent.over_s) == (3, 7 / 3, 4.0, 40.0)
    recent = durations.seen(161.0).recent
    assert (recent.count, recent.greatest_s, recent.over_s) == (1, 1.0, 30.0)
    assert durations.seen(191.0) == Distribution(buckets=durations.seen(0.0).buckets, sum_s=7.0)


def test_rate_divides_by_a_sample_at_least() -> None:
    """One in the first second is not one in a second."""
    durations = Durations()
    durations.add(1.0, 0.0, times=3)
    assert durations.seen(1.0).recent.per_s == 0.1


def test_none_have_no_average_and_no_longest() -> None:
    """As in Java: not a number, and no rate."""
    recent = Durations().seen(0.0).recent
    assert (isnan(recent.average_s), isnan(recent.greatest_s), recent.per_s) == (True, True, 0.0)


def test_longest_may_be_known_from_aside() -> None:
    """It counts for nothing else."""
    durations = Durations()
    durations.note_longest(9.0, 0.0)
    durations.add(1.0, 1.0)
    seen = durations.seen(2.0)
    assert (seen.count, seen.recent.average_s, seen.recent.greatest_s) == (1, 1.0, 9.0)


def test_listener_hears_of_each() -> None:
    """From then on."""
    durations, heard = Durations(), list[float]()
    durations.add(1.0, 0.0)
    durations.listen(heard.append)
    durations.add(2.0, 0.0)
    assert heard == [2.0]
