"""The delivery of a KIP-848 member's requests on two connections (heartbeats, other requests), in order on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from consumer_membership.membership.effects import (
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    Heartbeat,
    SendHeartbeat,
    WriteAnnouncement,
)
from consumer_membership.membership.events import HeartbeatFailed
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.exchanges import Answer, Described
from consumer_membership.testing.coordinators.rules import Granted, Refused
from consumer_membership.types import JOIN_EPOCH, GroupProtocol
from tests.exploration.cluster import AT_ONCE, Envelope
from tests.exploration.consumer.canonical import canonicalise
from tests.exploration.consumer.hand_over import LONG_AGO
from tests.exploration.moves import Move
from tests.exploration.process import NO_ANSWER, Call, Delivery, HeartbeatCall, Process, Transport
from tests.simulation import internals


@dataclass(frozen=True, slots=True)
class ConsumerTransport(Transport):
    """Delivers heartbeats and calls, each in order; reads of offsets wait for earlier requests."""

    protocol: ClassVar = GroupProtocol.CONSUMER

    def canonicalise(self, process: Process) -> None:
        """Rewrite the process to the canonical process with equal behavior."""
        canonicalise(process)

    def moves(self, process: Process) -> Iterator[Move]:
        """Yield the moves of heartbeats, and of members that wait for an instance id."""
        if process.heartbeats:
            yield Move("lose_heartbeat", budget="loss")
            if process.heartbeats[0].answer is not None:
                yield Move("take_answer")
                yield Move("take_answer_twice", budget="duplicate")
        if internals.waits_for_instance_since(process.member) == 0.0:
            yield Move("wait_too_long", budget="timeout")
        if internals.subscribed_at(process.member) == 0.0:
            yield Move("hesitate", budget="timeout")
        if 0.0 in internals.reserves_since(process.member):
            yield Move("stop_reserving")

    # ---- the network ----

    def send(self, process: Process, order: Any) -> None:
        """Send a heartbeat."""
        process.heartbeats.append(HeartbeatCall(order.request_id, order.heartbeat))

    def take_answer(self, process: Process) -> None:
        """Deliver the answer to the oldest heartbeat."""
        process.feed(self._event_of(process, process.heartbeats.pop(0)))

    def take_answer_twice(self, process: Process) -> None:
        """Deliver the answer to the oldest heartbeat, and let it arrive a second time later."""
        event = self._event_of(process, process.heartbeats.pop(0))
        process.late.append(event)
        process.feed(event)

    def _event_of(self, process: Process, one: HeartbeatCall) -> Any:
        return process.event_of(SendHeartbeat(request_id=one.number, heartbeat=one.heartbeat), one.answer)

    def lose_heartbeat(self, process: Process) -> None:
        """Let the oldest heartbeat time out."""
        one = process.heartbeats.pop(0)
        if one.answer is None:
            process.abandoned_orders.append(one.heartbeat)
        else:
            process.late.append(self._event_of(process, one))
        process.feed(HeartbeatFailed(request_id=one.number, reason=NO_ANSWER))

    def lose_all(self, process: Process) -> bool:
        """Lose all heartbeats; return whether there were any."""
        number = len(process.heartbeats)
        for _ in range(number):
            self.lose_heartbeat(process)
        return number > 0

    def may_arrive_late(self, order: Any) -> bool:
        """Return whether this is a write, because late reads change nothing."""
        return isinstance(order, CommitOffsets | WriteAnnouncement)

    # ---- actions of the coordinator ----

    def executed_heartbeat(self, process: Process, _: int, answer: Answer) -> None:
        """Add the answer to the oldest heartbeat that the coordinator had not handled."""
        number = next(place for place, one in enumerate(process.heartbeats) if one.answer is None)
        one = process.heartbeats[number] = process.heartbeats[number]._replace(answer=answer)
        process.forget_abandoned(Heartbeat)
        if self._is_join(process, one.heartbeat, answer) and process.shown is MemberState.JOINING:
            process.invariants.is_excused = False

    def executed_abandoned(self, process: Process, number: int, answer: Answer) -> None:
        """Apply the handling of an abandoned request; a join ends the membership that the member knows."""
        if self._is_join(process, process.take_abandoned(number), answer):
            process.invariants.is_excused = True

    def _is_join(self, process: Process, request: Any, answer: Answer) -> bool:
        is_join = isinstance(request, Heartbeat) and request.member_epoch == JOIN_EPOCH and isinstance(answer, Granted)
        return is_join and request.member_id == internals.member_id(process.member)

    def executed_call(self, process: Process, _: int, reply: Answer) -> None:
        """Add the answer to the oldest unhandled request except heartbeats; deliver answers to reads immediately."""
        number = next(place for place, one in enumerate(process.calls) if one.answer is None)
        order = process.calls[number].order
        process.forget_abandoned(type(order))
        if isinstance(order, FetchCommitted):
            process.calls.pop(number)
            process.feed(process.event_of(order, reply))
        else:
            # The wire reports a missing group as a group without holders.
            is_unknown = isinstance(order, DescribeGroup) and isinstance(reply, Refused)
            process.calls[number] = Call(order, Described(holders={}) if is_unknown else reply)

    def executed_announcement(self, process: Process, _: int, reply: Answer) -> None:
        """Add the answer to the oldest request about announcements that the coordinator had not handled."""
        number = next(place for place, one in enumerate(process.announcements) if one.answer is None)
        process.forget_abandoned(type(process.announcements[number].order))
        process.announcements[number] = process.announcements[number]._replace(answer=reply)

    def stop_reserving(self, process: Process) -> None:
        """End the time in which only a successor may take the id that was released for it."""
        internals.reserve_since(process.member, LONG_AGO)

    def hesitate(self, process: Process) -> None:
        """Let so much time pass since the subscription that holders may be newer than this process."""
        internals.subscribe_at(process.member, LONG_AGO)

    def wait_too_long(self, process: Process) -> None:
        """Let the wait for the holder of the instance id exceed a session."""
        internals.wait_for_instance_since(process.member, LONG_AGO)

    # ---- requests ----

    def deliveries(self, process: Process) -> Iterator[Delivery]:
        """Yield the oldest unhandled request on each connection; a read waits for earlier requests."""
        heartbeat = next((one.heartbeat for one in process.heartbeats if one.answer is None), None)
        if heartbeat is not None:
            yield Delivery("executed_heartbeat", 0, Envelope(AT_ONCE, heartbeat))
        order = process.next_call
        is_first = bool(process.calls) and process.calls[0].answer is None
        if order is not None and (is_first or not isinstance(order, FetchCommitted)):
            yield process.delivery_of_call(order)
        announcement = next((one.order for one in process.announcements if one.answer is None), None)
        if announcement is not None:
            yield process.delivery_of_call(announcement, "executed_announcement")

    def unseen(self, process: Process) -> list[Any]:
        """Return the heartbeats and commits that the coordinator has not handled."""
        heartbeats: list[Any] = [one.heartbeat for one in process.heartbeats if one.answer is None]
        calls = (*process.calls, *process.announcements)
        return heartbeats + [one.order for one in calls if one.answer is None and self.may_arrive_late(one.order)]

    def is_answered(self, process: Process) -> bool:
        """Return whether the answer to a heartbeat is in flight."""
        return any(one.answer is not None for one in process.heartbeats)

    def should_not_have_ended(self, process: Process) -> bool:
        """Return whether the process never joined, took over from no holder, and did not exceed its wait."""
        invariants = process.invariants
        waited_in_vain = internals.waits_for_instance_since(process.member) == LONG_AGO
        return invariants.is_newest and invariants.takeovers == 0 and not waited_in_vain
