"""The parts that a member has with each protocol, and their creation.

The member and its protocol read them and change them by their own methods. The set of parts never changes.
"""

from __future__ import annotations

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.history import History
from consumer_membership.membership.leave import Leave
from consumer_membership.membership.offsets import AutoCommit, PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Reconciler
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.topics import TopicWatch


class MemberContext:
    """The shared parts of one member."""

    def __init__(self, settings: MemberSettings, jitter: Jitter) -> None:
        self.settings = settings
        self.jitter = jitter
        self.event = event = EventContext()
        self.history = History(event)
        self.coordinator = Coordinator(event, self.history)
        self.ownership = Ownership()
        self.commits = PendingCommits(event, settings, jitter)
        self.auto_commit = AutoCommit(event, settings, self.commits)
        self.reconciler = Reconciler(event, settings, self.ownership, self.commits, jitter)
        self.commits.add_listeners(self.auto_commit, self.reconciler)
        self.watch = TopicWatch(event, self.history, settings.topic_refresh_s, jitter)
        self.leave = Leave()

    def new_backoff(self) -> Backoff:
        """Delays according to the settings."""
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, self.jitter)

    @property
    def has_holdings(self) -> bool:
        """Whether the application holds partitions that a lease protects; with leases, also while on_assign runs."""
        return bool(self.ownership.owned) or (self.settings.has_leases and self.reconciler.is_assigning)

    def note_holdings(self) -> None:
        """Begin the interval of automatic commits, after an assignment was applied, if partitions are held."""
        self.watch.holds(frozenset(one.topic for one in self.ownership.named_owned))
        if self.ownership.owned:
            self.auto_commit.restart()
        else:
            self.auto_commit.stop()
