"""The order in which one member's requests about its membership reach the coordinator.

**The rule: no request of a member is overtaken by a later one.** It holds for joins, leaves, heartbeats and commits of
both protocols, whatever is looked up or connected before one of them is written:

- Requests are written in the order in which the core ordered them. A request that needs a lookup or a connection first
  holds its turn meanwhile, and later requests wait behind it.
- A broker handles the requests of one connection in their order, so a request may follow another one that has no
  response yet on the same connection. On its way to another broker, because the coordinator moved, it waits for the
  responses to all earlier ones, or for their failure.
- A leave withdraws a join that is not written yet: the member never joins the group. A join that is written is
  followed by the leave.

JoinGroup and SyncGroup have their own connection and may wait there for other members; later requests wait until they
are written, not for their responses. No stale member results: a coordinator refuses a JoinGroup with a member id that
has left (UNKNOWN_MEMBER_ID), and the core sends no leave before it knows its member id.

This module has no socket, task or clock, so the simulation also sends through it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from consumer_membership.errors import TransportError


class WithdrawnError(TransportError):
    """The request was not written, because the member leaves."""


class Turn:
    """One request's place in the outbox: it waits, may be written, is written, and is over."""

    __slots__ = ("_begin", "_outbox", "broker", "has_begun", "is_join", "is_withdrawn", "is_written")

    def __init__(self, outbox: Outbox, broker: object, begin: Callable[[], None], *, is_join: bool) -> None:
        self._outbox = outbox
        self._begin = begin
        self.broker = broker
        self.is_join = is_join
        self.has_begun = False
        self.is_withdrawn = False
        self.is_written = False

    def begin(self) -> None:
        """Mark that no earlier request blocks it any more."""
        self.has_begun = True
        self._begin()

    def check(self) -> None:
        """Raise WithdrawnError if a leave has followed meanwhile."""
        if self.is_withdrawn:
            raise WithdrawnError("the member left before its request to join was sent")

    def write(self) -> None:
        """Note that the request is written now; the next one may begin. Raises WithdrawnError."""
        self.check()
        self._outbox.written(self)

    def end(self) -> None:
        """Note that the request has its response, or will get none. Idempotent."""
        self._outbox.ended(self)


class Outbox:
    """The requests of one member that are not answered yet, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[Turn] = deque()
        #: How many requests each broker has not answered.
        self._unanswered: Counter[object] = Counter()

    def enter(
        self, broker: object, begin: Callable[[], None], *, is_join: bool = False, is_leave: bool = False
    ) -> Turn:
        """Add a request to this broker; `begin` is called once it may be written, at once or later."""
        if is_leave:
            for earlier in self._waiting:
                earlier.is_withdrawn |= earlier.is_join
        turn = Turn(self, broker, begin, is_join=is_join)
        self._waiting.append(turn)
        self._go_on()
        return turn

    def written(self, turn: Turn) -> None:
        """Note that the oldest waiting request is written."""
        turn.is_written = True
        self._waiting.remove(turn)
        self._unanswered[turn.broker] += 1
        self._go_on()

    def ended(self, turn: Turn) -> None:
        """Remove a request, written or not."""
        if turn.is_written:
            turn.is_written = False
            self._unanswered[turn.broker] -= 1
            self._unanswered += Counter()  # drops brokers without unanswered requests
        elif turn in self._waiting:
            self._waiting.remove(turn)
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._waiting[0].has_begun and self._unanswered.keys() <= {self._waiting[0].broker}:
            self._waiting[0].begin()
