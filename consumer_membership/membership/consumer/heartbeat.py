"""When a heartbeat is due, and which fields it has (KIP-848; rules 2.2 and 2.3).

A field is sent when it differs from its last sent value, and all fields are sent again after any failed or unanswered
heartbeat: the broker then returns the complete assignment, which recovers a lost response.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.membership.pace import QUICK_S, Pace
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import JOIN_EPOCH, Assignment, Instant, Subscription

#: A member without partitions keeps its short interval for this number of broker intervals after its join: the owners
#: of its future partitions are notified at their own next heartbeat, and then need a revocation.
PATIENCE_INTERVALS = 2.0
#: Before the first response the broker's interval is unknown; this is the default of
#: group.consumer.heartbeat.interval.ms.
DEFAULT_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last values sent to the coordinator; None means "not yet"."""

    subscription: Subscription | None = None
    ownership_version: int | None = None
    once: bool = False


class Heartbeats:
    """The heartbeat schedule and the sent fields of one member.

    `ownership_version` numbers the owned partitions. It grows with each finished reconciliation, even if they are
    equal, so that the member never skips an acknowledgement (Java's local epoch).
    """

    def __init__(self, settings: MemberSettings, jitter: Jitter) -> None:
        self._settings = settings
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self._sent = _Sent()
        self.in_flight: int | None = None
        self._sent_at: Instant = 0.0
        #: When the last answered heartbeat was sent: the session continues from then at least.
        self.confirmed_at: Instant | None = None
        self.pace = Pace()
        self._not_before: Instant = 0.0
        self.broker_interval_s: float | None = None
        self.joined_at: Instant | None = None
        self._is_active = False
        #: Whether the owned partitions were sent, and the response has not arrived yet.
        self.has_unanswered_ownership = False
        #: Whether this membership has sent anything: the coordinator may know the member, answered or not.
        self.has_sent = False
        #: The joins that may have been sent and have no response: each may still make the coordinator add the member.
        self._open_joins: set[int] = set()

    # ---- when ----

    @property
    def interval_s(self) -> float:
        """The upper bound between two heartbeats: the broker's, or the configured one if that is shorter."""
        broker = self.broker_interval_s or DEFAULT_INTERVAL_S
        configured = self._settings.heartbeat_interval_s
        return broker if configured is None else min(broker, configured)

    def spacing_s(self, now: Instant, *, holds: bool) -> float:
        """Return the seconds between two heartbeats; `holds`: whether the member has partitions."""
        most_s = inf
        if not holds and self._waits_for_first_partition(now):
            most_s = QUICK_S
        active_s = self._settings.active_heartbeat_interval_s
        if self._is_active and active_s > 0 and self._settings.heartbeat_interval_s is None:
            most_s = min(most_s, active_s)
        return self.pace.spacing_s(self.interval_s, most_s=most_s)

    def _waits_for_first_partition(self, now: Instant) -> bool:
        if self.joined_at is None:
            return False
        return now - self.joined_at < PATIENCE_INTERVALS * (self.broker_interval_s or DEFAULT_INTERVAL_S)

    def due_at(self, now: Instant, *, urgent: bool, holds: bool) -> Instant:
        """Return the earliest moment of the next heartbeat; an urgent one waits for the backoff only."""
        if urgent or self._backoff.failures:
            return self._not_before
        return max(self._not_before, self._sent_at + self.spacing_s(now, holds=holds))

    def speed_up(self) -> None:
        """Heartbeat quickly for a while, because something changed."""
        self.pace.speed_up()

    def note_activity(self, *, is_active: bool) -> None:
        """Note whether records flow."""
        self._is_active = is_active

    def suspended(self, seconds: float) -> None:
        """Date the heartbeats back by this time, in which the session continued and the clock stopped."""
        self._sent_at -= seconds
        if self.confirmed_at is not None:
            self.confirmed_at -= seconds

    # ---- sending and its outcomes ----

    def sending(self, request_id: int, now: Instant, *, is_join: bool = False) -> None:
        """Note that an ordinary heartbeat is sent under this number."""
        self.in_flight = request_id
        if is_join:
            self._open_joins.add(request_id)
        self._sent_at = now
        self.has_sent = True
        self.pace.count_heartbeat()

    @property
    def has_open_join(self) -> bool:
        """Whether a join that may have been sent has no response."""
        return bool(self._open_joins)

    def answered(self) -> None:
        """Note that the coordinator answered the heartbeat in flight, so it has also handled earlier joins."""
        self._open_joins.clear()

    def not_sent(self, request_id: int) -> None:
        """Note that this heartbeat did not reach the coordinator."""
        self._open_joins.discard(request_id)

    def begin_membership(self, now: Instant) -> bool:
        """Note that the coordinator has accepted the member; return whether that is new."""
        if self.joined_at is not None:
            return False
        self.joined_at = now
        return True

    def succeeded(self, interval_s: float, now: Instant) -> None:
        """Note the success of the heartbeat in flight; an interval that is not positive is never adopted."""
        self.in_flight = None
        self.has_unanswered_ownership = False
        self._backoff.reset()
        self._not_before = 0.0
        self.pace.answered(now - self._sent_at)
        self.confirmed_at = self._sent_at
        if interval_s > 0:
            self.broker_interval_s = interval_s

    def retry(self, now: Instant, *, after_backoff: bool) -> None:
        """Send a full heartbeat, after a backoff or now: the one in flight did not return the needed data."""
        self.in_flight = None
        self._sent = _Sent()
        self._not_before = now + self._backoff.next_delay() if after_backoff else now

    def send_full_next(self) -> None:
        """Send every field with the next heartbeat, so that its response has the complete assignment."""
        self._sent = _Sent()

    def forget(self) -> None:
        """Drop the heartbeat in flight at the end of the membership; the next one sends every field."""
        self.in_flight = None
        self._sent = _Sent()
        self._backoff.reset()
        self._not_before = 0.0
        self.joined_at = self.confirmed_at = None
        self.has_unanswered_ownership = False
        self.has_sent = False
        self._open_joins.clear()

    def wait(self, until: Instant) -> None:
        """Send nothing before this moment (between two fences in a row)."""
        self._not_before = max(self._not_before, until)

    # ---- what ----

    def has_sent_ownership(self, ownership_version: int) -> bool:
        """Return whether this version of the owned partitions was sent, as far as the member knows."""
        return self._sent.ownership_version == ownership_version

    def compose(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        subscription: Subscription,
        claims: Callable[[], Assignment],
        ownership_version: int,
    ) -> Heartbeat:
        """Return the next ordinary heartbeat; its fields count as sent from now on (rule: recorded when built).

        `claims` gives the owned partitions; it is called only if they are to be sent.
        """
        settings, sent = self._settings, self._sent
        joining = epoch == JOIN_EPOCH
        is_unchanged = not joining and sent.subscription == subscription
        self.has_unanswered_ownership |= joining or sent.ownership_version != ownership_version
        self._sent = _Sent(subscription=subscription, ownership_version=ownership_version, once=True)
        return Heartbeat(
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=settings.rack_id if joining else None,
            rebalance_timeout_s=settings.max_poll_interval_s if joining or not sent.once else None,
            # Both or neither: "" removes a pattern of an earlier heartbeat, which may have been the lost one.
            topics=None if is_unchanged else tuple(sorted(subscription.topics)),
            pattern=None if is_unchanged else subscription.pattern or "",
            assignor=settings.assignor if joining or not sent.once else None,
            owned=claims() if joining or sent.ownership_version != ownership_version else None,
        )
