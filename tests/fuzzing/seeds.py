"""Write the corpus from real messages: `python -m tests.fuzzing.seeds`.

Responses come from the golden frames of brokers, recordings from a member and from simulated groups, and the other
inputs from the package's own writers. Inputs that showed a defect (`found-*`) are kept.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka import Message as Record
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.errors import TransportError
from consumer_membership.membership.events import Polled
from consumer_membership.processing.dead_letter_headers import RawHeader, headers_of
from consumer_membership.recorder.recording import lines_of
from consumer_membership.runtime.guardian.leave_requests import LeaveRequest, line_of
from consumer_membership.spark.line import Seal, _introduced
from consumer_membership.spark.source.offsets import StreamOffsets
from consumer_membership.translation import consumer_protocol
from consumer_membership.translation import group_records as records
from consumer_membership.translation.offset_metadata import FinishedOffsets
from consumer_membership.types import TopicIdPartition, TopicPartition
from consumer_membership.wire.codec import Fields, decode, write_data
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import Table
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.fuzzing.corpus import FOLDER, FOUND, SEPARATOR
from tests.fuzzing.targets import _CALLER, _NONCES, _SECRET, GROUP, TARGETS, TOPIC_ID, metadata_of
from tests.recorder.members import Recorded, simulated
from tests.spark.recorders import progress
from tests.support.kio_entities import some_entity, written
from tests.support.scripted_broker import frame
from tests.wire.classic import classic_heartbeat_answer, join_answer, sync_answer
from tests.wire.frames import heartbeat_answer, versions_answer
from tests.wire.golden_frames import ANSWER, golden, header_version
from tests.wire.scram import Server

#: Larger inputs make the fuzzer slow.
MOST_BYTES = 4096
_A, _B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield the target, the name and the content of each input."""
    sources = {
        "responses": _responses(),
        "connection": _connections(),
        "member": _members(),
        "classic-member": _classic_members(),
        "consumer-protocol": _consumer_protocol(),
        "group-records": _group_records(),
        "commit-metadata": _commit_metadata(),
        "dead-letters": _dead_letters(),
        "recordings": _recordings(),
        "checkpoints": _checkpoints(),
        "spark-line": _spark_lines(),
        "spark-mailbox": _spark_mailbox(),
        "probe-requests": _probe_requests(),
        "guardian-lines": _guardian_lines(),
    }
    assert sources.keys() == TARGETS.keys()
    for target, inputs in sources.items():
        for name, content in inputs:
            yield target, name, content


def _responses() -> Iterator[tuple[str, bytes]]:
    shortest: dict[tuple[Api, int], bytes] = {}
    for one in golden():
        if one.direction == ANSWER and one.version in SUPPORTED[one.api]:
            place = (one.api, one.version)
            shortest[place] = min(shortest.get(place, one.data), one.data, key=len)
    chance = Random(0)  # noqa: S311 - no secret
    for api, versions in SUPPORTED.items():
        for version in versions:
            name = f"{api.name.lower().replace('_', '-')}-v{version}"
            if (api, version) in shortest:
                yield name, bytes([api, version]) + shortest[api, version]
            layout = getattr(
                import_module(f"kio.schema.{api.name.lower()}.v{version}"), f"{api.title}Response", None
            ) or getattr(import_module(f"kio.schema.{api.name.lower()}.v{version}"), LAYOUTS[api][1].name)
            header = bytes(5 if header_version(api, version, ANSWER) else 4)
            yield f"{name}-random", bytes([api, version]) + header + _decodable(layout, api, version, header, chance)


def _decodable(layout: type, api: Api, version: int, header: bytes, chance: Random) -> bytes:
    """Return a random response that can be decoded; if possible, it has elements and no error."""
    found = b""
    for _ in range(50):
        content = written(some_entity(layout, chance))
        try:
            message = decode(api, version, header + content)
        except TransportError:
            continue
        if len(content) > MOST_BYTES // 4:
            continue
        found = content
        if getattr(message, "error_code", 0) == 0 and len(content) > 50:
            break
    return found


