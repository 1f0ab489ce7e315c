"""One member of a group that fetches nothing, on the application's side of the line.

It creates the rebalance and offsets parts of a session, over partitions that have no records (`OwnedOnly`). It has no
librdkafka handle, so it needs none of librdkafka's threads, connections and memory. Consumers and such members share
those parts; this class only composes them.
"""

from __future__ import annotations

from math import inf

from consumer_membership.config import ConsumerConfig, OffsetReset, StartSettings
from consumer_membership.errors import FatalGroupError, GroupError
from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.recorder.dumps import check_directory
from consumer_membership.runtime.application.callbacks import CallbackStyle, RebalanceListener
from consumer_membership.runtime.application.closing import STOP_S, Closing
from consumer_membership.runtime.application.commits import Commits, CommitSettings, OffsetBook
from consumer_membership.runtime.application.holdings import OwnedOnly
from consumer_membership.runtime.application.lifetime import SESSIONS_OF_PROCESS, Lifetime, Registry, static_identity_of
from consumer_membership.runtime.application.notices import Notices
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.application.rebalance import Rebalance
from consumer_membership.runtime.application.session_observer import MemberSessionObserver
from consumer_membership.runtime.application.session_view import view_of_session
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.application.subscriptions import Subscriptions
from consumer_membership.runtime.cluster_access import ClusterAccess
from consumer_membership.runtime.line import Line, RefusedError
from consumer_membership.runtime.log_lines import PackageLog, consumer_prefix, lines_of
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.types import LeaveOption, Offsets, Subscription

#: How long a poll waits before it reads the view again: a missed poll ends the membership without an order. A waiting
#: poll also counts as a poll each time; the member reads the count every three seconds, or before it judges polls.
_WAIT_S = 0.25
#: The detail of a wait for the lease.
_NO_LEASE = "the partitions may belong to another member until the session is confirmed"


