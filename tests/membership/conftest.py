"""What the tests of both protocols' tables look at."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest

from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.states import MemberState, StateMachine


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> list[Enum]:
    """The triggers that members fire from here on, in order; a claim's are not among them."""
    triggers: list[Enum] = []
    fire = StateMachine.fire

    def noted(machine: StateMachine[Any], trigger: Enum) -> Enum:
        if isinstance(machine.state, MemberState | ClassicState):
            triggers.append(trigger)
        return fire(machine, trigger)

    monkeypatch.setattr(StateMachine, "fire", noted)
    return triggers
