"""The group's session timeout, as far as the member knows it, and how long a static member was away."""

from __future__ import annotations

from consumer_membership.membership.effects import LearnSessionTimeout, Warned
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import Instant

#: The longest session timeout that a broker allows by default (group.consumer.max.session.timeout.ms): how long the
#: member waits for a holder if the group's session timeout cannot be read.
LONGEST_SESSION_S = 60.0
#: librdkafka's default of max.poll.interval.ms: an application that did not set it gets no warning.
DEFAULT_POLL_S = 300.0


class SessionTimeout:
    """The group's session timeout, which is the longest absence of a static member, and since when this member is away.

    The timeout is read after each join, when the broker's heartbeat interval changed (an operator who changed that may
    also have changed the timeout), and again after each session: a lowered timeout is known after at most one former
    session. With leases it is read again after each heartbeat interval of the broker: the coordinator applies another
    timeout to each member's next heartbeat, and a lease must not be longer.
    """

    def __init__(self, event: EventContext, settings: MemberSettings) -> None:
        self._event = event
        self._max_poll_interval_s = settings.max_poll_interval_s
        self._has_leases = settings.has_leases
        #: None: the broker has not reported it.
        self.timeout_s: float | None = None
        self._is_wanted = False
        self._requested_at: Instant | None = None
        self._away_since: Instant | None = None

    @property
    def longest_s(self) -> float:
        """The group's session timeout, or the longest that a broker allows by default."""
        return self.timeout_s or LONGEST_SESSION_S

    def doubt(self) -> None:
        """Read the timeout as soon as possible."""
        self._is_wanted = True

    def request_if_due(self, interval_s: float | None) -> None:
        """Request the timeout, unless it was read a short time ago. `interval_s`: the broker's heartbeat interval."""
        now = self._event.now
        longest_s = self.longest_s if interval_s is None or not self._has_leases else min(interval_s, self.longest_s)
        is_old = self._requested_at is not None and now >= self._requested_at + longest_s
        if self._is_wanted or is_old:
            self._is_wanted, self._requested_at = False, now
            self._event.emit(LearnSessionTimeout())

    def learn(self, timeout_s: float | None, instance_id: str | None) -> None:
        """Keep the timeout; warn if the configured poll interval is longer."""
        before, self.timeout_s = self.timeout_s, timeout_s or self.timeout_s
        poll_s = self._max_poll_interval_s
        if self.timeout_s in (None, before) or timeout_s is None or poll_s == DEFAULT_POLL_S or poll_s <= timeout_s:
            return
        message = (
            f"max.poll.interval.ms={poll_s * 1000:.0f} of static member '{instance_id}' is longer than the session "
            f"timeout of the group ({timeout_s:g} s): if the application stops polling, its partitions stall for both "
            "times; lower max.poll.interval.ms, or raise consumer.session.timeout.ms of the group"
        )
        self._event.emit(Warned(message=message))

    def leave(self) -> None:
        """Remember when the member left temporarily."""
        self._away_since = self._event.now

    def returned(self, instance_id: str | None) -> None:
        """Warn if the member, which is in its group again, was away for longer than its session."""
        since, self._away_since = self._away_since, None
        if since is None or self.timeout_s is None or self._event.now - since <= self.timeout_s:
            return
        message = (
            f"Static member '{instance_id}' was away for {self._event.now - since:.0f} s, longer than the session "
            f"timeout of the group ({self.timeout_s:g} s), so its partitions were assigned to other members; restart "
            "faster, or raise consumer.session.timeout.ms of the group"
        )
        self._event.emit(Warned(message=message))
