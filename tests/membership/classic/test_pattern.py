"""A subscribed pattern under the classic protocol: the member finds what matches (C13; rules 5.6)."""

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
    """How often the member has asked for the list of all topics."""
    return len([asked for asked in scene.all(ex.DescribeTopics) if asked.topics is None])


def said(scene: ClassicScene) -> tuple[frozenset[str], frozenset[TopicPartition]]:
    """The topics and the partitions that the latest JoinGroup names."""
    ((_, words),) = scene.join.protocols
    return words.topics, words.owned


def joining_by(pattern: str, *topics: str, plan: Plan | None = None) -> ClassicScene:
    """The pattern is subscribed and polled for; the coordinator is known."""
    scene = ClassicScene(plan or Plan(), classic=PATIENT, max_poll_interval_s=1e6)
    return scene.subscribe(*topics, pattern=pattern).poll().found()


def stable_by(pattern: str, *names: str, leads: bool = False, plan: Plan | None = None) -> ClassicScene:
    """STABLE in generation 1 with A0, when these topics were there."""
    scene = joining_by(pattern, plan=plan).listed(*names)
    if not leads:
        return scene.gather(1).share(A0).settle()
    words = {"m": MemberSubscription(topics=frozenset({"a"}))}
    return scene.gather(1, leads=True, members=words).described(a=1).computed(m=[A0]).share(A0).settle()


def test_member_with_a_pattern_asks_for_all_topics_before_it_joins() -> None:
    """C13: no JoinGroup before the list is there; the view says what is waited for."""
    scene = joining_by("^a")
    assert (scene.kinds, lists(scene), scene.all(ex.SendJoin)) == ([], 1, [])
    assert scene.member.view().waits_for == "the list of topics, to see which ones match the pattern"
    scene.listed("a", "ab", "ba")
    assert (said(scene)[0], lists(scene)) == ({"a", "ab"}, 1)


def test_names_and_pattern_add_up() -> None:
    """C13: `subscribe(["^a.*|^c", "b"])`; a pattern matches from the start of a name, not necessarily to its end."""
    scene = joining_by("^a.*|^c", "b").listed("a", "cat", "acdc", "xa", "b")
    assert said(scene)[0] == {"a", "cat", "acdc", "b"}


def test_pattern_that_matches_nothing_joins_with_nothing_and_finds_a_topic_later() -> None:
    """C13: a topic that appears is found at the next refresh."""
    scene = joining_by("^a").listed("b")
    assert said(scene)[0] == frozenset()
    scene.gather(1).share().settle().after(REFRESH_S).listed("b", "a")
    assert (scene.state, said(scene)[0]) == (S.JOINING, {"a"})
    assert scene.join.reason == "the topics that match the pattern have changed"


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_matches_are_looked_for_again_by_leader_and_follower(leads: bool) -> None:  # noqa: FBT001 - a parameter
    """C13: on the refresh interval; the same matches change nothing, others make the member join again."""
    scene = stable_by("^a", "a", leads=leads).after(REFRESH_S - 0.1)
    assert lists(scene) == 1
    scene.after(0.1).listed("a", "b")
    assert (scene.state, lists(scene)) == (S.STABLE, 2)
    scene.after(REFRESH_S).listed("a", "aa")
    assert (scene.state, said(scene)) == (S.JOINING, ({"a", "aa"}, {A0}))


def test_topic_that_vanishes_is_given_up_before_the_join() -> None:
    """C13: a cooperative member keeps only what it subscribes (rules 4.4)."""
    scene = stable_by("^a", "a", "ab").after(REFRESH_S).listed("ab").settle()
    assert [sorted(step.partitions or ()) for step in scene.all(ef.RevokePartitions)] == [[A0]]
    assert (scene.state, said(scene)) == (S.JOINING, ({"ab"}, frozenset()))


def test_matches_that_change_while_the_group_gathers_are_told_in_the_next_generation() -> None:
    """Rules 5.6: the metadata changes during a rebalance; the JoinGroup that is out goes on."""
    scene = stable_by("^a", "a").rebalance().after(REFRESH_S).listed("a", "ab")
    assert (scene.state, said(scene)[0], len(scene.all(ex.SendJoin))) == (S.JOINING, {"a"}, 2)
    scene.gather(2).share(A0).settle()
    assert (scene.state, said(scene)[0], len(scene.all(ex.SendJoin))) == (S.JOINING, {"a", "ab"}, 3)


def test_share_of_a_topic_that_matches_is_taken() -> None:
    """What matches is subscribed; what neither matches nor is named is not (rules 4.5)."""
    assert stable_by("^a", "a").owned == {A0}
    scene = joining_by("^a").listed("a").gather(1).share(B0)
    assert (scene.state, scene.owned) == (S.JOINING, set())


