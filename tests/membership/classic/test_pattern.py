"""A subscribed pattern under the classic protocol: the member resolves it itself (C13; rules 5.6)."""

from __future__ import annotations

import pytest

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.membership import effects as ef
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.types import INVALID_PATTERN_CODE, BrokerError, TopicPartition
from tests.membership.classic.scene import A0, EAGER, REFRESH_S, ClassicScene, Plan

S = ClassicState
B0 = TopicPartition("b", 0)
PATIENT: dict[str, object] = {"session_timeout_s": 1e6}
TIMED_OUT = BrokerError(code=7, name="REQUEST_TIMED_OUT")


def lists(scene: ClassicScene) -> int:
    """Return how many times the member has requested the list of all topics."""
    return len([asked for asked in scene.all(ex.DescribeTopics) if asked.topics is None])


def sent(scene: ClassicScene) -> tuple[frozenset[str], frozenset[TopicPartition]]:
    """Return the topics and the owned partitions in the latest JoinGroup."""
    ((_, subscription),) = scene.join.protocols
    return subscription.topics, subscription.owned


def joining_by(pattern: str, *topics: str, plan: Plan | None = None) -> ClassicScene:
    """A member whose application subscribed to the pattern and polled, and whose coordinator is known."""
    scene = ClassicScene(plan or Plan(), classic=PATIENT, max_poll_interval_s=1e6)
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def stable_by(pattern: str, *names: str, leads: bool = False, plan: Plan | None = None) -> ClassicScene:
    """Return a member in STABLE in generation 1 with A0; its topic list contained these topics."""
    scene = joining_by(pattern, plan=plan).listed(*names)
    if not leads:
        return scene.gather(1).share(A0).settle()
    members = {"m": MemberSubscription(topics=frozenset({"a"}))}
    return scene.gather(1, leads=True, members=members).described(a=1).computed(m=[A0]).share(A0).settle()


def test_member_with_a_pattern_lists_all_topics_before_it_joins() -> None:
    """C13: The member sends no JoinGroup before the topic list arrives, and the view shows the wait."""
    scene = joining_by("^a")
    assert (scene.kinds, lists(scene), scene.all(ex.SendJoin)) == ([], 1, [])
    assert scene.member.view().waits_for == "topic list"
    scene.listed("a", "ab", "ba")
    assert (sent(scene)[0], lists(scene)) == ({"a", "ab"}, 1)


def test_names_and_pattern_are_combined() -> None:
    """C13: `subscribe(["^a.*|^c", "b"])` subscribes names and patterns.

    A pattern matches from the start of a name, not necessarily to its end.
    """
    scene = joining_by("^a.*|^c", "b").listed("a", "cat", "acdc", "xa", "b")
    assert sent(scene)[0] == {"a", "cat", "acdc", "b"}


def test_pattern_without_a_match_joins_without_topics_and_finds_a_topic_later() -> None:
    """C13: The next refresh finds a topic that was created after the join."""
    scene = joining_by("^a").listed("b")
    assert sent(scene)[0] == frozenset()
    scene.gather(1).share().settle().after(REFRESH_S).listed("b", "a")
    assert (scene.state, sent(scene)[0]) == (S.JOINING, {"a"})
    assert scene.join.reason == "the topics that match the pattern have changed"


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_leader_and_follower_refresh_the_matches_of_a_pattern(leads: bool) -> None:  # noqa: FBT001 - a parameter
    """C13: At the refresh interval unchanged matches change nothing, and other matches make the member join again."""
    scene = stable_by("^a", "a", leads=leads).after(REFRESH_S - 0.1)
    assert lists(scene) == 1
    scene.after(0.1).listed("a", "b")
    assert (scene.state, lists(scene)) == (S.STABLE, 2)
    scene.after(REFRESH_S).listed("a", "aa")
    assert (scene.state, sent(scene)) == (S.JOINING, ({"a", "aa"}, {A0}))


def test_deleted_topic_is_revoked_before_the_join() -> None:
    """C13: A cooperative member keeps only partitions of subscribed topics (rules 4.4)."""
    scene = stable_by("^a", "a", "ab").after(REFRESH_S).listed("ab").settle()
    assert [sorted(step.partitions or ()) for step in scene.all(ef.RevokePartitions)] == [[A0]]
    assert (scene.state, sent(scene)) == (S.JOINING, ({"ab"}, frozenset()))


def test_matches_that_change_during_a_rebalance_are_sent_in_the_next_generation() -> None:
    """Rules 5.6: If the metadata changes during a rebalance, the JoinGroup in flight continues."""
    scene = stable_by("^a", "a").rebalance().after(REFRESH_S).listed("a", "ab")
    assert (scene.state, sent(scene)[0], len(scene.all(ex.SendJoin))) == (S.JOINING, {"a"}, 2)
    scene.gather(2).share(A0).settle()
    assert (scene.state, sent(scene)[0], len(scene.all(ex.SendJoin))) == (S.JOINING, {"a", "ab"}, 3)


