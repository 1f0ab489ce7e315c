"""Two hundred members claim ids of one pool at the same moment on a real broker: no id goes to two members."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from consumer_membership.config import ConnectionSettings, OffsetReset, StartSettings
from consumer_membership.devbroker import Broker
from consumer_membership.membership.events import LeaveRequested, Polled, Subscribed
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.runtime.line import Line
from consumer_membership.runtime.membership_thread import ThreadSettings
from consumer_membership.runtime.network.log_observer import LogObserver
from consumer_membership.runtime.network.thread import NetworkThread
from consumer_membership.types import ConflictPolicy, LeaveOption, Subscription
from tests.support.kafka import create_topic, unique
from tests.support.protocols import CONSUMER_ONLY
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLAIMS = 200
#: A bound against hanging: two hundred members in one process, each with a thread of its own.
CLAIMS_S = 240.0


def test_two_hundred_concurrent_pool_claims_give_each_id_to_one_member(broker: Broker) -> None:
    """The coordinator decides; a member whose claim fails tries another id until it has its own."""
    topic, group = create_topic(broker.bootstrap_servers, unique("topic"), 1), unique("group")
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    pool = tuple(f"orders-{number}" for number in range(CLAIMS))
    arrival = threading.Event()
    made = [_member(group, (host, int(port)), pool, arrival) for _ in range(CLAIMS)]
    members = [line for line, _ in made]
    try:
        for member in members:
            member.send(Subscribed(subscription=Subscription(topics=frozenset({topic}))), Polled())

        def check() -> None:
            arrival.wait(0.05)
            arrival.clear()
            held = Counter(m.view.instance_id for m in members if m.view.member_epoch > 0)
            assert max(held.values(), default=1) == 1, held.most_common(3)

        wait_until(
            lambda: all(member.view.member_epoch > 0 for member in members), "all claims", CLAIMS_S, between=check
        )
        assert sorted(str(member.view.instance_id) for member in members) == sorted(pool)
    finally:
        for member in members:
            member.post(LeaveRequested(option=LeaveOption.LEAVE))
        for _, thread in made:
            thread.stop(CLAIMS_S)


def _member(
    group: str, server: tuple[str, int], pool: tuple[str, ...], arrival: threading.Event
) -> tuple[Line, NetworkThread]:
    """A member without an application, which joins and takes over no partition."""
    line = Line()
    line.listen(arrival.set)
    settings = ThreadSettings(
        member=MemberSettings(group_id=group, instance_pool=pool, conflict_policy=ConflictPolicy.WAIT),
        protocols=CONSUMER_ONLY,
        connection=ConnectionSettings(bootstrap_servers=(server,)),
        start=StartSettings(reset=OffsetReset.EARLIEST),
        progress=lambda: (0, 0),
    )
    return line, NetworkThread(line, settings, observer=LogObserver("client"))
