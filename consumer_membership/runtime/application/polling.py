"""Implements `poll` and `consume`: perform the member's orders, then fetch in slices until there is a result.

Nothing is taken out of the buffer here, so that an exception (a callback's, a signal handler's) loses nothing: the
frame that returns to the application takes from the queue that it gets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat

from confluent_kafka import Message

from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application.delivery import Delivery
from consumer_membership.runtime.application.handle import Reports
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.orders import SLICE_S
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue
from consumer_membership.runtime.application.rebalance import Rebalance
from consumer_membership.runtime.line import Line


class Polling:
    """The polls of one session."""

    def __init__(self, delivery: Delivery, rebalance: Rebalance, reports: Reports, line: Line, life: Lifetime) -> None:
        self._delivery = delivery
        self._ready = delivery.buffer.ready
        self._rebalance = rebalance
        self._orders = rebalance.orders
        self._errors = rebalance.notices.messages
        self._reports = reports
        self._line = line
        self._life = life
        line.wake_up.add_reason(lambda: line.lease_is_over)

    def prepare(
        self,
        limit: int,
        deadline: float,
        is_wanted: Callable[[], bool],
        whole: HandOutQueue[list[Message]] | None,
    ) -> HandOutQueue[Message] | None:
        """Poll until there are `limit` records, an error, or the deadline; return the queue (`Session.prepare`).

        None: there is nothing to take, or the lease is over, so that the records may belong to another member.
        """
        ready = self._ready
        while True:
            self._begin_slice()
            if self._errors and limit:
                return self._errors
            if len(ready) < limit and self._orders.slice_s >= SLICE_S:
                self._delivery.wait_idle(deadline)
            left = deadline - self._line.now()
            self._gather(limit, min(self._orders.slice_s, max(left, 0.0)), whole)
            if whole:
                return None
            self._reports.call_waiting()
            if self._rebalance.may_serve and left > 0:
                continue  # orders that came meanwhile go first: they may concern this very record
            is_over = left <= 0 or self._life.is_ending or not is_wanted()
            if self._wait_for_lease(left):
                if is_over:
                    return None
            elif is_over or len(ready) >= limit:
                return ready or None

    def _begin_slice(self) -> None:
        """Perform the waiting orders, and send the member the poll that it waits for."""
        self._delivery.buffer.turns += 1
        rebalance = self._rebalance
        if self._line.wake_up.is_set or self._orders.has_waiting:
            rebalance.serve()
        cancelled = self._delivery.cancelled_revocations()
        if cancelled and not self._orders.has_waiting:
            self._delivery.thaw(cancelled)
        view = self._line.view
        if view.state is MemberState.FATAL:
            rebalance.notices.repeat_fatal()
        if view.needs_poll:
            rebalance.subscriptions.announce_poll()

    def _gather(self, limit: int, slice_s: float, whole: HandOutQueue[list[Message]] | None) -> None:
        """Fetch for one slice; if no partition can deliver, wait for the member instead."""
        if self._life.is_ending or len(self._ready) >= limit:
            return
        if self._delivery.fetcher.can_deliver:
            if not self._delivery.gather(limit, slice_s, whole) and self._delivery.fetcher.is_check_due:
                self._delivery.replace_lost_handle(self._rebalance.subscriptions.last_heartbeat_at)
            return
        self._delivery.take_reports()
        if slice_s <= 0:
            return
        self._delivery.warm_up()
        if not self._ready and not self._reports:
            self._orders.wait(lambda: self._rebalance.may_serve or self._life.is_ending, slice_s)

    def _wait_for_lease(self, left_s: float) -> bool:
        """If the lease is over, wait up to a slice for a heartbeat that extends it; return whether it was over."""
        if not self._line.lease_is_over:
            return False
        self._line.wake_up.set()
        self._orders.wait(
            lambda: self._rebalance.may_serve or self._life.is_ending or not self._line.lease_is_over,
            min(self._orders.slice_s, max(left_s, 0.0)),
        )
        return True

    # ---- without waiting ----

    @property
    def can_hand_out(self) -> bool:
        """Whether buffered records may be returned now: no order comes first, and the lease lasts."""
        return not (self._rebalance.may_serve or self._life.is_ending or self._line.lease_is_over)

    def take(self, limit: int) -> list[Message]:
        """The records or the error that can be returned at once; performs no orders and never waits."""
        batch: list[Message] = []
        if self._errors and limit:
            self.hand_out(self._errors, 1, batch)
        elif self.can_hand_out:
            self.hand_out(self._ready, limit, batch)
        return batch

    def hand_out(self, source: HandOutQueue[Message], limit: int, batch: list[Message]) -> None:
        """Move the records of this queue to the application's batch, which the caller gives back on an interrupt."""
        with suppress(IndexError):
            batch.extend(map(deque.popleft, repeat(source, limit if source is self._ready else 1)))
