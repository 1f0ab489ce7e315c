"""Whether an application's rebalance callbacks are told of differences, or of the whole as under the eager protocol.

confluent-kafka speaks the classic protocol with eager assignors unless it is told otherwise: at each change `on_revoke`
has everything, and `on_assign` the whole new assignment, from what is committed. A program that was written for that
replaces its list of partitions in `on_assign`; told of a difference, it would forget the rest without a word.
"""

from __future__ import annotations

from consumer_membership.config import CallbackSettings, RebalanceCallbacks
from consumer_membership.membership.events import AssignedIncrementally
from consumer_membership.runtime.application.performer import RebalanceListener
from consumer_membership.runtime.line import Line


class CallbackStyle:
    """What the callbacks of one consumer are told."""

    def __init__(self, settings: CallbackSettings, line: Line) -> None:
        self._chosen = settings.chosen
        self._usual = settings.usual
        self._line = line

    def is_eager(self, listener: RebalanceListener) -> bool:
        """Whether these are told of the whole.

        Where there are none nobody would notice, and what stays with the member goes on; unless it is asked for.
        """
        if self._chosen is not None:
            return self._chosen is RebalanceCallbacks.EAGER
        return self._usual is RebalanceCallbacks.EAGER and listener.has_any

    def assigned_incrementally(self) -> None:
        """A callback called `incremental_assign` or `incremental_unassign`: it was not written for the whole."""
        if self._chosen is None and self._usual is RebalanceCallbacks.EAGER:
            self._usual = RebalanceCallbacks.INCREMENTAL
            self._line.send(AssignedIncrementally())