def _connections() -> Iterator[tuple[str, bytes]]:
    def authenticated(number: int, challenge: bytes) -> bytes:
        entity = SaslAuthenticateResponse(
            error_code=ErrorCode.none,
            error_message=None,
            auth_bytes=challenge,
            session_lifetime=timedelta(seconds=60),
        )
        return frame(entity, number)

    def shaken(mechanism: str) -> bytes:
        return frame(SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=(mechanism,)), 1)

    yield "ready", b"\x00" + versions_answer()
    old = versions_answer(version=0, code=ErrorCode.unsupported_version)
    yield "oldest", b"\x00" + old + versions_answer(1, version=0)
    yield "http", b"\x00HTTP/1.1 400 Bad Request\r\n\r\n"
    yield "tls", b"\x00\x15\x03\x03\x00\x02\x02\x46"
    yield "plain", b"\x01" + versions_answer() + shaken("PLAIN") + authenticated(2, b"")
    server = Server("SCRAM-SHA-256", "secret", b"salt")
    first = server.first(b"n,,n=alice,r=nonce", b"-of-the-broker")
    yield (
        "scram",
        b"\x02" + versions_answer() + shaken("SCRAM-SHA-256") + authenticated(2, first) + authenticated(3, b"e=other"),
    )
    signature = b"v=" + b64encode(bytes(32))
    yield (
        "scram-signature",
        b"\x02" + versions_answer() + shaken("SCRAM-SHA-256") + authenticated(2, first) + authenticated(3, signature),
    )
    yield "oauth", b"\x03" + versions_answer() + shaken("OAUTHBEARER") + authenticated(2, b'{"status":"invalid_token"}')
    yield "oauth-accepted", b"\x03" + versions_answer() + shaken("OAUTHBEARER") + authenticated(2, b"")


def _members() -> Iterator[tuple[str, bytes]]:
    def sequence(*answers: object) -> bytes:
        frames = (bytes(5) + written(answer) for answer in answers)
        return b"".join(len(one).to_bytes(2, "big") + one for one in frames)

    joined = heartbeat_answer(epoch=1, assigned={TOPIC_ID: (0, 1)})
    yield "joins", sequence(joined, heartbeat_answer(epoch=1))
    yield "revokes", sequence(joined, heartbeat_answer(epoch=2, assigned={TOPIC_ID: (0,)}), heartbeat_answer(epoch=2))
    yield "unknown-topic", sequence(heartbeat_answer(epoch=1, assigned={type(TOPIC_ID)(int=8): (0,)}))
    for code in (ErrorCode.fenced_member_epoch, ErrorCode.unreleased_instance_id, ErrorCode.group_max_size_reached):
        yield f"error-{code.value}", sequence(joined, heartbeat_answer(code=code.value, message="no"), joined)
    yield "malformed", sequence(joined) + b"\x00\x03abc" + sequence(joined)


def _classic_members() -> Iterator[tuple[str, bytes]]:
    def sequence(*answers: object) -> bytes:
        # The headers of all four kinds of responses have tagged fields; Heartbeat has them from version 4 on.
        frames = (bytes(5) + written(answer) for answer in answers)
        return b"".join(len(one).to_bytes(2, "big") + one for one in frames)

    name = "cooperative-sticky"
    blob = consumer_protocol.encode_subscription(MemberSubscription(topics=frozenset({"orders"})))
    other = consumer_protocol.encode_subscription(
        MemberSubscription(topics=frozenset({"orders"}), owned=frozenset({_A, _B}), generation=4)
    )
    required = join_answer(code=ErrorCode.member_id_required.value)
    leads = join_answer(protocol_name=name, members={"m": blob, "n": ("i", other)})
    follows = join_answer(protocol_name=name, leader="n")
    synced = sync_answer(protocol_name=name, assignment=consumer_protocol.encode_assignment([_A]))
    yield "leads", sequence(required, leads, synced, classic_heartbeat_answer())
    yield (
        "follows",
        sequence(
            required,
            follows,
            synced,
            classic_heartbeat_answer(),
            classic_heartbeat_answer(ErrorCode.rebalance_in_progress.value),
        ),
    )
    yield (
        "rejoins",
        sequence(
            follows, synced, classic_heartbeat_answer(27), leads, synced, classic_heartbeat_answer(22), follows, synced
        ),
    )
    yield "malformed-subscription", sequence(join_answer(protocol_name=name, members={"m": blob, "n": b"\x00"}), synced)
    yield "malformed-assignment", sequence(follows, sync_answer(protocol_name=name, assignment=b"\x00\x01\x7f"))


def _consumer_protocol() -> Iterator[tuple[str, bytes]]:
    subscription = MemberSubscription(
        topics=frozenset({"orders", "payments"}),
        owned=frozenset({_A, _B}),
        generation=4,
        rack_id="rack",
        user_data=b"x",
    )
    for version in range(consumer_protocol.NEWEST_VERSION + 1):
        yield f"subscription-v{version}", consumer_protocol.encode_subscription(subscription, version)
    yield "assignment", consumer_protocol.encode_assignment([_A, _B], b"user data")
    yield "assignment-v0", consumer_protocol.encode_assignment([_A], None, 0)


