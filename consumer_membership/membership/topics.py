"""Which subscribed topics do not exist: the errors that the application receives, and when to check again.

librdkafka's classic consumer reports each subscribed name that no topic has, and each pattern that matches none, once,
and again when that changes; otherwise a wrong name would never be noticed. `TopicWatch` does so under both protocols.
It decides when to check: with the subscription, when a topic's partitions were revoked, and periodically, more often
while a topic is missing. It delays nothing: a member joins and is assigned the partitions of existing topics.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import inf

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import LookUpTopics, Problem, TopicsAppeared
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.history import History
from consumer_membership.membership.waits import Wait, WaitsFor
from consumer_membership.types import BrokerError, Instant, Subscription, TopicPattern

#: Kafka's error code and name for a missing topic; librdkafka also reports a pattern without a match with them.
UNKNOWN_TOPIC_CODE = 3
_UNKNOWN_NAME = "UNKNOWN_TOPIC_OR_PART"
_UNKNOWN_MESSAGE = "Broker: Unknown topic or partition"
#: The intervals between checks for a missing topic: short at first, since it may be about to be created.
SOON_S, LATE_S = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A subscribed topic or pattern that cannot be read, and the reason."""

    topic: str
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChanges:
    """The result of a check."""

    #: The errors that the application receives.
    unavailable: tuple[Unavailable, ...] = ()
    #: Topics that were reported as missing, and exist now.
    appeared: tuple[str, ...] = ()


def compiled(patterns: Iterable[TopicPattern]) -> Mapping[str, re.Pattern[str]]:
    """Return the patterns that a member can match itself, for `fullmatch`, each by its text."""
    return {one.text: re.compile(one.member) for one in patterns if one.member is not None}


