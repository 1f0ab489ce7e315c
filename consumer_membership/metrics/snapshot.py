"""`Metrics`: all counts of one consumer at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationCounts
from consumer_membership.metrics.membership_ledger import MembershipCounts
from consumer_membership.types import Instant, TopicPartition

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.metrics.handler_ledger import HandlerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedCounts:
    """What librdkafka has fetched of one partition, from its statistics; bytes as librdkafka counts them."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All counts of one consumer at one moment; times are of the monotonic clock (`time.monotonic`).

    Attributes:
        at: The moment.
        number: The number of the consumer among the open consumers of its process, from 1; `close` frees it.
        client_id: `client.id`, which other consumers may also have.
        view: The membership: state, epoch, owned partitions.
        health: The health, with the progress of the partitions at a sample at most two seconds ago.
        membership: The counts of the member.
        application: The counts of the application.
        committed: The group's committed offset of each assigned partition, as far as this member knows it.
        fetched: What librdkafka fetched of each assigned partition, if statistics are enabled
            (`statistics.interval.ms`).
        throttles: The number of responses with a throttle time, of any broker, on connections of the membership.
        throttled_s: The sum of these throttle times in seconds: the broker delays requests of this client.
        handlers: The counts of the processor that handles the records; None: the consumer has no processor.
    """

    at: Instant
    number: int
    client_id: str
    view: MembershipView
    health: Health
    membership: MembershipCounts
    application: ApplicationCounts
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    fetched: Mapping[TopicPartition, FetchedCounts] = field(default_factory=dict)
    throttles: int = 0
    throttled_s: float = 0.0
    handlers: HandlerCounts | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the consumer was closed at that moment; another consumer may then have its number."""
        return self.health.verdict is HealthVerdict.CLOSED

    def age_s(self, moment: Instant | None) -> float | None:
        """Return the time since this moment in seconds, or None if it never happened."""
        return None if moment is None else max(self.at - moment, 0.0)
