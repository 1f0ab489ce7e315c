"""Subscribed topics that do not exist: what the application receives, and when Metadata is requested again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.pace import QUICK_S
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.types import UNSUPPORTED_VERSION_CODE, BrokerError, GroupProtocol, Subscription
from tests.membership.builders import A0, B0, COORDINATOR, INTERVAL_S, LOADING, Scene, named
from tests.membership.classic.scene import ClassicScene, Plan

SceneT = TypeVar("SceneT", Scene, ClassicScene)

REFRESH_S = 300.0
NOT_AUTHORIZED = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="allow DESCRIBE")


def joining(*topics: str, pattern: str | None = None, **settings: object) -> Scene:
    """JOINING with these topics, which the member has requested from Metadata."""
    scene = Scene(topic_refresh_s=REFRESH_S, max_poll_interval_s=1e6, **settings)
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def classic_joining(*topics: str, pattern: str | None = None) -> ClassicScene:
    """A classic member that is JOINING with these topics."""
    scene = ClassicScene(topic_refresh_s=REFRESH_S, max_poll_interval_s=1e6, classic={"session_timeout_s": 1e6})
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def requested(scene: Scene | ClassicScene) -> list[frozenset[str] | None]:
    """Return the topics of each Metadata request so far; None requests all topics."""
    return [order.topics for order in scene.effects if isinstance(order, ef.LookUpTopics)]


def answer(scene: SceneT, *names: str, refused: Iterable[str] = ()) -> SceneT:
    """A Metadata response arrives: these topics exist, and the refused ones may not be described."""
    request_id = [order for order in scene.effects if isinstance(order, ef.LookUpTopics)][-1].request_id
    refusals = dict.fromkeys(refused, NOT_AUTHORIZED)
    scene.feed(ev.TopicsLookedUp(request_id=request_id, names=frozenset(names), refused=refusals))
    return scene


def raised(scene: Scene | ClassicScene) -> list[tuple[str | None, int]]:
    """Return the errors that the application received: topic and code."""
    return [(one.topic, one.error.code) for one in scene.effects if isinstance(one, ef.RaiseToApplication)]


def count_requests(scene: Scene, seconds: float) -> int:
    """Return how many times the member requests its topics within this time, if the response stays the same."""
    before, end = len(requested(scene)), scene.now + seconds
    while (due := scene.context.watch.due_at) is not None and due <= end:
        scene.now = max(scene.now, due)
        answer(scene.feed(ev.Polled()), "payments")
    return len(requested(scene)) - before


def test_member_requests_its_topics_at_the_join_and_at_the_refresh_interval() -> None:
    """The member requests the subscribed topics immediately.

    While all of them exist, it repeats this at the refresh interval.
    """
    scene = answer(joining("orders", "payments"), "orders", "payments")
    assert (requested(scene), raised(scene), scene.view.missing_topics) == ([{"orders", "payments"}], [], frozenset())
    scene.after(REFRESH_S - 1)
    assert len(requested(scene)) == 1
    scene.after(1)
    assert len(requested(scene)) == 2


def test_missing_topic_is_raised_once_with_librdkafkas_message() -> None:
    """Each missing topic is raised once by name, and the view lists it."""
    scene = answer(joining("orders", "payments"), "payments")
    (notice,) = scene.new(ef.RaiseToApplication)
    assert notice == ef.RaiseToApplication(
        problem=ef.Problem.REFUSED,
        topic="orders",
        error=BrokerError(
            code=3,
            name="UNKNOWN_TOPIC_OR_PART",
            message="Subscribed topic not available: orders: Broker: Unknown topic or partition",
        ),
    )
    assert scene.view.missing_topics == {"orders"}
    count_requests(scene, 3600.0)
    assert raised(scene) == [("orders", 3)]


def test_missing_topic_is_requested_with_backoff() -> None:
    """Requests for a missing topic follow within seconds at first, and then every half minute."""
    scene = answer(joining("orders", "payments"), "payments")
    assert 2 <= count_requests(scene, 5.0) <= 4
    count_requests(scene, 60.0)
    assert 15 <= count_requests(scene, 600.0) <= 30


def test_member_without_partitions_waits_for_the_missing_topic() -> None:
    """The view names the missing topic instead of "assigned none"; a member with partitions waits for nothing."""
    scene = answer(joining("orders", "payments"), "payments")
    assert (
        scene.answer(1, []).settle().view.waits_for_text
        == "subscribed topics: topic 'orders' does not exist (UNKNOWN_TOPIC_OR_PART)"
    )
    scene = answer(joining("orders", "payments"), "payments")
    assert scene.answer(1, [B0]).settle().view.waits_for is None


def test_topic_that_appears_is_known_by_its_partitions_and_raised_again_when_deleted() -> None:
    """An assigned topic exists. When its partitions are revoked, the member requests it immediately."""
    scene = answer(joining("orders"))
    scene.answer(1, [A0]).settle()
    assert (scene.owned, scene.view.missing_topics) == (named(A0), frozenset())
    assert scene.all(ef.TopicsAppeared) == [ef.TopicsAppeared(topics=("orders",))]
    requests = len(requested(scene))
    scene.target(2).settle()
    assert len(requested(scene)) == requests + 1
    assert raised(answer(scene)) == [("orders", 3), ("orders", 3)]


def test_changed_reason_of_a_missing_topic_is_raised() -> None:
    """A topic that may not be described is raised once with that error, and does not count as missing."""
    scene = answer(joining("orders", "payments"), "payments", refused=["orders"])
    assert (raised(scene), scene.view.missing_topics) == ([("orders", 29)], frozenset())
    text = "subscribed topics: topic 'orders' cannot be described (TOPIC_AUTHORIZATION_FAILED)"
    # With such a topic the coordinator does not answer the join: the view names the topic, not the missing response.
    assert scene.view.waits_for_text == text
    assert scene.answer(1, []).settle().view.waits_for_text == text
    answer(scene.after(2.0), "payments", refused=["orders"])
    answer(scene.after(3.0), "payments")
    assert raised(scene) == [("orders", 29), ("orders", 3)]


def test_pattern_without_a_match_is_raised_like_a_missing_topic() -> None:
    """A pattern without a match is raised, as in librdkafka's classic consumer.

    With a pattern the member requests all topics.
    """
    scene = answer(joining("payments", pattern="^ord.*"), "payments", "x-orders")
    assert (requested(scene), raised(scene)) == ([None], [("^ord.*", 3)])
    text = "subscribed topics: pattern '^ord.*' matches no topic (UNKNOWN_TOPIC_OR_PART)"
    assert scene.answer(1, []).settle().view.waits_for_text == text
    assert answer(scene.after(3.0), "payments", "orders").view.missing_topics == frozenset()


def test_new_match_of_a_pattern_speeds_up_the_heartbeats() -> None:
    """The broker matches the pattern when a heartbeat arrives, so the member does not wait for the interval."""
    scene = answer(joining(pattern="^ord.*"), "orders").answer(1, [A0]).settle()
    spacings = []
    for names in (("orders",), ("orders", "payments"), ("orders", "orders-2")):
        before = len(requested(scene))
        while len(requested(scene)) == before:
            scene.next_heartbeat()
            scene.answer()
        answer(scene, *names)
        spacings.append(scene.protocol.heartbeats.spacing_s(scene.now, holds=True))
    assert spacings == [INTERVAL_S, INTERVAL_S, QUICK_S]


def test_pattern_that_only_brokers_understand_is_not_evaluated() -> None:
    """The member raises nothing for a pattern that only the broker can evaluate."""
    scene = answer(joining(pattern="^(?i)ord.*"), "payments")
    assert (raised(scene), scene.view.missing_topics) == ([], frozenset())


def test_answer_for_a_former_subscription_is_dropped() -> None:
    """A new subscription is requested again; a topic that is no longer subscribed is not missing."""
    scene = answer(joining("orders"))
    former = scene.all(ef.LookUpTopics)[0].request_id
    scene.subscribe("payments").poll()
    assert (requested(scene)[-1], scene.view.missing_topics) == ({"payments"}, frozenset())
    scene.feed(ev.TopicsLookedUp(request_id=former, names=frozenset()))
    assert raised(scene) == [("orders", 3)]


def test_missing_topic_that_is_subscribed_again_is_not_raised_again() -> None:
    """A missing topic is raised again only after it has existed, as in librdkafka."""
    scene = answer(joining("orders"))
    scene.subscribe("orders", "payments").poll()
    assert raised(answer(scene, "payments")) == [("orders", 3)]


def test_topic_request_without_an_answer_is_repeated() -> None:
    """A failed topic request is repeated after a pause, and nothing is raised."""
    scene = joining("orders")
    scene.feed(ev.TopicsNotLookedUp(request_id=1, error=LOADING))
    assert (raised(scene), len(requested(scene)), len(requested(scene.after(2.0)))) == ([], 1, 2)


def test_member_outside_its_group_requests_no_topics() -> None:
    """The member requests no topics before the first poll and after the end."""
    assert requested(Scene(topic_refresh_s=REFRESH_S).subscribe("orders")) == []
    scene = answer(joining("orders"), "orders").fail().after(REFRESH_S)
    assert len(requested(scene)) == 1


def test_change_of_the_protocol_raises_no_missing_topic_twice() -> None:
    """With group.protocol=auto the change to the classic protocol does not raise a missing topic again."""
    member = MemberCore(
        MemberSettings(group_id="g", topic_refresh_s=REFRESH_S),
        ProtocolSettings(classic=ClassicSettings(assignors=(Plan(),))),
        new_member_id=lambda: "m",
        jitter=lambda: 0.5,
    )
    effects: list[object] = []
    wishes = (ev.Subscribed(subscription=Subscription(topics=frozenset({"orders"}))), ev.Polled())
    for event in (*wishes, ev.CoordinatorFound(coordinator=COORDINATOR)):
        effects += member.handle(event, 1.0)
    effects += member.handle(ev.TopicsLookedUp(request_id=1, names=frozenset()), 1.0)
    refusal = BrokerError(code=UNSUPPORTED_VERSION_CODE, name="UNSUPPORTED_VERSION")
    effects += member.handle(ev.HeartbeatRejected(request_id=1, verdict=ev.Verdict.FATAL, error=refusal), 2.0)
    assert member.protocol is GroupProtocol.CLASSIC
    effects += member.handle(ev.TopicsLookedUp(request_id=1, names=frozenset()), 3.0)
    assert len([one for one in effects if isinstance(one, ef.RaiseToApplication)]) == 1
    assert member.view().missing_topics == {"orders"}


# ---- classic members ----


def test_classic_follower_requests_and_raises_missing_topics() -> None:
    """A classic follower reports missing topics, because it has no other way to see its topics."""
    scene = answer(classic_joining("a", "b"), "b")
    assert (requested(scene), raised(scene)) == ([{"a", "b"}], [("a", 3)])
    scene.gather(1).share().settle()
    assert scene.member.view().waits_for_text == "subscribed topics: topic 'a' does not exist (UNKNOWN_TOPIC_OR_PART)"


def test_classic_leader_requests_a_missing_topic_sooner_and_rejoins() -> None:
    """The leader rejoins when a missing topic of any member appears, without waiting for the refresh interval."""
    scene = answer(classic_joining("a"), "a")
    others = {"m": MemberSubscription(topics=frozenset({"a"})), "n": MemberSubscription(topics=frozenset({"late"}))}
    scene.gather(1, leads=True, members=others).described(a=1).computed(m=[], n=[]).share().settle()
    requests = len(scene.all(ex.DescribeTopics))
    scene.after(2.0)
    assert len(scene.all(ex.DescribeTopics)) == requests + 1
    scene.described(a=1, late=1)
    assert scene.join.reason == "the leader's topics have changed"


def test_classic_member_with_a_pattern_raises_missing_matches_from_its_list() -> None:
    """A classic member already lists all topics, so it needs no second request.

    It lists sooner while nothing matches.
    """
    scene = classic_joining("b", pattern="^a").listed("b")
    assert (requested(scene), raised(scene)) == ([], [("^a", 3)])
    scene.gather(1).share().settle()
    assert (
        scene.member.view().waits_for_text == "subscribed topics: pattern '^a' matches no topic (UNKNOWN_TOPIC_OR_PART)"
    )
    scene.after(2.0).listed("a", "b")
    assert scene.join.protocols[0][1].topics == {"a", "b"}


def test_blacklisted_topic_is_raised_and_never_requested() -> None:
    """To the application a topic in topic.blacklist does not exist, and the view names the reason."""
    subscription = Subscription(topics=frozenset({"payments"}), blacklisted=frozenset({"orders"}))
    scene = Scene(topic_refresh_s=REFRESH_S).feed(ev.Subscribed(subscription=subscription)).poll().found()
    assert (requested(scene), scene.heartbeats[0].topics) == ([{"payments"}], ("payments",))
    assert raised(answer(scene, "payments", "orders")) == [("orders", 3)]
    assert (
        scene.answer(1, []).settle().view.waits_for_text
        == "subscribed topics: topic 'orders' is excluded by topic.blacklist"
    )


def test_topic_that_the_coordinator_refuses_is_raised_once_by_name() -> None:
    """The refusal of a heartbeat does not name the topic, so the member takes the name from Metadata."""
    scene = answer(joining("closed", "open"), "closed", "open").reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert raised(scene) == []
    assert len(requested(scene)) == 2
    answer(scene, "open", refused=["closed"])
    assert raised(scene) == [("closed", 29)]
    scene.after(5.0).reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert raised(scene) == [("closed", 29)]


def test_refusal_of_a_subscription_with_a_pattern_is_raised_unchanged() -> None:
    """The list of all topics omits topics that may not be described, so the refusal is raised without a name."""
    scene = joining("closed", pattern="^open").reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert raised(scene) == [(None, 29)]
