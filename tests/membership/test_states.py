"""The transition table: its shape and its diagram, and that a member can take each of its edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from consumer_membership.errors import InternalError
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.states import (
    IN_GROUP,
    SILENT,
    TARGETS,
    TRANSITIONS,
    ConsumerTrigger,
    MemberState,
    StateMachine,
    Trigger,
    diagram,
    followers,
)
from tests.membership.builders import (
    A0,
    A1,
    BAD_REGEX,
    FENCED_EPOCH,
    MAX_POLL_S,
    Scene,
    acknowledging,
    adding,
    fatal,
    fenced,
    handing_over,
    joining,
    revoking,
    stale,
    unsubscribing,
)

S = MemberState

#: For each edge of the table, a scene whose member takes it.
EDGES: Mapping[tuple[MemberState, MemberState], Callable[[], Scene]] = {
    (S.UNSUBSCRIBED, S.JOINING): lambda: Scene().subscribe("orders").poll(),
    (S.JOINING, S.RECONCILE): lambda: joining().answer(1, [A0]),
    (S.JOINING, S.FENCED): lambda: joining().reject(Verdict.REJOIN, FENCED_EPOCH),
    (S.JOINING, S.STALE): lambda: joining().after(MAX_POLL_S),
    (S.JOINING, S.UNSUBSCRIBING): lambda: joining().leave(),
    (S.JOINING, S.FATAL): lambda: joining().fail(),
    (S.RECONCILE, S.ACK): lambda: adding().finish(),
    (S.RECONCILE, S.FENCED): lambda: adding().fence(),
    (S.RECONCILE, S.STALE): lambda: adding().after(MAX_POLL_S),
    (S.RECONCILE, S.UNSUBSCRIBING): lambda: adding().leave(),
    (S.RECONCILE, S.FATAL): lambda: adding().fail(),
    (S.ACK, S.STABLE): lambda: acknowledging().answer(),
    (S.ACK, S.RECONCILE): lambda: acknowledging().answer(3, [A1]),
    (S.ACK, S.FENCED): lambda: acknowledging().reject(Verdict.REJOIN, FENCED_EPOCH),
    (S.ACK, S.STALE): lambda: acknowledging().after(MAX_POLL_S),
    (S.ACK, S.UNSUBSCRIBING): lambda: acknowledging().leave(),
    (S.ACK, S.FATAL): lambda: acknowledging().fail(),
    (S.STABLE, S.RECONCILE): revoking,
    (S.STABLE, S.FENCED): fenced,
    (S.STABLE, S.STALE): stale,
    (S.STABLE, S.UNSUBSCRIBING): unsubscribing,
    (S.STABLE, S.FATAL): fatal,
    (S.FENCED, S.JOINING): lambda: fenced().finish(),
    (S.FENCED, S.UNSUBSCRIBED): lambda: fenced().leave(),
    (S.STALE, S.JOINING): lambda: stale().finish(),
    (S.STALE, S.UNSUBSCRIBED): lambda: stale().leave(),
    (S.UNSUBSCRIBING, S.UNSUBSCRIBED): lambda: unsubscribing().settle(),
    (S.UNSUBSCRIBING, S.FATAL): lambda: unsubscribing().fail(),
    (S.UNSUBSCRIBING, S.JOINING): lambda: handing_over().settle(),
    (S.UNSUBSCRIBING, S.FENCED): lambda: handing_over().fence(),
    (S.UNSUBSCRIBING, S.STALE): lambda: handing_over().after(MAX_POLL_S),
    (S.FATAL, S.JOINING): lambda: joining().fail(BAD_REGEX).subscribe("orders", "more").poll(),
}


FOLLOWERS = followers(TRANSITIONS)


def test_table_contains_every_state_and_every_trigger() -> None:
    """Every state has a row, so that a member can leave it, and every trigger leads to a state."""
    assert set(FOLLOWERS) == set(MemberState)
    assert {row.trigger for row in TRANSITIONS} == {*Trigger, *ConsumerTrigger}


def test_table_has_one_target_for_each_state_and_trigger() -> None:
    """The order of the rows does not decide where a trigger leads."""
    assert len(TARGETS) == sum(len(row.states) for row in TRANSITIONS)


def test_no_state_follows_itself() -> None:
    """A transition always changes the state."""
    assert [state for state, after in FOLLOWERS.items() if state in after] == []


def test_every_state_is_in_the_group_or_silent_or_leaving() -> None:
    """A member heartbeats in its group and is silent outside it; only UNSUBSCRIBING is between the two."""
    assert IN_GROUP | SILENT | {S.UNSUBSCRIBING} == set(MemberState)
    assert frozenset() == IN_GROUP & SILENT


def test_scenes_cover_every_edge_of_the_table() -> None:
    """Every edge of the table has a scene; an edge that no member can take is a defect of the table."""
    assert set(EDGES) == {(old, new) for old, after in FOLLOWERS.items() for new in after}


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_member_takes_the_edge(edge: tuple[MemberState, MemberState]) -> None:
    """A real member takes each edge of the table."""
    assert edge in EDGES[edge]().edges


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("trigger", [*Trigger, *ConsumerTrigger], ids=lambda one: one.name)
def test_state_machine_refuses_a_trigger_that_the_table_lacks(
    state: MemberState, trigger: Trigger | ConsumerTrigger
) -> None:
    """The state machine raises InternalError for a trigger that the table lacks in this state."""
    machine = StateMachine("a member", TARGETS)
    machine.state = state
    if (state, trigger) in TARGETS:
        assert (machine.fire(trigger), machine.state) == (state, TARGETS[state, trigger])
    else:
        with pytest.raises(InternalError, match=f"in state {state} has no transition for {trigger.name}"):
            machine.fire(trigger)


def test_diagram_is_a_mermaid_state_diagram_of_the_table() -> None:
    """The generated diagram has one labeled arrow for each state and trigger, and starts at UNSUBSCRIBED."""
    head, start, *arrows = diagram(TRANSITIONS).splitlines()
    assert (head, start) == ("stateDiagram-v2", "    [*] --> UNSUBSCRIBED")
    labeled = {f"    {state} --> {new}: {trigger.value}" for (state, trigger), new in TARGETS.items()}
    assert (set(arrows), len(arrows)) == (labeled, len(labeled))
