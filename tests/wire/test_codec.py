# ruff: noqa: ANN401, S311  # entities of many layouts, with values by chance
"""Our reader against kio's writer and kio's own reader, and against bytes that no broker sends."""

import io
import subprocess
import sys
from dataclasses import fields, is_dataclass
from datetime import timedelta
from random import Random
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from consumer_membership.types import GroupProtocol
from consumer_membership.wire.codec import OF_EVERY_MEMBER, OF_PROTOCOL, MalformedError, read_entity
from consumer_membership.wire.versions import SPOKEN, Api

#: Every answer that this package reads, and the headers in front of them; beside them, a classic member's two blobs.
ANSWERS = [load_response_schema(api.value, version) for api, versions in SPOKEN.items() for version in versions]
HEADERS = sorted({answer.__header_schema__ for answer in ANSWERS}, key=lambda header: header.__version__)
LAYOUTS: list[Any] = [*ANSWERS, *HEADERS, ConsumerProtocolAssignment, ConsumerProtocolSubscription]

HEARTBEAT = load_response_schema(68, 1)


def name(layout: Any) -> str:
    """The layout's name in a test's id."""
    return f"{layout.__name__}-v{layout.__version__}"


def written(entity: Any) -> bytes:
    """The entity as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


#: A value of each of kio's types, by chance; hypothesis' own strategies for its classes take seconds for each layout.
VALUES: dict[str, Any] = {
    "bool": lambda chance: chance.random() < 0.5,
    "int8": lambda chance: chance.randint(-(2**7), 2**7 - 1),
    "int16": lambda chance: chance.randint(-(2**15), 2**15 - 1),
    "int32": lambda chance: chance.choice([-1, 0, 1, chance.randint(-(2**31), 2**31 - 1)]),
    "int64": lambda chance: chance.choice([-1, 0, 1, chance.randint(-(2**63), 2**63 - 1)]),
    "string": lambda chance: chance.choice(["", "a", "ü€😀", "x" * chance.choice([126, 127, 128, 300])]),
    "bytes": lambda chance: chance.randbytes(chance.choice([0, 1, 127, 128, 300])),
    "uuid": lambda chance: chance.choice([None, UUID(int=chance.getrandbits(128))]),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": lambda chance: timedelta(milliseconds=chance.randint(-(2**31), 2**31 - 1)),
    # Python's durations end at 10^9 days, which a longer one in the bytes is malformed for.
    "timedelta_i64": lambda chance: timedelta(milliseconds=chance.randint(-(10**15), 10**15)),
}


def some_entity(layout: Any, chance: Random) -> Any:
    """An entity of this layout with values by chance."""
    return layout(**{field.name: some_value(field, field.type, chance) for field in fields(layout)})


def some_value(field: Any, annotation: Any, chance: Random) -> Any:
    """A value for this field."""
    if isinstance(annotation, UnionType):
        present = next(part for part in get_args(annotation) if part is not type(None))
        return None if chance.random() < 0.2 else some_value(field, present, chance)
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        return tuple(some_value(field, item, chance) for _ in range(chance.choice([0, 1, 2, 5])))
    if is_dataclass(annotation):
        return some_entity(annotation, chance)
    return VALUES[field.metadata["kafka_type"]](chance)


seeds = st.integers(min_value=0, max_value=2**32)
some_examples = settings(max_examples=25)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
@some_examples
@given(seed=seeds)
def test_reads_what_kio_writes_as_kio_reads_it(layout: Any, seed: int) -> None:
    """The oracle is kio's own reader: same entity, same end, at any offset."""
    frame = written(some_entity(layout, Random(seed)))
    expected = entity_reader(layout)(frame, 0)
    assert read_entity(layout, frame, 0) == expected
    assert read_entity(layout, b"ahead" + frame + b"behind", 5) == (expected[0], expected[1] + 5)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
@settings(max_examples=50)
@given(frame=st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 127, 128, 255]), max_size=80).map(bytes))
def test_any_bytes_are_read_or_refused(layout: Any, frame: bytes) -> None:
    """Nothing but MalformedError comes out of nonsense; kio's reader aborts the process on some of it."""
    try:
        _, end = read_entity(layout, frame, 0)
    except MalformedError:
        return
    assert end <= len(frame)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
@some_examples
@given(seed=seeds)
def test_cut_off_bytes_are_refused(layout: Any, seed: int) -> None:
    """An answer that lacks its last byte is malformed, wherever that byte belongs."""
    frame = written(some_entity(layout, Random(seed)))
    with pytest.raises(MalformedError):
        read_entity(layout, frame[:-1], 0)


