"""A fixture that records the triggers which members fire, for the tests of both protocols' transition tables."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.states import MemberState, StateMachine


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[Enum]:
    """The triggers that members fire during the test, in order, without the triggers of instance claims."""
    triggers: list[Enum] = []
    fire = StateMachine.fire

    def recorded(machine: StateMachine[Any], trigger: Enum) -> Enum:
        if isinstance(machine.state, MemberState | ClassicState):
            triggers.append(trigger)
        return fire(machine, trigger)

    monkeypatch.setattr(StateMachine, "fire", recorded)
    return triggers
