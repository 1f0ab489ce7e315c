"""Wait until a broker is ready: it responds, all nodes are registered, and groups can find their coordinator.

An open port is not enough. On a new broker, the topic __consumer_offsets does not exist. The first FindCoordinator
request creates it, and until its partitions have leaders and are loaded, group requests fail with NOT_COORDINATOR or
COORDINATOR_LOAD_IN_PROGRESS. To exclude this, one group id for each partition of the topic is described; describing a
group that does not exist does not create it.

The requests to coordinators are encoded here, because this package must not import `wire`, and because librdkafka's
admin client aborts the process (an assertion in librdkafka 2.16) if the offsets topic does not exist yet or the
coordinator's node ends, which is typical while a broker starts.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from consumer_membership.devbroker.errors import BrokerUnavailableError

_Answer = TypeVar("_Answer")

MINOR_LINES: Mapping[int, str] = {21: "3.9", 25: "4.0", 27: "4.1", 29: "4.2", 30: "4.3", 33: "4.4"}
"""The minor Kafka version by its highest metadata.version (MetadataVersion.java)."""

_FIND_COORDINATOR, _DESCRIBE_GROUPS, _API_VERSIONS = 10, 15, 18
_SUPPORTED_FEATURES_TAG = 0
_VARINT_MORE = 0x80
_NO_TAGS = b"\0"

_PORT_POLL_S = 0.02
_REQUEST_POLL_S = 0.05
_REQUEST_TIMEOUT_S = 2.0
_OFFSETS_TOPIC = "__consumer_offsets"
_COORDINATOR_ANSWERED = frozenset({KafkaError.NO_ERROR, KafkaError.GROUP_AUTHORIZATION_FAILED})

# librdkafka logs every refused connection to stderr, and these are expected while a broker starts.
_silent = logging.getLogger(f"{__name__}.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class _NotReadyError(Exception):
    """The broker is not ready yet; the message is used in the final error."""


def admin_client(bootstrap_servers: str, login: Mapping[str, str] = MappingProxyType({})) -> AdminClient:
    """Return an admin client without logs and with short backoffs; keep it as long as its futures.

    `login` has the properties for a secured listener.
    """
    patience = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}
    return AdminClient({"bootstrap.servers": bootstrap_servers, **patience, **login}, logger=_silent)


def await_ready(
    bootstrap_servers: str,
    *,
    nodes: Sequence[str],
    secured: Sequence[str] = (),
    check: Callable[[], None],
    timeout_s: float,
) -> None:
    """Wait until the broker is ready.

    `nodes` has host:port of each required node and is empty for an existing broker; `secured` has the addresses of the
    secured listeners. `check` is called between attempts and raises if waiting is useless, for example because a
    process has ended. `timeout_s` applies to each of: the ports, the registration, the coordinator.

    Raises:
        BrokerUnavailableError: The broker was not ready within the timeout.
    """

    def persist(act: Callable[[], None], every_s: float = _REQUEST_POLL_S) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type(_NotReadyError),
            wait=wait_fixed(every_s),
            stop=stop_after_delay(timeout_s),
            before=lambda _: check(),
            reraise=True,
        )
        try:
            retrying(act)
        except _NotReadyError as error:
            raise BrokerUnavailableError(f"the broker was not ready after {timeout_s:.0f} s: {error}") from error

    # Plain connections are faster than librdkafka, which has a backoff after each refused connection.
    for address in (*nodes, *secured):
        persist(partial(_connect, address), _PORT_POLL_S)
    admin = admin_client(bootstrap_servers)
    persist(lambda: _registered(admin, max(1, len(nodes))))
    # The first call creates the topic, whose partitions the second call needs.
    persist(lambda: _coordinated(bootstrap_servers, 1))
    persist(lambda: _coordinated(bootstrap_servers, _coordinators(admin)))


def count_brokers(bootstrap_servers: str, timeout_s: float) -> int:
    """Return the number of brokers in a cluster, with one request.

    Raises:
        BrokerUnavailableError: The cluster does not respond in time.
    """
    try:
        return len(admin_client(bootstrap_servers).list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        raise BrokerUnavailableError(f"no broker responds at {bootstrap_servers}: {error}") from error


def _connect(address: str) -> None:
    try:
        with Probe(address, _REQUEST_TIMEOUT_S):
            pass
    except ProbeError as error:
        raise _NotReadyError(str(error)) from error


def _metadata(admin: AdminClient, topic: str | None = None) -> ClusterMetadata:
    try:
        return admin.list_topics(topic, timeout=_REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise _NotReadyError(f"metadata request: {error}") from error


def _registered(admin: AdminClient, brokers: int) -> None:
    registered = _metadata(admin).brokers
    if len(registered) < brokers:
        raise _NotReadyError(f"{len(registered)} of {brokers} nodes are registered")


def probe_groups(coordinators: int) -> list[str]:
    """Return one group id for each partition of the offsets topic.

    A group's partition is the Java hash code of its id modulo the number of partitions. Ids with consecutive last
    characters have consecutive hash codes, so that they cover all partitions.
    """
    return [f"devbroker-{chr(ord('0') + offset)}" for offset in range(coordinators)]


def _coordinated(bootstrap_servers: str, coordinators: int) -> None:
    groups_at = defaultdict[str, list[str]](list)
    try:
        with _first_probe(bootstrap_servers) as probe:
            for group_id in probe_groups(coordinators):
                code, address = probe.find_coordinator(group_id)
                _require_answer(f"looking for the coordinator of group {group_id}", code)
                groups_at[address].append(group_id)
        for address, group_ids in groups_at.items():
            with Probe(address, _REQUEST_TIMEOUT_S) as probe:
                for group_id in group_ids:
                    _require_answer(f"the coordinator {address} of group {group_id}", probe.describe_group(group_id))
    except ProbeError as error:
        raise _NotReadyError(str(error)) from error


def _first_probe(bootstrap_servers: str) -> Probe:
    """Connect to the first address that accepts a connection."""
    refused: list[str] = []
    for address in bootstrap_servers.split(","):
        try:
            return Probe(address.strip(), _REQUEST_TIMEOUT_S)
        except ProbeError as error:
            refused.append(str(error))
    raise ProbeError("; ".join(refused))


def _require_answer(act: str, code: int) -> None:
    if code not in _COORDINATOR_ANSWERED:
        raise _NotReadyError(f"{act}: error {KafkaError(code).name()}")


def _coordinators(admin: AdminClient) -> int:
    """Return the number of partitions of the offsets topic, if all have a leader."""
    topic = _metadata(admin, _OFFSETS_TOPIC).topics[_OFFSETS_TOPIC]
    if topic.error is not None or any(partition.leader < 0 for partition in topic.partitions.values()):
        raise _NotReadyError(f"{_OFFSETS_TOPIC} has partitions without a leader")
    return len(topic.partitions)


class ProbeError(Exception):
    """The server does not respond, or not like a Kafka broker."""


class Probe:
    """A plaintext connection to the broker at host:port; a context manager that closes it.

    Raises:
        ProbeError: The connection failed. Methods raise it if the server does not respond like a Kafka broker.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise ProbeError(f"{address} accepts no connection: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def supported_features(self) -> dict[str, int]:
        """Return the highest supported level of each feature of the broker (KIP-584)."""
        # Version 3 is the first with features. The request is flexible, but the response header is not.
        software = b"".join(bytes([len(text) + 1]) + text for text in (b"devbroker", b"1"))
        return self._request(_API_VERSIONS, 3, _NO_TAGS + software + _NO_TAGS, _read_features)

    def find_coordinator(self, group_id: str) -> tuple[int, str]:
        """Return the error code (0: none) and host:port of a group's coordinator; may create the offsets topic."""
        group_type = b"\0"
        return self._request(_FIND_COORDINATOR, 2, _string(group_id) + group_type, _read_coordinator)

    def describe_group(self, group_id: str) -> int:
        """Return the error code of the coordinator's description, which is 0 also for a group that does not exist.

        The request does not create the group.
        """
        return self._request(_DESCRIBE_GROUPS, 0, struct.pack(">i", 1) + _string(group_id), _read_description)

    def _request(self, api_key: int, version: int, body: bytes, read: Callable[[_AnswerReader], _Answer]) -> _Answer:
        no_client_id = -1
        frame = struct.pack(">hhih", api_key, version, 1, no_client_id) + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            reader = _AnswerReader(self._receive(_AnswerReader(self._receive(4)).number(4)))
            reader.take(4)  # correlation id
            return read(reader)
        except (OSError, ValueError) as error:
            raise ProbeError(f"{self._address} does not respond like a Kafka broker: {error}") from error

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ValueError("the connection was closed in the middle of the response")
            received += chunk
        return bytes(received)


class _AnswerReader:
    """Reads Kafka's encoding from bytes; raises ValueError if they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"the response ends before byte {self._at + size}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self) -> int:
        """Read an unsigned number with seven bits per byte."""
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & ~_VARINT_MORE) << shift
            shift += 7
            if not byte & _VARINT_MORE:
                return value

    def string(self) -> str:
        """Read a string with its length in two bytes; null is an empty string."""
        return self.take(max(0, self.number(2))).decode()

    def tags(self) -> Iterator[tuple[int, _AnswerReader]]:
        """Yield the tag and the value of each tagged field."""
        for _ in range(self.varint()):
            yield self.varint(), _AnswerReader(self.take(self.varint()))


def minor_line(address: str, timeout_s: float) -> str:
    """Return the minor version of the broker at host:port, such as "4.3", or "unknown".

    Kafka has no request for its version, but each minor version has its own metadata.version.

    Raises:
        BrokerUnavailableError: The server does not respond, or not like a Kafka broker.
    """
    try:
        with Probe(address, timeout_s) as probe:
            level = probe.supported_features().get("metadata.version", 0)
    except ProbeError as error:
        raise BrokerUnavailableError(str(error)) from error
    return MINOR_LINES.get(level, "unknown")


def _read_features(reader: _AnswerReader) -> dict[str, int]:
    """Return the features in an ApiVersions response of version 3."""
    code = reader.number(2)
    if code != 0:
        raise ValueError(f"ApiVersions error code {code}")
    for _ in range(reader.varint() - 1):
        reader.take(6)  # key, lowest and highest version
        list(reader.tags())
    reader.take(4)  # throttle time
    features: dict[str, int] = {}
    for tag, field in reader.tags():
        for _ in range(field.varint() - 1 if tag == _SUPPORTED_FEATURES_TAG else 0):
            name = field.take(field.varint() - 1).decode()
            field.take(2)  # lowest level
            features[name] = field.number(2)
            list(field.tags())
    return features


def _read_coordinator(reader: _AnswerReader) -> tuple[int, str]:
    reader.take(4)  # throttle time
    code = reader.number(2)
    reader.string()  # error message
    reader.take(4)  # node id
    host = reader.string()
    return code, f"{host}:{reader.number(4)}"


def _read_description(reader: _AnswerReader) -> int:
    reader.take(4)  # the number of groups, which is 1
    return reader.number(2)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
