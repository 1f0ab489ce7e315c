"""Durations: cumulative buckets, and recent values in Java's two samples of 30 seconds."""

from __future__ import annotations

from math import isnan

from consumer_membership.metrics.distribution import BOUNDS_S, Distribution, Durations


def test_duration_counts_in_the_first_bucket_that_it_fits_in() -> None:
    """A bound belongs to its own bucket, like Prometheus' `le`; a value above all bounds also counts."""
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


def test_recent_durations_cover_the_last_30_to_60_seconds() -> None:
    """A sample that began more than a minute ago no longer counts as recent."""
    durations = Durations()
    durations.add(4.0, 100.0)
    durations.add(2.0, 129.0)
    durations.add(1.0, 131.0)
    recent = durations.seen(140.0).recent
    assert (recent.count, recent.average_s, recent.greatest_s, recent.over_s) == (3, 7 / 3, 4.0, 40.0)
    recent = durations.seen(161.0).recent
    assert (recent.count, recent.greatest_s, recent.over_s) == (1, 1.0, 30.0)
    assert durations.seen(191.0) == Distribution(buckets=durations.seen(0.0).buckets, sum_s=7.0)


def test_recent_rate_divides_by_at_least_one_sample_period() -> None:
    """The rate divides by at least one sample period, so one duration in the first second is not one per second."""
    durations = Durations()
    durations.add(1.0, 0.0, times=3)
    assert durations.seen(1.0).recent.per_s == 0.1


def test_empty_durations_have_nan_statistics_and_a_zero_rate() -> None:
    """Empty durations have no average and no maximum, as in Java: NaN, and a rate of zero."""
    recent = Durations().seen(0.0).recent
    assert (isnan(recent.average_s), isnan(recent.greatest_s), recent.per_s) == (True, True, 0.0)


def test_note_longest_changes_only_the_maximum() -> None:
    """`note_longest` raises the maximum and leaves count and average unchanged."""
    durations = Durations()
    durations.note_longest(9.0, 0.0)
    durations.add(1.0, 1.0)
    seen = durations.seen(2.0)
    assert (seen.count, seen.recent.average_s, seen.recent.greatest_s) == (1, 1.0, 9.0)


def test_listener_receives_each_duration_after_its_registration() -> None:
    """A listener receives the durations that are added after its registration."""
    durations, received = Durations(), list[float]()
    durations.add(1.0, 0.0)
    durations.listen(received.append)
    durations.add(2.0, 0.0)
    assert received == [2.0]
