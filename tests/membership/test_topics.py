"""Subscribed topics that are not there: what the application is told, how often, and when it is looked for again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.member import GroupMember
from consumer_membership.membership.pace import QUICK_S
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.types import UNSUPPORTED_VERSION_CODE, BrokerError, GroupProtocol, Subscription
from tests.membership.builders import A0, B0, COORDINATOR, INTERVAL_S, LOADING, Scene, named
from tests.membership.classic.scene import ClassicScene, Plan

SceneT = TypeVar("SceneT", Scene, ClassicScene)

REFRESH_S = 300.0
NOT_AUTHORIZED = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="allow DESCRIBE")


def joining(*topics: str, pattern: str | None = None, **settings: object) -> Scene:
    """JOINING with these topics, which it asks about."""
    scene = Scene(topic_refresh_s=REFRESH_S, max_poll_interval_s=1e6, **settings)
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def classic_joining(*topics: str, pattern: str | None = None) -> ClassicScene:
    """The same of a classic member."""
    scene = ClassicScene(topic_refresh_s=REFRESH_S, max_poll_interval_s=1e6, classic={"session_timeout_s": 1e6})
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def asked(scene: Scene | ClassicScene) -> list[frozenset[str] | None]:
    """What it asked for so far."""
    return [order.topics for order in scene.effects if isinstance(order, ef.LookUpTopics)]


def saw(scene: SceneT, *names: str, refused: Iterable[str] = ()) -> SceneT:
    """Metadata answers: these topics are there, and those may not be described."""
    request_id = [order for order in scene.effects if isinstance(order, ef.LookUpTopics)][-1].request_id
    refusals = dict.fromkeys(refused, NOT_AUTHORIZED)
    scene.feed(ev.TopicsLookedUp(request_id=request_id, names=frozenset(names), refused=refusals))
    return scene


def told(scene: Scene | ClassicScene) -> list[tuple[str | None, int]]:
    """What the application was told: topic and code."""
    return [(one.topic, one.error.code) for one in scene.effects if isinstance(one, ef.RaiseToApplication)]


def looks_after(scene: Scene, seconds: float) -> int:
    """How often it looks within this time, with the same answer each time."""
    before, end = len(asked(scene)), scene.now + seconds
    while (due := scene.context.watch.due_at) is not None and due <= end:
        scene.now = max(scene.now, due)
        saw(scene.feed(ev.Polled()), "payments")
    return len(asked(scene)) - before


def test_member_looks_at_its_topics_when_it_joins_and_now_and_then() -> None:
    """At once, for the named topics only, and again at the refresh interval while all of them are there."""
    scene = saw(joining("orders", "payments"), "orders", "payments")
    assert (asked(scene), told(scene), scene.view.missing_topics) == ([{"orders", "payments"}], [], frozenset())
    scene.after(REFRESH_S - 1)
    assert len(asked(scene)) == 1
    scene.after(1)
    assert len(asked(scene)) == 2


def test_missing_topic_is_told_once_in_librdkafkas_words() -> None:
    """Each name by itself, with the topic; the view names it; later looks with the same result say nothing."""
    scene = saw(joining("orders", "payments"), "payments")
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
    looks_after(scene, 3600.0)
    assert told(scene) == [("orders", 3)]


def test_missing_topic_is_looked_for_sooner_and_sooner_no_more() -> None:
    """No storm: a few looks in the first seconds, then one each half minute."""
    scene = saw(joining("orders", "payments"), "payments")
    assert 2 <= looks_after(scene, 5.0) <= 4
    looks_after(scene, 60.0)
    assert 15 <= looks_after(scene, 600.0) <= 30


def test_member_without_partitions_waits_for_the_topic() -> None:
    """The view says which, in words, instead of "assigned none"; a member that reads something waits for nothing."""
    scene = saw(joining("orders", "payments"), "payments")
    assert scene.answer(1, []).settle().view.waits_for == "topic 'orders', which does not exist (UNKNOWN_TOPIC_OR_PART)"
    scene = saw(joining("orders", "payments"), "payments")
    assert scene.answer(1, [B0]).settle().view.waits_for is None


def test_topic_that_comes_is_known_by_its_partitions_and_told_again_when_it_goes() -> None:
    """What is assigned is there; where it is taken away, the member looks at once."""
    scene = saw(joining("orders"))
    scene.answer(1, [A0]).settle()
    assert (scene.owned, scene.view.missing_topics) == (named(A0), frozenset())
    assert scene.all(ef.TopicsAppeared) == [ef.TopicsAppeared(topics=("orders",))]
    looks = len(asked(scene))
    scene.target(2).settle()
    assert len(asked(scene)) == looks + 1
    assert told(saw(scene)) == [("orders", 3), ("orders", 3)]


def test_change_of_the_reason_is_told() -> None:
    """A topic that may not be described is told as such; it is not missing, and not told twice."""
    scene = saw(joining("orders", "payments"), "payments", refused=["orders"])
    assert (told(scene), scene.view.missing_topics) == ([("orders", 29)], frozenset())
    words = "topic 'orders', which may not be described (TOPIC_AUTHORIZATION_FAILED)"
    # The coordinator answers no join with such a topic: that is what is waited for, and not its answer.
    assert scene.view.waits_for == words
    assert scene.answer(1, []).settle().view.waits_for == words
    saw(scene.after(2.0), "payments", refused=["orders"])
    saw(scene.after(3.0), "payments")
    assert told(scene) == [("orders", 29), ("orders", 3)]


def test_pattern_without_a_match_is_told_like_a_topic() -> None:
    """As librdkafka's classic consumer does; with a pattern all topics are asked for."""
    scene = saw(joining("payments", pattern="^ord.*"), "payments", "x-orders")
    assert (asked(scene), told(scene)) == ([None], [("^ord.*", 3)])
    words = "pattern '^ord.*', which matches no topic (UNKNOWN_TOPIC_OR_PART)"
    assert scene.answer(1, []).settle().view.waits_for == words
    assert saw(scene.after(3.0), "payments", "orders").view.missing_topics == frozenset()


