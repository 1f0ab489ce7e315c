"""A consumer as the probe thread reads it; the test sets its health."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

from consumer_membership.config.settings import ListenAddress, ProbeSettings
from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.probes.thread import ProbeThread
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S

LOOPBACK = ListenAddress(host="127.0.0.1", port=0)
HTTP = ProbeSettings(address=LOOPBACK)


def health_of(verdict: HealthVerdict, why: str = "a test", *, helps: bool = False) -> Health:
    """Return a health without partitions and times."""
    return Health(
        verdict=verdict,
        since=None,
        why=why,
        until=None,
        would_restart_help=helps,
        partitions={},
        sampled_at=None,
    )


class WatchedConsumer:
    """A consumer whose health the test sets."""

    def __init__(self, group_id: str = "orders", verdict: HealthVerdict = HealthVerdict.IDLE) -> None:
        self.view: MembershipView = view_of(MemberState.STABLE, group_id=group_id)
        self.client_id = "client"
        self.is_over = False
        self.has_failed = False
        self.now: Health | None = health_of(verdict)

    def health(self) -> Health:
        """Return the health that the test set, or raise an error if it is None."""
        if self.now is None:
            raise RuntimeError("the health is unknown")
        return self.now


def end(probes: ProbeThread, *consumers: WatchedConsumer) -> None:
    """Close these consumers."""
    for one in consumers:
        one.is_over = True
    for one in consumers:
        probes.leave(one)


def served_address(probes: ProbeThread, address: ListenAddress = LOOPBACK) -> ListenAddress:
    """Return the address at which the probe thread serves."""
    return probes.served()[str(address)]


def ask(
    at: ListenAddress, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, str, http.client.HTTPResponse]:
    """Send a request; return the status, the body and the rest of the response."""
    connection = http.client.HTTPConnection(at.host, at.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer
    finally:
        connection.close()
