"""The client's part of KIP-714: request a broker's metrics subscription, and push the metrics on time.

Without I/O and without a clock: `due` returns the request to send now, `next_deadline` the time of the next call, and
`subscribed`, `pushed` or `failed` receive the result. One request is in flight at a time.

| state | meaning | ends when |
|---|---|---|
| AWAITS_SUBSCRIPTION | the subscription must be requested | its time has come |
| AWAITS_RESPONSE | the subscription was requested | the broker responds, or the request fails |
| SUBSCRIBED | metrics are subscribed and will be pushed | the interval is over, or the client ends |
| PUSHING | metrics were pushed | the broker responds, or the request fails |
| OVER | nothing more is sent | never |

A broker without a plug-in for metrics does not offer the two requests: then the session is over without a log line,
unless another broker offered them. It is also over after an error for which KIP-714 has no remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import Instant
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api, BrokerVersions

#: The interval if the broker has not sent one, as in Java's client.
DEFAULT_PUSH_INTERVAL_S = 300.0
#: The first push comes after a random part of the interval between these limits, so that clients with the same
#: subscription time do not all push at once (KIP-714).
FIRST_SHARE, FIRST_SPREAD = 0.5, 1.0
#: The name of all metrics in a subscription: one empty prefix.
_ALL = ""


class Compression(Enum):
    """The compression of metrics, with Kafka's numbers."""

    NONE = 0
    GZIP = 1
    ZSTD = 4


class TelemetryState(Enum):
    """The state of the session; see the table in this module."""

    AWAITS_SUBSCRIPTION = "awaits subscription"
    AWAITS_RESPONSE = "awaits response"
    SUBSCRIBED = "subscribed"
    PUSHING = "pushing"
    OVER = "over"


