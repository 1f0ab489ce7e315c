"""The fuzz targets: each target reads one input as the package reads data from other programs.

A target returns for any input. It catches only the errors that the reader documents; every other exception is a defect,
and so are a hang and unbounded memory, which `process` limits. Where a reader has an inverse, the target also checks
that the value survives a round trip.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID
from zlib import crc32

from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka import Message as Record

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.cli.dead_letters import json_of, listed_text, shown_text
from consumer_membership.cli.replay import ReplayOptions, replay
from consumer_membership.cli.timeline import recorded_of
from consumer_membership.errors import AssignmentError, ConfigurationError, TransportError
from consumer_membership.health.report import ConsumerReport, ProcessReport
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    AssignmentFailed,
    AssignorNotified,
    ClassicEffect,
    ComputeAssignment,
    DescribeTopics,
    ExchangeFailed,
    LeaderEffect,
    LeaderEvent,
    NotifyAssignor,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    TopicsDescribed,
)
from consumer_membership.membership.effects import FetchCommitted, FindCoordinator, SendHeartbeat
from consumer_membership.membership.events import (
    CoordinatorFound,
    HeartbeatFailed,
    Polled,
    StartOffsetsFetched,
    Step,
    StepFinished,
    Subscribed,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.observe.timeline import Timeline
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.runtime.guardian.leave_requests import LeaveRequests
from consumer_membership.runtime.probes.connections import ProbeConnection
from consumer_membership.runtime.probes.pages import Pages
from consumer_membership.spark.checkpoint import group_batches, read_checkpoint, rewrite
from consumer_membership.spark.control import ControlServer, MemberReports, Order
from consumer_membership.spark.folders import LocalFolder
from consumer_membership.spark.line import (
    BROKEN,
    AuthenticatedLine,
    Caller,
    LineVersionError,
    Seal,
    Side,
    _Stream,
    admit,
    call,
)
from consumer_membership.spark.mailbox import progress_in
from consumer_membership.spark.source.offsets import read_offsets
from consumer_membership.translation import answers, classic_answers, consumer_protocol, descriptions, metadata, surveys
from consumer_membership.translation.group_records import group_record, is_commit, is_of_group
from consumer_membership.translation.offset_metadata import FinishedOffsets, decode, encode
from consumer_membership.translation.telemetry import TelemetrySession
from consumer_membership.types import BrokerAddress, BrokerError, GroupProtocol, Subscription, TopicPartition
from consumer_membership.wire import codec
from consumer_membership.wire.codec import MalformedError, Message
from consumer_membership.wire.connection import Broken, Connection, ConnectionEvent, Ready
from consumer_membership.wire.sasl import OAuthBearer, Plain, Scram
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.fuzzing.corpus import SEPARATOR
from tests.runtime.probes.watched import health_of
from tests.simulation.simulation import protocols_of
from tests.support.views import view_of

Target: TypeAlias = Callable[[bytes], None]

GROUP = "orders-group"
#: A partition that is requested, but that a response may lack.
ABSENT = TopicPartition("absent", 7)
_NOW = 100.0


# ---- responses of brokers --------------------------------------------------------------------------------------------


def _partitions_of(message: Message) -> list[TopicPartition]:
    topics = getattr(message, "topics", ())
    return [*answers.by_partition(topics), ABSENT]


def _group_of(message: Message) -> str:
    groups = getattr(message, "groups", ())
    return groups[0].group_id if groups else GROUP


def _metadata(message: Message) -> None:
    found = metadata.cluster_metadata(message)
    if isinstance(found, BrokerError):
        return
    for names in (None, frozenset({*found.topics, "absent"})):
        metadata.topics_of(found, names)
        metadata.refused_of(found, names)
    metadata.present_of(found)


def _offset_fetch(message: Message) -> None:
    for group in {GROUP, _group_of(message)}:
        answers.all_committed(message, group)
        found = answers.of_group(message.groups, group) if hasattr(message, "groups") else message
        partitions = [ABSENT] if found is None else _partitions_of(found)
        answers.offset_fetch(message, group, partitions)
        answers.offset_fetch(message, group, partitions[:-1])
        answers.offset_fetch_by_partition(message, group, partitions)


def _telemetry(message: Message) -> None:
    session = TelemetrySession(_NOW, jitter=lambda: 0.5)
    session.due(_NOW)
    session.subscribed(message, _NOW)
    if (at := session.next_deadline()) is not None:
        assert at >= _NOW
        session.due(at)


# Created without the builders of `tests.wire`, because their imports take a second.
_JOIN = SendJoin(
    request_id=7,
    member_id="m",
    instance_id=None,
    session_timeout_s=45.0,
    rebalance_timeout_s=300.0,
    protocols=(("range", MemberSubscription(topics=frozenset({"orders"}))),),
    reason="",
)
_SYNC = SendSync(request_id=8, generation=5, member_id="m", instance_id=None, protocol_name="range")
_BEAT = SendClassicHeartbeat(request_id=9, generation=5, member_id="m", instance_id=None)
_LEAVE = SendClassicLeave(request_id=10, member_id="m", instance_id=None, reason="")

_READ: Mapping[Api, Callable[[Message], object]] = MappingProxyType(
    {
        Api.LIST_OFFSETS: lambda message: metadata.list_offsets(message, _partitions_of(message)),
        Api.METADATA: _metadata,
        Api.OFFSET_COMMIT: lambda message: answers.offset_commit(message, 3, GROUP, _partitions_of(message)),
        Api.OFFSET_FETCH: _offset_fetch,
        Api.FIND_COORDINATOR: lambda message: answers.find_coordinator(
            message, next((one.key for one in getattr(message, "coordinators", ())), GROUP)
        ),
        Api.JOIN_GROUP: lambda message: classic_answers.join_group(message, GROUP, _JOIN),
        Api.HEARTBEAT: lambda message: classic_answers.heartbeat(message, GROUP, _BEAT),
        Api.LEAVE_GROUP: lambda message: classic_answers.leave_group(message, GROUP, _LEAVE),
        Api.SYNC_GROUP: lambda message: classic_answers.sync_group(message, GROUP, _SYNC),
        Api.DESCRIBE_GROUPS: lambda message: descriptions.classic_group_description(message, _group_of(message)),
        Api.LIST_GROUPS: surveys.listed_groups,
        Api.DESCRIBE_CONFIGS: lambda message: (
            surveys.settings(message),
            [answers.group_config(message, name) for name in {one.resource_name for one in message.results}],
        ),
        Api.DESCRIBE_PRODUCERS: surveys.producers,
        Api.DESCRIBE_TRANSACTIONS: surveys.transactions,
        Api.LIST_TRANSACTIONS: surveys.transactional_ids,
        Api.CONSUMER_GROUP_HEARTBEAT: lambda message: answers.consumer_group_heartbeat(message, 1, GROUP, 4),
        Api.CONSUMER_GROUP_DESCRIBE: lambda message: descriptions.consumer_group_description(
            message, _group_of(message)
        ),
        Api.GET_TELEMETRY_SUBSCRIPTIONS: _telemetry,
    }
)


def responses(data: bytes) -> None:
    """Read a broker's response. The input is a byte with the API, a byte with the version, and the frame."""
    if len(data) < 2 or data[0] not in _APIS or data[1] not in SUPPORTED[Api(data[0])]:
        return
    api = Api(data[0])
    try:
        message = codec.decode(api, data[1], data[2:])
    except TransportError:
        return
    if api in _READ:
        _READ[api](message)