class TopicWatch:
    """The subscription of one member, and its missing topics.

    `refresh_s` None: it never checks periodically.
    """

    def __init__(self, event: EventContext, history: History, refresh_s: float | None, jitter: Jitter) -> None:
        self._event = event
        self._history = history
        self._refresh_s = refresh_s
        #: The latest subscription, and when it was made.
        self.subscription = Subscription()
        self.subscribed_at: Instant = 0.0
        self._lists_all = True
        self._pace = Backoff(SOON_S, LATE_S, jitter)
        self._compiled: Mapping[str, re.Pattern[str]] = {}
        #: The topics of which the member has partitions.
        self._held: frozenset[str] = frozenset()
        #: The unavailable names and patterns since the last check.
        self.unavailable: Mapping[str, BrokerError] = {}
        #: The code with which each topic was reported; equal codes are not reported twice.
        self._reported: dict[str, int] = {}
        #: The topics that the patterns matched at the last check; None: there was no check since they were subscribed.
        self.matched: frozenset[str] | None = None
        self._refresh_at: Instant | None = None
        #: When to check again for missing topics; None: none is missing.
        self.again_at: Instant | None = None
        self._request: int | None = None
        self._last_request = 0

    @property
    def missing(self) -> frozenset[str]:
        """The names that no topic has, and the patterns that match none."""
        return frozenset(name for name, error in self.unavailable.items() if error.code == UNKNOWN_TOPIC_CODE)

    @property
    def _wanted(self) -> frozenset[str]:
        """All names and patterns that can be missing."""
        return self.subscription.topics | self.subscription.blacklisted | self._compiled.keys()

    @property
    def due_at(self) -> Instant | None:
        """When to check; None: not now, or never."""
        may_request = self._lists_all or not self.subscription.patterns
        return self._refresh_at if self._request is None and may_request else None

    def describe(self) -> str | None:
        """Return the missing topics and patterns, for people; None: all exist."""
        found = [self._describe_one(name, self.unavailable[name]) for name in sorted(self.unavailable)]
        return "; ".join(found) if found else None

    def wait_without_partitions(self, reason: str) -> Wait:
        """Return the wait of a member without partitions: for subscribed topics, or if all exist, for partitions."""
        found, since = self.describe(), self._history.since
        if found is not None:
            return Wait(what=WaitsFor.SUBSCRIBED_TOPICS, since=since, detail=found)
        return Wait(what=WaitsFor.PARTITIONS, since=since, detail=reason)

    def describe_refused(self) -> str | None:
        """Return the topics that cannot be described, for people: the coordinator refuses a join that names one."""
        refused = [name for name, error in self.unavailable.items() if error.code != UNKNOWN_TOPIC_CODE]
        return "; ".join(self._describe_one(name, self.unavailable[name]) for name in sorted(refused)) or None

    def _describe_one(self, name: str, error: BrokerError) -> str:
        if name in self.subscription.blacklisted:
            return f"topic '{name}' is excluded by topic.blacklist"
        if error.code != UNKNOWN_TOPIC_CODE:
            return f"topic '{name}' cannot be described ({error.name})"
        if name in self._compiled:
            return f"pattern '{name}' matches no topic ({error.name})"
        return f"topic '{name}' does not exist ({error.name})"

    # ---- what happens ----

    def list_all(self, *, does: bool) -> None:
        """Set whether patterns need the list of all topics from here; otherwise their owner calls `on_metadata`."""
        self._lists_all = does

    def subscribe(self, subscription: Subscription, asked_at: Instant | None = None) -> None:
        """Watch this from now on; `asked_at`: when the application subscribed (None: now)."""
        now = self._event.now
        self.subscribed_at = now if asked_at is None else asked_at
        if subscription == self.subscription:
            return
        self.subscription = subscription
        self._compiled = compiled(subscription.patterns)
        self.matched = None
        wanted = self._wanted
        self.unavailable = {name: error for name, error in self.unavailable.items() if name in wanted}
        self._request = self.again_at = None
        self._pace.reset()
        self._refresh_at = now if subscription and self._refresh_s is not None else None

    def holds(self, topics: frozenset[str]) -> None:
        """The member has partitions of these topics now: they exist, and one that it had may be deleted."""
        if self._refresh_at is not None:
            before, self._held = self._held, topics
            if before - topics:
                self._refresh_at = self._event.now
        if not self.unavailable.keys().isdisjoint(topics):
            unavailable = {name: error for name, error in self.unavailable.items() if name not in topics}
            self.report_topics(self._now_without(unavailable))

    def requests_refused_topics(self) -> bool:
        """Return whether a check of the topics can name the topic that the coordinator refused without its name.

        With patterns it cannot: the list of all topics omits such a topic.
        """
        if self._refresh_at is None or self.subscription.patterns:
            return False
        if all(error.code == UNKNOWN_TOPIC_CODE for error in self.unavailable.values()):
            self._refresh_at = self._event.now
        return True

    def request_if_due(self) -> None:
        """Check the subscribed topics (with patterns, all topics), if that is due."""
        if self.due_at is None or self._event.now < self.due_at:
            return
        self._last_request += 1
        self._request = self._last_request
        topics = None if self.subscription.patterns else self.subscription.topics
        self._event.emit(LookUpTopics(request_id=self._request, topics=topics))

    def awaits(self, request_id: int) -> bool:
        """Return whether this is the number of the request in flight."""
        return request_id == self._request

    def on_metadata(self, names: Collection[str], refused: Mapping[str, BrokerError]) -> None:
        """Process the existing topics, and those that cannot be described; all other ones are missing."""
        self._request = None
        absent = self.subscription.blacklisted | self.subscription.topics - frozenset(names)
        unavailable = {name: _not_available(name, refused.get(name)) for name in absent}
        matches = {text: frozenset(filter(one.fullmatch, names)) for text, one in self._compiled.items()}
        self.matched = frozenset().union(*matches.values())
        unavailable |= {text: _not_available(text, None) for text, found in matches.items() if not found}
        changes = self._now_without(unavailable)
        if not unavailable:
            self._pace.reset()
        now = self._event.now
        self.again_at = now + self._pace.next_delay() if unavailable else None
        if self._refresh_s is not None:
            self._refresh_at = min(now + self._refresh_s, self.again_at or inf)
        self.report_topics(changes)

    def on_metadata_failed(self) -> None:
        """Keep the known state, and repeat the request, which got no response."""
        self._request = None
        self._refresh_at = self._event.now + self._pace.next_delay()

    def report_topics(self, changes: TopicChanges) -> None:
        """Report the unavailable topics to the application, and the topics that appeared to the log."""
        history = self._history
        for one in changes.unavailable:
            history.raise_to_application(Problem.REFUSED, one.error, one.topic)
        if history.last_error is not None and history.last_error.topic in changes.appeared:
            history.end_error()
        if changes.appeared:
            self._event.emit(TopicsAppeared(topics=changes.appeared))

    def _now_without(self, unavailable: Mapping[str, BrokerError]) -> TopicChanges:
        self.unavailable = unavailable
        news = sorted(name for name, error in unavailable.items() if self._reported.get(name) != error.code)
        wanted = self._wanted
        appeared = sorted(name for name in self._reported if name in wanted and name not in unavailable)
        for name in appeared:
            del self._reported[name]
        self._reported |= {name: unavailable[name].code for name in news}
        return TopicChanges(
            unavailable=tuple(Unavailable(topic=name, error=unavailable[name]) for name in news),
            appeared=tuple(appeared),
        )


def _not_available(name: str, refusal: BrokerError | None) -> BrokerError:
    """Return the error as librdkafka reports it."""
    code, short, message = UNKNOWN_TOPIC_CODE, _UNKNOWN_NAME, _UNKNOWN_MESSAGE
    if refusal is not None:
        code, short, message = refusal.code, refusal.name, refusal.message
    return BrokerError(code=code, name=short, message=f"Subscribed topic not available: {name}: {message}")
