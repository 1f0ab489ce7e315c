"""The member that a front end gives its session: the real one, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.config import ConnectionSettings, StartSettings
from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.network_thread import NetworkThread
from consumer_membership.runtime.observer import LogObserver
from consumer_membership.runtime.ports import MemberPort


def member_thread(
    *,
    member: MemberSettings,
    connection: ConnectionSettings,
    start: StartSettings,
    to_application: Mailbox[ApplicationEffect],
    progress: Callable[[], tuple[int, int]],
) -> MemberPort:
    """The real member, on a thread of its own that is not started yet."""
    return NetworkThread(
        member=member,
        connection=connection,
        start=start,
        to_application=to_application,
        progress=progress,
        observer=LogObserver(),
    )
