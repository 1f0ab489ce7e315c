"""Connects librdkafka's handle to the leaders of subscribed topics before partitions are assigned.

librdkafka connects to a leader when it fetches from it: with TLS and SASL that takes several round trips after the
assignment. A member that waits for an instance id has the time to connect before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from consumer_membership.librdkafka import PartitionOffset

if TYPE_CHECKING:
    from consumer_membership.librdkafka import LibrdkafkaConsumer

#: How often the leaders are looked up again. They move, and load balancers close connections that are idle for some
#: minutes (brokers after 10: connections.max.idle.ms).
RENEW_AFTER_S = 60.0
#: How soon a lookup that was not answered is repeated.
RETRY_AFTER_S = 1.0
#: How long a lookup may take, on a handle that has nothing to fetch.
LOOKUP_S = 0.05
#: The largest number of topics to look up, and of leaders to connect to: a member needs only a few leaders of a large
#: cluster.
MOST_TOPICS = 10
MOST_LEADERS = 20
#: A timestamp after every record, so that a leader answers from memory.
_NEVER_MS = 1 << 62


class LeaderConnections:
    """The connections of one handle at a time to the leaders of its topics; used under the handle's lock."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._due_at = 0.0

    def open_if_due(self, handle: LibrdkafkaConsumer, topics: Collection[str]) -> None:
        """Have the handle connect to the topics' leaders, in the background; waits briefly for the lookup."""
        if self._now() < self._due_at:
            return
        leaders: dict[int, PartitionOffset] = {}
        try:
            for topic in sorted(topics)[:MOST_TOPICS]:
                for number, partition in handle.list_topics(topic, LOOKUP_S).topics[topic].partitions.items():
                    leaders.setdefault(partition.leader, PartitionOffset(topic, number, _NEVER_MS))
        except KafkaException:
            self._due_at = self._now() + RETRY_AFTER_S
            return
        self._due_at = self._now() + RENEW_AFTER_S
        starts = [start for leader, start in leaders.items() if leader >= 0][:MOST_LEADERS]
        if starts:
            with suppress(
                KafkaException
            ):  # it expires at once; the request remains, and librdkafka connects to send it
                handle.offsets_for_times(starts, timeout=0)
