"""The topics that match a subscribed pattern: a classic member finds them itself (scenario C13).

The classic protocol carries names only, so that the member asks for the list of all topics before it joins, and again
on the refresh interval, and joins with those that match. As in librdkafka's classic protocol a pattern begins with `^`
and has to match from the start of a name, not to its end; the syntax is that of Python's `re`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from consumer_membership.membership.backoff import Backoff
from consumer_membership.membership.classic.leadership import DescribeTopics
from consumer_membership.types import INVALID_PATTERN_CODE, BrokerError, Instant

_NOTHING: frozenset[str] = frozenset()


class SubscribedPattern:
    """One member's pattern, what it matches, and when the list of topics is to be asked for next."""

    def __init__(self, refresh_interval_s: float, backoff: Backoff) -> None:
        self._refresh_interval_s = refresh_interval_s
        self._backoff = backoff
        self._text: str | None = None
        self._compiled: re.Pattern[str] | None = None
        #: Why the pattern is none; another subscription leads out of it.
        self.refusal: BrokerError | None = None
        #: The topics that match; empty until the first list is there.
        self.matched: frozenset[str] = _NOTHING
        #: Whether the list of topics has come since the pattern was subscribed; always so without a pattern.
        self.is_resolved = True
        self.waits_since: Instant | None = None
        self._request: int | None = None
        self._refresh_at: Instant | None = None

    def subscribe(self, text: str | None, now: Instant) -> None:
        """Take this pattern (None: no pattern) in the place of the former one."""
        if text == self._text:
            return
        self._text, self._compiled, self.refusal = text, None, None
        self.matched, self._request = _NOTHING, None
        self._backoff.reset()
        self.is_resolved = text is None
        self._refresh_at = self.waits_since = None if text is None else now
        if text is None:
            return
        try:
            self._compiled = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            # `re` raises the latter two for repetitions without measure and for parentheses without end.
            words = f"the subscribed pattern {text!r} is no regular expression of Python's `re`: {error}"
            self.refusal = BrokerError(
                code=INVALID_PATTERN_CODE, name="INVALID_REGULAR_EXPRESSION", message=f"{words}; subscribe another one"
            )

    @property
    def due_at(self) -> Instant | None:
        """When the list of topics is to be asked for; None: not while it is being asked for, or without a pattern."""
        return self._refresh_at if self._request is None and self._compiled is not None else None

    def ask(self, request_id: int) -> DescribeTopics:
        """Ask for the list of all topics."""
        self._request = request_id
        return DescribeTopics(request_id=request_id, topics=None)

    def awaits(self, request_id: int) -> bool:
        """Whether this is the number of the question that is under way."""
        return request_id == self._request

    def listed(self, names: Iterable[str], now: Instant) -> None:
        """The list is there."""
        self._request = None
        self._backoff.reset()
        self._refresh_at = now + self._refresh_interval_s
        self.is_resolved = True
        if self._compiled is not None:
            self.matched = frozenset(filter(self._compiled.match, names))

    def not_listed(self, now: Instant) -> None:
        """The list could not be had: what is known stays, and it is asked for again after a backoff."""
        self._request = None
        self._refresh_at = now + self._backoff.next_delay()