_APIS = frozenset(map(int, Api))


def connection(data: bytes) -> None:
    """Read the bytes that a broker sends on a new connection; the first byte selects the SASL mechanism.

    If no request is sent in between, the events do not depend on the sizes of the pieces in which the bytes arrive.
    """
    if not data:
        return
    events = [_events_of(data[0], data[1:], size) for size in (len(data), 1, 7)]
    assert events[0] == events[1] == events[2], events
    _events_of(data[0], data[1:], 1, sends=True)


def _events_of(mechanism: int, stream: bytes, size: int, *, sends: bool = False) -> list[str]:
    mechanisms: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: Plain("alice", "secret"),
        lambda: Scram("SCRAM-SHA-256", "alice", "secret", "nonce"),
        lambda: OAuthBearer("token", {}),
    )
    protocol = Connection(client_id="c", max_frame_bytes=1 << 20, mechanism=mechanisms[mechanism % len(mechanisms)]())
    protocol.start()
    found: list[ConnectionEvent] = []
    for start in range(0, len(stream), size):
        for event in protocol.receive(stream[start : start + size]):
            found.append(event)
            if isinstance(event, Ready) and sends:
                for api in (Api.METADATA, Api.HEARTBEAT):
                    protocol.send(codec.Call(api, SUPPORTED[api][0], _REQUESTS[api]))
    found.extend(protocol.receive_end())
    assert isinstance(found[-1], Broken)
    assert sum(isinstance(event, Broken) for event in found) == 1
    return [str(event) for event in found]


