"""A scripted broker that requests metrics from its clients and accepts them (KIP-714)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from tests.support.scripted_broker import NEWEST, Answer, Received

SUBSCRIPTIONS, PUSH = 71, 72
OFFERED = {**NEWEST, SUBSCRIPTIONS: (0, 0), PUSH: (0, 0)}
ME = UUID(int=7)


class Receiver:
    """A broker that requests metrics 50 times a second and accepts them.

    `changes` replaces fields of its subscription.
    """

    def __init__(self, **changes: object) -> None:
        self.changes = changes
        self.answers: list[Answer] = []
        self.pushes: list[Any] = []

    def __call__(self, request: Received) -> Answer:
        if request.api_key == SUBSCRIPTIONS:
            usual: dict[str, Any] = {
                "throttle_time": timedelta(0),
                "error_code": ErrorCode.none,
                "client_instance_id": ME,
                "subscription_id": 42,
                "accepted_compression_types": (),
                "push_interval": timedelta(milliseconds=20),
                "telemetry_max_bytes": 100_000,
                "delta_temporality": False,
                "requested_metrics": ("",),
            }
            return GetTelemetrySubscriptionsResponse(**usual | self.changes)
        if request.api_key == PUSH:
            self.pushes.append(request.entity)
            taken = PushTelemetryResponse(throttle_time=timedelta(0), error_code=ErrorCode.none)
            return self.answers.pop(0) if self.answers else taken
        return None
