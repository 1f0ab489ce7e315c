"""The configuration values that the core needs, in its own units."""

from __future__ import annotations

from consumer_membership.assignors.assignor import Assignor, RebalanceProtocol
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import ConflictPolicy

#: The part of a session by which a lease ends before it (`ownership.lease.enable`). The clocks of two machines differ
#: by less than a thousandth; the rest is the time from the check to the first step of the application's work.
LEASE_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One member's settings; durations in seconds.

    `max_poll_interval_s` is also the rebalance timeout that the member states when it joins (KIP-848).
    `heartbeat_interval_s` None: the broker's interval; otherwise an upper bound beside the broker's.
    `active_heartbeat_interval_s`: the bound while records flow and `heartbeat_interval_s` is None; 0 switches it off.
    `instance_pool`: the ids from which the member claims a free one, instead of an `instance_id` of its own.
    `topic_refresh_s`: how often to check whether the subscribed topics exist; None: never. `leave_timeout_s`: the time
    limit of a leave from `LeaveRequested` on, commit and response included, callbacks excluded. `may_commit_revoked`:
    whether commits of partitions that the member gave up are sent. `has_leases`: the lease of the partitions ends
    before the session, is short if the session timeout is unknown, and lasts until the partitions are released.
    `drain_timeout_s`: how long a member that hands its instance id over may take to release its partitions.
    """

    group_id: str
    instance_id: str | None = None
    instance_pool: tuple[str, ...] = ()
    conflict_policy: ConflictPolicy = ConflictPolicy.TAKEOVER
    rack_id: str | None = None
    assignor: str | None = None
    max_poll_interval_s: float = 300.0
    auto_commit: bool = True
    auto_commit_interval_s: float = 5.0
    heartbeat_interval_s: float | None = None
    active_heartbeat_interval_s: float = 0.25
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    leave_timeout_s: float = 10.0
    topic_refresh_s: float | None = None
    may_commit_revoked: bool = False
    has_leases: bool = False
    drain_timeout_s: float = 30.0

    def lease_s(self, session_s: float) -> float:
        """Return how long the partitions are certainly owned after a heartbeat that is answered, in seconds."""
        return session_s * (1.0 - LEASE_MARGIN) if self.has_leases else session_s

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id (KIP-345), its own or one of a pool."""
        return self.instance_id is not None or bool(self.instance_pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSettings:
    """The settings of the classic protocol in addition to `MemberSettings`; durations in seconds.

    `assignors` in the order of preference (`partition.assignment.strategy`); at least one, and with a rebalance
    protocol that all of them support.
    """

    assignors: tuple[Assignor, ...]
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 1.5
    #: How often the leader checks whether its topics have changed (topic.metadata.refresh.interval.ms).
    refresh_interval_s: float = 300.0
    #: The names that no subscribed pattern matches (topic.blacklist), as Python's `re` for whole names.
    blacklist: tuple[str, ...] = ()

    @property
    def protocol(self) -> RebalanceProtocol:
        """The best protocol that all assignors support: COOPERATIVE before EAGER, as in Java."""
        common = frozenset.intersection(*(frozenset(assignor.protocols) for assignor in self.assignors))
        return RebalanceProtocol.COOPERATIVE if RebalanceProtocol.COOPERATIVE in common else RebalanceProtocol.EAGER

    @property
    def is_eager(self) -> bool:
        """Whether everything is released before each rebalance."""
        return self.protocol is RebalanceProtocol.EAGER
