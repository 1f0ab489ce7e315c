"""Shows a member's ledger what its observers see, with the time."""

from __future__ import annotations

from time import monotonic

from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.membership_ledger import MembershipLedger


class LedgerObserver:
    """Has each event counted (`metrics.membership_ledger`)."""

    def __init__(self, ledger: MembershipLedger) -> None:
        self._ledger = ledger

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Have it counted."""
        self._ledger.note(event, effects, view, monotonic())
