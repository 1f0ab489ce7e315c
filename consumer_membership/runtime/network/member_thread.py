"""The member that a front end gives its session: the real one, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.membership.choice import GroupEffect, ProtocolSettings
from consumer_membership.membership.classic.member import AnyEvent
from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.guardian.guarded_member import GuardedMember
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.log_lines import ConsumerLines
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.observer import LogObserver, Observer
from consumer_membership.runtime.network.thread import NetworkThread
from consumer_membership.runtime.ports import MemberPort

#: The guardian of this process: one, whose members are all that `member_thread` makes; others are given it.
GUARDIAN = Guardian(follows_forks=True)


def member_thread(
    *,
    member: MemberSettings,
    protocols: ProtocolSettings,
    connection: ConnectionSettings,
    start: StartSettings,
    to_application: Mailbox[ApplicationEffect],
    progress: Callable[[], tuple[int, int]],
    lines: ConsumerLines | None = None,
) -> MemberPort:
    """The real member, on a thread of its own that is not started yet."""
    security = ConnectionSecurity(connection)
    return NetworkThread(
        member=member,
        protocols=protocols,
        connection=connection,
        start=start,
        to_application=to_application,
        progress=progress,
        observer=_observer(connection, security),
        security=security,
        lines=lines,
    )


def _observer(connection: ConnectionSettings, security: ConnectionSecurity) -> Observer:
    if not connection.crash_guardian:
        return LogObserver()
    return _Observers(LogObserver(), GuardedMember(GUARDIAN, connection, security))


class _Observers:
    """Several observers as one; each sees every event, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def observed(self, event: AnyEvent, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Show it to all."""
        for observer in self._observers:
            observer.observed(event, effects, view)