def heartbeat(code: int = 0, tags: bytes = b"\x00") -> bytes:
    """A heartbeat answer: no throttle, the code, null text and member id, epoch 5, 5 s, null assignment, tags."""
    return (
        bytes(4) + code.to_bytes(2, "big", signed=True) + b"\x00\x00" + b"\0\0\0\5" + b"\0\0\x13\x88" + b"\xff" + tags
    )


def test_unknown_error_code_stays_a_number() -> None:
    """A code of a newer broker is no reason to give up the connection: it is read as its number."""
    entity, _ = read_entity(HEARTBEAT, heartbeat(code=199), 0)
    assert entity.error_code == 199
    assert not isinstance(entity.error_code, ErrorCode)


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482: a newer broker may add tagged fields, and an older client skips them."""
    entity, end = read_entity(HEARTBEAT, heartbeat(tags=b"\x02\x09\x02ab\x0a\x00"), 0)
    assert (entity.member_epoch, end) == (5, len(heartbeat(tags=b"\x02\x09\x02ab\x0a\x00")))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(heartbeat()[:-2] + b"\x01" + b"\xff\xff\xff\xff\x0f", id="array of four thousand million topics"),
        pytest.param(heartbeat(tags=b"\x01\x09\xff\xff\xff\xff\x0f"), id="tagged field of four gigabytes"),
        pytest.param(heartbeat()[:-2] + b"\x01" + b"\xff\xff\xff\xff\xff\x0f", id="length of six bytes"),
        pytest.param(bytes(6) + b"\xff\x01abc", id="text longer than the frame"),
        pytest.param(bytes(6) + b"\x03\xff\xfe\x00", id="text that is not UTF-8"),
    ],
)
def test_impossible_lengths_are_refused_before_anything_is_allocated(frame: bytes) -> None:
    """A length is bounded by the bytes that are there."""
    with pytest.raises(MalformedError):
        read_entity(HEARTBEAT, frame, 0)


# ---- what is imported when -------------------------------------------------------------------------------------------


_PROGRAM = """
import sys
from uuid import UUID
from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat, SendJoin, SendSync
from consumer_membership.membership.classic.assignor import MemberSubscription
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.types import GroupProtocol, TopicPartition
from consumer_membership.wire import requests
from consumer_membership.wire.codec import encode, import_layouts
from consumer_membership.wire.consumer_protocol import decode_assignment, encode_assignment
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
import_layouts(GroupProtocol["{protocol}"])
before = set(sys.modules)
calls = [
    requests.api_versions("c", "1"),
    requests.find_coordinator(versions, "g"),
    requests.metadata_of_ids(versions, [UUID(int=1)]),
    requests.offset_fetch(versions, "g", [partition]),
    requests.list_offsets(versions, {{partition: -1}}, read_committed=True),
]
if "{protocol}" == "CONSUMER":
    calls += [requests.consumer_group_heartbeat(versions, "g", beat)]
else:
    calls += [
        requests.join_group(versions, "g", join),
        requests.sync_group(versions, "g", sync),
        requests.classic_heartbeat(versions, "g", classic_beat),
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


_PRINT = r"""
import re, sys
print(*sorted(name for name in sys.modules if re.fullmatch(r"kio\.schema\.\w+\.v\d+\.(request|response)", name)))
"""
_IMPORT = "import consumer_membership.runtime.network.thread"
_SPEAK = """
from consumer_membership.wire.codec import encode
from consumer_membership.wire.requests import metadata_of_names
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
encode(metadata_of_names(BrokerVersions({{Api.METADATA: VersionRange(0, {newest})}}), None), 1, "c")
"""


def loaded(program: str) -> set[str]:
    """The schemas that a process has loaded after this."""
    done = subprocess.run([sys.executable, "-c", program + _PRINT], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def modules(*schemas: str) -> set[str]:
    """The modules of these schemas."""
    return {f"kio.schema.{schema}.{part}" for schema in schemas for part in ("request", "response")}


@pytest.mark.slow
def test_package_loads_what_every_member_needs_and_no_more() -> None:
    """Each of kio's schemas costs 4 to 9 ms."""
    assert loaded(_IMPORT) == modules(*OF_EVERY_MEMBER)


@pytest.mark.slow
@pytest.mark.parametrize(("newest", "version"), [(8, 7), (12, 12), (13, 13)])
def test_request_loads_its_own_version_only(newest: int, version: int) -> None:
    """Other brokers are no reason to load what is not spoken with this one."""
    assert loaded(_SPEAK.format(newest=newest)) == modules(*OF_EVERY_MEMBER, f"metadata.v{version}")