_REQUESTS: Mapping[Api, codec.Fields] = {
    Api.METADATA: {"topics": None, "allow_auto_topic_creation": False},
    Api.HEARTBEAT: {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None},
}


def member(data: bytes) -> None:
    """Pass a sequence of heartbeat responses to a member of the consumer protocol; each response follows its length.

    The length has two bytes. No response makes the core raise, and the member always waits for an event, or for a time
    that is not in the past.
    """
    run = _Member()
    for frame in _pieces(data):
        try:
            message = codec.decode(Api.CONSUMER_GROUP_HEARTBEAT, 1, frame)
        except TransportError:
            run.tell(HeartbeatFailed(request_id=run.request_id, reason="malformed"))
            continue
        run.tell(answers.consumer_group_heartbeat(message, run.request_id, GROUP, 1))
        run.go_on()


class _Member:
    """A member that subscribes to a topic, and an application that finishes every step immediately."""

    def __init__(self) -> None:
        numbers = count(1)
        self._now = _NOW
        self.request_id = 0
        self._member = MemberCore(
            MemberSettings(group_id=GROUP),
            protocols_of(GroupProtocol.CONSUMER),
            new_member_id=lambda: f"member-{next(numbers)}",
            jitter=lambda: 0.25,
        )
        subscription = Subscription(topics=frozenset({"orders"}))
        coordinator = BrokerAddress(node_id=1, host="broker", port=9092)
        self.tell(Subscribed(subscription=subscription), Polled(), CoordinatorFound(coordinator=coordinator))

    def tell(self, *events: GroupEvent) -> None:
        """Handle these events."""
        waiting = deque(events)
        while waiting:
            for effect in self._member.handle(waiting.popleft(), self._now):
                match effect:
                    case SendHeartbeat():
                        self.request_id = effect.request_id
                    case FetchCommitted():
                        waiting.append(_starts(effect))
        self._member.view()

    def go_on(self) -> None:
        """Finish the application's steps, resolve the topic id of the seeds, and advance to the next deadline."""
        attempt = self._member.newest_attempt
        self.tell(TopicIdsResolved(names={TOPIC_ID: "orders"}))
        self.tell(*(StepFinished(attempt=attempt, step=step) for step in Step))
        if (at := self._member.next_deadline()) is not None:
            self._now = max(self._now, at)
        self.tell(TimePassed())
        following = self._member.next_deadline()
        assert following is None or following > self._now, "the member would use all of the CPU"


TOPIC_ID = UUID(int=7)


def classic_member(data: bytes) -> None:
    """Pass a sequence of responses to a member of the classic protocol; each response follows its length (two bytes).

    Each response answers a request of the member: a pending join or sync, or else a pending heartbeat or leave. If the
    member is the leader, its assignor assigns partitions to the subscriptions in the response.
    """
    run = _ClassicMember()
    for frame in _pieces(data):
        run.answer(frame)


