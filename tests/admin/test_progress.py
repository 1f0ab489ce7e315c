"""How far a group is: every lag is a difference of two numbers, and where there is none the reason stands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from consumer_membership.admin import GroupReport, PartitionProgress
from consumer_membership.admin.progress import end_offsets, partitions_of, progress
from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition
from tests.admin.builders import group, member, partitions
from tests.runtime.clients import answers, asked_partitions, offset_by_node, offsets_answer, settings
from tests.support.scripted_broker import Answer, Received, ScriptedBroker, Topic
from tests.support.waiting import PATIENCE_S
from tests.wire.groups import TOPIC_ID

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def row(
    committed: OffsetAndMetadata | BrokerError | None, end: int | BrokerRefusal | TransportError
) -> PartitionProgress:
    """The row of one partition that nobody has."""
    found = progress(group(), {} if committed is None else {T0: committed}, {T0: end})
    return found[0]


def at(offset: int) -> OffsetAndMetadata:
    """A committed offset."""
    return OffsetAndMetadata(offset=offset)


@pytest.mark.parametrize(("committed", "end", "lag"), [(3, 10, 7), (0, 0, 0), (10, 10, 0)])
def test_lag_is_what_is_left_to_read(committed: int, end: int, lag: int) -> None:
    """End minus committed; 0 is an offset like any other."""
    found = row(at(committed), end)
    assert (found.committed, found.end, found.lag, found.note) == (committed, end, lag, "")


def refused(code: int, message: str = "") -> BrokerRefusal:
    """A leader's refusal."""
    return BrokerRefusal(broker_error(code, message), retriable=False)


@pytest.mark.parametrize(
    ("committed", "end", "note"),
    [
        (None, 10, "nothing committed"),
        (broker_error(88), 10, "committed offset not told: UNSTABLE_OFFSET_COMMIT"),
        (at(3), refused(3, "t [0]"), "end not told: UNKNOWN_TOPIC_OR_PARTITION: t [0]"),
        (at(3), TransportError("silence"), "end not told: silence"),
        (None, TransportError("silence"), "nothing committed; end not told: silence"),
        (at(12), 10, "the committed offset lies beyond the end: the topic was truncated, or made anew"),
        (None, refused(29, "t"), "not authorised: the ACL operation DESCRIBE on topic t is needed"),
    ],
)
def test_unknown_lag_has_its_reason(
    committed: OffsetAndMetadata | BrokerError | None, end: int | BrokerRefusal | TransportError, note: str
) -> None:
    """Not known is None, never 0; a broker leaves out what may not be seen, which is not "nothing committed"."""
    found = row(committed, end)
    assert (found.lag, found.note) == (None, note)


def test_owner_and_the_one_that_is_to_follow() -> None:
    """A partition that moves is still its owner's; one that stays has no next owner."""
    moving = group(member("a", assigned=partitions(0, 1), target=partitions(0)), member("b", target=partitions(1, 2)))
    committed = {T0: at(1)}
    assert partitions_of(moving, committed) == (T0, T1, T2)
    rows = progress(moving, committed, dict.fromkeys(partitions_of(moving, committed), 5))
    assert [(one.partition, one.owner, one.next_owner) for one in rows] == [
        (0, "a", None),
        (1, "a", "b"),
        (2, None, "b"),
    ]


@pytest.mark.parametrize(("lags", "total"), [((), None), ((None,), None), ((0, None), 0), ((3, 4), 7)])
def test_lag_of_a_group_is_the_sum_of_what_is_known(lags: tuple[int | None, ...], total: int | None) -> None:
    """And not 0 where nothing is known."""
    rows = tuple(
        PartitionProgress(topic="t", partition=number, committed=None, end=None, lag=lag, owner=None, next_owner=None)
        for number, lag in enumerate(lags)
    )
    report = GroupReport(group=group(), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)
    assert report.lag == total


# ---- the ends --------------------------------------------------------------------------------------------------------


def ends(
    known: ConnectionSettings, wanted: list[TopicPartition]
) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
    """The ends as a client finds them."""

    async def run() -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        client = Cluster(known)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await end_offsets(client, wanted)
        finally:
            await client.close()

    return asyncio.run(run())


def test_leader_that_moved_is_asked_again_and_only_for_what_is_missing() -> None:
    """The other partition's end is known by then."""
    asked: list[list[TopicPartition]] = []

    def offsets(request: Received) -> Answer:
        asked.append(asked_partitions(request))
        moved = T1 in asked[-1] and len(asked) == 1
        return offsets_answer({one: (7, 6 if moved and one == T1 else 0) for one in asked[-1]})

    with ScriptedBroker(answers(offsets=offsets), topics={"t": Topic(TOPIC_ID, (1, 1))}) as broker:
        assert ends(settings(*broker.servers), [T0, T1]) == {T0: 7, T1: 7}
    assert asked == [[T0, T1], [T1]]


@pytest.mark.slow
def test_topic_that_is_gone_does_not_hold_the_others_back() -> None:
    """A deleted topic stays in what a group committed; it is given up after a few attempts."""
    gone = TopicPartition("gone", 0)
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, (1,))}) as broker:
        found = ends(settings(*broker.servers), [T0, gone])
    assert found[T0] == 1
    refusal = found[gone]
    assert isinstance(refusal, BrokerRefusal)
    assert refusal.error.name == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.slow
def test_nobody_who_tells_is_an_error() -> None:
    """Not a group without partitions."""
    with ScriptedBroker() as broker:
        servers = broker.servers
    with pytest.raises(TransportError, match="No broker can be reached"):
        ends(settings(*servers), [T0])
