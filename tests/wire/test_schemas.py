"""Schemas that are imported before a group waits for them: those, and in those versions, that first requests need."""

import subprocess
import sys

import pytest

from consumer_membership.types import GroupProtocol
from consumer_membership.wire.schemas import OF_EVERY_MEMBER, OF_PROTOCOL
from consumer_membership.wire.versions import SPOKEN, Api

_PROGRAM = """
import sys
from uuid import UUID
from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat, SendJoin, SendSync
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.types import GroupProtocol, TopicPartition
from consumer_membership.wire import classic_requests, connection, requests
from consumer_membership.wire.consumer_protocol import decode_assignment, encode_assignment
from consumer_membership.wire.frames import encode
from consumer_membership.wire.schemas import import_schemas
from consumer_membership.wire.versions import SPOKEN, BrokerVersions, VersionRange

versions = BrokerVersions({{api: VersionRange(0, max(spoken)) for api, spoken in SPOKEN.items()}})
partition = TopicPartition("t", 0)
beat = Heartbeat(
    member_id="m", member_epoch=0, rebalance_timeout_s=1.0, topics=("t",), owned=frozenset({{(UUID(int=1), 0)}})
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
classic_beat = SendClassicHeartbeat(request_id=1, generation=1, member_id="m", instance_id=None)
import_schemas(GroupProtocol["{protocol}"])
before = set(sys.modules)
calls = [
    connection.api_versions("1"),
    requests.find_coordinator(versions, "g"),
    requests.metadata_of_ids(versions, [UUID(int=1)]),
    requests.offset_fetch(versions, "g", [partition]),
    requests.list_offsets(versions, {{partition: -1}}, read_committed=True),
]
if "{protocol}" == "CONSUMER":
    calls += [requests.consumer_group_heartbeat(versions, "g", beat)]
else:
    calls += [
        classic_requests.join_group(versions, "g", join),
        classic_requests.sync_group(versions, "g", sync),
        classic_requests.heartbeat(versions, "g", classic_beat),
    ]
    decode_assignment(encode_assignment(frozenset({{partition}})))
for call in calls:
    encode(call, 1, "c")
print(*sorted(name for name in set(sys.modules) - before if name.startswith("kio.schema.")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", GroupProtocol)
def test_first_requests_of_a_member_find_their_schemas_imported(protocol: GroupProtocol) -> None:
    """With a broker that speaks the newest versions, nothing that stands between a start and records is imported."""
    program = _PROGRAM.format(protocol=protocol.name)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_versions_are_the_newest_that_are_spoken() -> None:
    """An older one would be imported for nothing."""
    names = [name for of_one in (OF_EVERY_MEMBER, *OF_PROTOCOL.values()) for name in of_one]
    requests = [name for name in names if not name.startswith("consumer_protocol_")]
    apis = [name.partition(".")[0] for name in requests]
    assert requests == [f"{api}.v{max(SPOKEN[Api[api.upper()]])}" for api in apis]
