"""The contract of `MemberProtocol`: the same tests run for both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias, get_args

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic.exchanges import ClassicEffect, LeaderEffect
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.states import SILENT, MemberState, Trigger
from consumer_membership.types import NO_EPOCH
from tests.membership import builders, sample_events
from tests.membership.builders import Scene
from tests.membership.classic import sample_events as classic_sample_events
from tests.membership.classic.scene import ClassicScene

AnyScene: TypeAlias = Scene | ClassicScene

#: A scene for each state of both protocols.
SCENES: dict[str, Callable[[], AnyScene]] = {
    **{f"consumer-{state}": partial(sample_events.scene_in, state) for state in MemberState},
    **{f"classic-{state}": partial(classic_sample_events.scene_in, state) for state in ClassicState},
}
#: The names of the scenes outside the group, and of those in it.
OUTSIDE = [name for name in SCENES if MemberState.__members__.get(name.split("-")[1]) in SILENT]
INSIDE = [name for name in SCENES if name not in OUTSIDE and not name.endswith("UNSUBSCRIBING")]
#: The effects that a protocol may return: requests, steps of a reconciliation that it starts, and notifications.
ITS_OWN = (
    *get_args(ef.NetworkEffect),
    *get_args(ClassicEffect),
    *get_args(LeaderEffect),
    *get_args(ef.ObserverEffect),
    *(ef.PausePartitions, ef.RevokePartitions, ef.AssignPartitions),
    # If a topic may not be described, the membership continues.
    ef.RaiseToApplication,
)
#: The requests that only a member of the group sends.
AS_A_MEMBER = (ef.SendHeartbeat, *get_args(ClassicEffect))


def answers(scene: AnyScene) -> Iterator[GroupEvent]:
    """Yield the plausible events of this scene that its protocol handles itself."""
    if isinstance(scene, Scene):
        yield from (make(scene) for kind, make in sample_events.PLAUSIBLE.items() if kind in get_args(ev.ConsumerEvent))
    else:
        shared = get_args(ev.Event)
        yield from (event for kind, event in classic_sample_events.plausible(scene).items() if kind not in shared)  # type: ignore[misc]  # events all


@pytest.mark.parametrize("name", SCENES)
def test_protocol_orders_only_its_own_effects(name: str) -> None:
    """A protocol emits requests and notes.

    It returns the end of a membership, and it never completes a leave itself.
    """
    for number, _ in enumerate(answers(SCENES[name]())):
        scene = SCENES[name]()
        event = list(answers(scene))[number]
        scene.context.event.begin(scene.now)
        scene.protocol.handle(event)  # type: ignore[arg-type]  # this protocol's events
        emitted = scene.context.event.effects()
        assert [one for one in emitted if not isinstance(one, ITS_OWN)] == []
        problems = [one.problem for one in emitted if isinstance(one, ef.RaiseToApplication)]
        assert ef.Problem.FATAL not in problems


@pytest.mark.parametrize("name", SCENES)
def test_protocol_drops_the_events_of_the_other_protocol(name: str) -> None:
    """A response of the other protocol belongs to a request that was sent before the protocol changed."""
    other = (
        builders.stable(builders.A0)
        if name.startswith("classic")
        else classic_sample_events.scene_in(ClassicState.STABLE)
    )
    scene = SCENES[name]()
    scene.context.event.begin(scene.now)
    before = scene.view
    for event in answers(other):
        assert scene.protocol.handle(event) is None  # type: ignore[arg-type]  # the other protocol's events
    assert (scene.context.event.effects(), scene.view) == ((), before)


@pytest.mark.parametrize("name", OUTSIDE)
def test_protocol_outside_the_group_has_no_epoch_and_sends_nothing(name: str) -> None:
    """In UNSUBSCRIBED, FENCED, STALE and FATAL a protocol sends nothing, however much time passes."""
    scene = SCENES[name]()
    assert max(scene.protocol.identity.member_epoch, 0) == 0
    assert (scene.protocol.may_commit, scene.protocol.group_protocol) == (False, None)
    assert scene.protocol.next_deadline() is None
    scene.after(3600.0)
    assert [one for one in scene.last if isinstance(one, AS_A_MEMBER)] == []


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("trigger", [Trigger.FENCED, Trigger.POLL_TIMEOUT, Trigger.REFUSED], ids=lambda one: one.name)
def test_protocol_that_ends_drops_its_epoch_and_its_requests(name: str, trigger: Trigger) -> None:
    """After the end of a membership a late response matches no pending request."""
    scene = SCENES[name]()
    late = list(answers(scene))
    scene.context.event.begin(scene.now)
    scene.protocol.end(trigger, "a test")
    after = scene.view
    assert max(scene.protocol.identity.member_epoch, NO_EPOCH) <= 0
    for event in late:
        assert scene.protocol.handle(event) is None or scene.protocol.ignores(event)  # type: ignore[arg-type]  # this protocol's events
    assert scene.view.member_epoch == after.member_epoch
