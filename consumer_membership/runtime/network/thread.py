"""The membership thread: one daemon thread with a private asyncio loop that owns the state machine and the sockets.

Events come in through a mailbox from the application's threads, or from finished requests; each is handed to the core,
and the effects are performed in their order: those for the application go into its mailbox, those for the network
become requests. Nothing here decides anything about the membership, and nothing here touches the librdkafka handle.
"""

from __future__ import annotations

import asyncio
import base64
import random
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.errors import MembershipError
from consumer_membership.membership.choice import GroupEffect, GroupMember, ProtocolChosen, ProtocolSettings
from consumer_membership.membership.classic.member import AnyEvent
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CollectPositions,
    CommitCompleted,
    InstanceReleased,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    Problem,
    RaiseToApplication,
    RevokePartitions,
    StateChanged,
    TopicsAppeared,
    Warned,
)
from consumer_membership.membership.events import CoordinatorLost, Event, Polled, TimePassed
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView, ended
from consumer_membership.runtime.log_lines import ConsumerLines, RoomLog
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.member_requests import MemberRequests, NetworkOrder
from consumer_membership.runtime.network.observer import Observer
from consumer_membership.runtime.ports import MemberFigures
from consumer_membership.types import FATAL_CODE, BrokerAddress, BrokerError, CommittedOffsets, TopicPartition
from consumer_membership.wire.codec import import_layouts

_LOG = RoomLog("consumer_membership.network", "BROKER")

#: How often the thread looks whether the application polls and is given records.
SAMPLE_S = 0.25
#: Records within this time make a member an active one (`heartbeat.active.interval.ms`).
ACTIVE_S = 1.0


