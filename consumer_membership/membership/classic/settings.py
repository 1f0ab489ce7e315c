"""What a member of a classic group needs to know beside `MemberSettings`."""

from __future__ import annotations

from dataclasses import dataclass

from consumer_membership.membership.classic.assignor import Assignor, RebalanceProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSettings:
    """The classic protocol's own settings; durations in seconds.

    `assignors` in the order of preference (`partition.assignment.strategy`); at least one, and with a rebalance
    protocol that all of them support.
    """

    assignors: tuple[Assignor, ...]
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 1.5
    #: How often the leader looks whether its topics have changed (topic.metadata.refresh.interval.ms).
    refresh_interval_s: float = 300.0
    #: What no subscribed pattern matches (topic.blacklist), as Python's `re` for whole names.
    blacklist: tuple[str, ...] = ()

    @property
    def protocol(self) -> RebalanceProtocol:
        """The most that all assignors support: COOPERATIVE before EAGER, as in Java."""
        common = frozenset.intersection(*(frozenset(assignor.protocols) for assignor in self.assignors))
        return RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER

    @property
    def is_eager(self) -> bool:
        """Whether everything is given up before each rebalance."""
        return self.protocol is RebalanceProtocol.EAGER
