"""librdkafka's statistics with the correct figures of the group.

The fetching handle is not a member, commits and stores nothing, and is ahead of the application by the records in the
buffer. So its statistics about the group (`cgrp`), offsets and lag, and the requests of the group are corrected here,
with librdkafka's names and rules (its STATISTICS.md; `rd_kafka_stats_emit_toppar` for the lag).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_INVALID

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import FetchedCounts
from consumer_membership.runtime.application.prefetch_buffer import Waiting
from consumer_membership.runtime.membership_thread import BrokerTraffic, MemberFigures
from consumer_membership.types import OffsetAndMetadata, Offsets, TopicPartition

#: A JSON object as `json` reads it.
_Object: TypeAlias = dict[str, Any]

_S = MemberState
#: The values of librdkafka's `cgrp.join_state` (rd_kafka_cgrp_join_state_names) for each state of the member.
JOIN_STATES: Mapping[MemberState, str] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: "init",
        _S.JOINING: "wait-join",
        _S.RECONCILE: "wait-assign-call",
        _S.ACK: "wait-sync",
        _S.STABLE: "steady",
        _S.FENCED: "wait-unassign-call",
        _S.STALE: "wait-unassign-call",
        _S.UNSUBSCRIBING: "wait-unassign-call",
        _S.FATAL: "init",
    }
)
#: The states whose transition begins a rebalance; the reason for the latest such transition is the rebalance's reason.
_REBALANCES = frozenset({_S.RECONCILE, _S.FENCED, _S.STALE, _S.UNSUBSCRIBING})
#: The logical broker under which librdkafka has the coordinator's connection.
_COORDINATOR = "GroupCoordinator"
#: APIs that librdkafka names differently than Kafka.
_LIBRDKAFKA_NAMES: Mapping[str, str] = MappingProxyType({"ApiVersions": "ApiVersion"})
#: librdkafka's -1 for an unknown lag.
_NO_LAG = -1
_NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of the application in its partitions.

    Attributes:
        assigned: The number of its partitions.
        positions: The offset after the last received record of each partition, since the partition was assigned or
            sought.
        stored: The consumed offset of each partition.
        waiting: The records between librdkafka's queues and the application.
        requested_at: When librdkafka last requested the committed offset of a partition itself, if it did.
        rebalances: The number of assignments, revocations and losses.
        rebalanced_at: When the last of them was, on the consumer's clock.
    """

    assigned: int = 0
    positions: Offsets = field(default_factory=dict)
    stored: Offsets = field(default_factory=dict)
    waiting: Mapping[TopicPartition, Waiting] = field(default_factory=dict)
    requested_at: Mapping[TopicPartition, float] = field(default_factory=dict)
    rebalances: int = 0
    rebalanced_at: float | None = None


def rewritten(
    statistics: str,
    view: MembershipView,
    figures: MemberFigures,
    progress: Progress,
    *,
    read_committed: bool,
    now: Callable[[], float] = monotonic,
) -> str:
    """Return the same statistics with the figures of this member; ages in milliseconds, as librdkafka reports them.

    `now` is the consumer's clock. `read_committed` chooses the end of the log to which a lag counts: the last stable
    offset, or the high watermark.
    """
    import json  # only statistics need it

    document = json.loads(statistics)
    document["cgrp"] = _group(document, view, figures, progress, now())
    for topic, described in document.get("topics", {}).items():
        for partition in described["partitions"].values():
            key = TopicPartition(topic, partition["partition"])
            _correct(partition, key, figures, progress, read_committed=read_committed)
    for traffic in figures.traffic:
        _add_traffic(document, traffic)
    return json.dumps(document)


def fetched(statistics: str) -> Mapping[TopicPartition, FetchedCounts]:
    """The offsets that librdkafka has fetched of each partition; its entry -1 belongs to no partition."""
    import json  # only statistics need it

    return {
        TopicPartition(topic, partition["partition"]): FetchedCounts(
            records=partition["rxmsgs"], bytes=partition["rxbytes"]
        )
        for topic, described in json.loads(statistics).get("topics", {}).items()
        for partition in described["partitions"].values()
        if partition["partition"] >= 0
    }