class MemberSession:
    """A member's session: joins, calls the callbacks inside `poll`, commits named offsets, and leaves."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        access: ClusterAccess,
        observer: MemberSessionObserver,
        registry: Registry = SESSIONS_OF_PROCESS,
    ) -> None:
        connection = config.connection_settings()
        self._settings = replace(config.member_settings(), auto_commit=False)
        recorder = config.recorder_settings()
        check_directory(recorder)
        self.subscription_settings = config.subscription_settings()
        self._identity = static_identity_of(self._settings, connection)
        self._observer = observer
        self._has_servers = bool(connection.bootstrap_servers)
        self._polls = 0
        #: When the application last polled, or a waiting poll last counted as one (monotonic clock); None: never.
        self.polled_at: float | None = None
        self.line = Line(time=access.clock)
        # `debug` requests log lines; there is no librdkafka that would report them to a callback.
        self._lines = lines_of(config.log_settings(), None, lambda _: None)
        prefix = consumer_prefix(connection.client_id, self._settings.group_id, self._settings.instance_id)
        self.log = PackageLog("consumer_membership.session", "SESSION", self._lines, prefix)
        thread_settings = ThreadSettings(
            member=self._settings,
            protocols=config.protocol_settings(),
            connection=connection,
            # No start offset is looked up: nothing is fetched from it.
            start=StartSettings(reset=OffsetReset.ERROR, read_committed=False),
            progress=lambda: (self._polls, 0),
            lines=self._lines,
            recorder=recorder,
            measure=observer.measure if config.enable_metrics_push else None,
            shares_thread=config.shares_thread,
            lock_directory=config.group_instance_id_lock_directory,
        )
        self.membership_ledger = thread_settings.ledger
        self.thread = access.make_thread(self.line, thread_settings)
        holdings = OwnedOnly()
        self.life = Lifetime(holdings, self.line.wake_up, registry)
        self.orders = OrderQueue(self.line)
        self.ledger = ApplicationLedger()
        settings = CommitSettings(is_automatic=False, stores_by_itself=False, timeout_s=connection.socket_timeout_s)
        self.commits = Commits(OffsetBook(holdings, settings), self.orders, self.line, self.life, ledger=self.ledger)
        style = CallbackStyle(config.callback_settings(), self.line)
        self._subscriptions = Subscriptions(holdings, self.line, style)
        self.steps = Steps(holdings, self.commits, self.line, self.orders, self._subscriptions)
        self._notices = Notices(self.line.wake_up)
        self._rebalance = Rebalance(self.orders, self.steps, self._notices, self._subscriptions, None)
        self._closing = Closing(
            self.life,
            self.line,
            self.commits,
            self._rebalance,
            self.log,
            release=self._release,
            leave_timeout_s=self._settings.leave_timeout_s,
            has_servers=self._has_servers,
        )

    @property
    def has_leases(self) -> bool:
        """Whether `ownership.lease.enable` is set."""
        return self._settings.has_leases

    @property
    def view(self) -> MembershipView:
        """The member's latest view; if the member itself waits for nothing, with the wait of the application's side."""
        return view_of_session(
            self.line, self._subscriptions, self.life, has_servers=self._has_servers, no_lease=_NO_LEASE
        )

    @property
    def subscribed_at(self) -> float | None:
        """When the application subscribed (monotonic clock); None: it is not subscribed."""
        return self._subscriptions.subscribed_at

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Replace the subscription; the member joins, or updates its subscription, at the next poll.

        Raises:
            FatalGroupError: the member was refused permanently.
        """
        self.life.check()
        self._notices.clear_subscription_fatal()
        self._notices.refuse_if_fatal("Failed to set subscription")
        if self._identity is not None and self.life.claim(self._identity):
            self.log.warning("%s", self._identity.warning())
        self._subscriptions.subscribe(subscription, listener)

    def poll(self, timeout_s: float) -> bool:
        """Call the callbacks that are due, or wait until one is due (negative: without limit).

        Returns:
            Whether partitions were assigned, revoked or lost.

        Raises:
            FatalGroupError: the membership ended; raised at most once a second while it lasts.
            RefusedError: another error of the group, once.
        """
        self.life.check()
        began_at = self.line.now()
        deadline = inf if timeout_s < 0 else began_at + timeout_s
        rebalances = self.steps.rebalances
        self.ledger.begin_poll(began_at, 0)
        try:
            with self._closing.polls.begin():
                while self._turn() and self.steps.rebalances == rebalances:
                    left = deadline - self.line.now()
                    if left <= 0 or self.life.is_ending:
                        break
                    self.orders.wait(lambda: self._rebalance.may_serve or self.life.is_ending, min(left, _WAIT_S))
        finally:
            self.ledger.end_poll(began_at, self.line.now(), 0)
            self._closing.close_if_requested()
        return self.steps.rebalances != rebalances

    @property
    def has_work(self) -> bool:
        """Whether a poll has to do more than count itself: an order, an error to raise, or the end."""
        return (
            self.line.wake_up.is_set
            or self.orders.has_waiting
            or bool(self._notices.messages)
            or self.line.view.state is MemberState.FATAL
        )

    def note_poll(self) -> None:
        """Count a poll without work, and send the member the poll that it waits for; performs no order."""
        self._note_poll()
        if self.line.view.needs_poll:
            self._subscriptions.announce_poll()

    def _turn(self) -> bool:
        """Count a poll, perform the waiting orders, raise a waiting error; False: the member closes."""
        self._note_poll()
        if self.line.wake_up.is_set or self.orders.has_waiting:
            self._rebalance.serve()
        view = self.line.view
        if view.state is MemberState.FATAL:
            self._notices.repeat_fatal()
        self._raise_notice()
        if view.needs_poll:
            self._subscriptions.announce_poll()
        return not self.life.is_ending

    def _note_poll(self) -> None:
        self._polls += 1
        self.polled_at = self.line.now()

    def _raise_notice(self) -> None:
        if not self._notices.messages:
            return
        error = self._notices.messages.popleft().error()
        if error is None:
            return
        raised: type[GroupError] = FatalGroupError if error.fatal() else RefusedError
        raise raised(error.str(), error.code())

    def begin_commit(self, offsets: Offsets) -> int:
        """Begin a commit of these offsets, whose outcome `commits.end` waits for; return its number.

        Raises:
            CommitError: the assignment is lost.
            FatalGroupError: the member was refused permanently.
        """
        self.life.check()
        self._rebalance.refuse_lost_commit()
        commit_id, _ = self.commits.begin_commit(offsets)
        return commit_id

    def close(self, option: LeaveOption) -> None:
        """Call on_revoke, leave the group as `option` says, and release everything; idempotent (`Closing`)."""
        self._closing.close(option)
        if self._lines is not None:
            self._lines.flush()

    def _release(self) -> None:
        self.life.close()
        self._observer.on_closing()
        self.thread.stop(STOP_S)
        self._rebalance.close()
        self._observer.on_closed()

    def abandon(self) -> None:
        """Stop without leaving the group."""
        if self.life.is_ours and not self.life.is_closed:
            self.life.end()
            self.life.close()
            self._observer.on_dropped()
            self.thread.stop(0)
