"""Closes a session: commits, calls on_revoke, leaves the group, releases everything; from any thread.

An interrupt may end a close; the next one then completes it. Consumers and members without a handle share this order.
Each session passes its own `release`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Lock

from consumer_membership.membership.events import LeaveRequested
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application.commits import ANSWER_GRACE_S, Commits
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.locks import CallLock, RunningCalls
from consumer_membership.runtime.application.rebalance import Rebalance
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.types import LeaveOption

#: How long a close waits for the end of the member's thread, which has nothing left to report by then.
STOP_S = 2.0
#: The states of a member that has left, or has nothing to leave.
_OUT = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})


class Closing:
    """The close of one session. `release` refuses every later call and frees the session's resources."""

    def __init__(
        self,
        life: Lifetime,
        line: Line,
        commits: Commits,
        rebalance: Rebalance,
        log: PackageLog,
        *,
        release: Callable[[], None],
        leave_timeout_s: float,
        has_servers: bool,
    ) -> None:
        self._life = life
        self._line = line
        self._commits = commits
        self._rebalance = rebalance
        self._orders = rebalance.orders
        self._log = log
        self._release_session = release
        self._leave_timeout_s = leave_timeout_s
        self._has_servers = has_servers
        #: The polls of each thread; a close inside a poll takes place after that poll.
        self.polls = RunningCalls()
        self._closing = CallLock()
        #: Whether a close has released everything: an interrupt may have ended the close before.
        self._is_released = False
        self._leave_option = LeaveOption.DEFAULT
        #: The thread that closes when its poll ends.
        self._closes_later: int | None = None

    def close(self, option: LeaveOption) -> None:
        """Commit, revoke, leave the group as `option` says, and release everything; idempotent.

        A close from inside a callback, or from a signal handler that interrupts a poll of its own thread, takes place
        when that call ends. The first exception of a callback is raised at the end.
        """
        if self._life.is_ours and self._life.is_closed:
            if not self._is_released and self._closing.owner is None:
                self._release()  # an interrupt cut the first close short
            return
        self._life.check()
        if self._closing.owner == threading.get_ident():
            return
        self._leave_option = option
        if self.polls.is_inside:
            self._close_later(threading.get_ident())
            return
        self._close_once()

    def close_if_requested(self) -> None:
        """At the end of a poll, perform the close that was called inside it."""
        if self._closes_later is not None and self._closes_later == threading.get_ident() and not self.polls.is_inside:
            self._closes_later = None
            self._close_once()

    def _close_once(self) -> None:
        closing = Lock()
        with closing:
            if self._closing.acquire(closing):
                self._life.end()
                self._orders.notify()
                self._close()
                return
        self._orders.wait(lambda: self._life.is_closed, self._leave_wait_s)

    def _close_later(self, thread: int) -> None:
        self._life.end()
        self._closes_later = thread

    @property
    def _leave_wait_s(self) -> float:
        return self._leave_timeout_s + ANSWER_GRACE_S

    def _close(self) -> None:
        errors: list[Exception] = []
        performing = Lock()
        with performing:
            while not self._rebalance.call_lock.acquire(performing):
                busy = self._rebalance.call_lock.owner
                if busy is not None and not self._orders.wait(
                    lambda: self._rebalance.call_lock.owner is None, self._leave_wait_s
                ):
                    # A callback runs in another thread and may wait for this thread: the other thread closes when the
                    # callback returns.
                    self._close_later(busy)
                    return
            self._leave_and_release(errors)
        if errors:
            raise errors[0]

    def _leave_and_release(self, errors: list[Exception]) -> None:
        try:
            self._leave(errors)
        finally:
            self._release()

    def _leave(self, errors: list[Exception]) -> None:
        """Leave the group: in the normal order, or immediately if a signal handler raises meanwhile."""
        if not self._line.has_sent:
            return
        has_left = False
        try:
            self._commit_and_leave(errors)
            has_left = True
        finally:
            if not has_left:
                self._line.post(LeaveRequested(option=self._leave_option, at_once=True))
                self._orders.wait(lambda: self._line.view.state in _OUT, STOP_S)

    def _release(self) -> None:
        """Refuse every call from now on, and release everything; repeated after an interrupt."""
        self._release_session()
        self._is_released = True

    def _commit_and_leave(self, errors: list[Exception]) -> None:
        """Commit, then leave; perform every order of the member meanwhile, callbacks included."""
        self._commits.begin_all_by_hand()
        # A leave would overtake commits on their way, and the coordinator refuses the commits of a former member.
        if self._has_servers:
            self._rebalance.perform_until(lambda: not self._commits.has_outstanding, errors, self._leave_timeout_s / 2)
        leaves = self._rebalance.leaves
        self._line.post(LeaveRequested(option=self._leave_option))
        if not self._rebalance.perform_until(lambda: self._rebalance.leaves > leaves, errors, self._leave_wait_s):
            self._log.error(
                "The coordinator did not confirm the leave in time; it removes the member when the session ends"
            )
