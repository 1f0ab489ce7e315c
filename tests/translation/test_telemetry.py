"""A client's half of KIP-714, in virtual time: when it asks, when it pushes, and what it does about each error."""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer_membership.translation.telemetry import (
    DEFAULT_PUSH_INTERVAL_S,
    AskSubscription,
    Compression,
    MetricsSubscription,
    PushMetrics,
    TelemetrySession,
    TelemetryState,
    ask_subscription,
    push_metrics,
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
    """A broker's answer, through its bytes."""
    return decode(api, 0, bytes(5) + write_data(LAYOUTS[api][1], 0, fields))


def told(code: ErrorCode = ErrorCode.none, **fields: object) -> Message:
    """An answer to GetTelemetrySubscriptions: everything of a consumer, once a minute."""
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
    """An answer to PushTelemetry."""
    return answer(Api.PUSH_TELEMETRY, throttle_time_ms=throttle_ms, error_code=code)


def asking(compressions: frozenset[Compression] = frozenset(), jitter: float = 0.5) -> TelemetrySession:
    """One that has just asked, at moment 100."""
    session = TelemetrySession(100.0, jitter=lambda: jitter, compressions=compressions)
    assert session.next_deadline() == 100.0
    assert session.due(100.0) == AskSubscription(client_instance_id=None)
    assert session.next_deadline() is None
    return session


def pushing(compressions: frozenset[Compression] = frozenset()) -> TelemetrySession:
    """One that has just pushed for the first time, at moment 160."""
    session = asking(compressions)
    session.told(told(), 100.0)
    assert isinstance(session.due(160.0), PushMetrics)
    return session


@pytest.mark.parametrize(("jitter", "first_s"), [(0.0, 30.0), (0.5, 60.0), (0.999, 89.94)])
def test_first_push_comes_within_half_and_one_and_a_half_intervals(jitter: float, first_s: float) -> None:
    """By chance, so that clients which were subscribed at the same moment do not come at the same one."""
    session = asking(jitter=jitter)
    session.told(told(), 100.0)
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


def test_pushes_come_on_the_interval_counted_from_the_answer() -> None:
    """One at a time: the broker must find the interval over when the next one comes."""
    session = pushing()
    assert session.due(1000.0) is None
    assert session.pushed(pushed(), 161.5)
    assert session.next_deadline() == 161.5 + INTERVAL_S
    assert isinstance(session.due(161.5 + INTERVAL_S), PushMetrics)


def test_nothing_that_is_wanted_is_asked_for_again_later() -> None:
    """With the id that this client has by then, which the broker does not repeat."""
    session = asking()
    session.told(told(requested_metrics=()), 101.0)
    assert session.next_deadline() == 101.0 + INTERVAL_S
    assert session.due(161.0) == AskSubscription(client_instance_id=ME)
    session.told(told(client_instance_id=None), 162.0)
    assert session.client_instance_id == ME
    assert session.state is S.PUSHES


@pytest.mark.parametrize(
    ("names", "name", "is_wanted"),
    [
        (("",), "org.apache.kafka.consumer.x", True),
        (("*",), "org.apache.kafka.consumer.x", True),
        (("org.apache.kafka.consumer.c",), "org.apache.kafka.consumer.coordinator.x", True),
        (("org.apache.kafka.producer.", "org.apache.kafka.consumer.f"), "org.apache.kafka.consumer.c", False),
    ],
)
def test_metrics_are_wanted_by_their_beginnings(names: tuple[str, ...], name: str, *, is_wanted: bool) -> None:
    """One empty name is all of them."""
    session = asking()
    session.told(told(requested_metrics=names), 100.0)
    assert session.subscription is not None
    assert session.subscription.wants(name) is is_wanted


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
def test_first_of_the_brokers_compressions_that_is_there_is_taken(
    own: set[Compression], accepted: tuple[int, ...], chosen: Compression
) -> None:
    """In the broker's order; without one nothing is compressed."""
    session = asking(frozenset(own))
    session.told(told(accepted_compression_types=accepted), 100.0)
    assert session.subscription is not None
    assert session.subscription.compression is chosen


def test_changed_subscription_is_asked_for_at_once() -> None:
    """UNKNOWN_SUBSCRIPTION_ID; what was pushed was not taken."""
    session = pushing()
    assert not session.pushed(pushed(ErrorCode.unknown_subscription_id), 161.0)
    assert session.due(161.0) == AskSubscription(client_instance_id=ME)


def test_compression_that_is_refused_is_not_taken_again() -> None:
    """UNSUPPORTED_COMPRESSION_TYPE: asked at once, and the next one is taken."""
    session = pushing(frozenset({Compression.ZSTD, Compression.GZIP}))
    session.pushed(pushed(ErrorCode.unsupported_compression_type), 161.0)
    assert isinstance(session.due(161.0), AskSubscription)
    session.told(told(), 161.0)
    assert session.subscription is not None
    assert session.subscription.compression is Compression.GZIP


@pytest.mark.parametrize("code", [ErrorCode.telemetry_too_large, ErrorCode.throttling_quota_exceeded])
def test_what_is_too_much_is_tried_later(code: ErrorCode) -> None:
    """When the interval is over, with what the broker wants by then."""
    session = pushing()
    session.pushed(pushed(code), 161.0)
    assert session.next_deadline() == 161.0 + INTERVAL_S
    assert isinstance(session.due(300.0), AskSubscription)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (ErrorCode.unsupported_version, None),
        (ErrorCode.invalid_request, "INVALID_REQUEST"),
        (ErrorCode.invalid_record, "INVALID_RECORD"),
        (ErrorCode.cluster_authorization_failed, "CLUSTER_AUTHORIZATION_FAILED"),
    ],
)
def test_error_without_a_remedy_is_the_end(code: ErrorCode, fault: str | None) -> None:
    """In words, but for a broker that has it not."""
    session = pushing()
    session.pushed(pushed(code), 161.0)
    assert (session.is_over, session.fault, session.next_deadline(), session.end()) == (True, fault, None, None)
    session = asking()
    session.told(told(code), 101.0)
    assert (session.is_over, session.fault) == (True, fault)


