"""Subscriptions with a pattern, as the consumer's `subscribe` creates them."""

from __future__ import annotations

from consumer_membership.config.patterns import NotPosixError, as_written, translate
from consumer_membership.types import Subscription, TopicPattern


def to_a_member(*topics: str, pattern: str | None = None) -> Subscription:
    """Return a subscription whose pattern the member matches; the broker matches a pattern that is not valid POSIX."""
    return _with(topics, None if pattern is None else _translated(pattern))


def to_a_broker(*topics: str, pattern: str | None = None) -> Subscription:
    """Return a subscription whose pattern is sent to the broker unchanged."""
    return _with(topics, None if pattern is None else as_written(pattern))


def _with(topics: tuple[str, ...], pattern: TopicPattern | None) -> Subscription:
    patterns = frozenset[TopicPattern]() if pattern is None else frozenset({pattern})
    return Subscription(topics=frozenset(topics), patterns=patterns)


def _translated(text: str) -> TopicPattern:
    try:
        return translate(text)
    except NotPosixError:
        return as_written(text)
