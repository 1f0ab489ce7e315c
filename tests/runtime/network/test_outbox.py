"""The order of one member's requests, if any of them is delayed."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from consumer_membership.runtime.network.outbox import Outbox, Turn, WithdrawnError


class Requests(RuleBasedStateMachine):
    """Joins, leaves and other requests to two brokers, each with any delay, checked against the module's invariant."""

    turns = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.entered: list[Turn] = []
        self.begun: set[int] = set()
        self.written: list[Turn] = []
        self.over: list[Turn] = []
        self.leaves: set[Turn] = set()

    @rule(target=turns, broker=st.sampled_from("ab"), kind=st.sampled_from(["join", "leave", "other"]))
    def enter(self, broker: str, kind: str) -> Turn:
        """The core orders a request."""
        number = len(self.entered)
        turn = self.outbox.enter(
            broker, lambda: self.begun.add(number), is_join=kind == "join", is_leave=kind == "leave"
        )
        self.entered.append(turn)
        if kind == "leave":
            self.leaves.add(turn)
        return turn

    @rule(turn=turns)
    def write(self, turn: Turn) -> None:
        """A request that may be written is written, unless it was withdrawn."""
        number = self.entered.index(turn)
        if number not in self.begun or turn in self.written or turn in self.over:
            return
        is_behind = any(later in self.leaves for later in self.entered[number:])
        if turn.is_join and is_behind:
            with pytest.raises(WithdrawnError):
                turn.write()
            turn.end()
            self.over.append(turn)
            return
        owed = [one for one in self.written if one not in self.over]
        turn.write()
        self.written.append(turn)
        assert {one.broker for one in owed} <= {turn.broker}

    @rule(turn=consumes(turns))
    def end(self, turn: Turn) -> None:
        """A request is answered, fails, or is cancelled."""
        turn.end()
        self.over.append(turn)

    @invariant()
    def requests_are_written_in_order(self) -> None:
        """No later request overtakes an earlier one."""
        numbers = [self.entered.index(turn) for turn in self.written]
        assert numbers == sorted(numbers)

    @invariant()
    def oldest_request_is_not_held_up(self) -> None:
        """The oldest request has begun, unless it waits for a request to another broker."""
        open_ones = [turn for turn in self.entered if turn not in self.over]
        waiting = [turn for turn in open_ones if turn not in self.written]
        if waiting and all(turn.broker == waiting[0].broker for turn in open_ones if turn in self.written):
            assert self.entered.index(waiting[0]) in self.begun


TestRequests = Requests.TestCase