class _ClassicMember:
    """A member that subscribes to a topic, and an application that finishes every step immediately."""

    def __init__(self) -> None:
        numbers = count(1)
        self._now = _NOW
        self._requests: list[ClassicEffect] = []
        self._member = MemberCore(
            MemberSettings(group_id=GROUP),
            protocols_of(GroupProtocol.CLASSIC, assignors=_ASSIGNORS),
            new_member_id=lambda: f"member-{next(numbers)}",
            jitter=lambda: 0.25,
        )
        subscription = Subscription(topics=frozenset({"orders"}))
        coordinator = BrokerAddress(node_id=1, host="broker", port=9092)
        self._tell(Subscribed(subscription=subscription), Polled(), CoordinatorFound(coordinator=coordinator))

    def answer(self, frame: bytes) -> None:
        """Answer a pending request with this frame, and finish the application's steps.

        If there is no further request, advance to the next deadline.
        """
        if self._requests:
            order = next((one for one in self._requests if isinstance(one, SendJoin | SendSync)), self._requests[0])
            self._requests.remove(order)
            self._tell(_answer_to(order, frame))
        attempt = self._member.newest_attempt
        self._tell(Polled(), *(StepFinished(attempt=attempt, step=step) for step in Step))
        if not self._requests and (at := self._member.next_deadline()) is not None:
            self._now = max(self._now, at)
            self._tell(TimePassed())
        following = self._member.next_deadline()
        assert following is None or following > self._now, "the member would use all of the CPU"

    def _tell(self, *events: GroupEvent) -> None:
        waiting = deque(events)
        while waiting:
            for effect in self._member.handle(waiting.popleft(), self._now):
                match effect:
                    case SendJoin() | SendSync() | SendClassicHeartbeat() | SendClassicLeave():
                        self._requests.append(effect)
                    case DescribeTopics() | ComputeAssignment() | NotifyAssignor():
                        waiting.append(_lead(effect))
                    case FetchCommitted():
                        waiting.append(_starts(effect))
                    case FindCoordinator():
                        waiting.append(CoordinatorFound(coordinator=BrokerAddress(node_id=1, host="broker", port=9092)))
        self._member.view()


_ASSIGNORS = ("cooperative-sticky", "range", "roundrobin")


def _starts(effect: FetchCommitted) -> StartOffsetsFetched:
    return StartOffsetsFetched(attempt=effect.attempt, offsets=dict.fromkeys(effect.partitions, 0))


def _answer_to(order: ClassicEffect, frame: bytes) -> GroupEvent:
    try:
        match order:
            case SendJoin():
                return classic_answers.join_group(codec.decode(Api.JOIN_GROUP, 9, frame), GROUP, order)
            case SendSync():
                return classic_answers.sync_group(codec.decode(Api.SYNC_GROUP, 5, frame), GROUP, order)
            case SendClassicHeartbeat():
                return classic_answers.heartbeat(codec.decode(Api.HEARTBEAT, 4, frame), GROUP, order)
            case SendClassicLeave():
                return classic_answers.leave_group(codec.decode(Api.LEAVE_GROUP, 5, frame), GROUP, order)
    except TransportError as error:
        return ExchangeFailed(request_id=order.request_id, reason=str(error))


