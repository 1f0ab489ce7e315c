"""Property tests: every event in every classic state, and events in any order."""

from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import given, settings, strategies

from consumer_membership.membership import events as ev
from consumer_membership.membership.classic.states import (
    CLASSIC_CAUSES,
    CLASSIC_TARGETS,
    CLASSIC_TRANSITIONS,
    ClassicState,
    ClassicTrigger,
)
from consumer_membership.membership.effects import StateChanged
from consumer_membership.membership.states import Trigger, diagram
from tests.membership.classic.sample_events import EVENTS, check_rules, hostile, plausible, scene_in
from tests.membership.classic.scene import EAGER, ClassicScene, Plan

S = ClassicState
PAIRS = [(state, kind) for state in ClassicState for kind in EVENTS]
#: Responses of the consumer protocol, which no request of a classic member can have.
FOREIGN = (
    *(ev.HeartbeatAnswered, ev.HeartbeatRejected, ev.HeartbeatFailed, ev.GroupDescribed, ev.GroupDescribeFailed),
    *(ev.SessionTimeoutLearned, ev.TopicIdsResolved, ev.CommitAnswered),
)


def name_of(value: object) -> str:
    """Return the name of a state or an event in a test's id."""
    return value.__name__ if isinstance(value, type) else str(value)


def test_every_event_has_a_plausible_form() -> None:
    """The sample events cover every event."""
    assert set(plausible(scene_in(S.STABLE))) == set(EVENTS)


@pytest.mark.parametrize(("state", "kind"), PAIRS, ids=name_of)
def test_event_fires_the_triggers_that_the_table_gives_it(state: ClassicState, kind: type, fired: list[Enum]) -> None:
    """No event fires a trigger whose causes do not include the event, in any state."""
    scene = scene_in(state)
    fired.clear()
    scene.feed(plausible(scene)[kind])  # type: ignore[arg-type]  # one of the events
    assert [one for one in fired if CLASSIC_CAUSES[one] and kind not in CLASSIC_CAUSES[one]] == []
    for trigger in fired:
        state = CLASSIC_TARGETS[state, trigger]
    assert scene.state is state
    check_rules(scene)


@pytest.mark.parametrize("state", ClassicState, ids=name_of)
def test_events_of_the_consumer_protocol_change_nothing(state: ClassicState) -> None:
    """Events of the consumer protocol have only the effects of the passing time, which every event has."""
    twin = scene_in(state).feed(ev.TimePassed())
    for kind in FOREIGN:
        scene = scene_in(state)
        scene.feed(plausible(scene)[kind])  # type: ignore[arg-type]  # one of the events
        assert (scene.last, scene.state) == (twin.last, twin.state)


@pytest.mark.parametrize("state", ClassicState, ids=name_of)
def test_hostile_events_break_no_rule(state: ClassicState) -> None:
    """No event in any state raises an exception, causes an illegal transition or sends a forbidden request."""
    for event in hostile(scene_in(state)):
        scene = scene_in(state)
        for after in (event, ev.Polled()):
            check_rules(scene.feed(after))  # type: ignore[arg-type]  # one of the events
        check_rules(scene.after(1.0))


@pytest.mark.parametrize("state", ClassicState, ids=name_of)
def test_hostile_events_in_a_row_break_no_rule(state: ClassicState) -> None:
    """A sequence of hostile events, with polls and time between them, breaks no rule."""
    scene = scene_in(state)
    for number, event in enumerate(hostile(scene)):
        check_rules(scene.feed(event))  # type: ignore[arg-type]  # one of the events
        if number % 7 == 0:
            check_rules(scene.poll().after(0.3))


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(
    eager=strategies.booleans(),
    static=strategies.booleans(),
    choices=strategies.lists(strategies.tuples(strategies.integers(0, 10**6), strategies.booleans()), max_size=50),
)
def test_events_in_any_order_break_no_rule(eager: bool, static: bool, choices: list[tuple[int, bool]]) -> None:  # noqa: FBT001 - Hypothesis draws it
    """Mostly plausible and some hostile events break no rule, and the view changes only where an effect reports it."""
    scene = ClassicScene(EAGER if eager else Plan(), instance_id="i" if static else None)
    scene.subscribe("a").poll().found()
    for number, is_hostile in choices:
        events = hostile(scene) if is_hostile and number % 3 == 0 else list(plausible(scene).values())
        check_rules(scene.feed(events[number % len(events)]))  # type: ignore[arg-type]  # one of the events
        if number % 5 == 0:
            check_rules(scene.after(0.2))
    assert all(old is not new for old, new in ((one.old, one.new) for one in scene.all(StateChanged)))


# ---- the table ------------------------------------------------------------------------------------------------------


def test_table_contains_every_state_and_every_trigger() -> None:
    """Every state has a row, so that a member can leave it, and every trigger leads to one state."""
    assert {state for state, _ in CLASSIC_TARGETS} == set(ClassicState)
    assert {row.trigger for row in CLASSIC_TRANSITIONS} == {*Trigger, *ClassicTrigger} == set(CLASSIC_CAUSES)
    assert len(CLASSIC_TARGETS) == sum(len(row.states) for row in CLASSIC_TRANSITIONS)


def test_diagram_has_one_labeled_arrow_for_each_state_and_trigger() -> None:
    """The generated diagram shows the table."""
    head, start, *arrows = diagram(CLASSIC_TRANSITIONS).splitlines()
    assert (head, start) == ("stateDiagram-v2", "    [*] --> UNSUBSCRIBED")
    labeled = {f"    {state} --> {new}: {trigger.value}" for (state, trigger), new in CLASSIC_TARGETS.items()}
    assert (set(arrows), len(arrows)) == (labeled, len(labeled))
