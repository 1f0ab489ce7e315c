"""A client's half of KIP-714: it asks a broker which metrics are wanted of it, and pushes them on time.

Sans I/O, and without a clock: `due` says what is to be sent now, `next_deadline` when to ask again, and what came of it
is told to `told`, `pushed` or `failed`. One request is under way at a time.

| state | meaning | goes on when |
|---|---|---|
| ASKS | the subscription is to be asked for | its time is come |
| ASKING | it was asked for | the broker answers, or nobody does |
| PUSHES | metrics are wanted, and will be pushed | the interval is over, or the client ends |
| PUSHING | they were pushed | the broker answers, or nobody does |
| OVER | nothing is sent any more | never |

A broker that nobody told to receive metrics does not offer the two requests: then it is over, without a word, unless
another one did. So it is after an error that KIP-714 has no remedy for.
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

#: Where the broker has not said how often: Java's client waits so long, too.
DEFAULT_PUSH_INTERVAL_S = 300.0
#: The first push comes after a part of the interval between these, so that clients which were subscribed at the same
#: moment do not all push at the same one (KIP-714).
FIRST_SHARE, FIRST_SPREAD = 0.5, 1.0
#: The name of all metrics in a subscription: one empty prefix.
_ALL = ""


class Compression(Enum):
    """How metrics are made smaller, by Kafka's numbers."""

    NONE = 0
    GZIP = 1
    ZSTD = 4


class TelemetryState(Enum):
    """How far the client is; the module's table says what each means."""

    ASKS = "asks"
    ASKING = "asking"
    PUSHES = "pushes"
    PUSHING = "pushing"
    OVER = "over"