def test_partition_of_a_matching_topic_is_assigned() -> None:
    """Partitions of other topics than the matching and named ones are not assigned (rules 4.5)."""
    assert stable_by("^a", "a").owned == {A0}
    scene = joining_by("^a").listed("a").gather(1).share(B0)
    assert (scene.state, scene.owned) == (S.JOINING, set())


def test_leader_requests_the_matching_topics() -> None:
    """The leader requests the topics that its pattern matches and the topics of the other members."""
    scene = joining_by("^a").listed("a", "ab")
    scene.gather(1, leads=True, members={"n": MemberSubscription(topics=frozenset({"b"}))})
    assert [asked.topics for asked in scene.new(ex.DescribeTopics)] == [{"a", "ab", "b"}]


def test_failed_topic_list_is_requested_again() -> None:
    """After a backoff the list is requested again. `last_error` names the cause, and known topics stay."""
    scene = joining_by("^a")
    for _ in range(3):
        request_id = scene.all(ex.DescribeTopics)[-1].request_id
        scene.feed(ex.TopicsNotDescribed(request_id=request_id, error=TIMED_OUT))
        asked = lists(scene)
        assert (scene.member.last_error, scene.state, scene.kinds) == (TIMED_OUT, S.JOINING, [])
        assert lists(scene.after(1.2)) == asked + 1
    assert sent(scene.listed("a"))[0] == {"a"}


def test_late_list_for_a_former_pattern_is_dropped() -> None:
    """A new pattern requests the list again."""
    scene = joining_by("^a").subscribe(pattern="^b")
    former = scene.all(ex.DescribeTopics)[0]
    assert lists(scene) == 2
    scene.feed(ex.TopicsDescribed(request_id=former.request_id, topics=Topics(partitions={"b": 1})))
    assert scene.all(ex.SendJoin) == []
    assert sent(scene.listed("b", "a"))[0] == {"b"}


def test_changed_pattern_revokes_nothing_before_its_matches_are_known() -> None:
    """C10, C13: Partitions that match both patterns are kept throughout."""
    scene = stable_by("^a", "a", "ab").subscribe(pattern="^[a]$")
    assert (scene.state, scene.owned, scene.kinds) == (S.STABLE, {A0}, ["DescribeTopics"])
    scene.rebalance()
    assert (scene.state, scene.owned) == (S.PREPARING, {A0})
    assert scene.member.view().waits_for == "topic list"
    scene.listed("a", "ab")
    assert (scene.state, sent(scene), scene.all(ef.PausePartitions)) == (S.JOINING, ({"a"}, {A0}), [])


def test_eager_member_revokes_everything_and_joins_with_the_new_matches() -> None:
    """C13: With an eager assignor the member revokes everything before it joins with the new matches."""
    scene = stable_by("^a", "a", plan=EAGER).after(REFRESH_S).listed("a", "ab").settle()
    assert (scene.state, sent(scene)) == (S.JOINING, ({"a", "ab"}, frozenset()))


@pytest.mark.parametrize("pattern", ["^a(?i)b", "^[[:word:]]"])
def test_pattern_that_only_brokers_understand_is_fatal_until_another_subscription(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION names the pattern, and another subscription ends the error at the next poll."""
    scene = joining_by(pattern)
    error = scene.member.last_error
    assert (scene.state, error is not None and (error.code, repr(pattern) in error.message)) == (
        S.FATAL,
        (INVALID_PATTERN_CODE, True),
    )
    assert scene.poll().subscribe(pattern=pattern).poll().state is S.FATAL
    scene.subscribe(pattern="^a").poll()
    assert scene.state is S.JOINING
    assert sent(scene.listed("a"))[0] == {"a"}


def test_member_with_an_invalid_new_pattern_leaves_its_group() -> None:
    """The member leaves, so that other members receive its partitions immediately.

    The application receives the error and the loss, and a later join has no member id.
    """
    scene = stable_by("^a", "a").subscribe(pattern="^a(?i)")
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication", "LosePartitions"])
    scene.finish().subscribe("a").poll()
    assert (scene.state, scene.join.member_id) == (S.JOINING, "")


def test_unsubscribed_member_lists_no_topics() -> None:
    """C11: A member lists no topics outside its group or without a pattern."""
    scene = stable_by("^a", "a").leave().settle()
    scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id))
    assert (scene.state, lists(scene.after(REFRESH_S))) == (S.UNSUBSCRIBED, 1)
    scene.subscribe("a").poll().after(REFRESH_S)
    assert (sent(scene)[0], lists(scene)) == ({"a"}, 1)


def test_blacklisted_topics_match_nothing() -> None:
    """Topics in `topic.blacklist` do not exist for the JoinGroup or for the application."""
    blacklist = PATIENT | {"blacklist": ("^ab.*", ".*-x.*")}
    scene = ClassicScene(Plan(), classic=blacklist, max_poll_interval_s=1e6)
    scene.subscribe(pattern="^a").poll().found().listed("a", "ab", "abc", "a-x", "b")
    assert sent(scene)[0] == {"a"}
    scene.gather(1).share(A0).settle().after(REFRESH_S).listed("ab", "a-x")
    assert [(one.topic, one.error.code) for one in scene.all(ef.RaiseToApplication)] == [("^a", 3)]
