"""A group's progress: each lag is a difference of two offsets, and an unknown lag has a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from consumer_membership.admin import GroupReport, PartitionProgress
from consumer_membership.admin.progress import end_offsets, partitions_of, progress
from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster
from consumer_membership.translation.offset_metadata import FinishedOffsets, encode
from consumer_membership.translation.verdicts import broker_error
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition
from tests.admin.builders import group, member, partitions
from tests.runtime.clients import answers, offset_by_node, offsets_answer, requested_partitions, settings
from tests.support.scripted_broker import Answer, Received, ScriptedBroker, Topic
from tests.support.waiting import PATIENCE_S
from tests.wire.groups import TOPIC_ID

T0, T1, T2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def row(
    committed: OffsetAndMetadata | BrokerError | None, end: int | BrokerRefusal | TransportError
) -> PartitionProgress:
    """Return the row of one partition without owner."""
    found = progress(group(), {} if committed is None else {T0: committed}, {T0: end})
    return found[0]


def at(offset: int) -> OffsetAndMetadata:
    """Return a committed offset."""
    return OffsetAndMetadata(offset=offset)


@pytest.mark.parametrize(("committed", "end", "lag"), [(3, 10, 7), (0, 0, 0), (10, 10, 0)])
def test_lag_is_end_minus_committed_offset(committed: int, end: int, lag: int) -> None:
    """The lag is the end offset minus the committed offset, of which 0 is a valid value."""
    found = row(at(committed), end)
    assert (found.committed, found.end, found.lag, found.note) == (committed, end, lag, "")


def refused(code: int, message: str = "") -> BrokerRefusal:
    """Return a leader's error."""
    return BrokerRefusal(broker_error(code, message), retriable=False)


@pytest.mark.parametrize(
    ("committed", "end", "note"),
    [
        (None, 10, "nothing committed"),
        (broker_error(88), 10, "committed offset unknown: UNSTABLE_OFFSET_COMMIT"),
        (at(3), refused(3, "t [0]"), "end offset unknown: UNKNOWN_TOPIC_OR_PARTITION: t [0]"),
        (at(3), TransportError("silence"), "end offset unknown: silence"),
        (None, TransportError("silence"), "nothing committed; end offset unknown: silence"),
        (at(12), 10, "the committed offset is beyond the end: the topic was truncated or recreated"),
        (None, refused(29, "t"), "not authorized: allow the ACL operation DESCRIBE on topic t"),
    ],
)
def test_unknown_lag_is_none_with_reason(
    committed: OffsetAndMetadata | BrokerError | None, end: int | BrokerRefusal | TransportError, note: str
) -> None:
    """An unknown lag is None and never 0; a missing authorization differs from "nothing committed"."""
    found = row(committed, end)
    assert (found.lag, found.note) == (None, note)


def test_progress_counts_offsets_that_are_finished_beyond_the_committed_offset() -> None:
    """The lag is the difference of the offsets, as in Kafka's own tools, although fewer records remain."""
    finished = FinishedOffsets(base=3, high=9, unfinished=(3, 5))
    committed = OffsetAndMetadata(offset=3, metadata=encode(finished, 100) + "\0")
    rows = (row(committed, 10), row(at(3), 10), row(OffsetAndMetadata(offset=4, metadata=committed.metadata), 10))
    assert [(one.lag, one.finished_beyond, one.remaining) for one in rows] == [(7, 4, 3), (7, 0, 7), (6, 0, 6)]
    assert row(None, 10).remaining is None
    report = GroupReport(group=group(), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)
    assert (report.lag, report.remaining) == (20, 16)


def test_progress_has_owner_and_next_owner_of_moving_partition() -> None:
    """A moving partition has its current owner and a next owner; a partition that stays has no next owner."""
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
def test_group_lag_is_sum_of_known_lags(lags: tuple[int | None, ...], total: int | None) -> None:
    """The total is None, not 0, if no lag is known."""
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
    """Return the end offsets as a client finds them."""

    async def run() -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        client = Cluster(known)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await end_offsets(client, wanted)
        finally:
            await client.close()

    return asyncio.run(run())


def test_end_offsets_retries_moved_leader_only_for_missing_partition() -> None:
    """If a leader has moved, only the partition without an end offset is requested again."""
    asked: list[list[TopicPartition]] = []

    def offsets(request: Received) -> Answer:
        asked.append(requested_partitions(request))
        moved = T1 in asked[-1] and len(asked) == 1
        return offsets_answer({one: (7, 6 if moved and one == T1 else 0) for one in asked[-1]})

    with ScriptedBroker(answers(offsets=offsets), topics={"t": Topic(TOPIC_ID, (1, 1))}) as broker:
        assert ends(settings(*broker.servers), [T0, T1]) == {T0: 7, T1: 7}
    assert asked == [[T0, T1], [T1]]


@pytest.mark.slow
def test_end_offsets_returns_error_for_deleted_topic_and_offsets_of_others() -> None:
    """Committed offsets of a deleted topic remain; its lookup ends after a few attempts."""
    gone = TopicPartition("gone", 0)
    with ScriptedBroker(answers(offsets=offset_by_node), topics={"t": Topic(TOPIC_ID, (1,))}) as broker:
        found = ends(settings(*broker.servers), [T0, gone])
    assert found[T0] == 1
    refusal = found[gone]
    assert isinstance(refusal, BrokerRefusal)
    assert refusal.error.name == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.slow
def test_end_offsets_raises_if_no_broker_responds() -> None:
    """If no broker responds, an error is raised, and the group is not reported as a group without partitions."""
    with ScriptedBroker() as broker:
        servers = broker.servers
    with pytest.raises(TransportError, match="No broker can be reached"):
        ends(settings(*servers), [T0])
