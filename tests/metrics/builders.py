"""Metrics snapshots for tests: of a consumer without any activity, except for the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from consumer_membership.health.handlers import HandlerHealth
from consumer_membership.health.progress import AssignmentProgress, PartitionHealth
from consumer_membership.health.verdict import Circumstances, health_of
from consumer_membership.membership.states import MemberState
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.types import TopicPartition
from tests.support.views import view_of

NOW = 1000.0


def snapshot(
    *,
    number: int = 1,
    group: str = "g",
    state: MemberState = MemberState.STABLE,
    owned: Mapping[TopicPartition, int] | None = None,
    partitions: Mapping[TopicPartition, PartitionHealth] | None = None,
    membership: MembershipLedger | None = None,
    application: ApplicationLedger | None = None,
    handlers: HandlerLedger | None = None,
    handler_health: HandlerHealth | None = None,
    **changes: object,
) -> Metrics:
    """Return the metrics at NOW."""
    view = replace(view_of(state, group_id=group, epoch=3), owned=owned or {})
    circumstances = Circumstances(
        view=view,
        progress=AssignmentProgress(at=NOW, partitions=partitions or {}),
        subscribed_at=NOW,
        is_closed=False,
        polled_at=NOW,
        max_poll_interval_s=300.0,
        handlers=handler_health,
    )
    made = Metrics(
        at=NOW,
        number=number,
        client_id="c",
        view=view,
        health=health_of(NOW, circumstances),
        membership=(membership or MembershipLedger()).counts(NOW),
        application=(application or ApplicationLedger()).counts(NOW, 0),
        handlers=handlers.counts(NOW) if handlers is not None else None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # the test's changes


def partition(position: int, end: int, **changes: object) -> PartitionHealth:
    """Return the health of a partition that advanced at NOW."""
    made = PartitionHealth(position=position, end=end, lag=end - position, progressed_at=NOW)
    return replace(made, **changes)  # type: ignore[arg-type]  # the test's changes


def busy_ledger() -> HandlerLedger:
    """Return the ledger of a processor that has handled records, and handles one now."""
    made = HandlerLedger(lambda _: HandlerGauges(lanes=3, busy=1, queued=5, in_flight=1, oldest_in_flight_s=2.0))
    made.handler_time.add(0.2, NOW)
    made.queue_time.add(0.1, NOW)
    made.failures["ValueError"] = 3
    made.finished, made.skipped, made.retries, made.dead_letters = 9, 4, 2, 1
    return made
