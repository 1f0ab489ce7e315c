"""Pushes a member's metrics to a broker (KIP-714), on the member's thread, independent of its core.

`translation.telemetry` decides what is pushed, and when; the operator of the brokers configures where it goes from
there. A push can neither end nor delay the membership: it has its own connection, and its errors are handled here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from consumer_membership.errors import MembershipError, UnsupportedProtocolError
from consumer_membership.runtime.failures import logger
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.translation.telemetry import (
    Compression,
    MetricsSubscription,
    PushMetrics,
    RequestSubscription,
    TelemetryOrder,
    TelemetrySession,
    push_metrics,
    subscription_request,
)
from consumer_membership.version import __version__
from consumer_membership.wire.codec import Message
from consumer_membership.wire.otlp import Point, Temporality, metrics_data

#: How long the last push may delay the end of a member.
LAST_PUSH_S = 1.0
#: The instrumentation scope of the metrics.
_SCOPE = ("consumer-membership", __version__)

Compress = Callable[[bytes], bytes]


class Totals:
    """The sums of one client at their latest push, to compute the difference if a broker requests it."""

    def __init__(self, began_at: float) -> None:
        self._began_at = began_at
        self._pushed: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._reported_at = began_at

    def since(self, points: tuple[Point, ...], *, is_delta: bool) -> tuple[Point, ...]:
        """The points in the requested form."""
        return tuple(self._since_last_report(point, is_delta=is_delta) if point.is_total else point for point in points)

    def _since_last_report(self, point: Point, *, is_delta: bool) -> Point:
        before = self._pushed.get((point.name, point.attributes), 0.0) if is_delta else 0.0
        since = self._reported_at if is_delta else self._began_at
        value = point.value - before
        return Point(name=point.name, value=value, is_total=True, attributes=point.attributes, since=since)

    def mark_pushed(self, points: tuple[Point, ...], at: float) -> None:
        """Note that a broker has these points, as they were at this moment."""
        self._pushed = {(point.name, point.attributes): point.value for point in points if point.is_total}
        self._reported_at = at


class Telemetry:
    """The pushes of one member.

    `measure` returns the metrics, `describe` the attributes of the client; both are called on the member's thread, and
    never wait.
    """

    def __init__(
        self, client: Cluster, measure: Callable[[], tuple[Point, ...]], describe: Callable[[], Mapping[str, str]]
    ) -> None:
        self._client = client
        self._measure = measure
        self._describe = describe
        self._compressors = compressors()
        self._clock = asyncio.get_running_loop().time
        self._session = TelemetrySession(self._clock(), jitter=random.random, compressions=frozenset(self._compressors))
        self._totals = Totals(time.time())
        self._is_too_large = False

    async def run(self) -> None:
        """Request the subscription and push until the end."""
        session = self._session
        while (at := session.next_deadline()) is not None:
            await asyncio.sleep(max(0.0, at - self._clock()))
            order = session.due(self._clock())
            if order is not None:
                await self._perform(order)
        if session.fault is not None:
            logger.warning("Client metrics are no longer pushed: the broker responded with %s", session.fault)

    async def end(self) -> None:
        """Push once more if that is requested, on an open connection, for a bounded time."""
        last = self._session.end()
        if last is not None:
            await self._push(last, timeout_s=LAST_PUSH_S)

    async def _perform(self, order: TelemetryOrder) -> None:
        match order:
            case RequestSubscription():
                await self._request_subscription(order)
            case PushMetrics():
                await self._push(order)
            case _:
                assert_never(order)

    async def _request_subscription(self, order: RequestSubscription) -> None:
        session = self._session
        answer = await self._answer(self._client.any_call(lambda versions: subscription_request(versions, order)))
        if answer is not None:
            session.subscribed(answer, self._clock())
            logger.debug("Subscription of client metrics: %s", session.subscription)

    async def _push(self, order: PushMetrics, timeout_s: float | None = None) -> None:
        session, subscription, at = self._session, order.subscription, time.time()
        points = tuple(point for point in self._measure() if subscription.includes(point.name))
        points, data = self._written(points, subscription, at)
        if not points:
            session.skipped(self._clock())
            return
        pushed = self._client.any_call(
            lambda versions: push_metrics(versions, order, data, subscription.compression),
            timeout_s,
            connects=not order.is_last,
        )
        answer = await self._answer(pushed)
        if answer is not None and session.pushed(answer, self._clock()):
            self._totals.mark_pushed(points, at)

    async def _answer(self, request: Awaitable[Message]) -> Message | None:
        """Return the response; None: there was none, and the session was notified."""
        try:
            return await request
        except UnsupportedProtocolError as error:
            logger.debug("Client metrics are not pushed: %s", error)
            self._session.unsupported(self._clock())
        except MembershipError as error:
            logger.debug("Client metrics could not be pushed: %s", error)
            self._session.failed(self._clock())
        return None

    def _written(
        self, points: tuple[Point, ...], subscription: MetricsSubscription, at: float
    ) -> tuple[tuple[Point, ...], bytes]:
        """Return the points to push and their bytes: without those of partitions if all are too large, else none."""
        for pushed in (points, tuple(point for point in points if not point.attributes)):
            if not pushed:
                break
            data = metrics_data(
                self._totals.since(pushed, is_delta=subscription.is_delta),
                at=at,
                temporality=Temporality.DELTA if subscription.is_delta else Temporality.CUMULATIVE,
                resource=self._describe(),
                scope=_SCOPE,
            )
            compress = self._compressors.get(subscription.compression)
            data = data if compress is None else compress(data)
            if len(data) <= subscription.max_bytes:
                return pushed, data
            if not self._is_too_large:
                self._is_too_large = True
                logger.warning(
                    "The broker accepts %d bytes of client metrics, and there are %d; those of partitions are omitted",
                    subscription.max_bytes,
                    len(data),
                )
        return (), b""


def compressors() -> Mapping[Compression, Compress]:
    """The compressions that this process supports: gzip, and zstd if Python or a package has it."""
    found: dict[Compression, Compress] = {Compression.GZIP: _gzip}
    zstd = _zstd()
    if zstd is not None:
        found[Compression.ZSTD] = zstd
    return found


def _gzip(data: bytes) -> bytes:
    import gzip  # only pushed metrics need it

    return gzip.compress(data)


def _zstd() -> Compress | None:
    """Return the function of Python (since 3.14), else of the package zstandard, if it is installed."""
    import importlib

    for name in ("compression.zstd", "zstandard"):
        try:
            compress: Compress = importlib.import_module(name).compress
        except ImportError:
            continue
        return compress
    return None
