"""Performs the member's orders on the application's thread: one thread at a time, in their order, never nested."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import assert_never

from confluent_kafka import Message

from consumer_membership.errors import FatalGroupError
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CollectPositions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    Problem,
    RaiseToApplication,
    RevokePartitions,
)
from consumer_membership.membership.events import PositionsReported
from consumer_membership.runtime.application.call_lock import CallLock
from consumer_membership.runtime.application.fair_lock import FairLock
from consumer_membership.runtime.application.notices import error_message
from consumer_membership.runtime.application.offset_book import OffsetBook
from consumer_membership.runtime.application.order_queue import OrderQueue
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.types import FATAL_CODE

_LOG = logging.getLogger("consumer_membership.session")

#: How long a fatal error that was told is not told again, in seconds: programs log what they are told.
TOLD_FOR_S = 1.0

CommitCallback = Callable[[CommitCompleted], None]


class Performer:
    """What a session does with the member's mail."""

    def __init__(
        self,
        order_queue: OrderQueue,
        steps: Steps,
        book: OffsetBook,
        fair_lock: FairLock,
        *,
        post: Callable[[PositionsReported], None],
        on_commit: CommitCallback | None,
        on_left: Callable[[], None],
    ) -> None:
        self._order_queue = order_queue
        self._steps = steps
        self._book = book
        self._fair_lock = fair_lock
        self._post = post
        self._on_commit = on_commit
        self._on_left = on_left
        self._fatal: RaiseToApplication | None = None
        #: When it was told last.
        self._told_at = 0.0
        #: Errors that the application is to be given as messages.
        self.notices: deque[Message] = deque()
        #: Held by the call that performs something now.
        self.duty = CallLock()
        #: How many leaves were completed.
        self.leaves = 0

    def serve(self) -> None:
        """Perform what waits, up to the first notice; a callback's exception comes out here.

        Does nothing inside a callback, and nothing while another thread is at it.
        """
        if not self.duty.take():
            return
        try:
            while not self.notices and (effect := self._order_queue.next()) is not None:
                self._perform(effect)
        finally:
            self.rest()

    def rest(self) -> None:
        """Give the duty back."""
        self.duty.give_back()
        self._order_queue.keep_open()
        self._order_queue.ring()

    def perform_all(self, errors: list[Exception]) -> None:
        """Perform what waits although callbacks raise: what they raise is noted. For the call that has the duty."""
        while (effect := self._order_queue.next()) is not None:
            try:
                self._perform(effect)
            except Exception as error:  # noqa: BLE001 - whatever a user's callback raises must not stop a leave
                _LOG.warning("A callback raised while the consumer leaves its group", exc_info=True)
                errors.append(error)

    def _perform(self, effect: ApplicationEffect) -> None:
        match effect:
            case AssignPartitions():
                # Whom its group gives partitions is in it: what ended an earlier membership is over.
                self._fatal = None
                self._steps.perform(effect)
            case PausePartitions() | RevokePartitions() | LosePartitions():
                self._steps.perform(effect)
            case CollectPositions():
                with self._fair_lock:
                    offsets = self._book.uncommitted()
                self._post(PositionsReported(commit_id=effect.commit_id, offsets=offsets))
            case CommitCompleted():
                if self._on_commit is not None:
                    self._on_commit(effect)
            case RaiseToApplication():
                self._tell(effect)
            case LeaveCompleted():
                self.leaves += 1
                self._on_left()
            case _:
                assert_never(effect)

    # ---- the end of the membership ----

    def _tell(self, notice: RaiseToApplication) -> None:
        self.notices.append(error_message(notice))
        if notice.problem is Problem.FATAL:
            self._fatal, self._told_at = notice, monotonic()

    def tell_again(self) -> None:
        """Tell the error that ended the membership once more if that is a while ago.

        librdkafka tells it once. A program that overlooked it, or took it for one that passes, would wait for ever.
        """
        if self._fatal is not None and not self.notices and monotonic() - self._told_at >= TOLD_FOR_S:
            self._tell(self._fatal)

    def refuse_if_fatal(self, what: str) -> None:
        """Raise if the member was refused for good."""
        if self._fatal is not None:
            raise FatalGroupError(f"{what}: {self._fatal.error}", FATAL_CODE)

    def forgive(self) -> None:
        """Forget a fatal error whose cause was the subscription: another one takes its place."""
        if self._fatal is not None and self._fatal.ends_with_subscription:
            self._fatal = None