def test_topic_that_begins_to_match_a_pattern_is_asked_for_with_quick_heartbeats() -> None:
    """The broker matches when a heartbeat arrives, so the member does not wait for the end of the interval."""
    scene = saw(joining(pattern="^ord.*"), "orders").answer(1, [A0]).settle()
    spacings = []
    for names in (("orders",), ("orders", "payments"), ("orders", "orders-2")):
        before = len(asked(scene))
        while len(asked(scene)) == before:
            scene.next_beat()
            scene.answer()
        saw(scene, *names)
        spacings.append(scene.protocol.heartbeats.spacing_s(scene.now, holds=True))
    assert spacings == [INTERVAL_S, INTERVAL_S, QUICK_S]


def test_pattern_of_brokers_only_is_not_judged() -> None:
    """Nobody but the broker knows what it matches."""
    scene = saw(joining(pattern="^(?i)ord.*"), "payments")
    assert (told(scene), scene.view.missing_topics) == ([], frozenset())


def test_answer_to_a_former_subscription_is_dropped() -> None:
    """Another subscription asks anew; what is not subscribed any more is not missing."""
    scene = saw(joining("orders"))
    former = scene.all(ef.LookUpTopics)[0].request_id
    scene.subscribe("payments").poll()
    assert (asked(scene)[-1], scene.view.missing_topics) == ({"payments"}, frozenset())
    scene.feed(ev.TopicsLookedUp(request_id=former, names=frozenset()))
    assert told(scene) == [("orders", 3)]


def test_same_topic_subscribed_again_is_not_told_again() -> None:
    """As in librdkafka: what was told holds until the topic was there."""
    scene = saw(joining("orders"))
    scene.subscribe("orders", "payments").poll()
    assert told(saw(scene, "payments")) == [("orders", 3)]


