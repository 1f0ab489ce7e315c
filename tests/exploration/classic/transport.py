"""The delivery of a classic member's requests.

A member has at most one JoinGroup or SyncGroup in flight, on a separate connection, as in `runtime.network`: the next
JoinGroup or SyncGroup or a leave abandons the former request. Heartbeats, commits and the leave share the other
connection, in order. The answer to an abandoned request that waits at the coordinator has no receiver (`abandoned`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat, SendClassicLeave, SendJoin, SendSync
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import FetchCommitted
from consumer_membership.membership.events import TimePassed
from consumer_membership.testing.coordinators.exchanges import Answer, MemberIdRequired, Synced
from consumer_membership.testing.coordinators.member_requests import ResponseEvent, failure_of
from consumer_membership.testing.coordinators.rules import Refused
from consumer_membership.types import GroupProtocol
from tests.exploration.classic.canonical import REPAIR_S, canonicalise
from tests.exploration.cluster import Address, Envelope
from tests.exploration.moves import SESSION_S, Move
from tests.exploration.process import NO_ANSWER, Call, Delivery, Exchange, Process, Transport
from tests.simulation import internals

_S = ClassicState


@dataclass(frozen=True, slots=True)
class ClassicTransport(Transport):
    """Delivers one JoinGroup or SyncGroup at a time, and calls."""

    protocol: ClassVar = GroupProtocol.CLASSIC

    def canonicalise(self, process: Process) -> None:
        """Rewrite the process to the canonical process with equal behavior."""
        canonicalise(process)

    def moves(self, process: Process) -> Iterator[Move]:
        """Yield the moves of joins and syncs, of the leader, and of a classic member's timers."""
        one, member = process.exchange, process.member
        if one is not None:
            if one.is_forgotten:
                yield Move("time_out")
            else:
                yield Move("lose_exchange", budget="loss")
            if one.answer is not None:
                yield Move("take_answer")
                yield Move("take_answer_twice", budget="duplicate")
        if process.tasks:
            yield Move("do_task")
        if internals.may_heartbeat(member):
            yield Move("expire_session", budget="timeout")
        if internals.state(member) is _S.STABLE and internals.repairs_at(member) is not None:
            yield Move("repair", budget="timeout")

    # ---- the network ----

    def send(self, process: Process, order: Any) -> None:
        """Send a JoinGroup, a SyncGroup or a leave."""
        self._abandon(process)
        if isinstance(order, SendClassicLeave):
            process.calls.append(Call(order))
        else:
            taken = process.abandoned
            process.exchange = Exchange(order, next(place for place in range(len(taken) + 1) if place not in taken))

    def take_answer(self, process: Process) -> None:
        """Deliver the answer to the JoinGroup or SyncGroup."""
        process.feed(self._end_exchange(process))

    def take_answer_twice(self, process: Process) -> None:
        """Deliver the answer, and let it arrive a second time later."""
        event = self._end_exchange(process)
        process.late.append(event)
        process.feed(event)

    def _end_exchange(self, process: Process) -> ResponseEvent:
        one, process.exchange = process.exchange, None
        assert one is not None
        return process.event_of(one.order, one.answer)

    def lose_exchange(self, process: Process) -> None:
        """Let the JoinGroup or SyncGroup time out."""
        order = self._abandon(process)
        assert order is not None
        process.feed(failure_of(order, NO_ANSWER))

    def time_out(self, process: Process) -> None:
        """Let a request that the coordinator has forgotten end by its own timeout."""
        self.lose_exchange(process)

    def _abandon(self, process: Process) -> SendJoin | SendSync | None:
        """Abandon the JoinGroup or SyncGroup in flight, if there is one."""
        one, process.exchange = process.exchange, None
        if one is None:
            return None
        if one.answer is not None:
            if process.overtakes:
                process.late.append(process.event_of(one.order, one.answer))
        elif not one.is_seen:
            process.abandoned_orders.append(one.order)
        elif not one.is_forgotten:
            process.abandoned.append(one.place)
        return one.order

    def lose_all(self, process: Process) -> bool:
        """Lose the JoinGroup or SyncGroup; return whether there was one."""
        is_out = process.exchange is not None
        if is_out:
            self.lose_exchange(process)
        return is_out

    def may_arrive_late(self, order: Any) -> bool:
        """Return whether this is neither a heartbeat nor a read, because late heartbeats and reads change nothing."""
        return not isinstance(order, SendClassicHeartbeat | FetchCommitted)

    # ---- actions of the coordinator ----

    def executed_exchange(self, process: Process, _: int, answer: Answer | None) -> None:
        """Apply the handling of the JoinGroup or SyncGroup; without an answer, the request waits."""
        assert process.exchange is not None
        self._answer(process, process.exchange._replace(is_seen=True), answer)
        for kind in (SendJoin, SendSync):
            process.forget_abandoned(kind)

    def _answer(self, process: Process, one: Exchange, answer: Answer | None) -> None:
        process.exchange = one._replace(answer=answer)
        process.invariants.is_confirmed |= isinstance(answer, Synced)

    def executed_call(self, process: Process, _: int, answer: Answer) -> None:
        """Add the answer to the oldest call that the coordinator had not handled."""
        number = next(place for place, one in enumerate(process.calls) if one.answer is None)
        order = process.calls[number].order
        process.forget_abandoned(type(order))
        process.calls[number] = Call(order, answer)

    def executed_abandoned(self, process: Process, number: int, answer: Answer | None) -> None:
        """Apply the handling of an abandoned request; a join ends the generation that the member knows."""
        order, member = process.take_abandoned(number), process.member
        is_join = isinstance(order, SendJoin) and not isinstance(answer, Refused | MemberIdRequired)
        if is_join and order.member_id == internals.member_id(member) and internals.state(member) is not _S.JOINING:
            process.excuse()

    def answered(self, process: Process, place: int, answer: Answer) -> None:
        """Apply the answer to a waiting request."""
        one = process.exchange
        if one is not None and one.is_seen and one.place == place:
            self._answer(process, one, answer)
        else:
            process.abandoned.remove(place)

    def dropped(self, process: Process, place: int, _: None) -> None:
        """Mark a waiting request that will never be answered."""
        one = process.exchange
        if one is not None and one.is_seen and one.place == place:
            process.exchange = one._replace(is_forgotten=True)
        else:
            process.abandoned.remove(place)

    # ---- the clock ----

    def expire_session(self, process: Process) -> None:
        """Let the coordinator be silent for a session."""
        process.feed(TimePassed(), SESSION_S)

    def repair(self, process: Process) -> None:
        """Let the leader's wait for a member that should have joined again exceed a session."""
        process.feed(TimePassed(), REPAIR_S)

    # ---- requests ----

    def deliveries(self, process: Process) -> Iterator[Delivery]:
        """Yield the oldest unhandled request on each connection."""
        one = process.exchange
        if one is not None and not one.is_seen:
            address = Address(process.name, one.place)
            yield Delivery("executed_exchange", 0, Envelope(address, self.request_of(one.order)))
        if process.next_call is not None:
            yield process.delivery_of_call(process.next_call)

    def unseen(self, process: Process) -> list[Any]:
        """Return the unhandled JoinGroup or SyncGroup, commits and leave."""
        one = process.exchange
        orders: list[Any] = [one.order] if one is not None and not one.is_seen else []
        return orders + [one.order for one in process.calls if one.answer is None and self.may_arrive_late(one.order)]

    def is_answered(self, process: Process) -> bool:
        """Return whether any answer is in flight."""
        is_out = process.exchange is not None and process.exchange.answer is not None
        return is_out or any(one.answer is not None for one in process.calls)