_S = TelemetryState


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSubscription:
    """What a broker wants to be told, and how.

    `prefixes` are the beginnings of the names of metrics. `is_delta`: sums count from the push before.
    """

    client_instance_id: UUID | None
    subscription_id: int
    prefixes: tuple[str, ...]
    interval_s: float
    max_bytes: int
    is_delta: bool
    compression: Compression

    def wants(self, name: str) -> bool:
        """Whether this metric is asked for."""
        return any(name.startswith(prefix) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSubscription:
    """Send GetTelemetrySubscriptions; without an id the broker gives one."""

    client_instance_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushMetrics:
    """Send PushTelemetry with what the subscription wants; `is_last`: the client ends."""

    subscription: MetricsSubscription
    is_last: bool = False


TelemetryOrder: TypeAlias = AskSubscription | PushMetrics


class _Remedy(Enum):
    """What an error is answered with."""

    ASK_AT_ONCE = "ask at once"
    ASK_LATER = "ask when the interval is over"
    END = "end"


#: KIP-714, "Error handling"; what is not named there is the end, as in Java's client.
_REMEDIES: Mapping[int, _Remedy] = MappingProxyType(
    {
        ErrorCode.unknown_subscription_id: _Remedy.ASK_AT_ONCE,
        ErrorCode.unsupported_compression_type: _Remedy.ASK_AT_ONCE,
        ErrorCode.telemetry_too_large: _Remedy.ASK_LATER,
        ErrorCode.throttling_quota_exceeded: _Remedy.ASK_LATER,
    }
)


class TelemetrySession:
    """The subscription and the pushes of one client, from `now` on.

    `jitter` makes numbers in [0, 1); `compressions` are what this client can do beside none.
    """

    def __init__(
        self, now: Instant, *, jitter: Callable[[], float], compressions: frozenset[Compression] = frozenset()
    ) -> None:
        self.state = _S.ASKS
        #: Who this client is to whoever receives its metrics; None: no broker has said.
        self.client_instance_id: UUID | None = None
        #: Why it is over before the client is, in words; None: it is not, or nobody offers it.
        self.fault: str | None = None
        self._jitter = jitter
        self._compressions = set(compressions)
        self._subscription: MetricsSubscription | None = None
        self._at: Instant = now

    @property
    def is_over(self) -> bool:
        """Whether nothing is sent any more."""
        return self.state is _S.OVER

    @property
    def subscription(self) -> MetricsSubscription | None:
        """What is wanted, as the broker said last."""
        return self._subscription

    def next_deadline(self) -> Instant | None:
        """When `due` has something; None: not before an answer, or never."""
        return self._at if self.state in (_S.ASKS, _S.PUSHES) else None

    def due(self, now: Instant) -> TelemetryOrder | None:
        """What is to be sent now."""
        if now < self._at:
            return None
        if self.state is _S.ASKS:
            self.state = _S.ASKING
            return AskSubscription(client_instance_id=self.client_instance_id)
        if self.state is _S.PUSHES and self._subscription is not None:
            self.state = _S.PUSHING
            return PushMetrics(subscription=self._subscription)
        return None

    def end(self) -> PushMetrics | None:
        """The client ends: its last push, where metrics are wanted; nothing is sent after it."""
        is_wanted = self.state in (_S.PUSHES, _S.PUSHING)
        self.state = _S.OVER
        if not is_wanted or self._subscription is None:
            return None
        return PushMetrics(subscription=self._subscription, is_last=True)

    # ---- what came of it ----

    def told(self, answer: Message, now: Instant) -> None:
        """The broker said what it wants."""
        if self.state is not _S.ASKING:
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
            self._wait(_S.PUSHES, interval_s * share, answer.throttle_time_ms, now)
        else:
            self._wait(_S.ASKS, interval_s, answer.throttle_time_ms, now)

    def pushed(self, answer: Message, now: Instant) -> bool:
        """The broker answered a push; whether it has the metrics."""
        is_taken = bool(answer.error_code == ErrorCode.none)
        if self.state is _S.PUSHING and is_taken:
            self._wait(_S.PUSHES, self._interval_s, answer.throttle_time_ms, now)
        elif self.state is _S.PUSHING:
            self._refused(int(answer.error_code), answer.throttle_time_ms, now)
        return is_taken

    def skipped(self, now: Instant) -> None:
        """There was nothing to push, or no room for it."""
        if self.state is _S.PUSHING:
            self._wait(_S.PUSHES, self._interval_s, 0, now)

    def failed(self, now: Instant) -> None:
        """Nobody answered: the same when the interval is over, from whichever broker there is then."""
        if self.state is _S.ASKING:
            self._wait(_S.ASKS, self._interval_s, 0, now)
        elif self.state is _S.PUSHING:
            self._wait(_S.PUSHES, self._interval_s, 0, now)

    def unsupported(self, now: Instant) -> None:
        """The broker does not offer it; where another one did, there will be one again: brokers restart one by one."""
        if self._subscription is None:
            self.state = _S.OVER
        elif not self.is_over:
            self._wait(_S.ASKS, self._interval_s, 0, now)

    @property
    def _interval_s(self) -> float:
        return DEFAULT_PUSH_INTERVAL_S if self._subscription is None else self._subscription.interval_s

    def _wait(self, state: TelemetryState, interval_s: float, throttle_ms: int, now: Instant) -> None:
        """Go on in this state when the interval is over: counted from the answer, so that the broker finds it over."""
        self.state = state
        self._at = now + max(interval_s, throttle_ms / 1000)

    def _refused(self, code: int, throttle_ms: int, now: Instant) -> None:
        if code == ErrorCode.unsupported_compression_type and self._subscription is not None:
            self._compressions.discard(self._subscription.compression)
        match _REMEDIES.get(code, _Remedy.END):
            case _Remedy.ASK_AT_ONCE:
                self._wait(_S.ASKS, 0.0, throttle_ms, now)
            case _Remedy.ASK_LATER:
                self._wait(_S.ASKS, self._interval_s, throttle_ms, now)
            case _Remedy.END:
                self.state = _S.OVER
                if code != ErrorCode.unsupported_version:
                    self.fault = _name(code)

    def _chosen(self, accepted: tuple[int, ...]) -> Compression:
        """The first of the broker's that this client can do; it takes what is not compressed in any case."""
        known = {compression.value: compression for compression in self._compressions}
        return next((known[number] for number in accepted if number in known), Compression.NONE)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


# ---- the two requests -----------------------------------------------------------------------------------------------


def ask_subscription(versions: BrokerVersions, order: AskSubscription) -> Call:
    """The request of this order.

    Raises:
        UnsupportedProtocolError: the broker does not offer it.
    """
    return Call(
        api=Api.GET_TELEMETRY_SUBSCRIPTIONS,
        version=versions.of(Api.GET_TELEMETRY_SUBSCRIPTIONS),
        fields={"client_instance_id": order.client_instance_id},
    )


def push_metrics(versions: BrokerVersions, order: PushMetrics, metrics: bytes, compression: Compression) -> Call:
    """The request of this order, with the metrics as they are, compressed so.

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
