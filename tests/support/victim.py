"""A member in its own process that can be killed at an exact point of the protocol, stopped, or disconnected.

`tests.integration.victim` starts it, sends orders to its stdin, one word each (`Order`), and reads its events from its
stdout, one JSON object per line. A record is reported before its offset can be committed, so that a committed record
without a report is a lost record.

A point (`Point`) is met by the state machine itself: the process kills itself with SIGKILL between two instructions of
the membership thread, or inside a callback, so that nothing depends on the time that a signal takes.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.membership import events as ev
from consumer_membership.membership.effects import CommitOffsets, SendHeartbeat, StateChanged, WriteAnnouncement
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.network import member_requests
from consumer_membership.types import LEAVE_STATIC_EPOCH

_POLL_S = 0.02
#: prctl's number for "this signal when the parent ends": a process that is stopped cannot see its parent's end itself.
_PR_SET_PDEATHSIG = 1


class Point(StrEnum):
    """The point where a process dies, by state; the coordinator's knowledge at that point is what counts."""

    #: JOINING: the join is ordered and not sent.
    JOIN_UNSENT = "join unsent"
    #: JOINING: the former holder of the instance id is released, the join not sent.
    HOLDER_RELEASED = "holder released"
    #: JOINING: the coordinator took the member in, which does not know it.
    JOIN_UNHEARD = "join unheard"
    #: RECONCILE: what is revoked is paused, its commit is ordered and not sent.
    COMMIT_UNSENT = "commit unsent"
    #: RECONCILE: the commit is answered, on_revoke not called.
    COMMITTED = "committed"
    #: RECONCILE: inside on_revoke.
    IN_ON_REVOKE = "in on_revoke"
    #: RECONCILE: on_revoke is over, nothing acknowledged.
    REVOKED = "revoked"
    #: RECONCILE: inside on_assign.
    IN_ON_ASSIGN = "in on_assign"
    #: ACK: the acknowledgement is ordered and not sent.
    ACK_UNSENT = "acknowledgement unsent"
    #: ACK: the coordinator has the acknowledgement, its answer is not heard (the state is STABLE since it was sent).
    ACK_UNHEARD = "acknowledgement unheard"
    #: UNSUBSCRIBING: everything is paused, its commit is ordered and not sent.
    LAST_COMMIT_UNSENT = "last commit unsent"
    #: UNSUBSCRIBING: inside on_revoke.
    IN_LAST_ON_REVOKE = "in the last on_revoke"
    #: UNSUBSCRIBING: the leave is ordered and not sent.
    LEAVE_UNSENT = "leave unsent"
    #: UNSUBSCRIBING: the coordinator has the leave, its answer is not heard.
    LEAVE_UNHEARD = "leave unheard"
    #: JOINING: the announcement to the holder is ordered and not sent.
    ANNOUNCEMENT_UNSENT = "announcement unsent"
    #: JOINING: the announcement is written.
    ANNOUNCEMENT_WRITTEN = "announcement written"
    #: JOINING: the group's description shows that the place was released.
    RELEASE_SEEN = "release seen"
    #: STABLE: the announcement arrived, which makes this member hand its id over.
    ANNOUNCEMENT_READ = "announcement read"


class Order(StrEnum):
    """The orders that the process accepts."""

    #: Commit what was reported, and wait for the answer.
    COMMIT = "commit"
    #: Die at the point that was named at the start; before, the point is passed unhurt.
    ARM = "arm"
    #: Close the consumer and end.
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The arguments of a process at its start."""

    config: dict[str, object]
    topic: str
    dies_at: Point | None = None
    #: Whether it dies at the first occasion, without waiting for `Order.ARM`.
    is_armed: bool = False
    #: In the place of the runtime's REQUEST_TIMEOUT_S, for a test that cannot wait for ten seconds.
    request_timeout_s: float | None = None


def say(**what: object) -> None:
    """Report an event as a whole line, from any thread."""
    os.write(1, (json.dumps(what, default=str) + "\n").encode())


@dataclass(slots=True)
class Trap:
    """Waits for its point in the member's course."""

    point: Point | None
    is_armed: bool
    #: Writes a recording of the member.
    dump: Callable[[], object] = field(default=lambda: None, init=False)
    _has_acknowledged: bool = field(default=False, init=False)

    def spring(self, *points: Point) -> None:
        """Die if one of these is the point."""
        if self.is_armed and self.point in points:
            self.dump()
            say(dies=self.point)
            os.kill(os.getpid(), signal.SIGKILL)

    def set(self) -> None:
        """Examine each event before the member handles it, and its orders before they are performed."""
        handle = MemberCore.handle

        def watched(member: MemberCore, event: GroupEvent, now: float) -> tuple[GroupEffect, ...]:
            self._before(member, event)
            effects = handle(member, event, now)
            self._after(member, effects)
            for effect in effects:
                if isinstance(effect, StateChanged):
                    say(state=effect.new, reason=effect.reason)
            return effects

        MemberCore.handle = watched  # type: ignore[method-assign, assignment]  # the point of it

    def _before(self, member: MemberCore, event: GroupEvent) -> None:
        match event, member.view().state:
            case ev.HeartbeatAnswered(), MemberState.JOINING:
                held_by = member._protocol.claim.stale_holder  # type: ignore[attr-defined]  # of the consumer protocol
                self.spring(Point.JOIN_UNHEARD if held_by is None else Point.HOLDER_RELEASED)
            case ev.HeartbeatAnswered(), MemberState.UNSUBSCRIBING if event.request_id == member.context.leave.request:
                self.spring(Point.LEAVE_UNHEARD)
            case ev.AnnouncementWritten(), MemberState.JOINING:
                self.spring(Point.ANNOUNCEMENT_WRITTEN)
            case ev.GroupDescribed(), MemberState.JOINING:
                if any(holder.member_epoch == LEAVE_STATIC_EPOCH for holder in event.holders.values()):
                    self.spring(Point.RELEASE_SEEN)
            case ev.AnnouncementsRead(), MemberState.STABLE if event.announcements:
                self.spring(Point.ANNOUNCEMENT_READ)
            case ev.HeartbeatAnswered(), _ if self._has_acknowledged:
                self.spring(Point.ACK_UNHEARD)
            case ev.CommitAnswered(), MemberState.RECONCILE if member.context.reconciler.phase is Phase.COMMIT:
                self.spring(Point.COMMITTED)
            case ev.StepFinished(step=ev.Step.REVOKE), MemberState.RECONCILE:
                self.spring(Point.REVOKED)
            case _:
                pass

    def _after(self, member: MemberCore, effects: tuple[GroupEffect, ...]) -> None:
        state = member.view().state
        for effect in effects:
            match effect:
                case SendHeartbeat(heartbeat=beat) if beat.is_leave and state is MemberState.UNSUBSCRIBING:
                    self.spring(Point.LEAVE_UNSENT)
                case SendHeartbeat(heartbeat=beat) if beat.member_epoch == 0:
                    self.spring(Point.JOIN_UNSENT)
                case WriteAnnouncement(announcement=announcement) if announcement is not None:
                    self.spring(Point.ANNOUNCEMENT_UNSENT)
                case CommitOffsets() if state is MemberState.RECONCILE:
                    self.spring(Point.COMMIT_UNSENT)
                case CommitOffsets() if state is MemberState.UNSUBSCRIBING:
                    self.spring(Point.LAST_COMMIT_UNSENT)
                case StateChanged(new=MemberState.ACK):
                    self.spring(Point.ACK_UNSENT)
                case StateChanged(old=MemberState.ACK) if self.is_armed:
                    self._has_acknowledged = True
                case _:
                    pass


