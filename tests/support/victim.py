"""A member in its own process that can be killed at an exact point of the protocol, suspended, or disconnected.

`tests.integration.victim` starts it, sends orders to its stdin (one `Order` per line), and reads its events from its
stdout (one JSON object per line). The process reports a record before its offset can be committed, so a committed
record without a report is a lost record.

The process itself detects that it has reached a point (`Point`): it kills itself with SIGKILL in the membership thread,
between two steps of the state machine, or in a callback. So the outcome does not depend on how fast a signal arrives.
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
#: The option of prctl that sets the signal for the parent's end; a suspended process could not detect this itself.
_PR_SET_PDEATHSIG = 1


class Point(StrEnum):
    """The point at which the process dies. Points differ in the state that the coordinator has at this time."""

    #: JOINING: the join request was created but not sent.
    JOIN_UNSENT = "join unsent"
    #: JOINING: the previous holder of the instance id was released, and the join was not sent.
    HOLDER_RELEASED = "holder released"
    #: JOINING: the coordinator has added the member, which has not handled the response.
    JOIN_UNHEARD = "join unheard"
    #: RECONCILE: the revoked partitions are paused, and their commit was created but not sent.
    COMMIT_UNSENT = "commit unsent"
    #: RECONCILE: the response to the commit has arrived, and on_revoke was not called.
    COMMITTED = "committed"
    #: RECONCILE: inside on_revoke.
    IN_ON_REVOKE = "in on_revoke"
    #: RECONCILE: on_revoke has returned, and no acknowledgement was sent.
    REVOKED = "revoked"
    #: RECONCILE: inside on_assign.
    IN_ON_ASSIGN = "in on_assign"
    #: ACK: the acknowledgement was created but not sent.
    ACK_UNSENT = "acknowledgement unsent"
    #: STABLE: the coordinator has received the acknowledgement, and the member has not handled the response.
    ACK_UNHEARD = "acknowledgement unheard"
    #: UNSUBSCRIBING: all partitions are paused, and their commit was created but not sent.
    LAST_COMMIT_UNSENT = "last commit unsent"
    #: UNSUBSCRIBING: inside on_revoke.
    IN_LAST_ON_REVOKE = "in the last on_revoke"
    #: UNSUBSCRIBING: the leave request was created but not sent.
    LEAVE_UNSENT = "leave unsent"
    #: UNSUBSCRIBING: the coordinator has received the leave, and the member has not handled the response.
    LEAVE_UNHEARD = "leave unheard"
    #: JOINING: the announcement to the holder was created but not sent.
    ANNOUNCEMENT_UNSENT = "announcement unsent"
    #: JOINING: the announcement was written.
    ANNOUNCEMENT_WRITTEN = "announcement written"
    #: JOINING: the group's description shows that the holder has released the instance id.
    RELEASE_SEEN = "release seen"
    #: STABLE: an announcement has arrived, so that this member will hand its id over.
    ANNOUNCEMENT_READ = "announcement read"


class Order(StrEnum):
    """The orders that the process accepts."""

    #: Commit the reported records, and wait for the response.
    COMMIT = "commit"
    #: From now on, die at the point of the arguments; before this order, the process passes the point.
    ARM = "arm"
    #: Close the consumer and end.
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """The arguments of a process at its start."""

    config: dict[str, object]
    topic: str
    dies_at: Point | None = None
    #: Whether it dies the first time it reaches the point, without waiting for `Order.ARM`.
    is_armed: bool = False
    #: Replaces the runtime's REQUEST_TIMEOUT_S, for a test that cannot wait for ten seconds.
    request_timeout_s: float | None = None


def report(**values: object) -> None:
    """Report an event as a complete line, from any thread."""
    os.write(1, (json.dumps(values, default=str) + "\n").encode())


@dataclass(slots=True)
class Trap:
    """Kills the process when the member reaches the point."""

    point: Point | None
    is_armed: bool
    #: Writes a recording of the member.
    dump: Callable[[], object] = field(default=lambda: None, init=False)
    _has_acknowledged: bool = field(default=False, init=False)

    def spring(self, *points: Point) -> None:
        """Die if the trap is armed and its point is one of these points."""
        if self.is_armed and self.point in points:
            self.dump()
            report(dies=self.point)
            os.kill(os.getpid(), signal.SIGKILL)

    def set(self) -> None:
        """Check each event before the member handles it, and the effects before they are performed."""
        handle = MemberCore.handle

        def watched(member: MemberCore, event: GroupEvent, now: float) -> tuple[GroupEffect, ...]:
            self._before(member, event)
            effects = handle(member, event, now)
            self._after(member, effects)
            for effect in effects:
                if isinstance(effect, StateChanged):
                    report(state=effect.new, reason=effect.reason)
            return effects

        MemberCore.handle = watched  # type: ignore[method-assign, assignment]  # replaced on purpose

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
                case SendHeartbeat(heartbeat=heartbeat) if heartbeat.is_leave and state is MemberState.UNSUBSCRIBING:
                    self.spring(Point.LEAVE_UNSENT)
                case SendHeartbeat(heartbeat=heartbeat) if heartbeat.member_epoch == 0:
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
    """Subscribes, polls, reports, and obeys orders."""

    def __init__(self, life: Lifetime, trap: Trap) -> None:
        self._trap = trap
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._reported: tuple[object, ...] = ()
        self._consumer = Consumer(life.config)
        trap.dump = self._consumer.dump
        self._consumer.subscribe(
            [life.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def listen(self) -> NoReturn:
        """Read orders until stdin is closed, which ends the process."""
        for line in sys.stdin:
            self._orders.put(Order(line.strip()))
        os._exit(1)

    def run(self) -> None:
        """Run until a fatal error or `Order.CLOSE`, and close."""
        while self._obey() and self._poll():
            self._report_changes()
        self._report_changes()
        self._consumer.close()
        self._consumer.dump()
        report(closed=True)

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
                report(armed=True)
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
            self._report_record(message)
            return True
        report(error=error.code(), is_fatal=error.fatal(), text=error.str())
        if error.fatal():
            # An application that does not handle the fatal error might try this.
            self._commit()
        return not error.fatal()

    def _report_record(self, message: Message) -> None:
        report(partition=message.partition(), offset=message.offset(), number=int(message.value() or b"-1"))

    def _commit(self) -> None:
        try:
            done = self._consumer.commit(asynchronous=False) or []
        except KafkaException as refused:
            report(commit_refused=refused.args[0].code())
        else:
            report(committed={partition.partition: partition.offset for partition in done})

    def _report_changes(self) -> None:
        """Report changes of the membership."""
        view = self._consumer.membership()
        owned = sorted(partition for _, partition in view.owned)
        current = (view.member_id, view.state, owned)
        if current != self._reported:
            self._reported = current
            report(member_id=view.member_id, in_state=view.state, owned=owned)

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
        # The state after the callback is reported even if it did not change.
        self._reported = ()
        report(call=call, partitions=sorted(partition.partition for partition in partitions))


def live(life: Lifetime, orders: int, reports: int, log: int) -> None:
    """Run one member with these file descriptors as stdin, stdout and stderr."""
    for number, descriptor in enumerate((orders, reports, log)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.stdin, sys.stderr = os.fdopen(0), os.fdopen(2, "w", buffering=1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if life.request_timeout_s is not None:
        member_requests.REQUEST_TIMEOUT_S = life.request_timeout_s  # type: ignore[attr-defined]  # replaced on purpose
    trap = Trap(life.dies_at, life.is_armed)
    trap.set()
    application = Application(life, trap)
    threading.Thread(target=application.listen, daemon=True).start()
    application.run()
