"""The client side of KIP-714 in virtual time: when it requests, when it pushes, and how it handles each error."""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer_membership.translation.telemetry import (
    DEFAULT_PUSH_INTERVAL_S,
    Compression,
    MetricsSubscription,
    PushMetrics,
    RequestSubscription,
    TelemetrySession,
    TelemetryState,
    push_metrics,
    subscription_request,
)
from consumer_membership.wire.codec import Message, decode, encode, write_data
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange

S = TelemetryState
ME = UUID(int=7)
PREFIX = "org.apache.kafka.consumer."
INTERVAL_S = 60.0


def answer(api: Api, **fields: object) -> Message:
    """Build a broker response and decode it from its bytes."""
    return decode(api, 0, bytes(5) + write_data(LAYOUTS[api][1], 0, fields))


def subscription_response(code: ErrorCode = ErrorCode.none, **fields: object) -> Message:
    """Build a GetTelemetrySubscriptions response that requests all consumer metrics once a minute."""
    usual: dict[str, object] = {
        "throttle_time_ms": 0,
        "error_code": code,
        "client_instance_id": ME,
        "subscription_id": 42,
        "accepted_compression_types": (4, 3, 1, 2),
        "push_interval_ms": round(INTERVAL_S * 1000),
        "telemetry_max_bytes": 1_000_000,
        "delta_temporality": True,
        "requested_metrics": (PREFIX,),
    }
    return answer(Api.GET_TELEMETRY_SUBSCRIPTIONS, **usual | fields)


def pushed(code: ErrorCode = ErrorCode.none, throttle_ms: int = 0) -> Message:
    """Build a PushTelemetry response."""
    return answer(Api.PUSH_TELEMETRY, throttle_time_ms=throttle_ms, error_code=code)


def asking(compressions: frozenset[Compression] = frozenset(), jitter: float = 0.5) -> TelemetrySession:
    """Return a session that has just sent its first request, at time 100."""
    session = TelemetrySession(100.0, jitter=lambda: jitter, compressions=compressions)
    assert session.next_deadline() == 100.0
    assert session.due(100.0) == RequestSubscription(client_instance_id=None)
    assert session.next_deadline() is None
    return session


def pushing(compressions: frozenset[Compression] = frozenset()) -> TelemetrySession:
    """Return a session that has just pushed for the first time, at time 160."""
    session = asking(compressions)
    session.subscribed(subscription_response(), 100.0)
    assert isinstance(session.due(160.0), PushMetrics)
    return session


@pytest.mark.parametrize(("jitter", "first_s"), [(0.0, 30.0), (0.5, 60.0), (0.999, 89.94)])
def test_first_push_is_due_after_half_to_one_and_a_half_intervals(jitter: float, first_s: float) -> None:
    """The delay is random, so that clients subscribed at the same time do not push at the same time."""
    session = asking(jitter=jitter)
    session.subscribed(subscription_response(), 100.0)
    assert session.next_deadline() == pytest.approx(100.0 + first_s)
    assert session.due(100.0 + first_s - 0.1) is None
    order = session.due(100.0 + first_s + 0.1)
    assert order == PushMetrics(
        subscription=MetricsSubscription(
            client_instance_id=ME,
            subscription_id=42,
            prefixes=(PREFIX,),
            interval_s=INTERVAL_S,
            max_bytes=1_000_000,
            is_delta=True,
            compression=Compression.NONE,
        )
    )


def test_next_push_is_due_one_interval_after_response() -> None:
    """Only one push is in flight, and the broker must find the interval elapsed when the next one arrives."""
    session = pushing()
    assert session.due(1000.0) is None
    assert session.pushed(pushed(), 161.5)
    assert session.next_deadline() == 161.5 + INTERVAL_S
    assert isinstance(session.due(161.5 + INTERVAL_S), PushMetrics)


def test_empty_subscription_is_requested_again_after_interval() -> None:
    """The next request carries the client's id, which the broker does not repeat."""
    session = asking()
    session.subscribed(subscription_response(requested_metrics=()), 101.0)
    assert session.next_deadline() == 101.0 + INTERVAL_S
    assert session.due(161.0) == RequestSubscription(client_instance_id=ME)
    session.subscribed(subscription_response(client_instance_id=None), 162.0)
    assert session.client_instance_id == ME
    assert session.state is S.SUBSCRIBED


@pytest.mark.parametrize(
    ("names", "name", "is_wanted"),
    [
        (("",), "org.apache.kafka.consumer.x", True),
        (("*",), "org.apache.kafka.consumer.x", True),
        (("org.apache.kafka.consumer.c",), "org.apache.kafka.consumer.coordinator.x", True),
        (("org.apache.kafka.producer.", "org.apache.kafka.consumer.f"), "org.apache.kafka.consumer.c", False),
    ],
)
def test_subscription_selects_metrics_by_prefix(names: tuple[str, ...], name: str, *, is_wanted: bool) -> None:
    """A single empty name selects all metrics."""
    session = asking()
    session.subscribed(subscription_response(requested_metrics=names), 100.0)
    assert session.subscription is not None
    assert session.subscription.includes(name) is is_wanted


@pytest.mark.parametrize(
    ("own", "accepted", "chosen"),
    [
        ({Compression.GZIP}, (4, 3, 1, 2), Compression.GZIP),
        ({Compression.GZIP, Compression.ZSTD}, (4, 3, 1, 2), Compression.ZSTD),
        ({Compression.GZIP, Compression.ZSTD}, (1, 4), Compression.GZIP),
        ({Compression.GZIP}, (2,), Compression.NONE),
        ({Compression.GZIP}, (), Compression.NONE),
    ],
)
def test_subscription_uses_brokers_first_supported_compression(
    own: set[Compression], accepted: tuple[int, ...], chosen: Compression
) -> None:
    """The broker's order applies; without a common type, nothing is compressed."""
    session = asking(frozenset(own))
    session.subscribed(subscription_response(accepted_compression_types=accepted), 100.0)
    assert session.subscription is not None
    assert session.subscription.compression is chosen


