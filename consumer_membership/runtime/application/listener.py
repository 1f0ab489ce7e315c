"""What a front end wants to hear of a rebalance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from consumer_membership.types import TopicPartition

#: Takes the partitions in question, sorted.
RebalanceCallback: TypeAlias = Callable[[list[TopicPartition]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceListener:
    """The callbacks of one subscription; they run on the thread that polls or closes, one at a time."""

    on_assign: RebalanceCallback | None = None
    on_revoke: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None

    @property
    def on_loss(self) -> RebalanceCallback | None:
        """Who hears of lost partitions: on_revoke where there is no on_lost, as in confluent-kafka."""
        return self.on_lost or self.on_revoke
