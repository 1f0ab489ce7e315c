"""How a consumer reaches its cluster: the thread of its member, the handle that fetches, and its clock.

A consumer of a real cluster gets the membership thread and librdkafka's handle. A cluster inside this process
(`consumer_membership.testing`) registers its bootstrap address in `IN_PROCESS`, and gives its consumers other parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.clock import SYSTEM_CLOCK, Clock
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import ThreadFactory

#: Creates the handle of the consumer with this line, from librdkafka's configuration.
HandleFactory: TypeAlias = Callable[[Line, dict[str, object]], LibrdkafkaConsumer]


def librdkafka_handle(_: Line, config: dict[str, object]) -> LibrdkafkaConsumer:
    """Create a handle of librdkafka."""
    return LibrdkafkaConsumer(config)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The parts of a session that belong to its cluster."""

    make_thread: ThreadFactory
    make_handle: HandleFactory = librdkafka_handle
    clock: Clock = SYSTEM_CLOCK


class InProcessCluster(Protocol):
    """A cluster inside this process."""

    @property
    def access(self) -> ClusterAccess:
        """How its consumers reach it."""


#: The clusters inside this process, by their value of `bootstrap.servers`.
IN_PROCESS: dict[str, InProcessCluster] = {}
