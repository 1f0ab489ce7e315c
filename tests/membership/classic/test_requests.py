"""The JoinGroup and SyncGroup requests of a classic member."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pytest

from consumer_membership.assignors.assignor import Assigned, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignment import ClassicAssignment
from consumer_membership.membership.classic.requests import RebalanceRequests
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.types import BrokerError, Subscription
from tests.membership.classic.scene import A0, A1, MAX_POLL_S, Plan

TOPICS = frozenset({"a"})
SUBSCRIPTION = Subscription(topics=TOPICS)


@dataclass(frozen=True)
class Returning:
    """An assignor whose user_data() returns or raises what the test chooses."""

    user: object
    name: str = "returning"
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.COOPERATIVE})

    def user_data(self, *_: object) -> bytes | None:
        if isinstance(self.user, Exception):
            raise self.user
        return self.user  # type: ignore[return-value]  # user code may return anything

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[tuple[str, int]] | Assigned]:
        raise NotImplementedError


class Scene:
    """The requests of one static member, its assignment, and the effects of the current event."""

    def __init__(self, *assignors: Plan | Returning) -> None:
        self.event = EventContext()
        settings = MemberSettings(group_id="g", instance_id="i", rack_id="r", max_poll_interval_s=MAX_POLL_S)
        classic = ClassicSettings(assignors=assignors or (Plan(),), session_timeout_s=10.0)
        self.assignment = ClassicAssignment(self.event, classic.assignors, is_static=True)
        self.requests = RebalanceRequests(self.event, settings, classic, self.assignment)
        self.at(100.0)

    def at(self, now: float) -> Scene:
        """Begin an event at this time."""
        self.event.begin(now)
        return self

    def join(self) -> BrokerError | None:
        """Send a JoinGroup for topic a, with A0 as the owned partition."""
        return self.requests.join(member_id="m", reason="because", subscription=SUBSCRIPTION, topics=TOPICS, owned=[A0])

    def assigned(self) -> Scene:
        """Assign A0 and A1 in generation 4, and join generation 5."""
        for generation in (4, 5):
            self.assignment.joined(
                ex.JoinAnswered(request_id=1, generation=generation, member_id="m", leader_id="l", protocol_name="plan")
            )
            if generation == 4:
                self.assignment.apply(frozenset({A0, A1}), revokes=False)
        return self


def test_join_has_the_subscription_for_each_assignor() -> None:
    """KIP-792: the owned partitions have the assigned generation, not the one of a JoinGroup without a SyncGroup."""
    scene = Scene(Plan(), Returning(None)).assigned()
    assert scene.join() is None
    (join,) = scene.event.effects()
    assert isinstance(join, ex.SendJoin)
    assert (join.member_id, join.instance_id, join.reason) == ("m", "i", "because")
    assert (join.session_timeout_s, join.rebalance_timeout_s) == (10.0, MAX_POLL_S)
    subscription = MemberSubscription(
        topics=TOPICS, user_data=b"['a'] 2 4", owned=frozenset({A0}), generation=4, rack_id="r"
    )
    assert [name for name, _ in join.protocols] == ["plan", "returning"]
    assert join.protocols[0][1] == subscription
    assert join.protocols[1][1].user_data is None


def test_sync_names_the_joined_generation_and_the_assignor_of_the_group() -> None:
    """A leader's SyncGroup has the assignments of all members."""
    scene = Scene().assigned()
    scene.requests.sync(member_id="m", assignments={"m": frozenset({A0})}, user_data={"m": b"data"}, versions={"m": 3})
    (sync,) = scene.event.effects()
    assert sync == ex.SendSync(
        request_id=1,
        generation=5,
        member_id="m",
        instance_id="i",
        protocol_name="plan",
        assignments={"m": frozenset({A0})},
        user_data={"m": b"data"},
        versions={"m": 3},
    )


def test_only_the_response_to_the_request_in_flight_is_awaited() -> None:
    """A response to an earlier request has another number, and after `forget` the member expects no response."""
    scene = Scene()
    scene.join()
    seen = [(scene.requests.is_waiting, scene.requests.awaits(1), scene.requests.awaits(2))]
    scene.at(103.0).requests.sync(member_id="m", assignments={}, user_data={}, versions={})
    seen.append((scene.requests.is_waiting, scene.requests.awaits(1), scene.requests.awaits(2)))
    scene.requests.forget()
    seen.append((scene.requests.is_waiting, scene.requests.awaits(1), scene.requests.awaits(2)))
    assert seen == [(True, True, False), (True, False, True), (False, False, False)]
    assert scene.requests.sent_at == 103.0


def test_scheduled_join_ends_the_wait_for_the_request_in_flight() -> None:
    """The next JoinGroup is due after the delay."""
    scene = Scene()
    scene.join()
    scene.at(101.0).requests.schedule_join(2.5)
    assert (scene.requests.is_waiting, scene.requests.join_at, scene.requests.sent_at) == (False, 103.5, 100.0)


def test_suspension_counts_from_the_last_request() -> None:
    """A session continues while the computer is suspended."""
    scene = Scene()
    scene.join()
    scene.requests.suspended(4.0)
    assert scene.requests.sent_at == 96.0


def test_changed_topics_outdate_the_last_join() -> None:
    """Another subscription with the same topics needs no new JoinGroup."""
    scene = Scene()
    scene.join()
    more = TOPICS | {"b"}
    subscribed = Subscription(topics=more)
    assert [
        scene.requests.change(SUBSCRIPTION, TOPICS),
        scene.requests.change(subscribed, TOPICS),
        scene.requests.change(subscribed, more),
        scene.requests.change(SUBSCRIPTION, more),
    ] == [None, None, "the subscription changed", "the topics that match the pattern have changed"]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        pytest.param(ValueError("no"), "ValueError: no", id="raises"),
        pytest.param("text", "it returned 'text'; return bytes or None", id="text"),
    ],
)
def test_user_data_that_fails_is_returned_as_an_error_and_nothing_is_sent(returned: object, problem: str) -> None:
    """The failed join is not the last one that the member sent."""
    scene = Scene(Plan(), Returning(returned))
    error = scene.join()
    assert error is not None
    assert error.message == f"user_data() of the assignor 'returning' failed: {problem}"
    assert (scene.event.effects(), scene.requests.is_waiting) == ((), False)
    assert scene.requests.change(SUBSCRIPTION, TOPICS) == "the subscription changed"