def _group_records() -> Iterator[tuple[str, bytes]]:
    def record(key: bytes, value: bytes) -> bytes:
        return len(key).to_bytes(2, "big") + key + value

    def part(number: int, table: Table, version: int, values: Fields) -> bytes:
        return number.to_bytes(2, "big") + write_data(table, version, values)

    blob = consumer_protocol.encode_subscription(MemberSubscription(topics=frozenset({"orders"})))
    whose = {"group": GROUP, "group_id": GROUP, "member_id": "m", "topic": "orders", "partition": 3}
    topics = [{"topic_id": TOPIC_ID, "partitions": (0, 1), "assignment_epochs": (1, 1)}]
    classic = {
        "member_id": "m",
        "group_instance_id": "i",
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 1,
        "session_timeout": 1,
        "subscription": blob,
        "assignment": consumer_protocol.encode_assignment([_A]),
    }
    values = {
        "offset": 9,
        "leader_epoch": 4,
        "metadata": "m",
        "commit_timestamp": 1,
        "expire_timestamp": 1,
        "topic_id": TOPIC_ID,
        "protocol_type": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": 1,
        "members": [classic],
        "epoch": 4,
        "metadata_hash": 5,
        "instance_id": "i",
        "rack_id": None,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ("orders",),
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 1,
        "server_assignor": None,
        "classic_member_metadata": {
            "session_timeout_ms": 1,
            "supported_protocols": [{"name": "range", "metadata": blob}],
        },
        "assignment_epoch": 4,
        "assignment_timestamp": 1,
        "topic_partitions": topics,
        "member_epoch": 4,
        "previous_member_epoch": 3,
        "state": 0,
        "assigned_partitions": topics,
        "partitions_pending_revocation": topics,
    }
    tables = list(records.TABLES)
    for (number, key, _), (_, value, newest) in zip(tables[::2], tables[1::2], strict=True):
        for version in {0, newest}:
            content = record(part(number, key, 0, whose), part(version, value, version, values))
            yield f"kind-{number}-v{version}", content


def _commit_metadata() -> Iterator[tuple[str, bytes]]:
    few = FinishedOffsets(base=1000, high=5000, unfinished=(1000, 1700, 4000), leader_epoch=3)
    yield "varints", metadata_of(few)
    yield "bitmap", metadata_of(FinishedOffsets(base=7, high=40, unfinished=tuple(range(7, 39, 2))))
    yield "foreign", b"\x00" + bytes(8) + b"another program's"
    for form, body in {
        "varints": b"\x00\x00\x00\x00\x03\x05\x81\x01\x02",
        "bitmap": b"\x01\xff\xff\xff\xff\xaa\x55\x01",
    }.items():
        yield f"{form}-body", b"\x01" + (1000).to_bytes(8, "big") + body


