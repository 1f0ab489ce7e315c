"""The heartbeats of a member of a classic group: when it sends the next one, and when its session is over.

A member learns of a rebalance by a heartbeat (REBALANCE_IN_PROGRESS). Without changes the interval is
`heartbeat.interval.ms`. While records flow, a rebalance would stop or move some of them, so the member sends more
often; and after a change, since another one often follows it: the second round of a cooperative rebalance, the next
member of a group that starts. The figures are those of `pace`.
"""

from __future__ import annotations

from math import inf

from consumer_membership.membership.backoff import Backoff
from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.pace import Pace
from consumer_membership.types import Instant

#: The first heartbeats after a change: members that start together seldom all join the first generation. Its only
#: member could learn of the others some 40 ms later; until it does, all of them wait.
FIRST_S = (0.02, 0.02, 0.02, 0.02, 0.05, 0.1)


class ClassicHeartbeats:
    """The heartbeats of one member; `interval_s` is the longest time between two.

    `active_interval_s` is the time between two while records flow; 0 switches that off.
    """

    def __init__(
        self,
        event: EventContext,
        interval_s: float,
        active_interval_s: float,
        session_timeout_s: float,
        backoff: Backoff,
    ) -> None:
        self._event = event
        self._interval_s = interval_s
        self._active_interval_s = active_interval_s
        self._session_timeout_s = session_timeout_s
        self._backoff = backoff
        self.in_flight: int | None = None
        #: Whether records reached the application between its last two polls.
        self._is_active = False
        self.pace = Pace(FIRST_S)
        self._sent_at: Instant = 0.0
        self._not_before: Instant = 0.0
        self._is_urgent = False
        self._session_since: Instant = 0.0
        #: When the last answered heartbeat was sent: the session continues from then at least.
        self.confirmed_at: Instant | None = None
        #: The times of the last answered request of any kind, and of the last one that was answered without a
        #: rebalance.
        self._counted_at: Instant | None = None
        self._undisturbed_at: Instant | None = None
        #: When a heartbeat during a pending JoinGroup was refused, until the coordinator confirms the membership again.
        self._doubted_at: Instant | None = None

    # ---- when ----

    def spacing_s(self, *, is_attentive: bool) -> float:
        """Return the seconds between two heartbeats; shorter for a member that expects a rebalance."""
        if not is_attentive:
            return self._interval_s
        most_s = self._active_interval_s if self._is_active and self._active_interval_s > 0 else inf
        return self.pace.spacing_s(self._interval_s, most_s=most_s)

    def due_at(self, *, is_attentive: bool) -> Instant:
        """Return the earliest moment of the next heartbeat; after a failure the backoff counts, not the interval."""
        if self._is_urgent or self._backoff.failures:
            return self._not_before
        return max(self._not_before, self._sent_at + self.spacing_s(is_attentive=is_attentive))

    @property
    def session_ends_at(self) -> Instant:
        """When a whole session will have passed without a response of the coordinator."""
        return self._session_since + self._session_timeout_s

    def lease_until(self, rebalance_timeout_s: float) -> Instant | None:
        """Return until when the coordinator certainly keeps this member in the group; None: it never did.

        A session lasts from the moment when the coordinator received the last request that it answered, and that was
        not before the member sent it. The moment of the response proves nothing: a process that was suspended reads an
        old response when it continues. A member whose JoinGroup does not arrive is removed at the end of the rebalance,
        which began after the last request that was answered without one. A rebalance timeout below the session timeout
        is not used here: it would end leases between the heartbeats of a quiet group.
        """
        if self._counted_at is None or self._undisturbed_at is None:
            return None
        session_s = self._session_timeout_s
        until = min(self._counted_at + session_s, self._undisturbed_at + max(rebalance_timeout_s, session_s))
        return until if self._doubted_at is None else min(until, self._doubted_at)

    @property
    def is_session_running(self) -> bool:
        """Whether the session that the last answered heartbeat began cannot have ended yet."""
        return self.confirmed_at is not None and self._event.now - self.confirmed_at < self._session_timeout_s

    @property
    def is_doubted(self) -> bool:
        """Whether only the response to the pending JoinGroup can show if the member is still in its group."""
        return self._doubted_at is not None

    # ---- what happens ----

    def gathered(self, requested_at: Instant, now: Instant) -> None:
        """Note that a generation has joined, with a JoinGroup sent at `requested_at`; more changes may follow.

        The generation joined after every request that was answered before. A heartbeat in flight is of an earlier
        generation.
        """
        self.forget()
        self._session_since = self._sent_at = now
        self._count(requested_at)
        self._undisturbed_at = self._counted_at
        self._recover()
        self.speed_up()

    def synced(self, requested_at: Instant) -> None:
        """Note that the member has its assignment, which it requested at `requested_at`."""
        self._count(requested_at)
        self._undisturbed_at = self._counted_at

    def speed_up(self) -> None:
        """Heartbeat quickly for a while, because something changed."""
        self.pace.speed_up()

    def note_activity(self, *, is_active: bool) -> None:
        """Note whether records flow."""
        self._is_active = is_active

    def suspended(self, seconds: float) -> None:
        """Date the requests back by this time, in which the session continued and the clock stopped.

        The coordinator was not silent meanwhile (`session_ends_at`): no request waited for a response.
        """
        self._sent_at -= seconds
        if self.confirmed_at is not None:
            self.confirmed_at -= seconds
        if self._counted_at is not None:
            self._counted_at -= seconds
        if self._undisturbed_at is not None:
            self._undisturbed_at -= seconds

    def send(self, *, generation: int, member_id: str, instance_id: str | None) -> None:
        """Send a heartbeat."""
        self.in_flight = request_id = self._event.next_request_id()
        self._sent_at = self._event.now
        self._is_urgent = False
        self.pace.count_heartbeat()
        heartbeat = SendClassicHeartbeat(
            request_id=request_id, generation=generation, member_id=member_id, instance_id=instance_id
        )
        self._event.emit(heartbeat)

    def confirmed(self, now: Instant, *, is_undisturbed: bool) -> None:
        """Note that the session continues: after a success (`is_undisturbed`), or after the notice of a rebalance."""
        self.in_flight = None
        self.pace.answered(now - self._sent_at)
        self.confirmed_at = self._sent_at
        self._count(self._sent_at)
        if is_undisturbed:
            self._undisturbed_at = self._counted_at
        self._session_since = now
        self._recover()

    def forget_confirmation(self) -> None:
        """Forget when the coordinator last confirmed the session: that was the session of another generation."""
        self.confirmed_at = None

    def doubt(self, now: Instant) -> None:
        """Note that the heartbeat was refused while a JoinGroup is pending, whose response shows the outcome."""
        self.in_flight = None
        self._doubted_at = now

    def failed(self, now: Instant) -> None:
        """Repeat the heartbeat in flight after a backoff: it was refused temporarily, or got no response."""
        self.in_flight = None
        self._not_before = now + self._backoff.next_delay()

    def send_now(self) -> None:
        """Send the next heartbeat at once, because its response has new information; a backoff still counts."""
        self._is_urgent = True

    def search_again(self, now: Instant) -> None:
        """Give the coordinator, which is looked up after a silent session, another session to respond."""
        self._session_since = now

    def forget(self) -> None:
        """Stop waiting for a response."""
        self.in_flight = None
        self._is_urgent = False

    def _count(self, requested_at: Instant) -> None:
        """Note that the coordinator had the member in the group at `requested_at` or later."""
        self._counted_at = requested_at if self._counted_at is None else max(self._counted_at, requested_at)
        self._doubted_at = None

    def _recover(self) -> None:
        self._backoff.reset()
        self._not_before = 0.0
