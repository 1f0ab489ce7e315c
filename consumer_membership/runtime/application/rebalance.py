"""The rebalance part of a session: performs the member's orders, in their order, on the application's thread.

Callbacks never nest: only one thread at a time performs orders, and a call from inside a callback performs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import assert_never

from consumer_membership.errors import CommitError
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CollectPositions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    RevokePartitions,
    WarmPartitions,
)
from consumer_membership.runtime.application.locks import CallLock
from consumer_membership.runtime.application.notices import Notices
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.application.subscriptions import Subscriptions
from consumer_membership.types import ASSIGNMENT_LOST_CODE

_log = partial(logging.getLogger, "consumer_membership.session")


class Rebalance:
    """Performs the orders of one member: in their order, one thread at a time, never nested."""

    def __init__(
        self,
        orders: OrderQueue,
        steps: Steps,
        notices: Notices,
        subscriptions: Subscriptions,
        on_commit: Callable[[CommitCompleted], None] | None,
    ) -> None:
        self.orders = orders
        self.steps = steps
        self.notices = notices
        self.subscriptions = subscriptions
        self._on_commit = on_commit
        #: Owned by the call that performs an order now.
        self.call_lock = CallLock()
        #: How many leaves were completed.
        self.leaves = 0
        #: Whether the session is closed: no further order is performed.
        self._is_closed = False

    @property
    def may_serve(self) -> bool:
        """Whether an order waits and `serve` would perform it: no thread performs orders, and this is not closed."""
        return self.orders.has_waiting and self.call_lock.owner is None and not self._is_closed

    def refuse_lost_commit(self) -> None:
        """Raise if the member may not commit.

        Raises:
            CommitError: on_lost runs, so another member may own the partitions.
            FatalGroupError: the member was refused permanently.
        """
        self.notices.refuse_if_fatal("Commit failed")
        if self.steps.is_losing:
            raise CommitError("Commit failed: Local: Assignment was lost", ASSIGNMENT_LOST_CODE)

    def serve(self) -> None:
        """Perform the waiting orders, up to the first notice; a callback's exception is raised here.

        Does nothing inside a callback, and nothing while another thread performs orders.
        """
        performing = Lock()
        with performing:
            if self.call_lock.acquire(performing):
                self._perform_to_notice()

    def _perform_to_notice(self) -> None:
        try:
            while not (self._is_closed or self.notices.messages) and (order := self.orders.next()) is not None:
                self._perform(order)
        finally:
            self.release()

    def release(self) -> None:
        """Let other threads perform orders."""
        self.call_lock.release()
        self.orders.notify()

    def close(self) -> None:
        """Perform no further order: the session is closed. For the call that owns the lock."""
        self._is_closed = True
        self.release()

    def perform_all(self, errors: list[Exception]) -> None:
        """Perform the waiting orders although callbacks raise, and add their exceptions to `errors`.

        Only the call that owns the lock may call this. The caller raises the first exception, as confluent-kafka's
        close does; only the others are logged.
        """
        while (order := self.orders.next()) is not None:
            if isinstance(order, WarmPartitions):
                self.orders.done()  # the consumer leaves, and takes nothing over
                continue
            try:
                self._perform(order)
            except Exception as error:  # noqa: BLE001 - whatever a user's callback raises must not stop a leave
                if errors:
                    _log().warning(
                        "Another callback raised an exception while the consumer leaves its group", exc_info=True
                    )
                errors.append(error)
                self.orders.done()

    def perform_until(self, is_over: Callable[[], bool], errors: list[Exception], patience_s: float) -> bool:
        """Perform orders as they come until `is_over()`; False: none came for `patience_s`."""
        while True:
            self.perform_all(errors)
            if is_over():
                return True
            if not self.orders.wait(lambda: self.orders.has_waiting or is_over(), patience_s):
                return False

    def _perform(self, order: ApplicationEffect) -> None:
        match order:
            case AssignPartitions():
                # A new assignment proves that the error which ended an earlier membership is over.
                self.notices.clear_fatal()
                self.steps.perform(order)
            case PausePartitions() | RevokePartitions() | LosePartitions():
                self.steps.perform(order)
            case CollectPositions():
                self.steps.report_positions(order)
                self.orders.done()
            case WarmPartitions():
                self.steps.warm(order)
            case CommitCompleted():
                if self._on_commit is None:
                    self.orders.done()
                else:
                    self.orders.done_by(self._on_commit)
            case RaiseToApplication():
                self.notices.add(order)
                self.orders.done()
            case LeaveCompleted():
                self.leaves += 1
                self.subscriptions.on_left()
                self.orders.done()
            case _:
                assert_never(order)
