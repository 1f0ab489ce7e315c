"""The subscription of one session: its topics, its callbacks, and which of the group's partitions are delivered."""

from __future__ import annotations

from consumer_membership.membership.events import LeaveRequested, Polled, Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application.callbacks import CallbackStyle, RebalanceListener
from consumer_membership.runtime.application.holdings import HeldPartitions
from consumer_membership.runtime.line import Line
from consumer_membership.types import LeaveOption, Subscription


class Subscriptions:
    """The present subscription; it informs the member and the fetcher."""

    def __init__(self, holdings: HeldPartitions, line: Line, style: CallbackStyle) -> None:
        #: The callbacks of the present subscription.
        self.listener = RebalanceListener()
        #: When the application subscribed (monotonic clock); None: it is not subscribed.
        self.subscribed_at: float | None = None
        self._holdings = holdings
        self._line = line
        self._style = style
        #: Empty: the application is not subscribed.
        self._subscription = Subscription()
        #: Whether the application unsubscribed, and the group may still have to take partitions back.
        self._is_leaving = False
        #: The version of the view for which `Polled` was sent last; None: none since the application subscribed.
        self._announced_at: int | None = None

    @property
    def is_subscribed(self) -> bool:
        """Whether the application is subscribed: the group assigns partitions then."""
        return bool(self._subscription)

    @property
    def last_heartbeat_at(self) -> float | None:
        """When the last heartbeat was answered, 0 for none; None without a subscription: it has no heartbeats."""
        return (self._line.view.last_heartbeat_at or 0.0) if self._subscription else None

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Replace the subscription; the member joins, or updates its subscription, at the next poll."""
        self._take(subscription)
        self.listener = listener
        is_eager = self._style.is_eager(listener)
        self._line.post(Subscribed(subscription=subscription, is_eager=is_eager, asked_at=self._line.now()))
        self._announced_at = None
        # Records that the application assigned itself may be buffered: the next poll announces the subscription first.
        self._line.wake_up.set()

    def unsubscribe(self, option: LeaveOption) -> None:
        """Leave the group; on_revoke is called by the next polls, or by close."""
        self._take(Subscription())
        self._line.post(LeaveRequested(option=option))

    def _take(self, subscription: Subscription) -> None:
        """Deliver only partitions of these topics, and look them up; an empty subscription delivers no group partition.

        Partitions that the group assigned for an earlier subscription stay assigned until the group takes them back,
        and no record of them is delivered (KAFKA-19356). After an unsubscribe no record of the group is delivered until
        the member has left.
        """
        with self._holdings.lock:
            self._holdings.prefetch_metadata(subscription.topics)
            if not subscription:
                self.subscribed_at = None
            elif self.subscribed_at is None:
                self.subscribed_at = self._line.now()
            self._subscription = subscription
            self._is_leaving |= not subscription
            self._restrict_delivery()

    def on_left(self) -> None:
        """Note that the member has left: partitions that the group assigns from now on belong to a new membership."""
        with self._holdings.lock:
            self._is_leaving = False
            self._restrict_delivery()

    def _restrict_delivery(self) -> None:
        if self._is_leaving or not self._subscription:
            self._holdings.restrict_to(frozenset())
        else:
            # The coordinator decides which topics match a pattern.
            self._holdings.restrict_to(None if self._subscription.patterns else self._subscription.topics)

    def announce_poll(self) -> None:
        """Send `Polled` if the member waits for a poll with a subscription; once for each view of it."""
        snapshot = self._line.snapshot
        if snapshot.view.needs_poll and self._subscription and snapshot.version != self._announced_at:
            self._announced_at = snapshot.version
            self._line.send(Polled())

    @property
    def waits_for_poll_since(self) -> float | None:
        """When the application subscribed (monotonic clock), if it has not polled since and is not a member."""
        is_waiting = self._line.view.state is MemberState.UNSUBSCRIBED and self._announced_at is None
        return self.subscribed_at if is_waiting else None

    def callback_assigned_incrementally(self) -> None:
        """A callback called `incremental_assign` or `incremental_unassign` (`CallbackStyle`)."""
        self._style.assigned_incrementally()
