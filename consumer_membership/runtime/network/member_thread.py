"""The member that a front end gives its session: the real one, on a thread of its own."""

from __future__ import annotations

from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import MembershipThread, ThreadSettings
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.ledger_observer import LedgerObserver
from consumer_membership.runtime.network.log_observer import LogObserver, Observer
from consumer_membership.runtime.network.thread import NetworkThread


def member_thread(line: Line, settings: ThreadSettings) -> MembershipThread:
    """The real member at the end of this line, on a thread of its own that is not started yet."""
    security = ConnectionSecurity(settings.connection)
    return NetworkThread(line, settings, observer=_observer(settings, security), security=security)


def _observer(settings: ThreadSettings, security: ConnectionSecurity) -> Observer:
    observers = LogObserver(), LedgerObserver(settings.ledger)
    if not settings.connection.crash_guardian:
        return _Observers(*observers)
    from consumer_membership.runtime.network.guarding import guarded  # few members are guarded

    return _Observers(*observers, guarded(settings.connection, security))


class _Observers:
    """Several observers as one; each sees every event, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def observed(self, event: GroupEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Show it to all."""
        for observer in self._observers:
            observer.observed(event, effects, view)