def _lead(effect: LeaderEffect) -> LeaderEvent:
    match effect:
        case DescribeTopics():
            topics = Topics(partitions=dict.fromkeys(effect.topics or {"orders"}, 3))
            return TopicsDescribed(request_id=effect.request_id, topics=topics)
        case ComputeAssignment():
            try:
                checked = assign_checked(BUILT_IN[effect.assignor], effect.topics, effect.members)
            except AssignmentError as error:
                failure = BrokerError(code=-1, name="_FATAL", message=str(error))
                return AssignmentFailed(generation=effect.generation, error=failure)
            return AssignmentComputed(generation=effect.generation, assignments=checked.assignments)
        case NotifyAssignor():
            return AssignorNotified(request_id=effect.request_id)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield the parts of an input. Each part follows two bytes with its length; the last part may be shorter."""
    while data:
        end = 2 + int.from_bytes(data[:2], "big")
        yield data[2:end]
        data = data[end:]


# ---- data of other members and clients -------------------------------------------------------------------------------


def consumer_protocol_blobs(data: bytes) -> None:
    """Read a subscription and an assignment as a leader and a member read them, and as descriptions show them."""
    consumer_protocol.assignment(data)
    consumer_protocol.subscription(data)
    try:
        subscription = consumer_protocol.decode_subscription(data)
    except MalformedError:
        pass
    else:
        written = consumer_protocol.encode_subscription(subscription)
        again = consumer_protocol.decode_subscription(written)
        assert consumer_protocol.encode_subscription(again) == written
    try:
        assigned = consumer_protocol.decode_assignment(data)
    except MalformedError:
        return
    blob = consumer_protocol.encode_assignment(assigned.partitions, assigned.user_data)
    assert consumer_protocol.decode_assignment(blob).partitions == assigned.partitions


def group_records(data: bytes) -> None:
    """Read a record of `__consumer_offsets`. The input is two bytes with the key's length, the key, and any value."""
    key, *rest = _pieces(data) if data else [b""]
    is_of_group(key, GROUP)
    is_commit(key)
    for value in (None, data[2 + len(key) :] if rest else b""):
        with contextlib.suppress(MalformedError):
            group_record(key, value)


def commit_metadata(data: bytes) -> None:
    """Read commit metadata. The input is a byte with a kind, eight bytes with the committed offset, and the text.

    With kind 1, the target adds the prefix, the encoding and the correct checksum to the text.
    """
    committed = int.from_bytes(data[1:9], "big", signed=True)
    text = _with_checksum(data[9:], committed) if data[:1] == b"\x01" else data[9:].decode(errors="surrogateescape")
    found = decode(text, committed)
    if found is None:
        return
    assert found.base == committed
    assert list(found.unfinished) == sorted({*found.unfinished, committed})
    assert found.unfinished[-1] < found.high
    again = encode(found, 2 * len(text) + 100)
    assert decode(again, committed) == found
    offsets = UnfinishedOffsets(committed, found, 4096)
    for offset in (committed, found.unfinished[-1], found.high):
        if offsets.admit(offset) and offsets.start(offset):
            offsets.finish(offset)
    offsets.to_commit()


def _with_checksum(body: bytes, committed: int) -> str:
    checksum = crc32(body, crc32(committed.to_bytes(8, "big", signed=True)))
    return "cm1:" + urlsafe_b64encode(body + checksum.to_bytes(4, "big")).rstrip(b"=").decode()


def metadata_of(finished: FinishedOffsets) -> bytes:
    """Return an input of `commit_metadata` with the metadata that a processor commits."""
    committed = finished.base.to_bytes(8, "big", signed=True)
    return b"\x00" + committed + encode(finished, 4096).encode()


def dead_letters(data: bytes) -> None:
    """Read a dead letter, and format it. The first line of the input is the key; each other line is a header."""
    key, *lines = data.split(b"\n")
    headers: list[tuple[str, str | bytes | None]] = [
        (name.decode(errors="replace"), value.replace(b"\\n", b"\n") if is_there else None)
        for name, is_there, value in (line.partition(b"=") for line in lines)
    ]
    record = Record(
        topic="orders-dlt",
        partition=1,
        offset=5,
        key=key or None,
        value=b"".join(lines),
        headers=headers or None,
        timestamp=(TIMESTAMP_CREATE_TIME, int.from_bytes(key[:8], "big", signed=True)),
    )
    letter = DeadLetter.of(record)
    letter.replayed_headers()
    digest = letter.identity
    assert digest is None or len(digest) == 16
    json.loads(json_of(letter, with_content=True))
    for line in (*listed_text([letter]), *shown_text([letter])):
        line.encode()