def test_look_without_an_answer_is_repeated() -> None:
    """After a while; nothing is told of what is not known."""
    scene = joining("orders")
    scene.feed(ev.TopicsNotLookedUp(request_id=1, error=LOADING))
    assert (told(scene), len(asked(scene)), len(asked(scene.after(2.0)))) == ([], 1, 2)


def test_member_outside_its_group_does_not_look() -> None:
    """Neither before the first poll nor after the end."""
    assert asked(Scene(topic_refresh_s=REFRESH_S).subscribe("orders")) == []
    scene = saw(joining("orders"), "orders").fail().after(REFRESH_S)
    assert len(asked(scene)) == 1


def test_change_of_the_protocol_tells_nothing_twice() -> None:
    """auto: the consumer protocol was refused, and a classic member goes on."""
    member = GroupMember(
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


def test_classic_follower_looks_and_tells() -> None:
    """As under the consumer protocol; a follower has no other eye on its topics."""
    scene = saw(classic_joining("a", "b"), "b")
    assert (asked(scene), told(scene)) == ([{"a", "b"}], [("a", 3)])
    scene.gather(1).share().settle()
    assert scene.member.view().waits_for == "topic 'a', which does not exist (UNKNOWN_TOPIC_OR_PART)"


def test_classic_leader_looks_sooner_while_a_topic_is_missing_and_takes_it_in() -> None:
    """Its own or another member's: it joins again when the topic is there, and does not wait for the refresh."""
    scene = saw(classic_joining("a"), "a")
    others = {"m": MemberSubscription(topics=frozenset({"a"})), "n": MemberSubscription(topics=frozenset({"late"}))}
    scene.gather(1, leads=True, members=others).described(a=1).computed(m=[], n=[]).share().settle()
    looks = len(scene.all(ex.DescribeTopics))
    scene.after(2.0)
    assert len(scene.all(ex.DescribeTopics)) == looks + 1
    scene.described(a=1, late=1)
    assert scene.join.reason == "the leader's topics have changed"


def test_classic_member_with_a_pattern_tells_what_its_list_shows() -> None:
    """It has the list of all topics already: one question, not two; it lists sooner while nothing matches."""
    scene = classic_joining("b", pattern="^a").listed("b")
    assert (asked(scene), told(scene)) == ([], [("^a", 3)])
    scene.gather(1).share().settle()
    assert scene.member.view().waits_for == "pattern '^a', which matches no topic (UNKNOWN_TOPIC_OR_PART)"
    scene.after(2.0).listed("a", "b")
    assert scene.join.protocols[0][1].topics == {"a", "b"}


def test_topic_that_the_blacklist_keeps_out_is_told_and_never_asked_for() -> None:
    """To the application it is one that does not exist, whatever the cluster says; the view says why."""
    subscription = Subscription(topics=frozenset({"payments"}), blacklisted=frozenset({"orders"}))
    scene = Scene(topic_refresh_s=REFRESH_S).feed(ev.Subscribed(subscription=subscription)).poll().found()
    assert (asked(scene), scene.beats[0].topics) == ([{"payments"}], ("payments",))
    assert told(saw(scene, "payments", "orders")) == [("orders", 3)]
    assert scene.answer(1, []).settle().view.waits_for == "topic 'orders', which is in topic.blacklist"


def test_topic_that_the_coordinator_refuses_is_told_once_and_by_name() -> None:
    """Its refusal of the heartbeat does not say which topic it is; the metadata do."""
    scene = saw(joining("closed", "open"), "closed", "open").reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert told(scene) == []
    assert len(asked(scene)) == 2
    saw(scene, "open", refused=["closed"])
    assert told(scene) == [("closed", 29)]
    scene.after(5.0).reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert told(scene) == [("closed", 29)]


def test_refusal_beside_a_pattern_is_told_as_it_is() -> None:
    """The list of all topics leaves out what may not be described."""
    scene = joining("closed", pattern="^open").reject(Verdict.REPORT, NOT_AUTHORIZED)
    assert told(scene) == [(None, 29)]
