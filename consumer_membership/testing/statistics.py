"""The statistics of a handle in a cluster inside the test process, with librdkafka's names (its STATISTICS.md).

Offsets, lags and record counts come from the log. There are no connections, so all values about requests, bytes on the
wire and latencies are 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from confluent_kafka import OFFSET_INVALID

from consumer_membership.types import TopicPartition

_WINDOW = (
    *(
        "min",
        "max",
        "avg",
        "sum",
        "stddev",
        "p50",
        "p75",
        "p90",
        "p95",
        "p99",
        "p99_99",
        "outofrange",
        "hdrsize",
        "cnt",
    ),
)
_BROKER_COUNTS = (
    *("outbuf_cnt", "outbuf_msg_cnt", "waitresp_cnt", "waitresp_msg_cnt", "tx", "txbytes", "txerrs", "txretries"),
    *("txidle", "req_timeouts", "rx", "rxbytes", "rxerrs", "rxcorriderrs", "rxpartial", "rxidle", "zbuf_grow"),
    *("buf_grow", "wakeups", "connects", "disconnects"),
)
_PARTITION_COUNTS = (
    *("msgq_cnt", "msgq_bytes", "xmit_msgq_cnt", "xmit_msgq_bytes", "fetchq_cnt", "fetchq_size", "txmsgs", "txbytes"),
    *("rx_ver_drops", "msgs_inflight", "next_ack_seq", "next_err_seq", "acked_msgid"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One assigned partition: its offsets, and the total number of returned records and bytes."""

    next_offset: int
    position: int
    committed: int
    end: int
    is_at_end: bool
    records: int
    bytes: int


def statistics_of(
    partitions: Mapping[TopicPartition, FetchedPartition],
    *,
    client_id: str,
    now_s: float,
    began_s: float,
    wall_s: float,
) -> str:
    """Return the JSON text that `stats_cb` receives."""
    age_us = round((now_s - began_s) * 1_000_000)
    topics = {
        name: _topic(name, list(members), partitions, age_us)
        for name, members in groupby(sorted(partitions), key=lambda one: one.topic)
    }
    counts = dict.fromkeys(("tx", "tx_bytes", "rx", "rx_bytes", "txmsgs", "txmsg_bytes"), 0)
    document = {
        "name": f"{client_id}#consumer-1",
        "client_id": client_id,
        "type": "consumer",
        "ts": round(now_s * 1_000_000),
        "time": int(wall_s),
        "age": age_us,
        **dict.fromkeys(("replyq", "msg_cnt", "msg_size", "msg_max", "msg_size_max", "simple_cnt"), 0),
        "metadata_cache_cnt": len(topics),
        "brokers": {"fake:9092/1": _broker(list(partitions), age_us)},
        "topics": topics,
        "cgrp": {},  # the consumer adds the values
        **counts,
        "rxmsgs": sum(one.records for one in partitions.values()),
        "rxmsg_bytes": sum(one.bytes for one in partitions.values()),
    }
    return json.dumps(document)


def _broker(partitions: list[TopicPartition], age_us: int) -> dict[str, object]:
    return {
        "name": "fake:9092/1",
        "nodeid": 1,
        "nodename": "fake:9092",
        "source": "learned",
        "state": "UP",
        "stateage": age_us,
        **dict.fromkeys(_BROKER_COUNTS, 0),
        **{window: _window() for window in ("int_latency", "outbuf_latency", "rtt", "throttle")},
        "req": dict.fromkeys(("Fetch", "ListOffsets", "Metadata", "OffsetFetch", "FindCoordinator", "ApiVersion"), 0),
        "toppars": {f"{one.topic}-{one.partition}": one._asdict() for one in partitions},
    }


def _topic(
    name: str, members: list[TopicPartition], partitions: Mapping[TopicPartition, FetchedPartition], age_us: int
) -> dict[str, object]:
    return {
        "topic": name,
        "age": age_us // 1000,
        "metadata_age": age_us // 1000,
        **{window: _window() for window in ("batchsize", "batchcnt")},
        "partitions": {str(one.partition): _partition(one.partition, partitions[one]) for one in members},
    }


def _partition(number: int, at: FetchedPartition) -> dict[str, object]:
    lag = at.end - at.committed if 0 <= at.committed <= at.end else -1
    epoch = -1 if at.committed < 0 else 0
    return {
        "partition": number,
        "broker": 1,
        "leader": 1,
        "desired": True,
        "unknown": False,
        **dict.fromkeys(_PARTITION_COUNTS, 0),
        "fetch_state": "active",
        "query_offset": OFFSET_INVALID,
        "next_offset": at.next_offset,
        "app_offset": at.position,
        "stored_offset": OFFSET_INVALID,
        "stored_leader_epoch": -1,
        "commited_offset": at.committed,
        "committed_offset": at.committed,
        "committed_leader_epoch": epoch,
        "eof_offset": at.end if at.is_at_end else OFFSET_INVALID,
        "lo_offset": 0,
        "hi_offset": at.end,
        "ls_offset": at.end,
        "consumer_lag": lag,
        "consumer_lag_stored": -1,
        "leader_epoch": 0,
        "rxmsgs": at.records,
        "rxbytes": at.bytes,
        "msgs": at.records,
    }


def _window() -> dict[str, int]:
    return dict.fromkeys(_WINDOW, 0)