class Application:
    """Subscribes, polls, reports, and follows orders."""

    def __init__(self, life: Lifetime, trap: Trap) -> None:
        self._trap = trap
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._standing: tuple[object, ...] = ()
        self._consumer = Consumer(life.config)
        trap.dump = self._consumer.dump
        self._consumer.subscribe(
            [life.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def listen(self) -> NoReturn:
        """Take orders on a thread until their sender ends."""
        for line in sys.stdin:
            self._orders.put(Order(line.strip()))
        os._exit(1)

    def run(self) -> None:
        """Run until a fatal error or `Order.CLOSE`, and close."""
        while self._obey() and self._poll():
            self._look()
        self._look()
        self._consumer.close()
        self._consumer.dump()
        say(closed=True)

    def _obey(self) -> bool:
        try:
            order = self._orders.get_nowait()
        except queue.Empty:
            return True
        match order:
            case Order.COMMIT:
                self._commit()
            case Order.ARM:
                self._trap.is_armed = True
                say(armed=True)
            case Order.CLOSE:
                return False
        return True

    def _poll(self) -> bool:
        """Poll once; return False if the member has failed permanently."""
        message = self._consumer.poll(_POLL_S)
        error = message.error() if message is not None else None
        if message is None:
            return True
        if error is None:
            self._report(message)
            return True
        say(error=error.code(), is_fatal=error.fatal(), text=error.str())
        if error.fatal():
            # What an application might try that has not understood it.
            self._commit()
        return not error.fatal()

    def _report(self, message: Message) -> None:
        say(partition=message.partition(), offset=message.offset(), number=int(message.value() or b"-1"))

    def _commit(self) -> None:
        try:
            done = self._consumer.commit(asynchronous=False) or []
        except KafkaException as refused:
            say(commit_refused=refused.args[0].code())
        else:
            say(committed={partition.partition: partition.offset for partition in done})

    def _look(self) -> None:
        """Report changes of the membership."""
        view = self._consumer.membership()
        owned = sorted(partition for _, partition in view.owned)
        standing = (view.member_id, view.state, owned)
        if standing != self._standing:
            self._standing = standing
            say(member_id=view.member_id, in_state=view.state, owned=owned)

    def _on_assign(self, _: Consumer, partitions: list[Partition]) -> None:
        self._called("assign", partitions)
        self._trap.spring(Point.IN_ON_ASSIGN)

    def _on_revoke(self, consumer: Consumer, partitions: list[Partition]) -> None:
        self._called("revoke", partitions)
        if consumer.membership().state is MemberState.UNSUBSCRIBING:
            self._trap.spring(Point.IN_LAST_ON_REVOKE)
        else:
            self._trap.spring(Point.IN_ON_REVOKE)

    def _on_lost(self, _: Consumer, partitions: list[Partition]) -> None:
        self._called("lost", partitions)

    def _called(self, call: str, partitions: list[Partition]) -> None:
        # The outcome is reported again, also if it equals the previous report.
        self._standing = ()
        say(call=call, partitions=sorted(partition.partition for partition in partitions))


def live(life: Lifetime, orders: int, reports: int, log: int) -> None:
    """Run one member with these file descriptors for stdin, stdout and stderr."""
    for place, descriptor in enumerate((orders, reports, log)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.stdin, sys.stderr = os.fdopen(0), os.fdopen(2, "w", buffering=1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if life.request_timeout_s is not None:
        member_requests.REQUEST_TIMEOUT_S = life.request_timeout_s  # type: ignore[attr-defined]  # the point of it
    trap = Trap(life.dies_at, life.is_armed)
    trap.set()
    application = Application(life, trap)
    threading.Thread(target=application.listen, daemon=True).start()
    application.run()
