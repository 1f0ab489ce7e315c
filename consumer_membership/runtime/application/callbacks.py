"""An application's callbacks, and whether its rebalance callbacks receive differences or the whole assignment.

By default, confluent-kafka uses the classic protocol with eager assignors: at each change, `on_revoke` gets all
partitions, and `on_assign` the whole new assignment, which starts at the committed offsets. Code for eager callbacks
replaces its list of partitions in `on_assign`; with a difference it would forget the other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from consumer_membership.config import CallbackSettings, RebalanceCallbacks
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.events import AssignedIncrementally
from consumer_membership.runtime.line import Line
from consumer_membership.types import TopicPartition

CommitCallback: TypeAlias = Callable[[CommitCompleted, Collection[TopicPartition]], None]
#: Receives the partitions concerned, sorted.
PartitionsCallback: TypeAlias = Callable[[list[TopicPartition]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceListener:
    """The callbacks of one subscription; they run on the thread that polls or closes, one at a time."""

    on_assign: PartitionsCallback | None = None
    on_revoke: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None
    #: Prepares for partitions that this consumer is about to take over; it owns none of them yet.
    on_warm: PartitionsCallback | None = None

    @property
    def on_loss(self) -> PartitionsCallback | None:
        """The callback for lost partitions: on_lost, else on_revoke, as in confluent-kafka."""
        return self.on_lost or self.on_revoke

    @property
    def has_any(self) -> bool:
        """Whether a callback for changes of the assignment is registered."""
        return bool(self.on_assign or self.on_revoke or self.on_lost)


class CallbackStyle:
    """Decides which partitions the callbacks of one consumer receive."""

    def __init__(self, settings: CallbackSettings, line: Line) -> None:
        self._chosen = settings.chosen
        self._usual = settings.usual
        self._line = line

    def is_eager(self, listener: RebalanceListener) -> bool:
        """Whether these callbacks receive the whole assignment.

        Without callbacks, retained partitions are never revoked, unless the configuration requests eager callbacks.
        """
        if self._chosen is not None:
            return self._chosen is RebalanceCallbacks.EAGER
        return self._usual is RebalanceCallbacks.EAGER and listener.has_any

    def assigned_incrementally(self) -> None:
        """A callback called `incremental_assign` or `incremental_unassign`, so it expects differences."""
        if self._chosen is None and self._usual is RebalanceCallbacks.EAGER:
            self._usual = RebalanceCallbacks.INCREMENTAL
            self._line.send(AssignedIncrementally())
