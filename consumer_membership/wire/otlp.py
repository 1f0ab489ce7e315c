"""Metrics as the bytes that brokers take from clients (KIP-714): OpenTelemetry's MetricsData, in protobuf.

Numbers are all that a client tells, so that this is a small part of OpenTelemetry's protocol: a resource with texts, a
scope, gauges and sums with points of doubles. That part is written here; the library that has all of it would bring
protobuf, in a version that others in the process may not want. What is written is read back by it in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum

from consumer_membership.light_dataclasses import dataclass

_NS = 1_000_000_000
#: Protobuf's wire types.
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DOUBLE, _FIXED = struct.Struct("<d"), struct.Struct("<Q")


class Temporality(IntEnum):
    """What a sum counts from: OpenTelemetry's numbers."""

    #: From the push before.
    DELTA = 1
    #: From the beginning.
    CUMULATIVE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One number of one metric.

    `is_total`: it only grows, and is told as a sum. `since` is where it counts from, in seconds since 1970.
    """

    name: str
    value: float
    is_total: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    since: float = 0.0


def metrics_data(
    points: Iterable[Point],
    *,
    at: float,
    temporality: Temporality,
    resource: Mapping[str, str],
    scope: tuple[str, str],
) -> bytes:
    """These points of the moment `at` (seconds since 1970) as one MetricsData.

    `resource` says whose they are, `scope` by which library's name and version they are told. Points of one metric come
    one behind the other.
    """
    by_name: dict[tuple[str, bool], list[bytes]] = {}
    for point in points:
        by_name.setdefault((point.name, point.is_total), []).append(_block(1, _point(point, at)))
    metrics = b"".join(
        _block(2, _text(1, name) + _numbers(b"".join(told), is_total=is_total, temporality=temporality))
        for (name, is_total), told in by_name.items()
    )
    name, version = scope
    told_by = _block(1, _text(1, name) + _text(2, version))
    whose = _block(1, b"".join(_block(1, _attribute(key, value)) for key, value in resource.items()))
    return _block(1, whose + _block(2, told_by + metrics))


def _numbers(points: bytes, *, is_total: bool, temporality: Temporality) -> bytes:
    """A Gauge, or a monotonic Sum."""
    if not is_total:
        return _block(5, points)
    return _block(7, points + _key(2, _VARINT) + _varint(temporality) + _key(3, _VARINT) + _varint(1))


def _point(point: Point, at: float) -> bytes:
    """A NumberDataPoint."""
    since = _time(2, point.since) if point.is_total else b""
    value = _key(4, _FIXED64) + _DOUBLE.pack(point.value)
    return since + _time(3, at) + value + b"".join(_block(7, _attribute(*one)) for one in point.attributes)


def _attribute(key: str, value: str) -> bytes:
    """A KeyValue with a text."""
    return _text(1, key) + _block(2, _text(1, value))


def _time(field: int, at: float) -> bytes:
    return _key(field, _FIXED64) + _FIXED.pack(round(at * _NS))


def _text(field: int, text: str) -> bytes:
    return _block(field, text.encode())


def _block(field: int, content: bytes) -> bytes:
    """What has a length in front: a text, or a message."""
    return _key(field, _BYTES) + _varint(len(content)) + content


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits of each byte are the number's
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
