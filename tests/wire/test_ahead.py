"""Schemas that are imported while an answer is awaited: those, and in those versions, that the next request needs."""

import subprocess
import sys

import pytest

from consumer_membership.membership.effects import FindCoordinator
from consumer_membership.types import GroupProtocol
from consumer_membership.wire.ahead import schemas_ahead
from consumer_membership.wire.versions import SPOKEN, Api
from tests.runtime.clients import beat
from tests.wire.classic import join_order

_PROGRAM = """
import sys
from uuid import UUID
from consumer_membership.membership.classic.exchanges import SendJoin, SendSync
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.effects import FindCoordinator, Heartbeat, SendHeartbeat
from consumer_membership.types import GroupProtocol, TopicPartition
from consumer_membership.wire import classic_requests, requests
from consumer_membership.wire.ahead import import_schema, schemas_ahead
from consumer_membership.wire.consumer_protocol import decode_assignment, encode_assignment
from consumer_membership.wire.frames import encode
from consumer_membership.wire.versions import SPOKEN, BrokerVersions, VersionRange

versions = BrokerVersions({{api: VersionRange(0, max(spoken)) for api, spoken in SPOKEN.items()}})
partition = TopicPartition("t", 0)
lookup = FindCoordinator(reason="")
beat = SendHeartbeat(
    request_id=1,
    heartbeat=Heartbeat(
        member_id="m", member_epoch=0, rebalance_timeout_s=1.0, topics=("t",), owned=frozenset({{(UUID(int=1), 0)}})
    ),
)
join = SendJoin(
    request_id=1,
    member_id="",
    instance_id=None,
    session_timeout_s=1.0,
    rebalance_timeout_s=1.0,
    protocols=(("range", MemberSubscription(topics=frozenset("t"), owned=frozenset({{partition}}))),),
    reason="",
)
sync = SendSync(request_id=1, generation=1, member_id="m", instance_id=None, protocol_name="range")
fetch = lambda: requests.offset_fetch(versions, "g", [partition])
ways = {{
    "CONSUMER": [
        (lookup, lambda: requests.find_coordinator(versions, "g")),
        (None, lambda: requests.consumer_group_heartbeat(versions, "g", beat.heartbeat)),
        (beat, lambda: requests.metadata_of_ids(versions, [UUID(int=1)])),
        (None, fetch),
    ],
    "CLASSIC": [
        (lookup, lambda: requests.find_coordinator(versions, "g")),
        (None, lambda: classic_requests.join_group(versions, "g", join)),
        (join, lambda: classic_requests.sync_group(versions, "g", sync)),
        (None, lambda: decode_assignment(encode_assignment(frozenset({{partition}})))),
        (None, fetch),
    ],
}}
for order, ask in ways["{protocol}"]:
    for name in schemas_ahead(order, GroupProtocol["{protocol}"]):
        import_schema(name)
    before = set(sys.modules)
    call = ask()
    if hasattr(call, "layout"):
        encode(call, 1, "c")
    print(*sorted(name for name in set(sys.modules) - before if name.startswith("kio.schema.")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC])
def test_first_steps_of_a_member_find_their_schemas_imported(protocol: GroupProtocol) -> None:
    """With a broker that speaks the newest versions, no request of a join has to wait for an import."""
    program = _PROGRAM.format(protocol=protocol.name)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("protocol", [GroupProtocol.CONSUMER, GroupProtocol.CLASSIC])
def test_versions_are_the_newest_that_are_spoken(protocol: GroupProtocol) -> None:
    """An older one would be imported for nothing."""
    names = [
        name
        for order in (FindCoordinator(reason=""), join_order(), beat())
        for name in schemas_ahead(order, protocol)
        if not name.startswith("consumer_protocol_")
    ]
    assert names
    assert names == [f"{api}.v{max(SPOKEN[Api[api.upper()]])}" for api in (name.partition(".")[0] for name in names)]
