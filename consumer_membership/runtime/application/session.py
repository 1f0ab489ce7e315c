"""One consumer on the application's side of the line: what every front end drives.

A session owns the fetching handle, takes the member's orders out of the mailbox, performs them between poll slices on
the thread that polls, and answers. It decides nothing about the membership.

Threads: the fair_lock lets one application thread at a time to the handle, for one slice at most; the performer lets
one thread at a time run steps and callbacks, and that one does not hold the fair_lock while a callback runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from confluent_kafka import Message

from consumer_membership.config import ConsumerConfig
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.events import AssignedByHand, Event, LeaveRequested, Polled, Subscribed
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.application.call_lock import CallLock, caller, is_running
from consumer_membership.runtime.application.commits import Commits
from consumer_membership.runtime.application.data_plane import DataPlane
from consumer_membership.runtime.application.deliveries import Deliveries
from consumer_membership.runtime.application.fair_lock import FairLock
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.handle import HandleCallbacks, Handles
from consumer_membership.runtime.application.handle_watch import HandleWatch
from consumer_membership.runtime.application.lifetime import Lifetime, place_of
from consumer_membership.runtime.application.listener import RebalanceListener
from consumer_membership.runtime.application.offset_book import OffsetBook
from consumer_membership.runtime.application.open_commits import GRACE_S, OpenCommits
from consumer_membership.runtime.application.order_queue import OrderQueue
from consumer_membership.runtime.application.performer import CommitCallback, Performer
from consumer_membership.runtime.application.statistics import Progress, rewritten
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.runtime.log_lines import RoomLog, lines_of
from consumer_membership.runtime.ports import PortFactory
from consumer_membership.types import JOIN_EPOCH, GroupProtocol, LeaveOption, Subscription, TopicPartition

#: How long the end of the member's thread is waited for; it has nothing left to say then.
STOP_S = 2.0
WAITS_FOR_BROKER = "a broker that librdkafka can fetch from"
WAITS_FOR_SERVERS = "a broker; bootstrap.servers is not set"
WAITS_FOR_WORD = "the coordinator's word that the session goes on, to hand out what is buffered"


class Session:
    """One consumer: the fetching handle, the member's port, and the application's calls."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        callbacks: HandleCallbacks,
        on_commit: CommitCallback | None,
        port_factory: PortFactory,
    ) -> None:
        self._settings = config.member_settings()
        self.subscriptions = config.subscription_settings()
        protocols, connection, start = (
            config.protocol_settings(),
            config.connection_settings(),
            config.start_settings(),
        )
        self._may_be_classic = GroupProtocol.CLASSIC in protocols.protocols
        self._has_servers = bool(connection.bootstrap_servers)
        self._read_committed = start.read_committed
        self.deliveries = Deliveries()
        self._fair_lock = FairLock()
        self.order_queue = OrderQueue(self._take_commit)
        self._handles = Handles(config.fetcher_config, callbacks, self._rewrite)
        self._lines = lines_of(config.log_settings(), callbacks.logger, self._handles.reports.note)
        self._log = RoomLog("consumer_membership.session", "SESSION", self._lines)
        # Before librdkafka's handle: what TLS cannot read is told here with the file, and there by OpenSSL's numbers.
        self._port = port_factory(
            member=self._settings,
            protocols=protocols,
            connection=connection,
            start=start,
            to_application=self.order_queue.mailbox,
            progress=self.deliveries.progress,
            lines=self._lines,
        )
        self._fetcher = Fetcher(self._handles.make, self.deliveries)
        self._watch = HandleWatch(lambda: self._fetcher.has_broker, self._heard_at)
        self._open_commits = OpenCommits(self._post_to_thread, connection.socket_timeout_s)
        self.life = Lifetime(self._fetcher, self.order_queue.mailbox)
        self._place = place_of(self._settings, connection)
        self._book = OffsetBook(self._fetcher, stores_by_itself=config.enable_auto_offset_store)
        self._steps = Steps(
            self._fetcher,
            self._book,
            self._fair_lock,
            auto_commit=self._settings.auto_commit,
            await_commits=self._await_commits,
            post=self._port.post,
        )
        self.partitions = DataPlane(
            self._fetcher,
            self._book,
            self._steps,
            self._fair_lock,
            self.life,
            announce=self._announce_by_hand,
            commit_by_hand=self._commit_by_hand,
            fetch_committed=self._port.fetch_committed,
        )
        self._performer = Performer(
            self.order_queue,
            self._steps,
            self._book,
            self._fair_lock,
            post=self._port.post,
            on_commit=on_commit,
            on_left=self.partitions.left,
        )
        self.commits = Commits(
            self._open_commits, self._book, self._steps, self._fair_lock, self.life, self.order_queue, self._performer
        )
        self._is_started = False
        self._announced: MembershipView | None = None
        self._frozen_at: MembershipView | None = None
        self._closing = CallLock()
        self._leave_option = LeaveOption.DEFAULT
        #: The thread that closes when its poll ends.
        self._closes_later: int | None = None

    # ---- the member ----

    @property
    def view(self) -> MembershipView:
        """The member's latest picture; while it waits for nothing itself, what its records wait for."""
        view, since = self._port.view, self._watch.lost_since
        if not self._has_servers and view.waits_for is not None:
            return replace(view, waits_for=WAITS_FOR_SERVERS)
        if view.waits_for is not None:
            return view
        if self._is_in_doubt:
            return replace(view, waits_for=WAITS_FOR_WORD, waits_since=view.lease_until, waits_until=None)
        if since is not None:
            return replace(view, waits_for=WAITS_FOR_BROKER, waits_since=since, waits_until=None)
        return view

    @property
    def member_id(self) -> str | None:
        """The member id, as soon as it is sure that the group knows the member by it; None: not yet, or not any more.

        A member of the consumer protocol makes its own, for good. A classic one is given one with each join, so a
        member that may still become one has none before it has joined.
        """
        view = self._port.view
        if view.member_epoch <= JOIN_EPOCH and self._may_be_classic and view.protocol is GroupProtocol.CONSUMER:
            return None
        return view.member_id or None

    def set_credentials(self, username: str, password: str) -> None:
        """Have the connections to come, librdkafka's and the member's, say this."""
        self.partitions.ask(lambda handle, _: self._handles.set_credentials(handle, username, password), 0)
        self._port.set_credentials(username, password)

    def _post_to_thread(self, *events: Event) -> None:
        """Post something that is worth connecting for."""
        if not self._is_started:
            self._is_started = True
            if not self._has_servers:
                self._log.warning("bootstrap.servers is not set: this consumer waits for brokers that nobody names")
            self._port.start()
        self._port.post(*events)

    def _announce_by_hand(self, event: AssignedByHand) -> None:
        """Automatic commits are all that the member does for partitions that the application assigned itself."""
        if self._settings.auto_commit:
            self._post_to_thread(event)

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        """Ask for these topics from now on; the member joins, or tells its group, at the next poll."""
        self.life.check()
        self._performer.forgive()
        self._performer.refuse_if_fatal("Failed to set subscription")
        for pattern in subscription.patterns:
            if pattern.note:
                self._log.warning("[Consumer groupId=%s] %s", self._settings.group_id, pattern.note)
        if self._place is not None and self.life.take_place(self._place):
            self._log.warning("%s", self._place.warning())
        self.partitions.subscribe(subscription)
        self._steps.listener = listener
        self._port.post(Subscribed(subscription=subscription))
        self._announced = None

    def unsubscribe(self, option: LeaveOption) -> None:
        """Leave the group, and hand out nothing more of it; on_revoke is called by the next polls, or by close."""
        self.life.check()
        self.partitions.subscribe(Subscription())
        self._port.post(LeaveRequested(option=option))

    # ---- polling ----

    def poll(self, timeout_s: float) -> Message | None:
        """The next record or error, None when the time is over (negative: never).

        An error that ended the membership is told at once, and again once a second.
        """
        self.life.check()
        try:
            deadline = float("inf") if timeout_s < 0 else monotonic() + timeout_s
            while True:
                lease_until = self._serve().lease_until
                if self._performer.notices:
                    return self._performer.notices.popleft()
                left = deadline - monotonic()
                self._gather(1, min(self.order_queue.slice_s, max(left, 0.0)))
                self._handles.reports.tell()
                if self._may_serve and left > 0:
                    continue  # what was ordered meanwhile comes first: it may be about this very record
                if lease_until is None or monotonic() < lease_until or not self._waits_for_word(left):
                    with suppress(IndexError):
                        return self.deliveries.ready.popleft()
                if left <= 0 or self.life.is_ending:
                    return None
        finally:
            self._close_if_asked()

    def consume(self, limit: int, timeout_s: float) -> list[Message]:
        """Gather until there are so many records or the time is over (negative: never).

        What was gathered before a callback raises stays for the next call. An error comes at once and alone: after a
        missed poll the records that wait may be another member's already, and the next call drops them.
        """
        self.life.check()
        try:
            deadline = float("inf") if timeout_s < 0 else monotonic() + timeout_s
            while True:
                lease_until = self._serve().lease_until
                if self._performer.notices and limit:
                    return [self._performer.notices.popleft()]
                left = deadline - monotonic()
                batch = self._gather(limit, min(self.order_queue.slice_s, max(left, 0.0)))
                if batch is not None:
                    return batch
                self._handles.reports.tell()
                if self._may_serve and left > 0:
                    continue
                is_over = left <= 0 or self.life.is_ending
                is_held = lease_until is not None and monotonic() > lease_until and self._waits_for_word(left)
                if is_over or (not is_held and len(self.deliveries.ready) >= limit):
                    return [] if is_held else self.deliveries.hand_out(limit)
        finally:
            self._close_if_asked()

    def _serve(self) -> MembershipView:
        """Begin one slice: what was reported, what the member ordered, what it waits to hear; how the member is."""
        self.deliveries.turns += 1
        if self.order_queue.has_waiting:
            self._performer.serve()
        if self._fetcher.frozen:
            self._thaw_spared()
        else:
            self._frozen_at = None
        view = self._port.view
        if view.state is MemberState.FATAL:
            self._performer.tell_again()
        if self.partitions.is_subscribed and view is not self._announced and view.needs_poll:
            self._announced = view
            self._post_to_thread(Polled())
        return view

    def _gather(self, limit: int, slice_s: float) -> list[Message] | None:
        """Add to the buffer for one slice; a full batch that can go past the buffer is returned instead."""
        if self.life.is_ending or len(self.deliveries.ready) >= limit:
            return None
        if not self._fetcher.can_deliver:
            self._idle(slice_s)
            return None
        with self._fair_lock:
            if self.life.is_closed:
                return None
            if limit == 1:
                self._look_after_handle(is_alive=self._fetcher.fill(slice_s))
                return None
            batch = self._fetcher.fetch(limit - len(self.deliveries.ready), slice_s)
            self._look_after_handle(is_alive=bool(batch))
            passes = not (self._handles.reports or self.order_queue.mailbox.full or self._is_in_doubt)
            if len(batch) == limit and passes:
                self.deliveries.pass_through(limit)
                return batch
            self.deliveries.take_in(batch)
        return None

    def _look_after_handle(self, *, is_alive: bool) -> None:
        """After a slice: have a handle that has lost its brokers made anew, with what it fetches."""
        if is_alive:
            self._watch.saw_life()
        elif self._watch.finds_it_lost():
            self._log.warning(
                "librdkafka has no broker and does not find one any more (see its issue 5301); it is started anew and "
                "goes on where it was"
            )
            self._fetcher.renew()

    def _heard_at(self) -> float | None:
        """When the member's last heartbeat was answered; None: the application assigned its partitions itself."""
        return (self._port.view.last_heartbeat_at or 0.0) if self.partitions.is_subscribed else None

    @property
    def _is_in_doubt(self) -> bool:
        """Whether what is buffered may be another member's by now: nothing was heard of the coordinator for a session.

        So it is after a process was stopped for longer, as well as behind a network that was cut.
        """
        until = self._port.view.lease_until
        return until is not None and monotonic() > until

    def _waits_for_word(self, left_s: float) -> bool:
        """Whether nothing may be handed out just now; waits up to a slice for the coordinator to say that it may."""
        if not self._is_in_doubt:
            return False
        self.order_queue.wait(
            lambda: self._may_serve or self.life.is_ending or not self._is_in_doubt,
            min(self.order_queue.slice_s, max(left_s, 0.0)),
        )
        # As long as this lasts every poll has to come here.
        self.order_queue.mailbox.full = True
        return True

    def _idle(self, slice_s: float) -> None:
        """Wait for the member, since nothing can come from the handle but its reports."""
        with self._fair_lock:
            if not self.life.is_closed:
                self._fetcher.fill(0)
        if slice_s > 0 and not self.deliveries.ready and not self._handles.reports:
            self.order_queue.wait(lambda: self._may_serve or self.life.is_ending, slice_s)

    @property
    def _may_serve(self) -> bool:
        """Whether something waits to be performed and nobody is at it."""
        return self.order_queue.has_waiting and self._performer.duty.holder is None

    def _thaw_spared(self) -> None:
        """Let partitions go on whose revocation did not take place after all.

        After a callback that raised the coordinator may want nothing revoked any more, and then no step says so. A
        settled member of a later view than the one at the freeze owns what it holds.
        """
        view = self._port.view
        if self._frozen_at is None:
            self._frozen_at = view
        elif view is not self._frozen_at and view.is_settled and not self.order_queue.has_waiting:
            with self._fair_lock:
                self._fetcher.thaw(self._fetcher.frozen & view.owned.keys())

    def _close_if_asked(self) -> None:
        """At the end of a call that polls: a close that was asked for inside it takes place now."""
        if self._closes_later == threading.get_ident() and not is_running(self, POLLS, caller(2)):
            self._closes_later = None
            self._close_once()

    # ---- commits ----

    def _take_commit(self, completed: CommitCompleted) -> bool:
        self._book.committed(completed.offsets, completed.errors)
        return self._open_commits.take(completed)

    def _await_commits(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Wait for commits of these partitions that are on their way; the offsets of those that are not answered."""
        asked_of = self._open_commits.asked_of
        if asked_of(partitions):
            self.order_queue.wait(lambda: self.life.is_ending or not asked_of(partitions), GRACE_S)
        return asked_of(partitions)

    def _commit_by_hand(self) -> None:
        """Commit what was consumed of partitions that the application assigned itself, before it gives them up."""
        offsets = self._book.uncommitted(self._fetcher.by_hand) if self._settings.auto_commit else {}
        if offsets:
            self._open_commits.begin(offsets, is_awaited=False)

    # ---- the end ----

    def close(self, option: LeaveOption) -> None:
        """Give up everything in good order, leave the group as `option` says, and let the handle go.

        A close from inside a callback, or from a signal handler that interrupts a poll of its own thread, takes place
        when that call ends. What callbacks raise meanwhile is raised at the end.
        """
        if self.life.is_ours and self.life.is_closed:
            return
        self.life.check()
        if self._closing.holder == threading.get_ident():
            return
        self._leave_option = option
        if is_running(self, POLLS, caller(1)):
            self._close_later(threading.get_ident())
            return
        self._close_once()

    def _close_once(self) -> None:
        if not self._closing.take():
            self.order_queue.wait(lambda: self.life.is_closed, self._patience_s)
            return
        try:
            self.life.end()
            self.order_queue.ring()
            self._close()
        finally:
            self._closing.give_back()

    def _close_later(self, thread: int) -> None:
        self.life.end()
        self._closes_later = thread

    @property
    def _patience_s(self) -> float:
        return self._settings.leave_timeout_s + GRACE_S

    def _close(self) -> None:
        while not self._performer.duty.take():
            busy = self._performer.duty.holder
            if busy is not None and not self.order_queue.wait(
                lambda: self._performer.duty.holder is None, self._patience_s
            ):
                # A callback runs in another thread, and may wait for this one: that thread closes when it comes back.
                self._close_later(busy)
                return
        errors: list[Exception] = []
        try:
            if self._is_started:
                self._settle(errors)
        finally:
            self.life.is_closed = True
            self._port.stop(STOP_S)
            with self._fair_lock:
                self.deliveries.ready.clear()
                self._fetcher.handle.close()
            self._performer.rest()
        if self._lines is not None:
            self._lines.tell()
        if errors:
            raise errors[0]

    def _settle(self, errors: list[Exception]) -> None:
        """Commit, then leave: every order of the member is performed here, callbacks included."""
        with self._fair_lock:
            self._commit_by_hand()
        # A leave would overtake commits on their way, and the coordinator refuses those of a member that is gone.
        if self._has_servers:
            self._perform_until(
                lambda: not self._open_commits.has_outstanding, errors, self._settings.leave_timeout_s / 2
            )
        leaves = self._performer.leaves
        self._port.post(LeaveRequested(option=self._leave_option))
        if not self._perform_until(lambda: self._performer.leaves > leaves, errors, self._patience_s):
            self._log.error("The member did not confirm its leave in time; the session's end removes it from the group")

    def _perform_until(self, is_over: Callable[[], bool], errors: list[Exception], patience_s: float) -> bool:
        """Perform what comes until something is so; False: nothing came for so long."""
        while True:
            self._performer.perform_all(errors)
            if is_over():
                return True
            if not self.order_queue.wait(lambda: self.order_queue.has_waiting or is_over(), patience_s):
                return False

    def abandon(self) -> None:
        """Stop without a word to the group, as the destruction of an unclosed consumer does in confluent-kafka."""
        if self.life.is_ours and not self.life.is_closed:
            self.life.end()
            self.life.is_closed = True
            self._port.stop(0)

    def _rewrite(self, statistics: str) -> str:
        return rewritten(
            statistics, self._port.view, self._port.figures(), self._progress(), read_committed=self._read_committed
        )

    def _progress(self) -> Progress:
        with self._fair_lock:
            if self.life.is_closed:
                return Progress()
            assigned = self._fetcher.assigned
            return Progress(
                assigned=len(assigned),
                positions=self._fetcher.positions(assigned),
                stored=self._book.stored(),
                waiting=self.deliveries.waiting(),
                asked_at=self._fetcher.asked_at.copy(),
                rebalances=self._steps.rebalances,
                rebalanced_at=self._steps.rebalanced_at,
            )


#: The calls inside which a close has to wait for their end.
POLLS = frozenset({Session.poll.__code__, Session.consume.__code__})