def test_leader_watches_what_matches() -> None:
    """The leader's own topics are the effective ones."""
    scene = joining_by("^a").listed("a", "ab")
    scene.gather(1, leads=True, members={"n": MemberSubscription(topics=frozenset({"b"}))})
    assert [asked.topics for asked in scene.new(ex.DescribeTopics)] == [{"a", "ab", "b"}]


def test_list_that_cannot_be_had_is_asked_for_again() -> None:
    """After a backoff; `last_error` says why; what was known stays."""
    scene = joining_by("^a")
    for _ in range(3):
        request_id = scene.all(ex.DescribeTopics)[-1].request_id
        scene.feed(ex.TopicsNotDescribed(request_id=request_id, error=TIMED_OUT))
        asked = lists(scene)
        assert (scene.member.last_error, scene.state, scene.kinds) == (TIMED_OUT, S.JOINING, [])
        assert lists(scene.after(1.2)) == asked + 1
    assert said(scene.listed("a"))[0] == {"a"}


def test_late_list_for_a_former_pattern_is_dropped() -> None:
    """Another pattern asks anew."""
    scene = joining_by("^a").subscribe(pattern="^b")
    former = scene.all(ex.DescribeTopics)[0]
    assert lists(scene) == 2
    scene.feed(ex.TopicsDescribed(request_id=former.request_id, topics=Topics(partitions={"b": 1})))
    assert scene.all(ex.SendJoin) == []
    assert said(scene.listed("b", "a"))[0] == {"b"}


def test_other_pattern_gives_nothing_up_before_its_matches_are_known() -> None:
    """C10, C13: what matches both is kept throughout."""
    scene = stable_by("^a", "a", "ab").subscribe(pattern="^[a]$")
    assert (scene.state, scene.owned, scene.kinds) == (S.STABLE, {A0}, ["DescribeTopics"])
    scene.rebalance()
    assert (scene.state, scene.owned) == (S.PREPARING, {A0})
    assert scene.member.view().waits_for == "the list of topics, to see which ones match the pattern"
    scene.listed("a", "ab")
    assert (scene.state, said(scene), scene.all(ef.PausePartitions)) == (S.JOINING, ({"a"}, {A0}), [])


def test_eager_member_joins_with_the_new_matches_after_giving_up_everything() -> None:
    """C13: with an eager assignor."""
    scene = stable_by("^a", "a", plan=EAGER).after(REFRESH_S).listed("a", "ab").settle()
    assert (scene.state, said(scene)) == (S.JOINING, ({"a", "ab"}, frozenset()))


@pytest.mark.parametrize("pattern", ["^a(?i)b", "^[[:word:]]"])
def test_pattern_of_brokers_only_ends_fatal_and_another_leads_out(pattern: str) -> None:
    """INVALID_REGULAR_EXPRESSION in words that name the pattern; another subscription leads out at the next poll."""
    scene = joining_by(pattern)
    error = scene.member.last_error
    assert (scene.state, error is not None and (error.code, repr(pattern) in error.message)) == (
        S.FATAL,
        (INVALID_PATTERN_CODE, True),
    )
    assert scene.poll().subscribe(pattern=pattern).poll().state is S.FATAL
    scene.subscribe(pattern="^a").poll()
    assert scene.state is S.JOINING
    assert said(scene.listed("a"))[0] == {"a"}


def test_member_that_cannot_read_its_new_pattern_leaves_its_group() -> None:
    """Others get its partitions at once; its application loses them and is told why; it comes back as a new member."""
    scene = stable_by("^a", "a").subscribe(pattern="^a(?i)")
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication", "LosePartitions"])
    scene.finish().subscribe("a").poll()
    assert (scene.state, scene.join.member_id) == (S.JOINING, "")


def test_unsubscribed_member_asks_no_more() -> None:
    """C11: neither while it is out of the group, nor with names only."""
    scene = stable_by("^a", "a").leave().settle()
    scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id))
    assert (scene.state, lists(scene.after(REFRESH_S))) == (S.UNSUBSCRIBED, 1)
    scene.subscribe("a").poll().after(REFRESH_S)
    assert (said(scene)[0], lists(scene)) == ({"a"}, 1)


def test_blacklisted_topics_match_nothing() -> None:
    """`topic.blacklist`: they are as if they did not exist, for the JoinGroup and for what the application is told."""
    blacklist = PATIENT | {"blacklist": ("^ab.*", ".*-x.*")}
    scene = ClassicScene(Plan(), classic=blacklist, max_poll_interval_s=1e6)
    scene.subscribe(pattern="^a").poll().found().listed("a", "ab", "abc", "a-x", "b")
    assert said(scene)[0] == {"a"}
    scene.gather(1).share(A0).settle().after(REFRESH_S).listed("ab", "a-x")
    assert [(one.topic, one.error.code) for one in scene.all(ef.RaiseToApplication)] == [("^a", 3)]