# ---- files -----------------------------------------------------------------------------------------------------------


@cache
def _scratch() -> Path:
    """Return a folder for the files of the targets, which is deleted when the process ends."""
    folder = TemporaryDirectory(prefix="fuzzing-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[object] = []


def recordings(data: bytes) -> None:
    """Read a recording as `replay`, `replay --json` or `timeline` does; the checksum of the input selects the command.

    The input is the lines of a recording, or a compressed file.
    """
    path = _scratch() / "input.recording.gz"
    path.write_bytes(data if data.startswith(b"\x1f\x8b") else gzip.compress(data, 1))
    command = crc32(data) % 3
    if command == 0:
        _draw(path)
        return
    options = ReplayOptions(path=path, is_stepwise=True, explains=True, is_json=command == 1)
    assert replay(options, io.StringIO(), io.StringIO()) in (0, 1, 2)


def _draw(path: Path) -> None:
    try:
        member = recorded_of(path, GROUP)
    except ConfigurationError:
        return
    timeline = Timeline(GROUP, 10.0)
    timeline.add_recording(member)
    timeline.page()


#: The files of a checkpoint, by the first byte of a part.
_FILES = ("metadata", "offsets/0", "offsets/1", "offsets/2", "commits/0", "commits/1", "offsets/²", "offsets/x")


def checkpoints(data: bytes) -> None:
    """Read and rewrite a checkpoint's folder. Each part of the input is a byte for a file name, and the file's content.

    Any other first byte means that the part is a source's offset, which Spark passes to `kafka-group` as JSON.
    """
    with TemporaryDirectory(dir=_scratch()) as name:
        folder = LocalFolder(Path(name))
        for part in data.split(SEPARATOR):
            if part[:1] and part[0] < len(_FILES):
                file = Path(name, _FILES[part[0]])
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(part[1:])
            else:
                _read_offsets(part[1:])
        try:
            found = read_checkpoint(folder)
            found.kafka_source(None)
        except ConfigurationError:
            pass
        try:
            batches = group_batches(folder)
        except ConfigurationError:
            return
        for batch in batches:
            rewrite(folder, batch)
        assert group_batches(folder) == []


def _read_offsets(text: bytes) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return  # Spark rejects it
    if not isinstance(found, dict):
        return
    try:
        offsets = read_offsets(found, GROUP)
    except ConfigurationError:
        return
    again = read_offsets(replace(offsets, group=GROUP).as_json(), GROUP)
    assert (again.offsets, again.start, again.topic_ids) == (offsets.offsets, offsets.start, offsets.topic_ids)


# ---- sockets ---------------------------------------------------------------------------------------------------------

_SECRET = "5e" * 32
_NONCES: Mapping[Side, str] = {"driver": "0" * 32, "task": "1" * 32}
_CALLER = Caller(instance=0, attempt=7)
#: No input waits for this time, because the other end is closed.
_HANDSHAKE_S = 5.0


def spark_line(data: bytes) -> None:
    """Read bytes that a peer sends on the Spark control line; the first byte selects the end and the state of the line.

    0 is the driver during the handshake, and 1 the task. 2 is the driver after the handshake, and 3 the task: each line
    of the input is the text of a frame, to which the target adds the correct MAC.
    """
    kind, content = data[:1], data[1:]
    if kind == b"\x00":
        _shake(lambda end: admit(end, _SECRET, _HANDSHAKE_S), content)
    elif kind == b"\x01":
        _shake(lambda end: call(end, _SECRET, _CALLER, _HANDSHAKE_S), content)
    elif kind in (b"\x02", b"\x03"):
        sender: Side = "task" if kind == b"\x02" else "driver"
        seal = Seal(_SECRET, sender, _NONCES)
        frames = b"".join(seal._mac(text) + b" " + text + b"\n" for text in content.split(b"\n"))
        _converse(frames, sender)


def _shake(handshake: Callable[[socket.socket], AuthenticatedLine], content: bytes) -> None:
    end, peer = socket.socketpair()
    with end, peer:
        _send_all(peer, content)
        try:
            handshake(end)
        except (*BROKEN, LineVersionError):
            return
        raise AssertionError("a peer without the secret was accepted")


def _converse(frames: bytes, sender: Side) -> None:
    end, peer = socket.socketpair()
    with end, peer:
        _send_all(peer, frames)
        other: Side = "driver" if sender == "task" else "task"
        line = AuthenticatedLine(_Stream(end), Seal(_SECRET, other, _NONCES), Seal(_SECRET, sender, _NONCES), _CALLER)
        server = _server()
        if sender == "task":
            server._note_attempt(_CALLER)
            server._lines[_CALLER.instance] = line
        try:
            for message in line.received():
                if sender == "task":
                    server._receive_message(_CALLER.instance, line, message)
                    server.progress()
                elif "order" in message:
                    Order(str(message["order"]))
        except BROKEN:
            pass
        server._failures.clear()
        server._lines.clear()
    server.progress()


def _send_all(peer: socket.socket, content: bytes) -> None:
    """Send as many bytes as fit into the buffer of the socket, and close this direction."""
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        peer.sendall(content)
    peer.shutdown(socket.SHUT_WR)


@cache
def _server() -> ControlServer:
    return ControlServer("127.0.0.1", "127.0.0.1")


def spark_mailbox(data: bytes) -> None:
    """Read a task's message to a Spark Connect client, which receives it as the metadata of an offset."""
    try:
        message = json.loads(data)
        report = progress_in(message) if message["run"] == "run" else None
    except (RuntimeError, ValueError, KeyError, TypeError):
        return
    if report is not None:
        reports = MemberReports()
        reports.note(report, _NOW)
        for now in (_NOW, _NOW + 1e6):
            reports.shown(now)


def probe_requests(data: bytes) -> None:
    """Read and answer a probe's request, which arrives in two pieces; the first byte is the size of the first piece."""
    first, second = data[1 : 1 + data[0]] if data else b"", data[1 + data[0] :] if data else b""
    end, peer = socket.socketpair()
    with end, peer:
        end.setblocking(False)
        peer.setblocking(False)
        connection = ProbeConnection(end, "peer", Pages(_report, lambda: (b"metrics", "text/plain")).answer, _NOW)
        is_open = True
        for piece in (first, second):
            if piece:
                _send_what_fits(peer, piece)
            for _ in range(4):
                is_open = is_open and connection.go_on(_NOW)
        connection.give_up()
        try:
            answer = peer.recv(1 << 16)
        except BlockingIOError:
            return
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer
    assert b" 500 " not in answer.partition(b"\r\n")[0], answer


def _send_what_fits(peer: socket.socket, content: bytes) -> None:
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        peer.sendall(content)


def _report() -> ProcessReport:
    consumer = ConsumerReport(
        client_id="client",
        view=view_of(MemberState.STABLE, group_id=GROUP),
        health=health_of(HealthVerdict.IDLE),
    )
    return ProcessReport(process=1, at=_NOW, written_at=1_000_000.0, consumers=(consumer,))


def guardian_lines(data: bytes) -> None:
    """Read the lines of an application's pipe to its guardian; invalid lines are skipped."""
    requests = LeaveRequests()
    half = len(data) // 2
    requests.take(data[:half])
    requests.take(data[half:])
    assert isinstance(requests.standing, tuple)


#: Every target by its name, which is also the name of its folder in the corpus.
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "responses": responses,
        "connection": connection,
        "member": member,
        "classic-member": classic_member,
        "consumer-protocol": consumer_protocol_blobs,
        "group-records": group_records,
        "commit-metadata": commit_metadata,
        "dead-letters": dead_letters,
        "recordings": recordings,
        "checkpoints": checkpoints,
        "spark-line": spark_line,
        "spark-mailbox": spark_mailbox,
        "probe-requests": probe_requests,
        "guardian-lines": guardian_lines,
    }
)