def test_unknown_subscription_id_requests_subscription_immediately() -> None:
    """The broker rejected the push with UNKNOWN_SUBSCRIPTION_ID."""
    session = pushing()
    assert not session.pushed(pushed(ErrorCode.unknown_subscription_id), 161.0)
    assert session.due(161.0) == RequestSubscription(client_instance_id=ME)


def test_rejected_compression_is_not_used_again() -> None:
    """UNSUPPORTED_COMPRESSION_TYPE requests the subscription immediately and selects the next type."""
    session = pushing(frozenset({Compression.ZSTD, Compression.GZIP}))
    session.pushed(pushed(ErrorCode.unsupported_compression_type), 161.0)
    assert isinstance(session.due(161.0), RequestSubscription)
    session.subscribed(subscription_response(), 161.0)
    assert session.subscription is not None
    assert session.subscription.compression is Compression.GZIP


@pytest.mark.parametrize("code", [ErrorCode.telemetry_too_large, ErrorCode.throttling_quota_exceeded])
def test_too_large_or_throttled_push_is_retried_after_interval(code: ErrorCode) -> None:
    """After the interval, the client requests the subscription again."""
    session = pushing()
    session.pushed(pushed(code), 161.0)
    assert session.next_deadline() == 161.0 + INTERVAL_S
    assert isinstance(session.due(300.0), RequestSubscription)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (ErrorCode.unsupported_version, None),
        (ErrorCode.invalid_request, "INVALID_REQUEST"),
        (ErrorCode.invalid_record, "INVALID_RECORD"),
        (ErrorCode.cluster_authorization_failed, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_permanent_telemetry_error_ends_session(code: ErrorCode, fault: str | None) -> None:
    """The session reports the error, except for a broker that does not support telemetry."""
    session = pushing()
    session.pushed(pushed(code), 161.0)
    assert (session.is_over, session.fault, session.next_deadline(), session.end()) == (True, fault, None, None)
    session = asking()
    session.subscribed(subscription_response(code), 101.0)
    assert (session.is_over, session.fault) == (True, fault)


def test_broker_without_telemetry_ends_session_without_fault() -> None:
    """If an earlier broker supported telemetry, brokers are being restarted, and the client retries later."""
    session = asking()
    session.unsupported(101.0)
    assert (session.is_over, session.fault, session.due(1e9), session.end()) == (True, None, None, None)
    session = pushing()
    session.unsupported(161.0)
    assert session.due(161.0 + INTERVAL_S) == RequestSubscription(client_instance_id=ME)
    session.end()
    session.unsupported(300.0)
    assert session.is_over


def test_throttled_session_waits_for_throttle_time() -> None:
    """The throttle time may exceed the interval and also delays the first push."""
    session = asking()
    session.subscribed(subscription_response(throttle_time_ms=120_000), 100.0)
    assert session.next_deadline() == 220.0
    session.due(220.0)
    session.pushed(pushed(throttle_ms=90_000), 221.0)
    assert session.next_deadline() == 311.0


def test_failed_telemetry_request_is_retried_after_interval() -> None:
    """Without a broker's interval, Java's 5 minutes apply; a late response is ignored."""
    session = asking()
    session.failed(110.0)
    assert session.next_deadline() == 110.0 + DEFAULT_PUSH_INTERVAL_S
    session.subscribed(subscription_response(), 111.0)
    assert session.subscription is None
    session = pushing()
    session.failed(165.0)
    assert session.next_deadline() == 165.0 + INTERVAL_S
    session.pushed(pushed(ErrorCode.unknown_subscription_id), 166.0)
    assert session.state is S.SUBSCRIBED


def test_skipped_push_waits_for_next_interval() -> None:
    """A push is skipped if no requested metric is known or fits."""
    session = pushing()
    session.skipped(160.0)
    assert session.next_deadline() == 160.0 + INTERVAL_S


def test_ended_session_pushes_last_time_if_subscribed() -> None:
    """The last push does not depend on the interval or on a pending response, and ends the session."""
    for session in (pushing(), asking()):
        if session.state is S.AWAITS_RESPONSE:
            session.subscribed(subscription_response(), 100.0)
        last = session.end()
        assert last is not None
        assert last.is_last
        assert (session.is_over, session.end(), session.due(1e9), session.next_deadline()) == (True, None, None, None)
    session = asking()
    session.subscribed(subscription_response(requested_metrics=()), 100.0)
    assert session.end() is None


def test_invalid_push_interval_uses_java_default() -> None:
    """An interval of 0 would overload the broker."""
    session = asking()
    session.subscribed(subscription_response(push_interval_ms=0, requested_metrics=()), 100.0)
    assert session.next_deadline() == 100.0 + DEFAULT_PUSH_INTERVAL_S


def test_telemetry_requests_encode_orders() -> None:
    """A client without an id sends zeros, and the metrics are sent unchanged."""
    versions = BrokerVersions({71: VersionRange(0, 0), 72: VersionRange(0, 0)})
    asked = encode(subscription_request(versions, RequestSubscription(client_instance_id=None)), 1, "c")
    assert asked.endswith(bytes(16) + b"\0")
    order = pushing().end()
    assert order is not None
    sent = encode(push_metrics(versions, order, b"metrics", Compression.GZIP), 2, "c")
    assert sent.endswith(ME.bytes + b"\0\0\0\x2a" + b"\1" + b"\1" + b"\x08metrics" + b"\0")
