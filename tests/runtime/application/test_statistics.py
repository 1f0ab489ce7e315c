"""librdkafka's statistics with the group's actual values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID

from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView, Transition
from consumer_membership.runtime.application.prefetch_buffer import Waiting
from consumer_membership.runtime.application.statistics import JOIN_STATES, Progress, rewritten
from consumer_membership.runtime.membership_thread import BrokerTraffic, KnownCommit, MemberFigures
from consumer_membership.types import BrokerAddress, OffsetAndMetadata, TopicPartition
from consumer_membership.wire.traffic import Traffic
from tests.support.views import view_of

A0 = TopicPartition("a", 0)
VIEW = replace(view_of(MemberState.STABLE, epoch=3), coordinator=BrokerAddress(node_id=1, host="h", port=9092))


def broker(nodename: str) -> dict[str, Any]:
    """Return a broker's entry with the values that the rewriting reads."""
    counts = ("tx", "txbytes", "rx", "rxbytes", "req_timeouts", "connects", "disconnects")
    return {"nodename": nodename, "req": {"Fetch": 4, "ApiVersion": 1, "OffsetCommit": 0}, **dict.fromkeys(counts, 1)}


def statistics(**partition: int) -> str:
    """Return statistics of librdkafka's handle, which neither commits nor stores offsets."""
    one = {
        "partition": 0,
        "fetchq_cnt": 5,
        "fetchq_size": 50,
        "app_offset": 501,
        "stored_offset": OFFSET_INVALID,
        "stored_leader_epoch": -1,
        "commited_offset": OFFSET_INVALID,
        "committed_offset": OFFSET_INVALID,
        "committed_leader_epoch": -1,
        "lo_offset": 0,
        "hi_offset": 1010,
        "ls_offset": 1000,
        "consumer_lag": -1,
        "consumer_lag_stored": -1,
        **partition,
    }
    document = {
        "age": 7_000_000,
        "tx": 10,
        "tx_bytes": 100,
        "rx": 10,
        "rx_bytes": 100,
        "cgrp": {"state": "up"},
        "topics": {"a": {"partitions": {"0": one}}},
        "brokers": {"h:9092/1": broker("h:9092"), "GroupCoordinator": broker("h:9092")},
    }
    return json.dumps(document)


def document_of(
    figures: MemberFigures | None = None,
    progress: Progress | None = None,
    *,
    text: str = "",
    view: MembershipView = VIEW,
    read_committed: bool = True,
) -> dict[str, Any]:
    """Return the rewritten document."""
    found: dict[str, Any] = json.loads(
        rewritten(
            text or statistics(),
            view,
            figures or MemberFigures(),
            progress or Progress(),
            read_committed=read_committed,
        )
    )
    return found


def partition_of(document: dict[str, Any]) -> dict[str, int]:
    """Return the document's entry for the only partition."""
    found: dict[str, int] = document["topics"]["a"]["partitions"]["0"]
    return found


def at(offset: int, epoch: int | None = None) -> OffsetAndMetadata:
    """Return an offset with its leader epoch."""
    return OffsetAndMetadata(offset=offset, leader_epoch=epoch)


def known_commit(offset: OffsetAndMetadata | None, moment: float = 10.0) -> KnownCommit:
    """Return a committed offset that the coordinator returned at this time."""
    return KnownCommit(offset, moment)


def test_join_states_map_every_state_to_one_of_librdkafkas() -> None:
    """Dashboards know librdkafka's join states; a state without one would break the callback."""
    known = {
        "init",
        "wait-join",
        "wait-metadata",
        "wait-sync",
        "wait-assign-call",
        "wait-unassign-call",
        "wait-unassign-to-complete",
        "wait-incr-unassign-to-complete",
        "steady",
    }
    assert set(JOIN_STATES) == set(MemberState)
    assert set(JOIN_STATES.values()) <= known


def test_statistics_have_the_applications_offsets() -> None:
    """The offsets of librdkafka's batch are not used, because its records are undelivered; they count as queued."""
    progress = Progress(
        positions={A0: at(100, 2)}, stored={A0: at(90, 2)}, waiting={A0: Waiting(records=401, bytes=4010)}
    )
    shown = partition_of(document_of(MemberFigures(committed={A0: known_commit(at(70))}), progress))
    assert {name: shown[name] for name in shown if "offset" in name or "epoch" in name or "fetchq" in name} == {
        "fetchq_cnt": 406,
        "fetchq_size": 4060,
        "app_offset": 100,
        "stored_offset": 90,
        "stored_leader_epoch": 2,
        "committed_offset": 70,
        "commited_offset": 70,
        "committed_leader_epoch": -1,
        "lo_offset": 0,
        "hi_offset": 1010,
        "ls_offset": 1000,
    }


@pytest.mark.parametrize(("read_committed", "end"), [(True, 1000), (False, 1010)])
def test_consumer_lag_counts_to_the_readable_end(read_committed: bool, end: int) -> None:  # noqa: FBT001
    """As in librdkafka, the end is the last stable offset, or the high watermark for read_uncommitted."""
    progress = Progress(positions={A0: at(100)}, stored={A0: at(100)})
    document = document_of(MemberFigures(committed={A0: known_commit(at(70))}), progress, read_committed=read_committed)
    shown = partition_of(document)
    assert (shown["consumer_lag"], shown["consumer_lag_stored"]) == (end - 70, end - 100)


