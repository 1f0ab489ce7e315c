"""`Metrics`: all that is counted of one consumer, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationCounts
from consumer_membership.metrics.membership_ledger import MembershipCounts
from consumer_membership.types import Instant, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedCounts:
    """What librdkafka has fetched of one partition, by its statistics; bytes as it counts them."""

    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All that is counted of one consumer, at one moment; times are of the monotonic clock (`time.monotonic`).

    Attributes:
        at: The moment.
        number: Tells it from the other living consumers of its process, from 1 on; what is closed gives its number up.
        client_id: `client.id`, which need not be its own.
        view: Its membership: state, epoch, what it owns.
        health: Its health; how far its partitions are stands there, as of a look at most two seconds ago.
        membership: What the member did.
        application: What the application did.
        committed: The group's committed offset of each assigned partition, as far as this member has heard of it.
        fetched: Likewise what was fetched, where statistics are on (`statistics.interval.ms`).
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

    @property
    def is_closed(self) -> bool:
        """Whether the consumer was closed by then; its number may be another one's."""
        return self.health.verdict is HealthVerdict.CLOSED

    def age_s(self, moment: Instant | None) -> float | None:
        """How long ago that was, in seconds; None: it never was."""
        return None if moment is None else max(self.at - moment, 0.0)
