"""One consumer on the application's side of the line, which every front end uses.

A session creates its parts and passes the calls to them; it decides nothing about the membership. The parts, each of
which knows those above it:

| part | module | has |
|---|---|---|
| delivery | `delivery` | the fetcher with librdkafka's handle and its lock, the prefetch buffer, lookups, resets |
| offsets | `commits` | the offset book, commits, automatic commits |
| rebalance | `rebalance` | the member's orders, steps, notices, the subscription and its callbacks |
| end | `closing` | the order of a close: commit, revoke, leave, release |
| calls | `polling`, `partitions` | `poll` and `consume`; `assign`, `pause`, `seek` and similar calls |

An observer is attached from outside (`session_observer.SessionObserver`).

Threads: the handle lock lets one application thread at a time use the handle, for one slice at most. Only one thread at
a time performs steps and callbacks, and it does not hold the handle lock while a callback runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import Message

from consumer_membership.config import ConsumerConfig
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.recorder.dumps import check_directory
from consumer_membership.runtime.application.callbacks import CallbackStyle, CommitCallback, RebalanceListener
from consumer_membership.runtime.application.closing import STOP_S, Closing
from consumer_membership.runtime.application.commits import Commits, CommitSettings, OffsetBook
from consumer_membership.runtime.application.delivery import Delivery
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.handle import HandleCallbacks, Handles
from consumer_membership.runtime.application.lifetime import SESSIONS_OF_PROCESS, Lifetime, Registry, static_identity_of
from consumer_membership.runtime.application.notices import Notices
from consumer_membership.runtime.application.orders import OrderQueue
from consumer_membership.runtime.application.partitions import Partitions
from consumer_membership.runtime.application.polling import Polling
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue, PrefetchBuffer
from consumer_membership.runtime.application.rebalance import Rebalance
from consumer_membership.runtime.application.session_observer import SessionObserver
from consumer_membership.runtime.application.session_view import view_of_session
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.application.subscriptions import Subscriptions
from consumer_membership.runtime.cluster_access import ClusterAccess
from consumer_membership.runtime.line import HotPathGate, LeaseGate, Line
from consumer_membership.runtime.log_lines import PackageLog, consumer_prefix, lines_of
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.types import (
    JOIN_EPOCH,
    GroupProtocol,
    LeaveOption,
    Offsets,
    Subscription,
    TopicPartition,
)

#: The detail of a wait for the lease.
_NO_LEASE = "buffered records are withheld until the session is confirmed"


class Session:
    """One consumer: creates its parts, and passes the application's calls to them."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        callbacks: HandleCallbacks,
        on_commit: CommitCallback | None,
        access: ClusterAccess,
        observer: SessionObserver,
        registry: Registry = SESSIONS_OF_PROCESS,
    ) -> None:
        protocols, connection, start = (
            config.protocol_settings(),
            config.connection_settings(),
            config.start_settings(),
        )
        self._settings = config.member_settings()
        recorder = config.recorder_settings()
        check_directory(recorder)
        self.subscription_settings = config.subscription_settings()
        self._may_be_classic = GroupProtocol.CLASSIC in protocols.protocols
        self._has_servers = bool(connection.bootstrap_servers)
        self._identity = static_identity_of(self._settings, connection)
        self._observer = observer

        # The line to the member, and its thread.
        self.buffer = PrefetchBuffer()
        self.line = line = Line(time=access.clock)
        make_handle = partial(access.make_handle, line)
        self._handles = Handles(config.fetcher_config, callbacks, observer.on_statistics, line.wake_up, make_handle)
        self._lines = lines_of(config.log_settings(), callbacks.logger, self._handles.reports.note)
        prefix = consumer_prefix(connection.client_id, self._settings.group_id, self._settings.instance_id)
        self.log = PackageLog("consumer_membership.session", "SESSION", self._lines, prefix)
        thread_settings = ThreadSettings(
            member=self._settings,
            protocols=protocols,
            connection=connection,
            start=start,
            progress=self.buffer.progress,
            lines=self._lines,
            recorder=recorder,
            measure=observer.measure if config.enable_metrics_push else None,
            shares_thread=config.shares_thread,
            lock_directory=config.group_instance_id_lock_directory,
        )
        self.membership_ledger = thread_settings.ledger
        # Before librdkafka's handle: if TLS cannot read a file, this error has the file's name, and librdkafka's has
        # OpenSSL's numbers.
        self.thread = access.make_thread(line, thread_settings)

        # Delivery.
        self.fetcher = Fetcher(self._handles.make, self.buffer, start.reset)
        self.life = Lifetime(self.fetcher, self.line.wake_up, registry)
        self._delivery = Delivery(self.fetcher, self.line, self.thread, self.life, self.log)

        # Offsets.
        self._orders = OrderQueue(self.line)
        self.ledger = ApplicationLedger()
        commit_settings = CommitSettings(
            is_automatic=self._settings.auto_commit,
            stores_by_itself=config.enable_auto_offset_store,
            timeout_s=connection.socket_timeout_s,
        )
        book = OffsetBook(self.fetcher, commit_settings)
        self.commits = Commits(book, self._orders, self.line, self.life, self.ledger)

        # Rebalance.
        self.subscriptions = Subscriptions(
            self.fetcher, self.line, CallbackStyle(config.callback_settings(), self.line)
        )
        self.steps = Steps(self.fetcher, self.commits, self.line, self._orders, self.subscriptions)
        self._notices = Notices(line.wake_up)
        self._has_on_commit = on_commit is not None
        report = None if on_commit is None else partial(_report, on_commit, self.commits)
        self._rebalance = Rebalance(self._orders, self.steps, self._notices, self.subscriptions, report)

        # The application's calls.
        self.partitions = Partitions(self.fetcher, self.commits, self.steps, self.subscriptions, self.life)
        self._polling = Polling(self._delivery, self._rebalance, self._handles.reports, self.line, self.life)
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

    # ---- the member ----

    @property
    def has_leases(self) -> bool:
        """Whether leases are checked for each record (`ownership.lease.enable`)."""
        return self._settings.has_leases

    @property
    def gate(self) -> HotPathGate:
        """The flag that the hot path of `poll` reads for each record."""
        return LeaseGate(self.line) if self._settings.has_leases else self.line.wake_up

    @property
    def view(self) -> MembershipView:
        """The member's latest view; if the member itself waits for nothing, with the wait of the application's side."""
        return view_of_session(
            self.line,
            self.subscriptions,
            self.life,
            has_servers=self._has_servers,
            no_lease=_NO_LEASE,
            broker_lost_since=self.fetcher.lost_since,
        )

    @property
    def member_id(self) -> str | None:
        """The member id under which the group knows the member; None: it has no id yet, or not any more.

        A member of the consumer protocol generates its own id and keeps it. A classic member gets an id with each join,
        so a member that may still become a classic one has none before it has joined.
        """
        view = self.line.view
        if view.member_epoch <= JOIN_EPOCH and self._may_be_classic and view.protocol is GroupProtocol.CONSUMER:
            return None
        return view.member_id or None

    def set_credentials(self, username: str, password: str) -> None:
        """Use these for each later connection, of librdkafka and of the member."""
        self.partitions.query(lambda handle, _: self._handles.set_credentials(handle, username, password), 0)
        self.thread.set_credentials(username, password)

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Replace the subscription; the member joins, or updates its subscription, at the next poll.

        Raises:
            FatalGroupError: the member was refused permanently.
        """
        self.life.check()
        self._notices.clear_subscription_fatal()
        self._notices.refuse_if_fatal("Failed to set subscription")
        for pattern in subscription.patterns:
            if pattern.note:
                self.log.warning("%s", pattern.note)
        if self._identity is not None and self.life.claim(self._identity):
            self.log.warning("%s", self._identity.warning())
        self.subscriptions.subscribe(subscription, listener)
        self._observer.on_subscribed()

    def unsubscribe(self, option: LeaveOption) -> None:
        """Leave the group, and return no more of its records; on_revoke is called by the next polls, or by close."""
        self.life.check()
        self.subscriptions.unsubscribe(option)

    # ---- polling ----

    def prepare(
        self,
        limit: int,
        deadline: float,
        is_wanted: Callable[[], bool] = lambda: True,
        whole: HandOutQueue[list[Message]] | None = None,
    ) -> HandOutQueue[Message] | None:
        """Poll until there are `limit` records, an error, or the deadline (`line.now`) is reached.

        An error is returned at once and alone: after a missed poll, buffered records may belong to another member
        already, and the next call drops them. An error that ended the membership is returned again once a second.

        Nothing is taken out here, so that an exception (a callback's, a signal handler's) loses nothing: the frame that
        returns to the application takes from the queue, and calls again if another thread was quicker.

        Args:
            limit: How many records the caller wants.
            deadline: When to end, on the clock of `line.now`.
            is_wanted: The call ends earlier if this is false; set the wake-up so that it is checked.
            whole: Receives a batch of `limit` records if one comes that need not wait in the buffer.

        Returns:
            The queue to take from, of errors or of records; None if there is nothing to take.
        """
        self.life.check()
        began_at = self.line.now()
        self.ledger.begin_poll(began_at, len(self.buffer.ready))
        try:
            with self._closing.polls.begin():
                source = self._polling.prepare(limit, deadline, is_wanted, whole)
        finally:
            self.ledger.end_poll(began_at, self.line.now(), len(self.buffer.ready))
            self._closing.close_if_requested()
        return None if self.life.is_closed else source

    def hand_out(self, source: HandOutQueue[Message], limit: int, batch: list[Message]) -> None:
        """Move the records of this queue to the application's batch, which the caller gives back on an interrupt."""
        self._polling.hand_out(source, limit, batch)

    def take(self, limit: int) -> list[Message]:
        """The records or the error that can be returned at once; performs no orders and never waits."""
        return self._polling.take(limit)

    @property
    def can_hand_out(self) -> bool:
        """Whether buffered records may be returned now."""
        return self._polling.can_hand_out

    @property
    def has_reports(self) -> bool:
        """Whether a report of librdkafka waits for its callback."""
        return bool(self._handles.reports)

    @property
    def has_notice(self) -> bool:
        """Whether `take` has an error."""
        return bool(self._notices.messages)

    # ---- commits ----

    def commit(self, offsets: Offsets | None, named: Iterable[TopicPartition] | None = None) -> None:
        """Commit these offsets (None: the consumed and uncommitted ones); `on_commit` gets the outcome (`Commits`).

        Raises:
            CommitError: the assignment is lost.
            FatalGroupError: the member was refused permanently.
        """
        self.life.check()
        self._rebalance.refuse_lost_commit()
        self.commits.commit(offsets, named if self._has_on_commit else None)

    def begin_commit(self, offsets: Offsets | None) -> tuple[int, Offsets]:
        """Begin a commit whose outcome `commits.end` waits for; return its number, and the offsets that it commits.

        Raises:
            CommitError, FatalGroupError: as `commit`; and if there is nothing to commit.
        """
        self.life.check()
        self._rebalance.refuse_lost_commit()
        return self.commits.begin_commit(offsets)

    # ---- the end ----

    def close(self, option: LeaveOption) -> None:
        """Commit, revoke, leave the group as `option` says, and release the handle; idempotent (`Closing`)."""
        self._closing.close(option)

    def _release(self) -> None:
        self.life.close()
        self._observer.on_closing()
        self.thread.stop(STOP_S)
        self._delivery.close()
        self._rebalance.close()
        self._observer.on_closed()
        if self._lines is not None:
            self._lines.flush()

    def abandon(self) -> None:
        """Stop without leaving the group, as confluent-kafka does when an unclosed consumer is destroyed."""
        if self.life.is_ours and not self.life.is_closed:
            self.life.end()
            self.life.close()
            self._observer.on_dropped()
            self.thread.stop(0)


def _report(on_commit: CommitCallback, commits: Commits, completed: CommitCompleted) -> None:
    on_commit(completed, commits.reported(completed))
