"""A network between processes and broker nodes, with seeded faults.

A process has one connection for heartbeats of the consumer protocol, or for JoinGroup and SyncGroup, one connection for
its other requests to the coordinator, and one connection to the coordinator of its helper group. Each connection keeps
the order of its requests. A request may be lost. Its answer may be lost, late or duplicated. The connection may break,
and then all its requests fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.classic.exchanges import SendJoin
from consumer_membership.testing.coordinators.exchanges import Answer
from consumer_membership.testing.coordinators.member_requests import MemberOrder, ResponseEvent, event_of, failure_of
from consumer_membership.types import GroupProtocol

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

#: A request without answer fails after this time. (In the shell it is 10 s, with a session timeout of 45 s.)
REQUEST_TIMEOUT_S = 2.0
#: A JoinGroup waits for the other members up to the rebalance timeout; the shell waits for this time longer.
JOIN_TIMEOUT_S = 5.0
NO_ANSWER = "no answer in time"


@dataclass(slots=True, kw_only=True)
class Faults:
    """The probability of each fault per request, and the latency."""

    latency_s: float = 0.004
    slow: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    answer_doubled: float = 0.0
    connection_broken: float = 0.0
    #: Answers that arrive after the timeout of their request.
    answer_overdue: float = 0.0
    #: Stale metadata: without a new topic, or with the former coordinator.
    metadata_behind: float = 0.0


@dataclass(slots=True, eq=False)
class Exchange:
    """One request of a member, with its protocol. It ends with the first answer, failure or timeout."""

    connection: Connection
    order: MemberOrder
    protocol: GroupProtocol
    is_over: bool = False

    @property
    def timeout_s(self) -> float:
        """The time after which the request fails without an answer."""
        order = self.order
        return order.rebalance_timeout_s + JOIN_TIMEOUT_S if isinstance(order, SendJoin) else REQUEST_TIMEOUT_S


@dataclass(slots=True)
class Connection:
    """One connection of a process, to any node. Requests arrive in order, and answers arrive in order."""

    simulation: Simulation
    feed: Callable[[ResponseEvent], None]
    #: The name of the process.
    sender: str
    #: Called when a request ends, with or without an answer.
    on_end: Callable[[MemberOrder], None]
    arrived_at: float = 0.0
    answered_at: float = 0.0
    #: Whether no message passes. Each side notices that only at its own timeout.
    is_cut: bool = False
    exchanges: list[Exchange] = field(default_factory=list)

    def send(self, node_id: int, order: MemberOrder, protocol: GroupProtocol) -> None:
        """Send a request to a node."""
        simulation, faults = self.simulation, self.simulation.faults
        exchange = Exchange(self, order, protocol)
        self.exchanges = [one for one in self.exchanges if not one.is_over]
        self.exchanges.append(exchange)
        chance = simulation.random.random
        if node_id in simulation.nodes_down:
            simulation.after(self._latency(), lambda: self.break_off("connection refused"))  # type: ignore[arg-type]  # its result is unused
            return
        arrival = self.arrived_at = max(self.arrived_at, simulation.now + self._latency())
        if chance() < faults.request_lost or self.is_cut:
            simulation.after(exchange.timeout_s, lambda: self._give_up(exchange, NO_ANSWER))
            return
        if chance() < faults.connection_broken:
            simulation.at(arrival, lambda: self._broken(exchange if chance() < 0.5 else None, node_id))
            return
        simulation.at(arrival, lambda: self._arrived(exchange, node_id))

    def _latency(self) -> float:
        simulation = self.simulation
        is_slow = simulation.random.random() < simulation.faults.slow
        return simulation.faults.latency_s * (0.5 + simulation.random.random()) * (100 if is_slow else 1)

    def _arrived(self, exchange: Exchange, node_id: int) -> None:
        answer = self.simulation.deliver(exchange, node_id)
        if answer is None:
            self.simulation.after(exchange.timeout_s, lambda: self._give_up(exchange, NO_ANSWER))
        else:
            self.reply(exchange, answer)

    def reply(self, exchange: Exchange, answer: Answer) -> None:
        """Send the coordinator's answer to the process."""
        simulation, faults = self.simulation, self.simulation.faults
        event = event_of(exchange.order, answer, exchange.protocol)
        chance = simulation.random.random
        if chance() < faults.answer_lost or self.is_cut:
            simulation.after(exchange.timeout_s, lambda: self._give_up(exchange, NO_ANSWER))
            return
        if chance() < faults.answer_overdue:
            timeout_s = exchange.timeout_s
            simulation.after(timeout_s, lambda: self._give_up(exchange, NO_ANSWER))
            simulation.after(timeout_s * (1 + chance()), lambda: self.feed(event))
            return
        self.answered_at = max(self.answered_at, simulation.now + self._latency())
        simulation.at(self.answered_at, lambda: self._answered(exchange, event))
        if chance() < faults.answer_doubled:
            simulation.at(self.answered_at + chance(), lambda: self.feed(event))

    def _answered(self, exchange: Exchange, event: ResponseEvent) -> None:
        if not exchange.is_over:
            exchange.is_over = True
            self.on_end(exchange.order)
            self.feed(event)

    def _give_up(self, exchange: Exchange, reason: str) -> None:
        if not exchange.is_over:
            exchange.is_over = True
            self.on_end(exchange.order)
            self.feed(failure_of(exchange.order, reason))

    def _broken(self, exchange: Exchange | None, node_id: int) -> None:
        if exchange is not None:
            self.simulation.deliver(exchange, node_id)
        self.break_off("connection reset")

    def break_off(self, reason: str) -> bool:
        """Break the connection: all requests in flight fail. Returns whether there were any."""
        open_ones = [exchange for exchange in self.exchanges if not exchange.is_over]
        self.exchanges.clear()
        for exchange in open_ones:
            self._give_up(exchange, reason)
        return bool(open_ones)