def test_broker_that_does_not_offer_it_is_the_end_without_a_word() -> None:
    """Nobody there receives metrics; where another one did, brokers are being restarted, and one is asked later."""
    session = asking()
    session.unsupported(101.0)
    assert (session.is_over, session.fault, session.due(1e9), session.end()) == (True, None, None, None)
    session = pushing()
    session.unsupported(161.0)
    assert session.due(161.0 + INTERVAL_S) == AskSubscription(client_instance_id=ME)
    session.end()
    session.unsupported(300.0)
    assert session.is_over


def test_throttled_client_waits() -> None:
    """Longer than the interval, if that is what the broker says; and before the first push, too."""
    session = asking()
    session.told(told(throttle_time_ms=120_000), 100.0)
    assert session.next_deadline() == 220.0
    session.due(220.0)
    session.pushed(pushed(throttle_ms=90_000), 221.0)
    assert session.next_deadline() == 311.0


def test_unanswered_request_is_tried_when_the_interval_is_over() -> None:
    """Which is Java's of 5 minutes where no broker has said one; a late answer means nothing."""
    session = asking()
    session.failed(110.0)
    assert session.next_deadline() == 110.0 + DEFAULT_PUSH_INTERVAL_S
    session.told(told(), 111.0)
    assert session.subscription is None
    session = pushing()
    session.failed(165.0)
    assert session.next_deadline() == 165.0 + INTERVAL_S
    session.pushed(pushed(ErrorCode.unknown_subscription_id), 166.0)
    assert session.state is S.PUSHES


def test_push_of_nothing_waits_for_the_next() -> None:
    """None of what is wanted is known, or it has no room."""
    session = pushing()
    session.skipped(160.0)
    assert session.next_deadline() == 160.0 + INTERVAL_S


def test_client_that_ends_pushes_once_more_where_that_is_wanted() -> None:
    """Whenever it is, and whether an answer is awaited or not; nothing comes after it."""
    for session in (pushing(), asking()):
        if session.state is S.ASKING:
            session.told(told(), 100.0)
        last = session.end()
        assert last is not None
        assert last.is_last
        assert (session.is_over, session.end(), session.due(1e9), session.next_deadline()) == (True, None, None, None)
    session = asking()
    session.told(told(requested_metrics=()), 100.0)
    assert session.end() is None


def test_interval_that_cannot_be_is_javas() -> None:
    """A broker would be overrun."""
    session = asking()
    session.told(told(push_interval_ms=0, requested_metrics=()), 100.0)
    assert session.next_deadline() == 100.0 + DEFAULT_PUSH_INTERVAL_S


def test_requests_say_what_is_ordered() -> None:
    """As bytes: a client without an id says zeros, and the metrics are what they are."""
    versions = BrokerVersions({71: VersionRange(0, 0), 72: VersionRange(0, 0)})
    asked = encode(ask_subscription(versions, AskSubscription(client_instance_id=None)), 1, "c")
    assert asked.endswith(bytes(16) + b"\0")
    order = pushing().end()
    assert order is not None
    sent = encode(push_metrics(versions, order, b"metrics", Compression.GZIP), 2, "c")
    assert sent.endswith(ME.bytes + b"\0\0\0\x2a" + b"\1" + b"\1" + b"\x08metrics" + b"\0")