@pytest.mark.parametrize(
    ("text", "offset"),
    [(statistics(hi_offset=OFFSET_INVALID, ls_offset=OFFSET_INVALID), 70), (statistics(), 1001)],
    ids=["end unknown", "beyond the end"],
)
def test_consumer_lag_is_unknown_without_a_usable_end(text: str, offset: int) -> None:
    """The lag is -1 if the end is unknown or lies before the committed offset."""
    figures = MemberFigures(committed={A0: known_commit(at(offset))})
    document = document_of(figures, Progress(stored={A0: at(offset)}), text=text)
    shown = partition_of(document)
    assert (shown["consumer_lag"], shown["consumer_lag_stored"]) == (-1, -1)


def test_statistics_end_is_not_before_the_position() -> None:
    """If a callback runs late, the application's position may be beyond the ends that librdkafka recorded."""
    progress = Progress(positions={A0: at(1200)}, stored={A0: at(1200)})
    shown = partition_of(document_of(MemberFigures(committed={A0: known_commit(at(1100))}), progress))
    names = ("hi_offset", "ls_offset", "consumer_lag", "consumer_lag_stored")
    assert [shown[name] for name in names] == [1200, 1200, 100, 0]


def test_statistics_show_no_committed_offset_if_the_group_has_none() -> None:
    """The committed offset of a former assignment is not shown if the coordinator has none."""
    text = statistics(committed_offset=5, commited_offset=5, committed_leader_epoch=1)
    shown = partition_of(document_of(MemberFigures(committed={A0: known_commit(None)}), text=text))
    names = ("committed_offset", "commited_offset", "committed_leader_epoch", "consumer_lag")
    assert [shown[name] for name in names] == [-1001, -1001, -1, -1]


def test_statistics_keep_librdkafkas_offset_of_a_partition_unknown_to_the_member() -> None:
    """Librdkafka itself fetches the committed offset of a partition that the application assigned at that offset."""
    text = statistics(committed_offset=600, commited_offset=600, committed_leader_epoch=1)
    shown = partition_of(document_of(text=text))
    assert (shown["committed_offset"], shown["committed_leader_epoch"], shown["consumer_lag"]) == (600, 1, 400)


@pytest.mark.parametrize(("requested_at", "expected"), [(9.0, 70), (11.0, 600)])
def test_statistics_show_the_later_of_two_committed_offsets(requested_at: float, expected: int) -> None:
    """The later value counts: the member's, or librdkafka's after it fetched the offset of a manual assignment."""
    text = statistics(committed_offset=600, commited_offset=600, committed_leader_epoch=1)
    progress = Progress(requested_at={A0: requested_at})
    shown = partition_of(document_of(MemberFigures(committed={A0: known_commit(at(70))}), progress, text=text))
    assert shown["committed_offset"] == expected


def test_statistics_count_group_requests_for_the_coordinator() -> None:
    """Group requests have librdkafka's names; other requests count for their broker, and all count in the totals."""
    group, cluster = Traffic(), Traffic()
    for api in ("ApiVersions", "ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", "OffsetCommit"):
        group.sent(api, 10)
    group.connects, group.answers, group.bytes_received, group.timeouts = 1, 3, 30, 1
    cluster.sent("Metadata", 7)
    kinds = ((True, group), (False, cluster))
    traffic = tuple(
        BrokerTraffic(is_of_group=of_group, host="h", port=9092, counts=counts.snapshot()) for of_group, counts in kinds
    )
    document = document_of(MemberFigures(traffic=traffic))
    coordinator, learned = document["brokers"]["GroupCoordinator"], document["brokers"]["h:9092/1"]
    assert coordinator["req"] == {"Fetch": 4, "ApiVersion": 2, "OffsetCommit": 1, "ConsumerGroupHeartbeat": 2}
    names = ("tx", "txbytes", "rx", "rxbytes", "req_timeouts", "connects", "disconnects")
    assert [coordinator[name] for name in names] == [5, 41, 4, 31, 2, 2, 1]
    assert learned["req"] == {"Fetch": 4, "ApiVersion": 1, "OffsetCommit": 0, "Metadata": 1}
    assert (learned["tx"], learned["txbytes"]) == (2, 8)
    assert [document[name] for name in ("tx", "tx_bytes", "rx", "rx_bytes")] == [15, 147, 13, 130]


def test_statistics_totals_include_a_broker_without_an_entry() -> None:
    """A broker that librdkafka does not know gets no entry."""
    traffic = Traffic()
    traffic.sent("Metadata", 7)
    elsewhere = BrokerTraffic(is_of_group=False, host="other", port=1, counts=traffic.snapshot())
    document = document_of(MemberFigures(traffic=(elsewhere,)))
    assert document["tx"] == 11
    assert document["brokers"] == json.loads(statistics())["brokers"]


def test_statistics_describe_the_group_in_librdkafkas_terms() -> None:
    """The state is `query-coord` during a coordinator lookup, and the reason belongs to the current rebalance."""
    ways = [
        Transition(at=1.0, old=MemberState.JOINING, new=MemberState.RECONCILE, reason="begin"),
        Transition(at=2.0, old=MemberState.RECONCILE, new=MemberState.ACK, reason="end"),
    ]
    view = replace(VIEW, coordinator=None, transitions=tuple(ways))
    progress = Progress(assigned=3, rebalances=2)
    assert document_of(progress=progress, view=view)["cgrp"] == {
        "state": "query-coord",
        "stateage": 7000,
        "join_state": "steady",
        "rebalance_age": 0,
        "rebalance_cnt": 2,
        "rebalance_reason": "begin",
        "assignment_size": 3,
    }


def test_statistics_state_is_init_before_subscribe() -> None:
    """The group's state is `init` before `subscribe`, as in librdkafka."""
    view = replace(VIEW, coordinator=None, state=MemberState.UNSUBSCRIBED)
    assert document_of(view=view)["cgrp"]["state"] == "init"
