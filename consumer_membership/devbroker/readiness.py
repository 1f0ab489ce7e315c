"""When a broker is ready: it answers, all its nodes are registered, and a group can find its coordinator.

An open port is not enough. On a fresh broker the topic __consumer_offsets does not exist; the first FindCoordinator
makes the broker create it, and until its partitions are led and loaded every group request is answered
NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS. Whoever waits here never meets that, since each partition of the topic
is the coordinator of some groups, and all of them are asked to describe groups that do not exist, which creates none.

The questions to coordinators are written out by hand, because this room may not know the package's wire, and
librdkafka's admin client aborts the whole process on them (an assertion in librdkafka 2.16) when the topic of the
offsets is not there yet or the coordinator's node goes away, which is just when readiness is asked for.
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
"""The highest metadata.version of each minor line (MetadataVersion.java)."""

_FIND_COORDINATOR, _DESCRIBE_GROUPS, _API_VERSIONS = 10, 15, 18
_SUPPORTED_FEATURES_TAG = 0
_VARINT_MORE = 0x80
_NO_TAGS = b"\0"

_PORT_POLL_S = 0.02
_REQUEST_POLL_S = 0.05
_REQUEST_TIMEOUT_S = 2.0
_OFFSETS_TOPIC = "__consumer_offsets"
_COORDINATOR_ANSWERED = frozenset({KafkaError.NO_ERROR, KafkaError.GROUP_AUTHORIZATION_FAILED})

# librdkafka tells stderr about every refused connection, and waiting for a broker is made of refused connections.
_silent = logging.getLogger(f"{__name__}.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class _NotReadyError(Exception):
    """Not yet; the text says what is missing, and becomes the error's if it stays so."""


def admin_client(bootstrap_servers: str, login: Mapping[str, str] = MappingProxyType({})) -> AdminClient:
    """A quiet and impatient admin client; the caller keeps it as long as its futures.

    `login` holds the properties of a listener that is not plaintext.
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
    """Return as soon as the broker is ready.

    `nodes` has host:port of each node that must be there, and is empty for a broker that is not ours; `secured` those
    of the further listeners. `check` is called between attempts and raises where waiting is in vain, say because a
    process has died. `timeout_s` bounds each of: the ports, the registration, the coordinator.

    Raises:
        BrokerUnavailableError: Something was still missing at the end of that time.
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

    # A refused connection tells sooner than librdkafka, which backs off after each.
    for address in (*nodes, *secured):
        persist(partial(_connect, address), _PORT_POLL_S)
    admin = admin_client(bootstrap_servers)
    persist(lambda: _registered(admin, max(1, len(nodes))))
    # The first question makes the topic, whose partitions the second one needs.
    persist(lambda: _coordinated(bootstrap_servers, 1))
    persist(lambda: _coordinated(bootstrap_servers, _coordinators(admin)))


def count_brokers(bootstrap_servers: str, timeout_s: float) -> int:
    """How many brokers a cluster has; asked once.

    Raises:
        BrokerUnavailableError: It does not answer in time.
    """
    try:
        return len(admin_client(bootstrap_servers).list_topics(timeout=timeout_s).brokers)
    except KafkaException as error:
        raise BrokerUnavailableError(f"no broker answers at {bootstrap_servers}: {error}") from error


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
    """One group id for each partition of the offsets topic.

    A group's partition is its id's Java hash code modulo their number; ids whose last letters are neighbours
    have hash codes that are neighbours, so that many ids fall on that many partitions.
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
    """To the first of them that listens."""
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
    """How many partitions the offsets topic has, all of them with a leader."""
    topic = _metadata(admin, _OFFSETS_TOPIC).topics[_OFFSETS_TOPIC]
    if topic.error is not None or any(partition.leader < 0 for partition in topic.partitions.values()):
        raise _NotReadyError(f"{_OFFSETS_TOPIC} has partitions without a leader")
    return len(topic.partitions)


class ProbeError(Exception):
    """The other side does not answer, or not as a Kafka broker does."""


class Probe:
    """One plaintext connection to the broker at host:port; a context manager that closes it.

    Raises:
        ProbeError: Nobody listens there; by every method: whoever does, does not answer so.
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
        """The highest level of each feature that the broker's code supports (KIP-584)."""
        # Version 3 is the first with features. The request is flexible, the answer's header never is.
        software = b"".join(bytes([len(text) + 1]) + text for text in (b"devbroker", b"1"))
        return self._ask(_API_VERSIONS, 3, _NO_TAGS + software + _NO_TAGS, _read_features)

    def find_coordinator(self, group_id: str) -> tuple[int, str]:
        """The error code (0: none) and the host:port of a group's coordinator; creates the offsets topic if need be."""
        group_type = b"\0"
        return self._ask(_FIND_COORDINATOR, 2, _string(group_id) + group_type, _read_coordinator)

    def describe_group(self, group_id: str) -> int:
        """The error code with which the coordinator describes a group: 0 also for one that does not exist.

        Nothing is created by it.
        """
        return self._ask(_DESCRIBE_GROUPS, 0, struct.pack(">i", 1) + _string(group_id), _read_description)

    def _ask(self, api_key: int, version: int, body: bytes, read: Callable[[_AnswerReader], _Answer]) -> _Answer:
        no_client_id = -1
        frame = struct.pack(">hhih", api_key, version, 1, no_client_id) + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            reader = _AnswerReader(self._receive(_AnswerReader(self._receive(4)).number(4)))
            reader.take(4)  # correlation id
            return read(reader)
        except (OSError, ValueError) as error:
            raise ProbeError(f"{self._address} does not answer as a Kafka broker does: {error}") from error

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ValueError("the connection was closed in the middle of the answer")
            received += chunk
        return bytes(received)


class _AnswerReader:
    """Reads Kafka's encoding from the front of some bytes; a ValueError where they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ValueError(f"the answer ends before byte {self._at + size}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self) -> int:
        """An unsigned number of seven bits a byte."""
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & ~_VARINT_MORE) << shift
            shift += 7
            if not byte & _VARINT_MORE:
                return value

    def string(self) -> str:
        """A text with its length in two bytes; empty for null."""
        return self.take(max(0, self.number(2))).decode()

    def tags(self) -> Iterator[tuple[int, _AnswerReader]]:
        """Each tagged field: its tag, and what it holds."""
        for _ in range(self.varint()):
            yield self.varint(), _AnswerReader(self.take(self.varint()))


def minor_line(address: str, timeout_s: float) -> str:
    """The minor line of the broker at host:port, such as "4.3", or "unknown".

    Kafka has no request for its version, but each minor line brought a metadata.version of its own.

    Raises:
        BrokerUnavailableError: It does not answer, or not as a Kafka broker does.
    """
    try:
        with Probe(address, timeout_s) as probe:
            level = probe.supported_features().get("metadata.version", 0)
    except ProbeError as error:
        raise BrokerUnavailableError(str(error)) from error
    return MINOR_LINES.get(level, "unknown")


def _read_features(reader: _AnswerReader) -> dict[str, int]:
    """The features in an ApiVersions answer of version 3."""
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
    reader.string()  # the error in words
    reader.take(4)  # node id
    host = reader.string()
    return code, f"{host}:{reader.number(4)}"


def _read_description(reader: _AnswerReader) -> int:
    reader.take(4)  # the number of groups, which is 1
    return reader.number(2)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
