"""The topics that match subscribed patterns: a classic member finds them itself (scenario C13).

The classic protocol has names only, so the member requests the list of all topics before it joins, and again on the
refresh interval, and joins with those that match. `config.patterns` defines the pattern languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf

from consumer_membership.membership.backoff import Backoff
from consumer_membership.membership.classic.exchanges import DescribeTopics
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.topics import compiled
from consumer_membership.types import INVALID_PATTERN_CODE, BrokerError, Instant, TopicPattern

_NOTHING: frozenset[str] = frozenset()


class SubscribedPatterns:
    """One member's patterns, the matching topics, and when the list of topics is to be requested next."""

    def __init__(
        self, event: EventContext, refresh_interval_s: float, backoff: Backoff, blacklist: tuple[str, ...] = ()
    ) -> None:
        self._event = event
        self._refresh_interval_s = refresh_interval_s
        self._blacklist = tuple(map(re.compile, blacklist))
        self._backoff = backoff
        self._patterns: frozenset[TopicPattern] = frozenset()
        self._compiled: Mapping[str, re.Pattern[str]] = {}
        #: Why this member cannot use the patterns; another subscription clears it.
        self.refusal: BrokerError | None = None
        #: The topics that match; empty until the first list is there.
        self.matched: frozenset[str] = _NOTHING
        #: Whether the list of topics has arrived since the patterns were subscribed; always true without patterns.
        self.is_resolved = True
        self.waits_since: Instant | None = None
        self._request: int | None = None
        self._refresh_at: Instant | None = None

    def subscribe(self, patterns: frozenset[TopicPattern]) -> None:
        """Replace the patterns."""
        if patterns == self._patterns:
            return
        self._patterns, self._compiled, self.refusal = patterns, {}, None
        self.matched, self._request = _NOTHING, None
        self._backoff.reset()
        self.is_resolved = not patterns
        self._refresh_at = self.waits_since = self._event.now if patterns else None
        foreign = sorted(one.text for one in patterns if one.member is None)
        if foreign:
            message = (
                f"the subscribed pattern {foreign[0]!r} is a RE2/J pattern, which brokers evaluate in groups of the "
                "consumer protocol; in this classic group the member evaluates patterns, so subscribe to a POSIX "
                "extended regular expression, as with librdkafka"
            )
            self.refusal = BrokerError(code=INVALID_PATTERN_CODE, name="INVALID_REGULAR_EXPRESSION", message=message)
        else:
            self._compiled = compiled(patterns)

    @property
    def due_at(self) -> Instant | None:
        """When the list of topics is to be requested; None: not while a request is in flight, or without a pattern."""
        return self._refresh_at if self._request is None and self._compiled else None

    def request_if_due(self) -> None:
        """Request the list of all topics, if that is due."""
        if self.due_at is not None and self._event.now >= self.due_at:
            self._request = self._event.next_request_id()
            self._event.emit(DescribeTopics(request_id=self._request, topics=None))

    def without_blacklisted(self, names: Iterable[str]) -> frozenset[str]:
        """Return the topics among these that are not blacklisted."""
        return frozenset(name for name in names if not any(one.fullmatch(name) for one in self._blacklist))

    def awaits(self, request_id: int) -> bool:
        """Return whether this is the number of the request in flight."""
        return request_id == self._request

    def listed(self, names: Iterable[str], *, again_at: Instant | None = None) -> None:
        """Match the patterns with the list, without blacklisted topics; check missing topics at `again_at`."""
        self._request = None
        self._backoff.reset()
        self._refresh_at = min(self._event.now + self._refresh_interval_s, again_at or inf)
        self.is_resolved = True
        names = self.without_blacklisted(names)
        self.matched = _NOTHING.union(*(filter(one.fullmatch, names) for one in self._compiled.values()))

    def not_listed(self) -> None:
        """Keep the known state, and request the list, which could not be fetched, after a backoff."""
        self._request = None
        self._refresh_at = self._event.now + self._backoff.next_delay()