def _group(document: _Object, view: MembershipView, figures: MemberFigures, progress: Progress, now: float) -> _Object:
    # Until an event happens a state is as old as the handle; librdkafka has that age in microseconds.
    state_age = (
        document["age"] // 1000 if figures.coordinator_since is None else _age_ms(figures.coordinator_since, now)
    )
    return {
        "state": _state(view),
        "stateage": state_age,
        "join_state": JOIN_STATES[view.state],
        "rebalance_age": 0 if progress.rebalanced_at is None else _age_ms(progress.rebalanced_at, now),
        "rebalance_cnt": progress.rebalances,
        "rebalance_reason": next((t.reason for t in reversed(view.transitions) if t.new in _REBALANCES), ""),
        "assignment_size": progress.assigned,
    }


def _state(view: MembershipView) -> str:
    """The value of librdkafka's `cgrp.state` (rd_kafka_cgrp_state_names)."""
    if view.coordinator is not None:
        return "up"
    return "init" if view.state is _S.UNSUBSCRIBED else "query-coord"


def _correct(
    partition: _Object, key: TopicPartition, figures: MemberFigures, progress: Progress, *, read_committed: bool
) -> None:
    waiting = progress.waiting.get(key, Waiting())
    partition["fetchq_cnt"] += waiting.records
    partition["fetchq_size"] += waiting.bytes
    position = progress.positions.get(key)
    partition["app_offset"] = OFFSET_INVALID if position is None else position.offset
    _put(partition, "stored", progress.stored.get(key))
    committed = figures.committed.get(key)
    if committed is not None and committed.at >= progress.requested_at.get(key, committed.at):
        _put(partition, "committed", committed.offset)
        # librdkafka writes its old misspelling as well.
        partition["commited_offset"] = partition["committed_offset"]
    for end in ("hi_offset", "ls_offset"):
        if partition[end] >= 0:
            # librdkafka wrote this a while ago: since then the application may have received later records.
            partition[end] = max(partition[end], partition["app_offset"])
    end_offset = partition["ls_offset" if read_committed else "hi_offset"]
    partition["consumer_lag"] = _lag(end_offset, partition["committed_offset"])
    partition["consumer_lag_stored"] = _lag(end_offset, partition["stored_offset"])


def _put(partition: _Object, which: str, at: OffsetAndMetadata | None) -> None:
    epoch = None if at is None else at.leader_epoch
    partition[f"{which}_offset"] = OFFSET_INVALID if at is None else at.offset
    partition[f"{which}_leader_epoch"] = _NO_LEADER_EPOCH if epoch is None else epoch


def _lag(end: int, offset: int) -> int:
    return end - offset if 0 <= offset <= end else _NO_LAG


def _add_traffic(document: _Object, traffic: BrokerTraffic) -> None:
    """Count the traffic of the member's own connections: in the totals, and for the broker if it has an entry."""
    counts = traffic.counts
    sent = sum(counts.requests.values())
    for total, more in (
        ("tx", sent),
        ("tx_bytes", counts.bytes_sent),
        ("rx", counts.answers),
        ("rx_bytes", counts.bytes_received),
    ):
        document[total] += more
    broker = _broker_of(document.get("brokers", {}), traffic)
    if broker is None:
        return
    for name, more in (
        ("tx", sent),
        ("txbytes", counts.bytes_sent),
        ("rx", counts.answers),
        ("rxbytes", counts.bytes_received),
        ("req_timeouts", counts.timeouts),
        ("connects", counts.connects),
        ("disconnects", counts.disconnects),
    ):
        broker[name] += more
    requests = broker["req"]
    for api, number in counts.requests.items():
        name = _LIBRDKAFKA_NAMES.get(api, api)
        requests[name] = requests.get(name, 0) + number


def _broker_of(brokers: _Object, traffic: BrokerTraffic) -> _Object | None:
    """The entry of the broker that these connections went to; those of the group belong to the coordinator."""
    if traffic.is_of_group and _COORDINATOR in brokers:
        coordinator: _Object = brokers[_COORDINATOR]
        return coordinator
    address = f"{traffic.host}:{traffic.port}"
    return next((broker for name, broker in brokers.items() if name != _COORDINATOR and _is_at(broker, address)), None)


def _is_at(broker: _Object, address: str) -> bool:
    return bool(broker["nodename"] == address)


def _age_ms(moment: float, now: float) -> int:
    return round((now - moment) * 1000)