def _dead_letters() -> Iterator[tuple[str, bytes]]:
    def lines(headers: tuple[RawHeader, ...]) -> bytes:
        parts = (
            name.encode() + (b"" if value is None else b"=" + bytes(value).replace(b"\n", b"\\n"))
            for name, value in headers
        )
        return b"\n".join((b"\x00\x00\x01\x8b\xcf\xe5\x68\x00", *parts))

    original: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("empty", None)]
    record = Record(
        topic="orders",
        partition=258,
        offset=1 << 33,
        key=b"key",
        value=b"value",
        headers=original,
        timestamp=(TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
    )
    headers = headers_of(record, ValueError("no funds"), 3, GROUP, most_bytes=1_000_000)
    yield "both-styles", lines(headers)
    yield "connect", lines(tuple(one for one in headers if one[0].startswith("__connect")))
    yield "replayed", lines((("consumer-membership-replays", b"2"), ("trace", b"1")))
    yield "no-headers", b"key"


def _recordings() -> Iterator[tuple[str, bytes]]:
    member = Recorded()
    member.join()
    member.answer(frozenset({TopicIdPartition(TOPIC_ID, 0)}))
    member.tell(Polled())
    yield "member", b"\n".join(lines_of(member.recorder.contents(), "a test", member.now))
    with TemporaryDirectory() as folder:
        path = Path(folder, "r.gz")
        member.written(path)
        yield "compressed", path.read_bytes()
    small = Recorded(segment_weight=200)
    small.join()
    for _ in range(3):
        small.answer(None)
    yield "checkpoint", b"\n".join(lines_of(small.recorder.contents(), "a test", small.now))
    for profile in ("classic", "static"):
        found = [
            b"\n".join(lines_of(one.contents(), "a test", _NOW))
            for one in _simulated(profile)
            if one.contents().entries
        ]
        shortest = min(found, key=len, default=b"")
        if shortest:
            yield profile, shortest


_NOW = 1e6


def _simulated(profile: str) -> list:  # type: ignore[type-arg]
    from tests.simulation.profiles import PROFILES  # noqa: PLC0415

    return simulated(profile, 1, segment_weight=2000) if profile in PROFILES else []


def _checkpoints() -> Iterator[tuple[str, bytes]]:
    batch, done, query = b'v1\n{"batchWatermarkMs":0}\n', b'v1\n{"nextBatchWatermarkMs":0}', b'{"id":"1234"}'
    ours = StreamOffsets(
        offsets={("orders", 0): 17, ("orders", 1): 5},
        group=GROUP,
        start={("orders", 0): 3},
        topic_ids={"orders": str(TOPIC_ID)},
    )
    own = json.dumps(ours.as_json()).encode()
    kafka = b'{"orders":{"0":1,"1":2}}'

    def folder(files: Mapping[int, bytes]) -> bytes:
        return SEPARATOR.join(bytes([number]) + content for number, content in files.items())

    yield "kafka", folder({0: query, 1: batch + kafka, 4: done})
    yield "group", folder({0: query, 1: batch + own, 2: batch + own, 4: done})
    yield "mixed", folder({0: query, 1: batch + kafka + b"\n-\n" + own + b"\n42", 4: done})
    yield "planned", folder({0: query, 1: batch + own})
    yield "incomplete", folder({0: query, 5: done, 1: batch + own})
    yield "offsets-of-the-source", b"\xff" + own
    yield "offsets-of-spark", b"\xff" + kafka


def _spark_lines() -> Iterator[tuple[str, bytes]]:
    hello = _introduced(_NONCES["task"])
    sealed = Seal(_SECRET, "task", _NONCES).sealed({"instance": 0, "attempt": 7})
    yield "admit", b"\x00" + hello + sealed + b"\n"
    yield "call", b"\x01" + _introduced(_NONCES["driver"]) + b"0" * 64 + b' {"welcome": 0}\n'
    report = json.dumps({"progress": asdict(progress(0, 7, 10))}).encode()
    failure = json.dumps({"failed": {"kind": "ValueError", "text": "no"}}).encode()
    yield "reports", b"\x02" + report + b"\n" + failure
    yield "orders", b'\x03{"order": "stop"}\n{"order": "superseded"}'
    assert _CALLER.attempt == 7


def _spark_mailbox() -> Iterator[tuple[str, bytes]]:
    yield "report", json.dumps({"run": "run", "progress": asdict(progress(0, 7, 10))}).encode()
    yield "other-run", json.dumps({"run": "earlier", "progress": {}}).encode()


def _probe_requests() -> Iterator[tuple[str, bytes]]:
    requests = {
        "kubelet": b"GET /livez HTTP/1.1\r\nHost: 10.0.0.7:8080\r\nUser-Agent: kube-probe/1.33\r\nAccept: */*\r\n\r\n",
        "prometheus": b"GET /metrics HTTP/1.1\r\nHost: orders:8080\r\nAccept: text/plain;version=1.0.0;q=0.5\r\n\r\n",
        "json": b"GET /readyz?verbose HTTP/1.1\r\nAccept: text/html;q=0, application/json;q=0.9\r\n\r\n",
        "browser": b"GET /health HTTP/1.1\r\nHost: example.com\r\nOrigin: http://example.com\r\nReferer: /\r\n\r\n",
        "head": b"HEAD http://localhost:8080/livez#x HTTP/1.0\n\n",
        "post": b"POST /livez HTTP/1.1\r\n\r\n",
        "http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "tls": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    }
    for name, request in requests.items():
        yield name, b"\xff" + request
    yield "two-pieces", b"\x09" + requests["kubelet"]


def _guardian_lines() -> Iterator[tuple[str, bytes]]:
    request = LeaveRequest(
        group_id=GROUP,
        member_id="m",
        instance_id=None,
        member_epoch=5,
        coordinator=("127.0.0.1", 9092),
        bootstrap_servers=(("127.0.0.1", 9092),),
        address_family=2,
        client_id="c",
        tls=None,
        sasl=None,
        hello=b"\x00\x01",
        leave={0: b"\x02"},
        find_coordinator={3: b"\x03"},
    )
    yield "request", line_of(1, request)
    yield "released", line_of(1, request) + line_of(1, None)
    yield "cut", line_of(1, request) + line_of(2, request)[:-40]


def main() -> int:
    """Write the corpus, and keep the inputs that showed a defect."""
    for old in FOLDER.glob("*/*"):
        if not old.name.startswith(FOUND):
            old.unlink()
    for target, name, content in seeds():
        path = FOLDER / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