def new_member_id() -> str:
    """A member id as librdkafka and Java make it: 16 random bytes in URL-safe base64, 22 characters (KIP-1082)."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class NetworkThread:
    """Runs one member. `start` begins, `post` gives it events, `view` shows it, `stop` ends it.

    `progress` is called on this thread, without lock, and returns two growing counts: signs that the application polls,
    and records handed to it. `security`: what its owner made of `connection`; None: it is made here. `lines`: where its
    log lines go beside Python's loggers.
    """

    def __init__(
        self,
        *,
        member: MemberSettings,
        protocols: ProtocolSettings,
        connection: ConnectionSettings,
        start: StartSettings,
        to_application: Mailbox[ApplicationEffect],
        progress: Callable[[], tuple[int, int]],
        observer: Observer,
        security: ConnectionSecurity | None = None,
        lines: ConsumerLines | None = None,
    ) -> None:
        import_layouts(protocols.protocols[0])
        self._member = GroupMember(member, protocols, new_member_id=new_member_id, jitter=random.random)
        self._connection = connection
        self._security = security or ConnectionSecurity(connection)
        self._lines = lines
        self._start_settings = start
        self._to_application = to_application
        self._progress = progress
        self._observer = observer
        self._view = self._member.view()
        self._coordinator_since: float | None = None
        self._inbox: Mailbox[Event] = Mailbox(self._ring)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._client: Cluster | None = None
        self._requests: MemberRequests | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lease_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        #: Whether the thread ends: nothing is handed to the core any more, and the loop that winds up is not stopped.
        self._is_over = False
        self._seen = (0, 0)
        self._delivered_at = float("-inf")

    # ---- the application's side ----

    @property
    def view(self) -> MembershipView:
        """The member's latest picture."""
        return self._view

    def start(self) -> None:
        """Start the thread, if it does not run yet; nothing connects before an event or a question needs it."""
        self._started_loop()

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the thread, which is started if it does not run yet: by one of several callers."""
        with self._starting:
            if self._loop is not None:
                return self._loop
            loop = self._loop = asyncio.new_event_loop()
            name = f"membership {self._member.settings.group_id}"
            self._thread = threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
            self._thread.start()
        self._ring()
        return loop

    def post(self, *events: Event) -> None:
        """Give the member these events, from any thread; they wait until the thread is started."""
        self._inbox.put(*events)

    def fetch_committed(self, partitions: frozenset[TopicPartition], timeout_s: float) -> Future[CommittedOffsets]:
        """Ask what the group has committed of these partitions (`MemberRequests.committed`), from any thread.

        A question of the application alone: the core neither asks nor hears of it. Once the member knows its
        coordinator the question goes out behind the commits that were posted before it, on their connection.
        """
        answer: Future[CommittedOffsets] = Future()
        try:
            self._started_loop().call_soon_threadsafe(self._ask_committed, answer, partitions, timeout_s)
        except RuntimeError:  # the loop is closed
            answer.cancel()
        return answer

    def set_credentials(self, username: str, password: str) -> None:
        """Have later authentications say this, from any thread; connections that stand are left as they are."""
        self._security.set_credentials(username, password)

    def figures(self) -> MemberFigures:
        """What statistics tell beside the picture, as it is now; from any thread."""
        client, requests = self._client, self._requests
        return MemberFigures(
            coordinator_since=self._coordinator_since,
            committed={} if requests is None else requests.committed_offsets.copy(),
            traffic=() if client is None else client.traffic(),
        )

    def stop(self, timeout_s: float) -> None:
        """End the thread and close its connections; what the member had not said yet stays unsaid."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(self._end)
        if thread is not threading.current_thread():
            thread.join(timeout_s)

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._take_mail)

    # ---- the thread ----

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        if self._lines is not None:
            self._lines.belong_to_this_thread()
        try:
            self._client = Cluster(self._connection, self._security, self._coordinator_lost, self._broker_silent)
            self._client.pace(lambda: self._member.longest_pause_s(loop.time()))
            self._requests = MemberRequests(self._client, self._member, self._start_settings, self._feed)
            loop.call_later(SAMPLE_S, self._sample)
            loop.run_forever()
        except Exception as error:  # noqa: BLE001 - see `_report_fault`
            self._report_fault(error)
        finally:
            self._is_over = True
            loop.run_until_complete(self._wind_up())
            loop.close()

    def _end(self) -> None:
        """Have the loop stop, if it does not yet."""
        if not self._is_over:
            self._is_over = True
            self._running_loop.stop()

    def _report_fault(self, error: Exception) -> None:
        """A bug of ours must reach the application, not end in a silent thread."""
        _LOG.error("The membership thread failed", exc_info=error)
        text = f"the membership thread failed with {type(error).__name__}: {error}; this is a bug, please report it"
        fault = BrokerError(code=FATAL_CODE, name="_FATAL", message=text)
        self._to_application.put(
            RaiseToApplication(problem=Problem.FATAL, error=fault),
            LosePartitions(attempt=self._member.core.reconciler.attempt + 1),
            LeaveCompleted(),
            first=partial(self._show, ended(self._view, fault, monotonic())),
        )

    def _show(self, view: MembershipView) -> None:
        if view.coordinator != self._view.coordinator:
            self._coordinator_since = monotonic()
        self._view = view

    async def _wind_up(self) -> None:
        for timer in (self._timer, self._lease_timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _coordinator_lost(self, broker: BrokerAddress, reason: str) -> None:
        if broker == self._member.coordinator:
            self._feed(CoordinatorLost(reason=reason))

    def _broker_silent(self, words: str) -> None:
        if self._requests is not None:
            self._requests.note_silence(words)

    def _take_mail(self) -> None:
        for event in self._inbox.take():
            self._feed(event)

    def _sample(self) -> None:
        """See whether the application polled and was given records; the hot path of `poll()` then says nothing."""
        loop = self._running_loop
        loop.call_later(SAMPLE_S, self._sample)
        polls, records = self._progress()
        if records != self._seen[1]:
            self._delivered_at = loop.time()
        if polls != self._seen[0]:
            self._feed(Polled(delivered=loop.time() - self._delivered_at < ACTIVE_S))
        self._seen = (polls, records)

    @property
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _feed(self, event: AnyEvent) -> None:
        """Hand one event to the core, perform what it orders, and set the clock for what it waits for."""
        if self._is_over:
            return
        loop = self._running_loop
        try:
            effects = self._member.handle(event, loop.time())
        except Exception as error:  # noqa: BLE001 - see `_report_fault`
            self._report_fault(error)
            self._end()
            return
        if effects or not isinstance(event, Polled | TimePassed):
            # Nobody shall see a state in the view without the error that is its cause, nor be told of the error and
            # still see the epoch that it ended, nor perform a step before the view shows the epoch that it belongs to.
            problems = (effect for effect in effects if isinstance(effect, RaiseToApplication))
            self._to_application.put(*problems, first=partial(self._show, self._member.view()))
            self._observer.observed(event, effects, self._view)
        self._perform(effects)
        self._set_clock()
        self._watch_lease(loop.time())

    def _watch_lease(self, now: float) -> None:
        """Have a timer at the end of the lease; where it has grown meanwhile, the timer finds that out itself."""
        until = self._view.lease_until
        if self._lease_timer is None and until is not None and until > now:
            self._lease_timer = self._running_loop.call_at(until, self._end_lease)

    def _end_lease(self) -> None:
        """Nobody answered for a session, or this process was stopped: send the application's hot path the long way.

        There the session sees that what is buffered may be another member's by now (`Session._waits_for_word`). A
        process that goes on after a stop comes here before it hears of anything; its other threads may be a switch
        interval of Python ahead.
        """
        self._lease_timer = None
        now, until = self._running_loop.time(), self._view.lease_until
        self._watch_lease(now)
        if until is not None and until <= now:
            self._to_application.full = True
            _LOG.warning(
                "No heartbeat was answered within the session (%.1f s ago it was over): what is buffered is held back "
                "until the coordinator says whether it is still this member's",
                now - until,
            )

    def _set_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._member.next_deadline()
        if deadline is not None:
            self._timer = self._running_loop.call_at(deadline, self._feed, TimePassed())

    def _perform(self, effects: tuple[GroupEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case (
                    StateChanged()
                    | InstanceReleased()
                    | TopicsAppeared()
                    | Warned()
                    | ProtocolChosen()
                    | RaiseToApplication()
                ):
                    pass
                case (
                    PausePartitions()
                    | RevokePartitions()
                    | LosePartitions()
                    | AssignPartitions()
                    | CollectPositions()
                    | CommitCompleted()
                    | LeaveCompleted()
                ):
                    self._to_application.put(effect)
                case _:
                    self._begin(effect)

    def _begin(self, effect: NetworkOrder) -> None:
        task = self._running_loop.create_task(self._request(effect))
        self._tasks.add(task)
        task.add_done_callback(self._request_ended)

    async def _request(self, effect: NetworkOrder) -> None:
        if self._requests is not None:
            self._feed(await self._requests.answer_to(effect))

    def _ask_committed(
        self, answer: Future[CommittedOffsets], partitions: frozenset[TopicPartition], timeout_s: float
    ) -> None:
        loop = self._running_loop
        task = loop.create_task(self._answer(answer, partitions, timeout_s))
        self._tasks.add(task)
        task.add_done_callback(self._request_ended)
        # Nobody waits for an answer any more that its asker has cancelled.
        answer.add_done_callback(lambda given: given.cancelled() and loop.call_soon_threadsafe(task.cancel))

    async def _answer(
        self, answer: Future[CommittedOffsets], partitions: frozenset[TopicPartition], timeout_s: float
    ) -> None:
        try:
            if self._requests is not None:
                found = await self._requests.committed(partitions, timeout_s)
                if answer.set_running_or_notify_cancel():
                    answer.set_result(found)
        except MembershipError as error:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(error)
        finally:
            answer.cancel()  # where neither came: the thread ends

    def _request_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._report_fault(error)
            self._end()
