"""The membership thread: a member on a daemon thread with a private asyncio loop, which owns its state and its sockets.

Members of one process share the thread and the connections, or each has its own (`loops`). Everything that a member
does on the loop runs in its own context (`log_lines.context_of`), so that its log lines are its own, and an exception
ends this member only.

Events come from the application over the line, or from finished requests. Each is passed to the core, and its effects
are passed on by the order contract of `membership.effects`: to the observers, over the line to the application, and as
requests to the network. Nothing here decides anything about the membership, and nothing here touches the librdkafka
handle.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, TypeVar

from consumer_membership.errors import MembershipError
from consumer_membership.membership.effects import (
    ApplicationEffect,
    LeaveCompleted,
    LosePartitions,
    ObserverEffect,
    Problem,
    ProtocolChosen,
    RaiseToApplication,
    StateChanged,
)
from consumer_membership.membership.events import CoordinatorLost, Polled, Suspended, TimePassed
from consumer_membership.membership.member_ids import new_member_id
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.view import MembershipView, ended
from consumer_membership.recorder.dumps import Dumps
from consumer_membership.recorder.ring import Recorder
from consumer_membership.runtime.line import CommittedOffsetsQuestion, EndOffsetsQuestion, Line
from consumer_membership.runtime.log_lines import PackageLog, consumer_prefix, context_of
from consumer_membership.runtime.membership_thread import MemberFigures, ThreadSettings, Watcher
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.lease_watch import MemberLease
from consumer_membership.runtime.network.log_observer import Observer
from consumer_membership.runtime.network.loops import LOOPS, NetworkLoop
from consumer_membership.runtime.network.member_requests import MemberRequests, NetworkOrder
from consumer_membership.runtime.network.progress import ProgressSampler
from consumer_membership.types import FATAL_CODE, BrokerAddress, BrokerError, ConflictPolicy
from consumer_membership.wire.versions import Api

if TYPE_CHECKING:  # it imports more than a consumer needs
    from os import PathLike
    from pathlib import Path

    from consumer_membership.health.handlers import HandlerFact
    from consumer_membership.runtime.network.process_locks import ProcessLocks
    from consumer_membership.runtime.network.telemetry import Telemetry

_LOG = PackageLog("consumer_membership.network", "BROKER")

AnswerT = TypeVar("AnswerT")


class NetworkThread:
    """The thread of one member, at the network's end of a line (`runtime.membership_thread.MembershipThread`).

    `security` is made from the same connection settings; None: it is made here.
    """

    def __init__(
        self, line: Line, settings: ThreadSettings, *, observer: Observer, security: ConnectionSecurity | None = None
    ) -> None:
        self._line = line
        self._settings = settings
        self._observer = observer
        self._security = security or ConnectionSecurity(settings.connection)
        created_ms = int(time() * 1000)
        recorder = Recorder(
            settings.member,
            settings.protocols,
            new_member_id=lambda: new_member_id(created_ms, os.urandom(10)),
            jitter=random.random,
            is_on=settings.recorder.is_on,
        )
        self._dumps = Dumps(recorder, settings.recorder)
        self._watching = threading.RLock()
        self._watcher: Watcher | None = None
        self._latest = recorder.member.view()
        self._starting = threading.RLock()
        self._context = context_of(
            consumer_prefix(settings.connection.client_id, settings.member.group_id, settings.member.instance_id),
            settings.lines,
        )
        self._loop: NetworkLoop | None = None
        self._member: MemberOnLoop | None = None
        self._has_ended = threading.Event()
        line.connect(self, self._latest)

    def start(self) -> None:
        """Start the member if it does not run; several threads may call this."""
        with self._starting:
            if self._loop is not None:
                return
            locks = _locks_of(self._settings)
            name = f"membership {self._settings.member.group_id}"
            loop = LOOPS.acquire(is_shared=self._settings.shares_thread, name=name)
            self._loop = loop
            loop.call(partial(self._begin, loop, locks), self._context)

    def _begin(self, loop: NetworkLoop, locks: ProcessLocks | None) -> None:
        self._member = MemberOnLoop(
            self._line,
            self._dumps,
            self._settings,
            observer=self._observer,
            security=self._security,
            notify=self._notify,
            loop=loop,
            locks=locks,
            has_ended=self._has_ended,
        )
        # After the assignment of `_member`: from then on, `ring` notifies the member of posts.
        self._member.begin()

    def _call(self, member: MemberOnLoop, callback: Callable[[], object]) -> None:
        """Call this on the thread in the member's context, unless the member has ended."""
        member.loop.call(partial(member.unless_over, callback), self._context)

    def ring(self) -> None:
        """If the member runs, make it take the posts; returns at once."""
        member = self._member
        if member is not None:
            self._call(member, member.take_posts)

    @property
    def is_calm(self) -> bool:
        """Whether the thread samples the application's progress at long intervals."""
        return self._member is not None and self._member.sampler.is_calm

    def sample_soon(self) -> None:
        """End the calm: sample the application's progress at the usual pace."""
        member = self._member
        if member is not None:
            self._call(member, member.sampler.end_calm)

    def watch(self, watcher: Watcher) -> MembershipView:
        """Call this with each event's outcome from now on; return the view that the first one follows."""
        with self._watching:
            self._watcher = watcher
            return self._latest

    def _notify(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        with self._watching:  # no event is missed: `watch` returns this view, or its watcher gets it
            self._latest, watcher = view, self._watcher
        if watcher is not None:
            watcher(effects, view)

    def set_credentials(self, username: str, password: str) -> None:
        """Use these for each later authentication."""
        self._security.set_credentials(username, password)
        member = self._member
        if member is not None:
            self._call(member, member.use_credentials)

    def figures(self) -> MemberFigures:
        """Return the figures for statistics in addition to the view."""
        return MemberFigures() if self._member is None else self._member.figures()

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write the recorded events to a file (`Dumps.write`)."""
        return self._dumps.write(cause, path)

    def dump_automatically(self, kind: str, cause: str) -> None:
        """Write a recording if the settings require one (`Dumps.write_automatically`)."""
        _dump_automatically(self._dumps, kind, cause)

    def note_handlers(self, fact: HandlerFact) -> None:
        """Keep a fact about the handlers of the member's records for recordings."""
        self._dumps.recorder.note_handlers(fact, monotonic())

    def stop(self, timeout_s: float) -> None:
        """End the member and close its connections; unsent requests stay unsent. The last member ends the thread."""
        loop = self._loop
        if loop is None or not loop.is_alive:
            return
        loop.call(self._end, self._context)
        if loop.is_this_thread:
            return
        deadline = monotonic() + timeout_s
        if self._has_ended.wait(timeout_s):
            loop.join_if_over(deadline - monotonic())

    def _end(self) -> None:
        if self._member is not None:
            self._member.end()


def _locks_of(settings: ThreadSettings) -> ProcessLocks | None:
    """The locks with which the member proves that it lives; None: its policy needs none."""
    member = settings.member
    if member.instance_id is None or member.conflict_policy is not ConflictPolicy.TAKEOVER_WHEN_DEAD:
        return None
    from consumer_membership.runtime.network.process_locks import ProcessLocks

    return ProcessLocks(member.group_id, settings.lock_directory)


class MemberOnLoop:
    """One member on a loop: its state, its requests and its clock; created on that loop, in the member's context.

    Other threads may use `figures` and `sampler.is_calm`; everything else is for the loop.
    """

    def __init__(
        self,
        line: Line,
        dumps: Dumps,
        settings: ThreadSettings,
        *,
        observer: Observer,
        security: ConnectionSecurity,
        notify: Watcher,
        loop: NetworkLoop,
        locks: ProcessLocks | None,
        has_ended: threading.Event,
    ) -> None:
        self.loop = loop
        self._line = line
        self._notify = notify
        self._dumps = dumps
        self._recorder = dumps.recorder
        self._member = member = dumps.recorder.member
        self._connection_settings = settings.connection
        self._security = security
        self._observer = observer
        self._loop = loop.loop
        self._client = Cluster(
            settings.connection,
            on_coordinator_lost=self._coordinator_lost,
            on_silence=self._broker_silent,
            longest_pause_s=lambda: member.longest_pause_s(self._loop.time()),
            connections=loop.pool.acquire(settings.connection, security),
        )
        self._locks = locks
        self._requests = MemberRequests(self._client, member, settings.start, self._feed, self._locks)
        self._coordinator_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lease = MemberLease(self._loop, line.wake_up)
        self.sampler = ProgressSampler(
            self._loop,
            settings.progress,
            self._feed,
            lambda: member.retries_at_poll,
            max_poll_interval_s=settings.member.max_poll_interval_s,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._measure = settings.measure
        self._rack_id = settings.member.rack_id
        self._telemetry: Telemetry | None = None
        #: Whether the member ends: the core gets no more events.
        self._is_over = False
        self._winding_up: asyncio.Task[None] | None = None
        self._has_ended = has_ended

    def figures(self) -> MemberFigures:
        """Return the figures for statistics in addition to the view."""
        return MemberFigures(
            coordinator_since=self._coordinator_since,
            committed=self._requests.committed_offsets.copy(),
            traffic=self._client.traffic(),
        )

    # ---- its life on the loop ----

    def begin(self) -> None:
        """Begin to work, first on the events that the application has posted before."""
        if not self._connection_settings.bootstrap_servers:
            _LOG.warning("bootstrap.servers is not set; the consumer cannot connect")
        self.sampler.start()
        self.take_posts()

    def unless_over(self, callback: Callable[[], object]) -> None:
        """Call this, unless the member has ended."""
        if not self._is_over:
            callback()

    def use_credentials(self) -> None:
        """Authenticate later connections with the present credentials."""
        pool, former = self.loop.pool, self._client.connections
        self._client.use(pool.change_credentials(former, self._connection_settings, self._security))

    def end(self) -> None:
        """End the member, unless it ends already: its requests, its timers, and the connections that only it uses."""
        if self._is_over:
            return
        self._is_over = True
        self._lease.follow(None)
        self._line.close()
        self._winding_up = self._loop.create_task(self._wind_up())
        self._winding_up.add_done_callback(self._ended)

    def _ended(self, _: asyncio.Task[None]) -> None:
        LOOPS.release(self.loop)
        self._has_ended.set()

    def _report_fault(self, error: BaseException) -> None:
        """Report a bug of this package to the application, instead of ending the thread silently."""
        _LOG.error(
            "The membership thread failed; this is a bug of consumer_membership, please report it", exc_info=error
        )
        _dump_automatically(self._dumps, "crash", f"crash: {type(error).__name__}: {error}")
        text = (
            f"the membership thread failed with {type(error).__name__}: {error}; "
            "this is a bug of consumer_membership, please report it"
        )
        fault = BrokerError(code=FATAL_CODE, name="_FATAL", message=text)
        before, view = self._line.view, ended(self._line.view, fault, monotonic())
        self._notify((StateChanged(old=before.state, new=view.state, reason=str(fault)),), view)
        self._show(
            view,
            RaiseToApplication(problem=Problem.FATAL, error=fault),
            LosePartitions(attempt=self._member.newest_attempt + 1),
            LeaveCompleted(),
        )

    async def _wind_up(self) -> None:
        self.sampler.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._telemetry is not None:
            await asyncio.gather(self._telemetry.end(), return_exceptions=True)
        await self._requests.close()
        await self._client.close()
        await self.loop.pool.release(self._client.connections)
        if self._locks is not None:
            self._locks.release()

    # ---- events and questions ----

    def take_posts(self) -> None:
        """Process the application's events and questions."""
        for post in self._line.take_posts():
            match post:
                case CommittedOffsetsQuestion():
                    self._answer_question(post.answer, self._requests.committed(post.partitions, post.timeout_s))
                case EndOffsetsQuestion():
                    self._answer_question(post.answer, self._requests.ends(post.partitions))
                case _:
                    self._feed(post)

    def _coordinator_lost(self, broker: BrokerAddress, reason: str) -> None:
        if broker == self._member.coordinator:
            self._feed(CoordinatorLost(reason=reason))

    def _broker_silent(self, text: str) -> None:
        self._requests.note_silence(text)

    # ---- the core ----

    def _feed(self, event: GroupEvent) -> None:
        """Pass one event to the core, and before it a suspension of the machine since the last event."""
        suspended_s = self._line.count_suspension()
        if suspended_s:
            _LOG.info("The machine was suspended for %.1f s", suspended_s)
            self._feed_one(Suspended(seconds=suspended_s))
        self._feed_one(event)

    def _feed_one(self, event: GroupEvent) -> None:
        """Pass one event to the core, and perform its effects (rule 1 of `membership.effects`)."""
        if self._is_over:
            return
        now = self._loop.time()
        if now >= self._member.poll_deadline and not isinstance(event, Polled):
            self.sampler.sample()  # before max.poll.interval.ms is judged
        try:
            effects = self._recorder.handle(event, now)
        except Exception as error:  # noqa: BLE001 - see `_report_fault`
            self._report_fault(error)
            self.end()
            return
        if effects or not isinstance(event, Polled | TimePassed):
            view = self._member.view()
            self._recorder.record_view(view)
            self._observer.observed(event, effects, view)
            self._notify(effects, view)
            self._perform(effects, view)
        self._record_end(effects)
        self._set_clock()
        self._lease.follow(self._line.view.lease_until)

    def _record_end(self, effects: tuple[GroupEffect, ...]) -> None:
        """Write a recording of a membership that ended, permanently or because of a poll timeout."""
        for effect in effects:
            if not isinstance(effect, RaiseToApplication):
                continue
            if effect.problem is Problem.FATAL:
                _dump_automatically(self._dumps, "fatal", f"fatal: {effect.error}")
            elif effect.problem is Problem.POLL_TIMEOUT:
                # On its own thread: the leave is in flight, and the member may rejoin with the next poll.
                cause = f"poll timeout: {effect.error}"
                name, write = "membership recording", partial(_dump_automatically, self._dumps, "poll timeout", cause)
                threading.Thread(target=write, name=name, daemon=True).start()

    def _show(self, view: MembershipView, *orders: ApplicationEffect) -> None:
        if view.coordinator != self._line.view.coordinator:
            self._coordinator_since = monotonic()
            self._begin_telemetry()
        if self._member.retries_at_poll:
            self.sampler.end_calm()
        self._line.show(view, *orders)

    def _begin_telemetry(self) -> None:
        """Push metrics from now on if a broker collects them; few do, so the module is imported here."""
        if self._measure is None or self._telemetry is not None:
            return
        if not self._client.offers(Api.GET_TELEMETRY_SUBSCRIPTIONS):
            return
        from consumer_membership.runtime.network.telemetry import Telemetry

        line = self._line
        self._telemetry = Telemetry(self._client, self._measure, lambda: _resource(line.view, self._rack_id))
        task = self._loop.create_task(self._telemetry.run())
        self._tasks.add(task)
        task.add_done_callback(self._telemetry_ended)

    def _telemetry_ended(self, task: asyncio.Task[None]) -> None:
        """Log a bug of the push, which does not end the membership."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error(
                "The push of client metrics failed; this is a bug of consumer_membership, please report it",
                exc_info=error,
            )

    def _perform(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Show the view with the application's effects, then begin the requests.

        The application must not see a state without the error that caused it, nor an error or a step beside a view
        that still has the former epoch.
        """
        orders: list[ApplicationEffect] = []
        requests: list[NetworkOrder] = []
        for effect in effects:
            if isinstance(effect, ApplicationEffect):
                orders.append(effect)
            elif not isinstance(effect, ObserverEffect | ProtocolChosen):
                requests.append(effect)
        self._show(view, *orders)
        for request in requests:
            self._begin(self._request(request))

    def _time_passed(self) -> None:
        """Pass to the core that a deadline is reached."""
        self._timer = None
        self._feed(TimePassed())

    def _set_clock(self) -> None:
        deadline = self._member.next_deadline()
        if self._timer is not None:
            if self._timer.when() == deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._time_passed)

    # ---- requests ----

    def _begin(self, request: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(request)
        self._tasks.add(task)
        task.add_done_callback(self._request_ended)
        return task

    async def _request(self, order: NetworkOrder) -> None:
        self._feed(await self._requests.answer_to(order))

    def _answer_question(self, answer: Future[AnswerT], question: Coroutine[None, None, AnswerT]) -> None:
        """Answer a question that does not involve the core, after the commits that were posted before it."""
        task = self._begin(_answered(answer, question))
        # If the thread ends, there is no answer; if the application cancels the answer, the task ends.
        task.add_done_callback(lambda _: answer.cancel())
        answer.add_done_callback(lambda _: self.loop.call(task.cancel))

    def _request_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_fault(error)
            self.end()


async def _answered(answer: Future[AnswerT], question: Coroutine[None, None, AnswerT]) -> None:
    try:
        found = await question
    except MembershipError as error:
        if answer.set_running_or_notify_cancel():
            answer.set_exception(error)
        return
    if answer.set_running_or_notify_cancel():
        answer.set_result(found)


def _resource(view: MembershipView, rack_id: str | None) -> Mapping[str, str]:
    """The attributes of the client that pushes metrics, by KIP-714's names."""
    attributes = {
        "group_id": view.group_id,
        "group_member_id": view.member_id,
        "group_instance_id": view.instance_id,
        "client_rack": rack_id,
    }
    return {key: value for key, value in attributes.items() if value}


def _dump_automatically(dumps: Dumps, kind: str, cause: str) -> None:
    notice = dumps.write_automatically(kind, cause)
    if notice is not None:
        _LOG.warning("%s", notice)
