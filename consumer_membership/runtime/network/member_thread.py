"""The membership thread that a front end gives its session, with the observers of its member."""

from __future__ import annotations

from time import monotonic

from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import MembershipThread, ThreadSettings
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.log_observer import LogObserver, Observer
from consumer_membership.runtime.network.thread import NetworkThread


def member_thread(line: Line, settings: ThreadSettings) -> MembershipThread:
    """Return a new membership thread for this line, which is not started yet."""
    security = ConnectionSecurity(settings.connection)
    return NetworkThread(line, settings, observer=_observer(settings, security), security=security)


def _observer(settings: ThreadSettings, security: ConnectionSecurity) -> Observer:
    observers = LogObserver(settings.connection.client_id), _LedgerObserver(settings.ledger)
    if not settings.connection.crash_guardian:
        return _Observers(*observers)
    # Few members have a guardian.
    from consumer_membership.runtime.guardian.guarded_member import GuardedMember
    from consumer_membership.runtime.guardian.owner import GUARDIAN

    return _Observers(*observers, GuardedMember(GUARDIAN, settings.connection, security))


class _LedgerObserver:
    """Counts each event in a ledger, with the time."""

    def __init__(self, ledger: MembershipLedger) -> None:
        self._ledger = ledger

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Count the event."""
        self._ledger.note(event, effects, view, monotonic())


class _Observers:
    """Several observers as one; each gets every event, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Pass the event to all."""
        for observer in self._observers:
            observer.observed(event, effects, view)
