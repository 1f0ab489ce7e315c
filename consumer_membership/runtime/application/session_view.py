"""The member's view as an application receives it: it also has the waits of the application's side.

The member itself reports only its own waits. If it waits for nothing, the wait may be on the application's side: no
poll, no broker to fetch from, or a lease that is over.
"""

from __future__ import annotations

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import Wait, WaitsFor
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.subscriptions import Subscriptions
from consumer_membership.runtime.line import Line

_NO_SERVERS = "bootstrap.servers is not set; the consumer cannot connect"
_NO_BROKER = "librdkafka is not connected to any broker to fetch from"


def view_of_session(
    line: Line,
    subscriptions: Subscriptions,
    life: Lifetime,
    *,
    has_servers: bool,
    no_lease: str,
    broker_lost_since: float | None = None,
) -> MembershipView:
    """Return the member's latest view, with the wait of the application's side if the member itself has none.

    Args:
        line: The line to the member.
        subscriptions: The session's subscription.
        life: The session's life; a closed session waits for nothing.
        has_servers: Whether `bootstrap.servers` is set.
        no_lease: The detail of the wait for a lease that is over.
        broker_lost_since: Since when librdkafka has no broker to fetch from; None: it has one, or nothing is fetched.
    """
    view = line.view
    if view.waits_for is not None:
        if has_servers:
            return view
        return replace(view, waits_for=WaitsFor.BOOTSTRAP_SERVERS, waits_for_detail=_NO_SERVERS)
    if line.lease_is_over:
        wait = Wait(what=WaitsFor.HEARTBEAT_RESPONSE, since=view.lease_until, detail=no_lease)
    elif broker_lost_since is not None:
        wait = Wait(what=WaitsFor.BROKER_CONNECTION, since=broker_lost_since, detail=_NO_BROKER)
    elif (subscribed_at := subscriptions.waits_for_poll_since) is not None and not life.is_closed:
        wait = Wait(what=WaitsFor.POLL_TO_JOIN, since=subscribed_at)
    else:
        return view
    return replace(view, waits_for=wait.what, waits_for_detail=wait.detail, waits_since=wait.since, waits_until=None)