_S = TelemetryState


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    """The metrics that a broker subscribes to, and their form.

    `prefixes` are prefixes of metric names. `is_delta`: sums count from the previous push.
    """

    client_instance_id: UUID | None
    subscription_id: int
    prefixes: tuple[str, ...]
    interval_s: float
    max_bytes: int
    is_delta: bool
    compression: Compression

    def includes(self, name: str) -> bool:
        """Return whether this metric is subscribed."""
        return any(name.startswith(prefix) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSubscription:
    """Send GetTelemetrySubscriptions; without an id the broker assigns one."""

    client_instance_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushMetrics:
    """Send PushTelemetry with the subscribed metrics; `is_last`: the client ends."""

    subscription: MetricsSubscription
    is_last: bool = False


TelemetryOrder: TypeAlias = RequestSubscription | PushMetrics


class _Remedy(Enum):
    """The reaction to an error."""

    REQUEST_AT_ONCE = "request the subscription now"
    REQUEST_LATER = "request the subscription after the interval"
    END = "end"


#: KIP-714, "Error handling"; other errors end the session, as in Java's client.
_REMEDIES: Mapping[int, _Remedy] = MappingProxyType(
    {
        ErrorCode.unknown_subscription_id: _Remedy.REQUEST_AT_ONCE,
        ErrorCode.unsupported_compression_type: _Remedy.REQUEST_AT_ONCE,
        ErrorCode.telemetry_too_large: _Remedy.REQUEST_LATER,
        ErrorCode.throttling_quota_exceeded: _Remedy.REQUEST_LATER,
    }
)


class TelemetrySession:
    """The subscription and the pushes of one client, from `now` on.

    `jitter` returns numbers in [0, 1); `compressions` are those that this client supports in addition to none.
    """

    def __init__(
        self, now: Instant, *, jitter: Callable[[], float], compressions: frozenset[Compression] = frozenset()
    ) -> None:
        self.state = _S.AWAITS_SUBSCRIPTION
        #: The id of this client for the receivers of its metrics; None: no broker has assigned one.
        self.client_instance_id: UUID | None = None
        #: Why the session ended before the client; None: it did not, or no broker offers the requests.
        self.fault: str | None = None
        self._jitter = jitter
        self._compressions = set(compressions)
        self._subscription: MetricsSubscription | None = None
        self._at: Instant = now

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent."""
        return self.state is _S.OVER

    @property
    def subscription(self) -> MetricsSubscription | None:
        """The subscription that the broker sent last."""
        return self._subscription

    def next_deadline(self) -> Instant | None:
        """When `due` has a request; None: not before a response, or never."""
        return self._at if self.state in (_S.AWAITS_SUBSCRIPTION, _S.SUBSCRIBED) else None

    def due(self, now: Instant) -> TelemetryOrder | None:
        """Return the request to send now, or None."""
        if now < self._at:
            return None
        if self.state is _S.AWAITS_SUBSCRIPTION:
            self.state = _S.AWAITS_RESPONSE
            return RequestSubscription(client_instance_id=self.client_instance_id)
        if self.state is _S.SUBSCRIBED and self._subscription is not None:
            self.state = _S.PUSHING
            return PushMetrics(subscription=self._subscription)
        return None

    def end(self) -> PushMetrics | None:
        """End the client: return its last push if metrics are subscribed; nothing is sent after it."""
        is_wanted = self.state in (_S.SUBSCRIBED, _S.PUSHING)
        self.state = _S.OVER
        if not is_wanted or self._subscription is None:
            return None
        return PushMetrics(subscription=self._subscription, is_last=True)

    # ---- results ----

    def subscribed(self, answer: Message, now: Instant) -> None:
        """Process the broker's subscription."""
        if self.state is not _S.AWAITS_RESPONSE:
            return
        if answer.error_code != ErrorCode.none:
            self._refused(int(answer.error_code), answer.throttle_time_ms, now)
            return
        self.client_instance_id = answer.client_instance_id or self.client_instance_id
        interval_s = answer.push_interval_ms / 1000 if answer.push_interval_ms > 0 else DEFAULT_PUSH_INTERVAL_S
        self._subscription = MetricsSubscription(
            client_instance_id=self.client_instance_id,
            subscription_id=answer.subscription_id,
            prefixes=tuple(_ALL if name == "*" else name for name in answer.requested_metrics),
            interval_s=interval_s,
            max_bytes=answer.telemetry_max_bytes,
            is_delta=bool(answer.delta_temporality),
            compression=self._chosen(answer.accepted_compression_types),
        )
        if self._subscription.prefixes:
            share = FIRST_SHARE + FIRST_SPREAD * self._jitter()
            self._wait(_S.SUBSCRIBED, interval_s * share, answer.throttle_time_ms, now)
        else:
            self._wait(_S.AWAITS_SUBSCRIPTION, interval_s, answer.throttle_time_ms, now)

    def pushed(self, answer: Message, now: Instant) -> bool:
        """Process the response to a push; return whether the broker has the metrics."""
        is_taken = bool(answer.error_code == ErrorCode.none)
        if self.state is _S.PUSHING and is_taken:
            self._wait(_S.SUBSCRIBED, self._interval_s, answer.throttle_time_ms, now)
        elif self.state is _S.PUSHING:
            self._refused(int(answer.error_code), answer.throttle_time_ms, now)
        return is_taken

    def skipped(self, now: Instant) -> None:
        """Note that there was nothing to push, or that it was too large."""
        if self.state is _S.PUSHING:
            self._wait(_S.SUBSCRIBED, self._interval_s, 0, now)

    def failed(self, now: Instant) -> None:
        """Note that there was no response: the same request follows after the interval, to any available broker."""
        if self.state is _S.AWAITS_RESPONSE:
            self._wait(_S.AWAITS_SUBSCRIPTION, self._interval_s, 0, now)
        elif self.state is _S.PUSHING:
            self._wait(_S.SUBSCRIBED, self._interval_s, 0, now)

    def unsupported(self, now: Instant) -> None:
        """Note that the broker does not offer the requests; another one may, because brokers restart one by one."""
        if self._subscription is None:
            self.state = _S.OVER
        elif not self.is_over:
            self._wait(_S.AWAITS_SUBSCRIPTION, self._interval_s, 0, now)

    @property
    def _interval_s(self) -> float:
        return DEFAULT_PUSH_INTERVAL_S if self._subscription is None else self._subscription.interval_s

    def _wait(self, state: TelemetryState, interval_s: float, throttle_ms: int, now: Instant) -> None:
        """Continue in this state after the interval, which counts from the response as on the broker."""
        self.state = state
        self._at = now + max(interval_s, throttle_ms / 1000)

    def _refused(self, code: int, throttle_ms: int, now: Instant) -> None:
        if code == ErrorCode.unsupported_compression_type and self._subscription is not None:
            self._compressions.discard(self._subscription.compression)
        match _REMEDIES.get(code, _Remedy.END):
            case _Remedy.REQUEST_AT_ONCE:
                self._wait(_S.AWAITS_SUBSCRIPTION, 0.0, throttle_ms, now)
            case _Remedy.REQUEST_LATER:
                self._wait(_S.AWAITS_SUBSCRIPTION, self._interval_s, throttle_ms, now)
            case _Remedy.END:
                self.state = _S.OVER
                if code != ErrorCode.unsupported_version:
                    self.fault = _name(code)

    def _chosen(self, accepted: tuple[int, ...]) -> Compression:
        """Return the broker's first compression that this client supports; it always accepts uncompressed data."""
        known = {compression.value: compression for compression in self._compressions}
        return next((known[number] for number in accepted if number in known), Compression.NONE)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


# ---- the two requests -----------------------------------------------------------------------------------------------


def subscription_request(versions: BrokerVersions, order: RequestSubscription) -> Call:
    """Return the call of this order.

    Raises:
        UnsupportedProtocolError: the broker does not offer it.
    """
    return Call(
        api=Api.GET_TELEMETRY_SUBSCRIPTIONS,
        version=versions.of(Api.GET_TELEMETRY_SUBSCRIPTIONS),
        fields={"client_instance_id": order.client_instance_id},
    )


def push_metrics(versions: BrokerVersions, order: PushMetrics, metrics: bytes, compression: Compression) -> Call:
    """Return the call of this order, with the metrics in this compression.

    Raises:
        UnsupportedProtocolError: the broker does not offer it.
    """
    return Call(
        api=Api.PUSH_TELEMETRY,
        version=versions.of(Api.PUSH_TELEMETRY),
        fields={
            "client_instance_id": order.subscription.client_instance_id,
            "subscription_id": order.subscription.subscription_id,
            "terminating": order.is_last,
            "compression_type": compression.value,
            "metrics": metrics,
        },
    )
