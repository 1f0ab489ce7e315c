"""One consumer on the application's side of the line: what every front end drives.

A session owns the fetching handle, takes the member's orders from the line, has them performed between poll slices on
the thread that polls, and answers. It decides nothing about the membership.

Threads: the handle lock lets one application thread at a time to the handle, for one slice at most; the performer lets
one thread at a time run steps and callbacks, and that one does not hold the handle lock while a callback runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import Message

from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import CommitError
from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.events import LeaveRequested, Polled, Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.recorder.dumps import check_directory
from consumer_membership.runtime.application.callbacks import CallbackStyle
from consumer_membership.runtime.application.commits import ANSWER_GRACE_S, Commits, CommitSettings, OffsetBook
from consumer_membership.runtime.application.fetcher import Fetcher, whole_ms
from consumer_membership.runtime.application.handle import HandleCallbacks, Handles
from consumer_membership.runtime.application.lifetime import SESSIONS_OF_PROCESS, Lifetime, Registry, place_of
from consumer_membership.runtime.application.locks import CallLock, RunningCalls
from consumer_membership.runtime.application.orders import CALM_SLICE_S, SLICE_S, OrderQueue
from consumer_membership.runtime.application.partitions import Partitions
from consumer_membership.runtime.application.performer import CommitCallback, Performer, RebalanceListener, Steps
from consumer_membership.runtime.application.prefetch_buffer import HandOutQueue, PrefetchBuffer
from consumer_membership.runtime.application.session_errors import NO_OFFSET_CODE
from consumer_membership.runtime.line import Line, Snapshot
from consumer_membership.runtime.log_lines import PackageLog, lines_of
from consumer_membership.runtime.membership_thread import ThreadFactory, ThreadSettings
from consumer_membership.types import (
    ASSIGNMENT_LOST_CODE,
    JOIN_EPOCH,
    GroupProtocol,
    LeaveOption,
    Offsets,
    Subscription,
)

if TYPE_CHECKING:  # it imports more than a consumer needs
    from consumer_membership.wire.otlp import Point

#: How long the end of the member's thread is waited for; it has nothing left to say then.
STOP_S = 2.0
#: The states of a member that has left, or has nothing to leave.
_OUT = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})
#: The slices of a wait, whether the member is calm or not.
_WHOLE_SLICES_S = {
    is_calm: (slice_s, whole_ms(slice_s)) for is_calm, slice_s in ((False, SLICE_S), (True, CALM_SLICE_S))
}
WAITS_FOR_BROKER = "a broker that librdkafka can fetch from"
WAITS_FOR_SERVERS = "a broker; bootstrap.servers is not set"
WAITS_FOR_LEASE = "the coordinator's word that the session goes on, to hand out what is buffered"


class SessionObserver(Protocol):
    """Receives what happens to one session; no method waits."""

    def on_subscribed(self) -> None:
        """The application subscribed."""

    def on_statistics(self, text: str) -> None:
        """Librdkafka reported these statistics; on the thread that polls, without the handle lock."""

    def measure(self) -> tuple[Point, ...]:
        """Return the metrics for brokers that collect them (KIP-714); on the membership thread."""

    def on_closing(self) -> None:
        """The session left its group and refuses every call from now on; may be called twice after an interrupt."""

    def on_closed(self) -> None:
        """The session released everything; may be called twice after an interrupt."""

    def on_dropped(self) -> None:
        """The session was dropped without a close; may be called by the garbage collector, in any thread."""


class Session:
    """One consumer: the fetching handle, the line to the member, and the application's calls."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        callbacks: HandleCallbacks,
        on_commit: CommitCallback | None,
        make_thread: ThreadFactory,
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
        self.subscriptions = config.subscription_settings()
        self._may_be_classic = GroupProtocol.CLASSIC in protocols.protocols
        self._has_servers = bool(connection.bootstrap_servers)
        self.buffer = PrefetchBuffer()
        self.line = Line()
        self._observer = observer
        self._handles = Handles(config.fetcher_config, callbacks, observer.on_statistics, self.line.wake_up)
        self._lines = lines_of(config.log_settings(), callbacks.logger, self._handles.reports.note)
        self.log = PackageLog("consumer_membership.session", "SESSION", self._lines)
        # Before librdkafka's handle: what TLS cannot read is told here with the file, and there by OpenSSL's numbers.
        thread_settings = ThreadSettings(
            member=self._settings,
            protocols=protocols,
            connection=connection,
            start=start,
            progress=self.buffer.progress,
            lines=self._lines,
            recorder=recorder,
            measure=observer.measure if config.enable_metrics_push else None,
        )
        self.thread = make_thread(self.line, thread_settings)
        self.fetcher = Fetcher(self._handles.make, self.buffer, self._heard_at, start.reset)
        self._handle_lock = self.fetcher.lock
        self.life = Lifetime(self.fetcher, self.line.wake_up, registry)
        self._place = place_of(self._settings, connection)
        self._orders = OrderQueue(self.line)
        commit_settings = CommitSettings(
            is_automatic=self._settings.auto_commit,
            stores_by_itself=config.enable_auto_offset_store,
            timeout_s=connection.socket_timeout_s,
        )
        self._book = OffsetBook(self.fetcher, commit_settings)
        self.ledger = ApplicationLedger()
        self.commits = Commits(self._book, self._orders, self.line, self.life, self.ledger)
        self.steps = Steps(self.fetcher, self.commits, self.line, self._orders)
        self._style = CallbackStyle(config.callback_settings(), self.line)
        self.partitions = Partitions(self.fetcher, self.commits, self.steps, self._style, self.line, self.life)
        self._performer = Performer(self._orders, self.steps, on_commit=on_commit, on_left=self.partitions.left)
        self._notices = self._performer.notices
        for reason in (lambda: self.has_notice, lambda: self.life.is_ending, lambda: self._lease_expired):
            self.line.wake_up.add_reason(reason)
        self.membership_ledger = thread_settings.ledger
        #: The version of the view in which the member was last told that the application polls.
        self._announced_at: int | None = None
        #: The version of the view when partitions were frozen; None: none are.
        self._frozen_at: int | None = None
        self._closing = CallLock()
        #: The polls of each thread; a close inside a poll waits for its end.
        self._polls = RunningCalls()
        #: Whether a close released everything: an interrupt may have ended it before.
        self._is_shut_down = False
        self._leave_option = LeaveOption.DEFAULT
        #: The thread that closes when its poll ends.
        self._closes_later: int | None = None

    # ---- the member ----

    @property
    def view(self) -> MembershipView:
        """The member's latest view; while it waits for nothing itself, what its records wait for."""
        view, since = self.line.view, self.fetcher.lost_since
        if not self._has_servers and view.waits_for is not None:
            return replace(view, waits_for=WAITS_FOR_SERVERS)
        if view.waits_for is not None:
            return view
        if self._lease_expired:
            return replace(view, waits_for=WAITS_FOR_LEASE, waits_since=view.lease_until, waits_until=None)
        if since is not None:
            return replace(view, waits_for=WAITS_FOR_BROKER, waits_since=since, waits_until=None)
        return view

    @property
    def member_id(self) -> str | None:
        """The member id, as soon as it is sure that the group knows the member by it; None: not yet, or not any more.

        A member of the consumer protocol makes its own, for good. A classic one is given one with each join, so a
        member that may still become one has none before it has joined.
        """
        view = self.line.view
        if view.member_epoch <= JOIN_EPOCH and self._may_be_classic and view.protocol is GroupProtocol.CONSUMER:
            return None
        return view.member_id or None

    def set_credentials(self, username: str, password: str) -> None:
        """Have the connections to come, librdkafka's and the member's, say this."""
        self.partitions.ask(lambda handle, _: self._handles.set_credentials(handle, username, password), 0)
        self.thread.set_credentials(username, password)

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Ask for these topics from now on; the member joins, or tells its group, at the next poll."""
        self.life.check()
        self._notices.forgive_subscription()
        self._notices.refuse_if_fatal("Failed to set subscription")
        for pattern in subscription.patterns:
            if pattern.note:
                self.log.warning("[Consumer groupId=%s] %s", self._settings.group_id, pattern.note)
        if self._place is not None and self.life.take_place(self._place):
            self.log.warning("%s", self._place.warning())
        self.partitions.subscribe(subscription)
        self._observer.on_subscribed()
        self.steps.listener = listener
        is_eager = self._style.is_eager(listener)
        self.line.post(Subscribed(subscription=subscription, is_eager=is_eager, asked_at=monotonic()))
        self._announced_at = None
        # Records that the application assigned itself may be buffered: the next poll announces the subscription first.
        self.line.wake_up.set()

    def unsubscribe(self, option: LeaveOption) -> None:
        """Leave the group, and hand out nothing more of it; on_revoke is called by the next polls, or by close."""
        self.life.check()
        self.partitions.subscribe(Subscription())
        self.line.post(LeaveRequested(option=option))

    # ---- polling ----

    def prepare(
        self,
        limit: int,
        deadline: float,
        is_wanted: Callable[[], bool] = lambda: True,
        whole: HandOutQueue[list[Message]] | None = None,
    ) -> HandOutQueue[Message] | None:
        """Poll until there are so many records, an error, or the time (`time.monotonic`) is over.

        An error comes at once and alone: after a missed poll the records that wait may be another member's already, and
        the next call drops them. An error that ended the membership comes at once, and again once a second.

        Nothing is taken out here, so that an exception (a callback's, a signal handler's) loses nothing: the frame that
        returns to the application takes from the source, and calls again if another thread was quicker.

        Args:
            limit: How many records the caller wants.
            deadline: When to end.
            is_wanted: Ends earlier where this is false; wake the line up so that it is looked at.
            whole: Gets a batch of `limit` records if one comes that need not wait in the buffer.

        Returns:
            What to take from: the errors or the records; None if there is nothing.
        """
        self.life.check()
        began_at = monotonic()
        self.ledger.begin_poll(began_at, len(self.buffer.ready))
        try:
            with self._polls.begin():
                source = self._prepare(limit, deadline, is_wanted, whole)
        finally:
            self.ledger.end_poll(began_at, monotonic(), len(self.buffer.ready))
            if self._closes_later is not None:
                self._close_if_asked()
        return None if self.life.is_closed or not source else source

    def hand_out(self, source: HandOutQueue[Message], limit: int, batch: list[Message]) -> None:
        """Append what this source has to the application's batch, which the caller gives back if it is interrupted."""
        with suppress(IndexError):
            batch.extend(map(deque.popleft, repeat(source, limit if source is self.buffer.ready else 1)))

    def take(self, limit: int) -> list[Message]:
        """What can be handed out at once; performs nothing and waits for nothing, but takes part in no rebalance."""
        batch: list[Message] = []
        if self._notices.messages and limit:
            self.hand_out(self._notices.messages, 1, batch)
        elif self.can_hand_out:
            self.hand_out(self.buffer.ready, limit, batch)
        return batch

    @property
    def can_hand_out(self) -> bool:
        """Whether buffered records may be handed out now: no order comes first, and the lease lasts."""
        return not (self._may_serve or self.life.is_ending or self._lease_expired)

    @property
    def has_reports(self) -> bool:
        """Whether librdkafka reported something that a callback is to be told."""
        return bool(self._handles.reports)

    @property
    def has_notice(self) -> bool:
        """Whether `take` has an error."""
        return bool(self._notices.messages)

    def _prepare(
        self, limit: int, deadline: float, is_wanted: Callable[[], bool], whole: HandOutQueue[list[Message]] | None
    ) -> HandOutQueue[Message] | None:
        """As `prepare`; also nothing while the lease is over, so that records may belong to another member."""
        while True:
            lease_until = self._serve().lease_until
            if self._notices.messages and limit:
                return self._notices.messages
            left = deadline - monotonic()
            self._gather(limit, min(self._orders.slice_s, max(left, 0.0)), whole)
            if whole:
                return None
            self._handles.reports.tell()
            if self._may_serve and left > 0:
                continue  # what was ordered meanwhile comes first: it may be about this very record
            is_over = left <= 0 or self.life.is_ending or not is_wanted()
            if lease_until is not None and monotonic() >= lease_until and self._wait_for_lease(left):
                if is_over:
                    return None
            elif is_over or len(self.buffer.ready) >= limit:
                return self.buffer.ready
            if not self.buffer.ready:
                self._wait_idle(deadline)

    def _serve(self) -> MembershipView:
        """Begin one slice: what was reported, what the member ordered, what it waits to hear; how the member is."""
        self.buffer.turns += 1
        if self.line.wake_up.is_set or self._orders.has_waiting:
            self._performer.serve()
        snapshot = self.line.snapshot
        view = snapshot.view
        if self.fetcher.frozen:
            self._thaw_spared(snapshot)
        else:
            self._frozen_at = None
        if view.state is MemberState.FATAL:
            self._notices.tell_again()
        if view.needs_poll and self.partitions.is_subscribed and snapshot.version != self._announced_at:
            self._announced_at = snapshot.version
            self.line.send(Polled())
        return view

    def _gather(self, limit: int, slice_s: float, whole: HandOutQueue[list[Message]] | None) -> None:
        """Add to the buffer for one slice; a full batch that can be handed out whole goes there instead."""
        if self.life.is_ending or len(self.buffer.ready) >= limit:
            return
        if not self.fetcher.can_deliver:
            self._idle(slice_s)
            return
        with self._handle_lock:
            if self.life.is_closed:
                return
            if limit == 1:
                self._look_after_handle(is_alive=self.fetcher.fill(slice_s))
                return
            batch = self.fetcher.fetch(limit - len(self.buffer.ready), whole_ms(slice_s))
            self._look_after_handle(is_alive=bool(batch))
            waits = self._handles.reports or self.line.wake_up.is_set or self._lease_expired or self.buffer.ready
            if whole is not None and len(batch) == limit and not waits:
                self.buffer.offer(whole)
            else:
                self.buffer.take_in()

    def _wait_idle(self, deadline: float) -> None:
        """Wait in whole slices for as long as nothing comes and nobody has anything to say.

        It is all that an idle consumer does, so that it asks as little as it can: after 50 ms in which others had the
        processor each object that is touched is far away, and most of what a slice costs (0.1 % of a core for ten of
        them in a second). Whatever happens sends the caller through a turn of its own again, which looks at everything.
        """
        fetcher, buffer, life, line = self.fetcher, self.buffer, self.life, self.line
        if self._orders.slice_s < SLICE_S or not fetcher.can_deliver:
            return
        thread = self.thread
        snapshot, wake_up, reports, lock = line.snapshot, line.wake_up, self._handles.reports.waiting, self._handle_lock
        until = min(deadline, fetcher.look_at)
        while not (wake_up.is_set or reports or life.is_ending or line.snapshot is not snapshot):
            left = until - monotonic()
            if left <= 0:
                return
            buffer.turns += 1
            with lock:
                if life.is_closed or buffer.ready:
                    return
                slice_s, whole_s = _WHOLE_SLICES_S[thread.is_calm]
                if fetcher.wait(whole_s if left > slice_s else whole_ms(left)):
                    self._look_after_handle(is_alive=True)
                    return

    def _look_after_handle(self, *, is_alive: bool) -> None:
        """After a slice: have a handle that has lost its brokers made anew, with what it fetches."""
        if is_alive and self.thread.is_calm:
            self.thread.sample_soon()
        if self.fetcher.look_after_handle(is_alive=is_alive):
            self.log.warning(
                "librdkafka has no broker and does not find one any more (see its issue 5301); it is started anew and "
                "goes on where it was"
            )

    def _heard_at(self) -> float | None:
        """When the member's last heartbeat was answered; None: the application assigned its partitions itself."""
        return (self.line.view.last_heartbeat_at or 0.0) if self.partitions.is_subscribed else None

    @property
    def _lease_expired(self) -> bool:
        """Whether what is buffered may be another member's by now: nothing was heard of the coordinator for a session.

        So it is after a process was stopped for longer, as well as behind a network that was cut.
        """
        until = self.line.view.lease_until
        return until is not None and monotonic() >= until

    def _wait_for_lease(self, left_s: float) -> bool:
        """Whether nothing may be handed out just now; waits up to a slice for the coordinator to say that it may."""
        if not self._lease_expired:
            return False
        self.line.wake_up.set()
        self._orders.wait(
            lambda: self._may_serve or self.life.is_ending or not self._lease_expired,
            min(self._orders.slice_s, max(left_s, 0.0)),
        )
        return True

    def _idle(self, slice_s: float) -> None:
        """Wait for the member, since nothing can come from the handle but its reports."""
        with self._handle_lock:
            if not self.life.is_closed:
                self.fetcher.fill(0)
        if slice_s > 0 and not self.buffer.ready and not self._handles.reports:
            self._orders.wait(lambda: self._may_serve or self.life.is_ending, slice_s)

    @property
    def _may_serve(self) -> bool:
        """Whether something waits to be performed and nobody is at it."""
        return self._orders.has_waiting and self._performer.call_lock.owner is None

    def _thaw_spared(self, snapshot: Snapshot) -> None:
        """Let partitions go on whose revocation did not take place after all.

        After a callback that raised the coordinator may want nothing revoked any more, and then no step says so. A
        settled member of a later view than the one at the freeze owns what it holds.
        """
        if self._frozen_at is None:
            self._frozen_at = snapshot.version
        elif snapshot.version > self._frozen_at and snapshot.view.is_settled and not self._orders.has_waiting:
            with self._handle_lock:
                self.fetcher.thaw(self.fetcher.frozen & snapshot.view.owned.keys())

    def _close_if_asked(self) -> None:
        """At the end of a call that polls: a close that was asked for inside it takes place now."""
        if self._closes_later == threading.get_ident() and not self._polls.is_inside:
            self._closes_later = None
            self._close_once()

    # ---- commits ----

    def commit(self, offsets: Offsets | None) -> None:
        """Commit these offsets (None: what is consumed and not committed); the outcome is told to `on_commit`.

        Raises:
            CommitError: the assignment is lost.
            FatalGroupError: the member was refused for good.
        """
        wanted = self._to_commit(offsets)
        if wanted:
            self.commits.begin(wanted, is_awaited=False)
        else:
            self._orders.add(CommitCompleted(commit_id=0, offsets={}, errors={}))

    def begin_commit(self, offsets: Offsets | None) -> tuple[int, Offsets]:
        """The same with an outcome that `commits.end` waits for: the commit's number, and what it commits.

        Raises:
            CommitError, FatalGroupError: as `commit`; and there is nothing to commit.
        """
        wanted = self._to_commit(offsets)
        if not wanted:
            raise CommitError("Commit failed: Local: No offset stored", NO_OFFSET_CODE)
        return self.commits.begin(wanted, is_awaited=True), wanted

    def _to_commit(self, offsets: Offsets | None) -> Offsets:
        self.life.check()
        self._notices.refuse_if_fatal("Commit failed")
        if self.steps.is_losing:
            raise CommitError("Commit failed: Local: Assignment was lost", ASSIGNMENT_LOST_CODE)
        if offsets is not None:
            return offsets
        with self._handle_lock:
            return self._book.uncommitted()

    # ---- the end ----

    def close(self, option: LeaveOption) -> None:
        """Give up everything in good order, leave the group as `option` says, and let the handle go.

        A close from inside a callback, or from a signal handler that interrupts a poll of its own thread, takes place
        when that call ends. What callbacks raise meanwhile is raised at the end.
        """
        if self.life.is_ours and self.life.is_closed:
            if not self._is_shut_down and self._closing.owner is None:
                self._shut_down()  # an interrupt cut the first close short
            return
        self.life.check()
        if self._closing.owner == threading.get_ident():
            return
        self._leave_option = option
        if self._polls.is_inside:
            self._close_later(threading.get_ident())
            return
        self._close_once()

    def _close_once(self) -> None:
        closing = Lock()
        with closing:
            if self._closing.acquire(closing):
                self.life.end()
                self._orders.notify()
                self._close()
                return
        self._orders.wait(lambda: self.life.is_closed, self._patience_s)

    def _close_later(self, thread: int) -> None:
        self.life.end()
        self._closes_later = thread

    @property
    def _patience_s(self) -> float:
        return self._settings.leave_timeout_s + ANSWER_GRACE_S

    def _close(self) -> None:
        errors: list[Exception] = []
        performing = Lock()
        with performing:
            while not self._performer.call_lock.acquire(performing):
                busy = self._performer.call_lock.owner
                if busy is not None and not self._orders.wait(
                    lambda: self._performer.call_lock.owner is None, self._patience_s
                ):
                    # A callback runs in another thread and may wait for this thread: the other thread closes when the
                    # callback returns.
                    self._close_later(busy)
                    return
            self._part_and_shut_down(errors)
        if self._lines is not None:
            self._lines.flush()
        if errors:
            raise errors[0]

    def _part_and_shut_down(self, errors: list[Exception]) -> None:
        try:
            self._part(errors)
        finally:
            self._shut_down()

    def _part(self, errors: list[Exception]) -> None:
        """Leave the group, in good order or, where a signal handler raises meanwhile, at once: never without a word."""
        if not self.line.has_sent:
            return
        has_left = False
        try:
            self._settle(errors)
            has_left = True
        finally:
            if not has_left:
                self.line.post(LeaveRequested(option=self._leave_option, at_once=True))
                self._orders.wait(lambda: self.line.view.state in _OUT, STOP_S)

    def _shut_down(self) -> None:
        """Refuse every call from now on, and release everything; can be repeated after an interrupt."""
        self.life.close()
        self._observer.on_closing()
        self.thread.stop(STOP_S)
        with self._handle_lock:
            self.buffer.ready.clear()
            self.fetcher.handle.close()
        self._performer.release()
        self._observer.on_closed()
        self._is_shut_down = True

    def _settle(self, errors: list[Exception]) -> None:
        """Commit, then leave: every order of the member is performed here, callbacks included."""
        with self._handle_lock:
            self.commits.begin_by_hand(self.fetcher.by_hand)
        # A leave would overtake commits on their way, and the coordinator refuses those of a member that is gone.
        if self._has_servers:
            self._perform_until(lambda: not self.commits.has_outstanding, errors, self._settings.leave_timeout_s / 2)
        leaves = self._performer.leaves
        self.line.post(LeaveRequested(option=self._leave_option))
        if not self._perform_until(lambda: self._performer.leaves > leaves, errors, self._patience_s):
            self.log.error("The member did not confirm its leave in time; the session's end removes it from the group")

    def _perform_until(self, is_over: Callable[[], bool], errors: list[Exception], patience_s: float) -> bool:
        """Perform what comes until something is so; False: nothing came for so long."""
        while True:
            self._performer.perform_all(errors)
            if is_over():
                return True
            if not self._orders.wait(lambda: self._orders.has_waiting or is_over(), patience_s):
                return False

    def abandon(self) -> None:
        """Stop without a word to the group, as the destruction of an unclosed consumer does in confluent-kafka."""
        if self.life.is_ours and not self.life.is_closed:
            self.life.end()
            self.life.close()
            self._observer.on_dropped()
            self.thread.stop(0)
