"""A network between processes and broker nodes, with seeded faults.

A request travels on one of a process's two connections (heartbeats, everything else), in order. It may be lost, its
answer may be lost, late or doubled, and the connection may break with whatever is under way on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.events import Event

if TYPE_CHECKING:
    from tests.simulation.world import World

#: A request without answer fails after this time (the shell: 10 s, at a session timeout of 45 s).
REQUEST_TIMEOUT_S = 2.0


@dataclass(slots=True, kw_only=True)
class Faults:
    """How often each thing goes wrong, as a probability for each request, and how long things take."""

    latency_s: float = 0.004
    slow: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    answer_doubled: float = 0.0
    connection_broken: float = 0.0
    #: Answers that come after their request was given up.
    answer_overdue: float = 0.0
    #: Metadata that do not know a topic yet, and lookups of the coordinator that fail or name the former one.
    metadata_behind: float = 0.0


@dataclass(slots=True)
class Exchange:
    """One request and its answer. Whatever comes first ends it."""

    failed: Callable[[str], Event]
    is_over: bool = False


@dataclass(slots=True)
class Connection:
    """One connection of a process to whichever node it asks: requests arrive, and are answered, in order."""

    world: World
    feed: Callable[[Event], None]
    arrived_at: float = 0.0
    answered_at: float = 0.0
    exchanges: list[Exchange] = field(default_factory=list)

    def ask(self, node_id: int, execute: Callable[[], Event], failed: Callable[[str], Event]) -> None:
        """Send a request to a node; `execute` is run when it arrives and makes the answer, `failed` is for none."""
        world, faults = self.world, self.world.faults
        exchange = Exchange(failed)
        self.exchanges = [one for one in self.exchanges if not one.is_over]
        self.exchanges.append(exchange)
        chance = world.random.random
        if node_id in world.nodes_down:
            world.after(self._latency(), lambda: self.break_off("connection refused"))
            return
        arrival = self.arrived_at = max(self.arrived_at, world.now + self._latency())
        if chance() < faults.request_lost:
            world.at(world.now + REQUEST_TIMEOUT_S, lambda: self._give_up(exchange, "no answer in time"))
            return
        if chance() < faults.connection_broken:
            world.at(arrival, lambda: self._broken(execute if chance() < 0.5 else None))
            return
        world.at(arrival, lambda: self._arrived(exchange, execute))

    def _latency(self) -> float:
        world = self.world
        is_slow = world.random.random() < world.faults.slow
        return world.faults.latency_s * (0.5 + world.random.random()) * (100 if is_slow else 1)

    def _arrived(self, exchange: Exchange, execute: Callable[[], Event]) -> None:
        world, faults = self.world, self.world.faults
        answer = execute()
        chance = world.random.random
        if chance() < faults.answer_lost:
            world.after(REQUEST_TIMEOUT_S, lambda: self._give_up(exchange, "no answer in time"))
            return
        if chance() < faults.answer_overdue:
            world.after(REQUEST_TIMEOUT_S, lambda: self._give_up(exchange, "no answer in time"))
            world.after(REQUEST_TIMEOUT_S * (1 + chance()), lambda: self.feed(answer))
            return
        self.answered_at = max(self.answered_at, world.now + self._latency())
        world.at(self.answered_at, lambda: self._answered(exchange, answer))
        if chance() < faults.answer_doubled:
            world.at(self.answered_at + chance(), lambda: self.feed(answer))

    def _answered(self, exchange: Exchange, answer: Event) -> None:
        if not exchange.is_over:
            exchange.is_over = True
            self.feed(answer)

    def _give_up(self, exchange: Exchange, reason: str) -> None:
        if not exchange.is_over:
            exchange.is_over = True
            self.feed(exchange.failed(reason))

    def _broken(self, execute: Callable[[], Event] | None) -> None:
        if execute is not None:
            execute()
        self.break_off("connection reset")

    def break_off(self, reason: str) -> bool:
        """Break the connection: everything under way on it fails; whether there was anything."""
        open_ones = [exchange for exchange in self.exchanges if not exchange.is_over]
        self.exchanges.clear()
        for exchange in open_ones:
            self._give_up(exchange, reason)
        return bool(open_ones)
