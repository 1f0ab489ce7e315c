"""The time that this package and kio need to encode and decode messages; kio's readers and writers are compiled."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import layout_of
from consumer_membership.wire.serial import reader, writer
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.benchmarks.bench import Figure
from tests.benchmarks.samples import Series, at_most, median_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.benchmarks.bench import Bench

#: The limit for writing, and for reading, a heartbeat with 1,000 partitions.
HEARTBEAT_S = 0.001
_CALLS = 5
_MEMBER = "m" * 36
_METADATA = bytes(120)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """One message, and whether the limit applies to it."""

    label: str
    api: Api
    is_answer: bool
    values: Mapping[str, Any]
    is_bound: bool = False


def _partitions(topics: int, each: int) -> tuple[Mapping[str, Any], ...]:
    return tuple({"topic_id": UUID(int=7**40 + n), "partitions": tuple(range(each))} for n in range(topics))


def _messages() -> list[_Message]:
    heartbeats = [
        message
        for topics, each in ((1, 1_000), (1_000, 1))
        for message in (
            _Message(
                label=f"heartbeat, {topics:,} x {each:,} partitions, request",
                api=Api.CONSUMER_GROUP_HEARTBEAT,
                is_answer=False,
                is_bound=True,
                values={
                    "group_id": "group",
                    "member_id": _MEMBER,
                    "member_epoch": 7,
                    "topic_partitions": _partitions(topics, each),
                },
            ),
            _Message(
                label=f"heartbeat, {topics:,} x {each:,} partitions, answer",
                api=Api.CONSUMER_GROUP_HEARTBEAT,
                is_answer=True,
                is_bound=True,
                values={
                    "throttle_time_ms": 0,
                    "error_code": 0,
                    "member_epoch": 7,
                    "heartbeat_interval_ms": 5_000,
                    "assignment": {"topic_partitions": _partitions(topics, each)},
                },
            ),
        )
    ]
    members = tuple(
        {"member_id": f"{_MEMBER}{n}", "group_instance_id": f"i{n}", "metadata": _METADATA} for n in range(100)
    )
    topics = tuple(
        {
            "error_code": 0,
            "name": f"topic-{n}",
            "topic_id": UUID(int=7**40 + n),
            "is_internal": False,
            "partitions": (
                {
                    "error_code": 0,
                    "partition_index": 0,
                    "leader_id": 1,
                    "leader_epoch": 3,
                    "replica_nodes": (1, 2, 3),
                    "isr_nodes": (1, 2, 3),
                    "offline_replicas": (),
                },
            ),
        }
        for n in range(1_000)
    )
    return [
        *heartbeats,
        _Message(
            label="JoinGroup of 100 members, answer",
            api=Api.JOIN_GROUP,
            is_answer=True,
            values={
                "throttle_time_ms": 0,
                "error_code": 0,
                "generation_id": 5,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "leader": _MEMBER,
                "member_id": _MEMBER,
                "members": members,
            },
        ),
        _Message(
            label="Metadata of 1,000 topics, answer",
            api=Api.METADATA,
            is_answer=True,
            values={
                "throttle_time_ms": 0,
                "brokers": ({"node_id": 1, "host": "localhost", "port": 9092, "rack": None},),
                "cluster_id": "cluster",
                "controller_id": 1,
                "topics": topics,
                "error_code": 0,
            },
        ),
    ]


def run(bench: Bench) -> Figure:
    """Write and read each message several times, with this package and kio in turns."""
    series, checks = [], []
    for message in _messages():
        for verb, calls in _calls(message).items():
            both = [
                Series(label=f"{message.label}: {verb}, {codec}", unit="s", is_ours=codec == "ours")
                for codec in ("ours", "kio")
            ]
            bench.in_turns(
                bench.count(100, 30), *(partial(_time, call, one) for call, one in zip(calls, both, strict=True))
            )
            series += both
            ours = both[0]
            if message.is_bound:
                checks.append(at_most(f"{ours.label}: at most 1 ms", median_of(ours), HEARTBEAT_S, "s", [ours]))
    return Figure(
        title="Codec: messages as bytes and back",
        series=tuple(series),
        checks=tuple(checks),
        notes=(
            f"each value is the mean of {_CALLS} calls; the message does not change, like that of an idle group",
            "kio's readers and writers are compiled; ours are Python",
        ),
    )


def _time(call: Callable[[], object], series: Series) -> None:
    began = time.perf_counter()
    for _ in range(_CALLS):
        call()
    series.add((time.perf_counter() - began) / _CALLS)


def _calls(message: _Message) -> Mapping[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return the functions of this package and of kio that write and read the message.

    Raises:
        RuntimeError: They write different bytes.
    """
    table, version = LAYOUTS[message.api][message.is_answer], max(SUPPORTED[message.api])
    write, read = writer(layout_of(table, version)), reader(layout_of(table, version))
    theirs: Any = getattr(import_module(f"kio.schema.{message.api.name.lower()}.v{version}"), table.name)
    kio_write, kio_read = entity_writer(theirs), entity_reader(theirs)
    out, kio_out = bytearray(), io.BytesIO()
    write(out, message.values)
    data = bytes(out)
    entity, _ = kio_read(data, 0)
    kio_write(kio_out, entity)
    if kio_out.getvalue() != data:
        raise RuntimeError(f"{message.label}: kio writes different bytes")
    return {
        "written": (lambda: write(bytearray(), message.values), lambda: kio_write(io.BytesIO(), entity)),
        "read": (lambda: read(data, 0), lambda: kio_read(data, 0)),
    }
