"""Recorder of the golden frames: `python -m tests.wire.record_golden [--only java|librdkafka]`.

The recorder starts a real broker and a recording proxy, and runs the Java client (`golden/RecordedClient.java`) and
librdkafka through the proxy in groups of both protocols. It needs Java with its compiler and takes a minute or two.
Broker and clients use newer versions than this package. Therefore each client runs several times: with the broker's own
versions, and with versions that the proxy lowers to those of this package.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from consumer_membership.devbroker import Backend, Broker, start
from consumer_membership.devbroker.java import classpath, java_for
from consumer_membership.devbroker.listeners import SASL
from consumer_membership.wire.codec import SIZE_BYTES, MalformedError, decode, write_data
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.versions import SUPPORTED, Api
from tests.support.kafka import create_topic, produce
from tests.support.kinds import SHORT_SESSIONS
from tests.support.proxy import Proxy, with_own_port
from tests.support.secured import materials
from tests.support.telemetry import receiver
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until
from tests.wire.golden_frames import (
    ANSWER,
    FILE,
    JAVA,
    LIBRDKAFKA,
    REQUEST,
    GoldenFrame,
    as_values,
    facets,
    header_version,
    message_of,
    save,
)

TOPICS: Mapping[str, int] = {"golden-a": 3, "golden-b": 2}
#: The number of records in each topic; they are written to its partitions in turn.
RECORDS = 20
#: Larger frames are left out and counted.
MOST_BYTES = 4096
#: No release has this version of ApiVersions: the broker's error names the versions that it has (KIP-511).
_UNKNOWN_VERSION = 127
_POLL_S = 0.05

#: The newest version of each API that clients are offered; a missing API keeps the broker's version.
Offers = Mapping[Api, int]
EVERYTHING: Offers = {}
#: Step by step, each API is offered in its next supported version, from the oldest to the newest.
STEPS: tuple[Offers, ...] = tuple(
    {api: versions[min(step, len(versions) - 1)] for api, versions in SUPPORTED.items()}
    for step in range(max(map(len, SUPPORTED.values())))
)
_FIRST_CONSUMER: Offers = {**STEPS[-1], Api.CONSUMER_GROUP_HEARTBEAT: 0, Api.CONSUMER_GROUP_DESCRIBE: 0}

ALL_APIS = frozenset(LAYOUTS)
#: The APIs of metrics (KIP-714). A separate broker receives metrics, and only its frames of these APIs are kept.
TELEMETRY = frozenset({Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY})
#: The shortest push interval that Kafka accepts.
_PUSH_MS = 100

#: The rounds of each client: name, offered versions, and the assignor or protocol of its members.
_RANGE, _STICKY = "range", "cooperative-sticky"
ROUNDS: Sequence[tuple[str, Offers, str]] = (
    ("all versions", EVERYTHING, _STICKY),
    ("all versions", EVERYTHING, "consumer"),
    *((f"versions of step {number}", offers, _RANGE) for number, offers in enumerate(STEPS)),
    (f"versions of step {len(STEPS) - 1}", STEPS[-1], "consumer"),
)
#: librdkafka's members do not join with the first versions of the consumer protocol.
JAVA_ROUNDS = (*ROUNDS, ("first versions of the consumer protocol", _FIRST_CONSUMER, "consumer"))
_JAVA_ASSIGNORS = {
    _RANGE: "org.apache.kafka.clients.consumer.RangeAssignor",
    _STICKY: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Recording:
    """The kept frames: each has a field value that no earlier frame of its client, API, version and direction has."""

    def __init__(self) -> None:
        self.frames: list[GoldenFrame] = []
        self.left_out = 0
        self._known: dict[tuple[str, Api, int, str], set[str]] = {}

    def add(self, frame: GoldenFrame) -> None:
        """Keep the frame if it has new field values, or if the reader rejects it."""
        if len(frame.data) > MOST_BYTES:
            self.left_out += 1
            return
        known = self._known.setdefault((frame.client, frame.api, frame.version, frame.direction), set())
        try:
            message, end = message_of(frame)
            shown = {f"then {frame.data[end:].hex()}", *facets(message)}
        except MalformedError:
            shown = {frame.data.hex()}
        if not shown <= known:
            known |= shown
            self.frames.append(frame)


class RecordingProxy(Proxy):
    """A proxy in front of a cluster of one broker that records frames; a context manager.

    A recorded response is as the broker sent it; the client receives it with the proxy's port and offered versions.
    """

    def __init__(self, bootstrap: str, offers: Offers, keep: Callable[[Api, int, str, bytes], None]) -> None:
        super().__init__(bootstrap)
        self._offers = offers
        self._record = keep
        #: The unanswered requests of the current connection: API key and response version by correlation id.
        self._unanswered: ContextVar[dict[int, tuple[int, int]]] = ContextVar("unanswered")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._unanswered.set({})
        await super()._connected(reader, writer)

    async def _requests(
        self, reader: asyncio.StreamReader, _: asyncio.StreamWriter, writer: asyncio.StreamWriter, __: asyncio.Event
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                data = await _frame(reader)
                key, version = (int.from_bytes(data[at : at + 2], "big") for at in (0, 2))
                if key in LAYOUTS:
                    self._record(Api(key), version, REQUEST, data)
                answered_in = version
                if key == Api.API_VERSIONS and version > self._offers.get(Api.API_VERSIONS, version):
                    data = data[:2] + _UNKNOWN_VERSION.to_bytes(2, "big") + data[4:]
                    answered_in = 0
                self._unanswered.get()[int.from_bytes(data[4:8], "big")] = key, answered_in
                writer.write(_sized(data))
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: asyncio.Event) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                data = await _frame(reader)
                key, version = self._unanswered.get().pop(int.from_bytes(data[:4], "big"))
                if key in LAYOUTS:
                    self._record(Api(key), version, ANSWER, data)
                if key == Api.API_VERSIONS:
                    data = self._lowered(version, data)
                writer.write(_sized(with_own_port(data, self._host, self._port, self._own_port)))
                await writer.drain()

    def _lowered(self, version: int, answer: bytes) -> bytes:
        values = as_values(decode(Api.API_VERSIONS, version, answer))
        for one in values["api_keys"]:
            if one["api_key"] in LAYOUTS:
                one["max_version"] = self._offers.get(Api(one["api_key"]), one["max_version"])
        return answer[:4] + write_data(LAYOUTS[Api.API_VERSIONS][1], version, values)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(SIZE_BYTES), "big"))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(SIZE_BYTES, "big") + data


# ---- librdkafka ------------------------------------------------------------------------------------------------------


def act_librdkafka(bootstrap: str, group: str, strategy: str, topics: Mapping[str, int] = TOPICS) -> None:
    """Run two group members and an admin that describes the group."""
    topic, partitions = next(iter(topics)), sum(topics.values())
    common: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if strategy == "consumer":
        common |= {"group.protocol": "consumer", "group.remote.assignor": "range"}
    else:
        common |= {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100}
    first = Consumer(common | {"client.id": "rdkafka-first", "group.instance.id": "first", "client.rack": "rack-1"})
    second = Consumer(common | {"client.id": "rdkafka-second", "isolation.level": "read_uncommitted"})
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "rdkafka-admin"})
    try:
        first.subscribe(list(topics))
        _poll([first], lambda: len(first.assignment()) == partitions)
        _offsets(first)
        second.subscribe([f"^({pattern_of(topics)})$"])
        _poll([first, second], lambda: _is_divided(partitions, first, second))
        _offsets(second)
        _look(admin, group, topic)
        second.close()
        _poll([first], lambda: len(first.assignment()) == partitions)
        first.unsubscribe()
        first.subscribe([topic])
        _poll([first], lambda: len(first.assignment()) == topics[topic])
    finally:
        second.close()
        first.close()
    _try(admin.describe_consumer_groups([group]).values())


def pattern_of(topics: Iterable[str]) -> str:
    """Return a pattern that matches only these topics."""
    return "|".join(topics)


def _is_divided(partitions: int, *members: Consumer) -> bool:
    owned = [{(one.topic, one.partition) for one in member.assignment()} for member in members]
    return all(owned) and len(set().union(*owned)) == partitions


def _poll(members: Sequence[Consumer], is_done: Callable[[], bool]) -> None:
    def poll() -> None:
        for member in members:
            member.poll(_POLL_S)

    wait_until(is_done, "a group at rest", between=poll)


def _offsets(member: Consumer) -> None:
    owned = sorted(member.assignment(), key=lambda one: (one.topic, one.partition))
    topic, partition = owned[0].topic, owned[0].partition
    member.commit(offsets=[TopicPartition(topic, partition, 3, "golden", 0)], asynchronous=False)
    with suppress(KafkaException):  # nothing was read
        member.commit(asynchronous=False)
    member.committed(owned, timeout=PATIENCE_S)
    member.get_watermark_offsets(owned[0], timeout=PATIENCE_S)
    member.offsets_for_times([TopicPartition(topic, partition, 1_000_000_000_000)], timeout=PATIENCE_S)
    member.list_topics(timeout=PATIENCE_S)


def _look(admin: AdminClient, group: str, topic: str) -> None:
    one = TopicPartition(topic, 0)
    _try(admin.describe_consumer_groups([group]).values())
    _try(admin.describe_consumer_groups([group, "golden-nobodys"], include_authorized_operations=True).values())
    _try(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values())
    some = ConsumerGroupTopicPartitions(group, [one, TopicPartition("golden-nobodys", 0)])
    _try(admin.list_consumer_group_offsets([some]).values())
    changed = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    _try(admin.alter_consumer_group_offsets([changed]).values())
    newest, latest = {one: OffsetSpec.max_timestamp()}, {one: OffsetSpec.latest()}
    _try(admin.list_offsets(newest).values())
    _try(admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED).values())
    _try([admin.describe_cluster()])
    _try(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values())


def _try(futures: Iterable[Future[object]]) -> None:
    """Wait for the futures; a broker's error is recorded like any other response."""
    for one in futures:
        try:
            one.result(PATIENCE_S)
        except KafkaException as refused:
            print(f"  {refused}")


def login_librdkafka(bootstrap: str, mechanism: str, user: str, passwords: Sequence[str]) -> None:
    """Log in with each password; the last one is wrong."""
    for password in passwords:
        admin = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "rdkafka-admin",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
                "log_level": 0,
            }
        )
        with suppress(KafkaException):
            admin.list_topics(timeout=PATIENCE_S if password == passwords[0] else 3)


# ---- the Java client -------------------------------------------------------------------------------------------------


_TOPICS = (str(sum(TOPICS.values())), ",".join(TOPICS))


class JavaClient:
    """RecordedClient.java, compiled into a folder."""

    def __init__(self, folder: Path) -> None:
        source = FILE.with_name("RecordedClient.java")
        executable = java_for(NEWEST).executable
        compiler = str(Path(executable).with_name("javac"))
        subprocess.run([compiler, "-d", str(folder), "-cp", classpath(NEWEST), str(source)], check=True)
        self._command = [executable, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{folder}:{classpath(NEWEST)}"]

    def act(self, bootstrap: str, group: str, strategy: str) -> None:
        """Run two group members and an admin that describes the group."""
        if strategy == "consumer":
            settings = ["group.protocol=consumer", "group.remote.assignor=range"]
        else:
            settings = ["group.protocol=classic", f"partition.assignment.strategy={_JAVA_ASSIGNORS[strategy]}"]
        self._run("group", bootstrap, group, *_TOPICS, *settings)

    def act_by_pattern(self, bootstrap: str, group: str) -> None:
        """Run two group members, the second with a pattern that the broker resolves, and an admin."""
        self._run("group", bootstrap, group, *_TOPICS, "group.protocol=consumer", f"pattern={pattern_of(TOPICS)}")

    def login(self, bootstrap: str, mechanism: str, user: str, passwords: Sequence[str]) -> None:
        """Log in with each password; the last one is wrong."""
        self._run("login", bootstrap, mechanism, user, *passwords)

    def _run(self, *words: str) -> None:
        subprocess.run([*self._command, "RecordedClient", *words], check=True, timeout=5 * PATIENCE_S)


# ---- the run ---------------------------------------------------------------------------------------------------------

_VERSIONS = """\
a client takes the newest version of an API that it and the broker have, and so it was where "during" says "all \
versions"; in step N a proxy had put into the broker's ApiVersions, as the newest version of each API, the N-th one \
(from 0) of wire.versions.SUPPORTED, or the last one; and where a client asked with a newer ApiVersions than that, the \
number of the version was made one that no broker knows, and the broker answered in version 0 as it does then"""


class Recorder:
    """One broker and its clients; only frames of the APIs in `of` are kept."""

    def __init__(self, broker: Broker, recording: Recording | None = None, *, of: frozenset[Api] = ALL_APIS) -> None:
        self._broker = broker
        self._of = of
        self.recording = recording or Recording()

    def record(
        self, client: str, during: str, offers: Offers, act: Callable[[str], None], *, listener: str | None = None
    ) -> None:
        """Run a client through its own proxy, in plaintext or at a secured listener."""
        version = NEWEST if client == JAVA else confluent_kafka.libversion()[0]

        def keep(api: Api, of: int, direction: str, data: bytes) -> None:
            if api not in self._of:
                return
            self.recording.add(
                GoldenFrame(
                    client=client,
                    client_version=version,
                    during=during,
                    api=api,
                    version=of,
                    direction=direction,
                    header=header_version(api, of, direction),
                    data=data,
                )
            )

        bootstrap = self._broker.secured[listener] if listener else self._broker.bootstrap_servers
        with RecordingProxy(bootstrap, offers, keep) as proxy:
            act(proxy.address)

    def record_groups(self, client: str, act: Callable[..., None]) -> None:
        """Run one group of this client in each round."""
        for number, (name, offers, strategy) in enumerate(JAVA_ROUNDS if client == JAVA else ROUNDS):
            group = f"golden-{client}-{number}"
            print(f"{client}: {strategy}, {name}", flush=True)
            self.record(client, f"{strategy}, {name}", offers, partial(act, group=group, strategy=strategy))

    def record_logins(self, client: str, login: Callable[..., None], password: str) -> None:
        """Log in with PLAIN and SCRAM in both versions, with the right and a wrong password."""
        for name, offers in (("all versions", EVERYTHING), ("versions of step 0", STEPS[0])):
            for mechanism in ("PLAIN", "SCRAM-SHA-256"):
                print(f"{client}: {mechanism}, {name}", flush=True)
                act = partial(login, mechanism=mechanism, user="alice", passwords=(password, "wrong"))
                self.record(client, f"{mechanism}, {name}", offers, act, listener=SASL)


def record_telemetry(folder: Path, recording: Recording, acts: Mapping[str, Callable[..., None]]) -> None:
    """Run each client on a broker that requests a single metric, so that a push is small."""
    with receiver(start, folder) as received:
        bootstrap = received.broker.bootstrap_servers
        received.subscribe("one", "org.apache.kafka.consumer.coordinator.assigned.partitions", _PUSH_MS)
        for topic, partitions in TOPICS.items():
            create_topic(bootstrap, topic, partitions)
            produce(bootstrap, topic, RECORDS)
        recorder = Recorder(received.broker, recording, of=TELEMETRY)
        for client, act in acts.items():
            print(f"{client}: telemetry", flush=True)
            name = "consumer with a receiver of metrics, all versions"
            recorder.record(client, name, EVERYTHING, partial(act, group=f"golden-{client}", strategy="consumer"))


def about(frames: Iterable[GoldenFrame]) -> dict[str, str]:
    """Return the first line of the file."""
    versions = {one.client: one.client_version for one in frames}
    return {
        "what": "what clients of others sent, and a broker answered; written by tests.wire.record_golden",
        "broker": f"Apache Kafka {NEWEST}",
        "clients": ", ".join(f"{client} {version}" for client, version in sorted(versions.items())),
        "versions": _VERSIONS,
        "addresses": "answers are as the broker sent them; the client read the proxy's port in the place of its own",
        "choice": "a frame has something that no other of its client, API, version and direction has: a field that is "
        "null or empty, a number below 1, an error, an array of none, one or more",
    }


def main() -> int:
    """Record the frames and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.record_golden", description=__doc__)
    parser.add_argument("--only", choices=[JAVA, LIBRDKAFKA], help="of this client; the file is left as it is")
    only = parser.parse_args().only
    properties = SHORT_SESSIONS | {"connections.max.reauth.ms": "3600000"}
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        made = materials(Path(name))
        password = made.users["alice"]
        with start(NEWEST, properties=properties, security=made.security, backend=Backend.JVM) as broker:
            for topic, partitions in TOPICS.items():
                create_topic(broker.bootstrap_servers, topic, partitions)
                produce(broker.bootstrap_servers, topic, RECORDS)
            recorder = Recorder(broker)
            if only != JAVA:
                recorder.record_groups(LIBRDKAFKA, act_librdkafka)
                recorder.record_logins(LIBRDKAFKA, login_librdkafka, password)
            if only != LIBRDKAFKA:
                java = JavaClient(Path(name))
                recorder.record_groups(JAVA, java.act)
                act = partial(java.act_by_pattern, group="golden-java-pattern")
                recorder.record(JAVA, "consumer with a pattern, all versions", EVERYTHING, act)
                recorder.record_logins(JAVA, java.login, password)
        if only is None:
            acts = {LIBRDKAFKA: act_librdkafka, JAVA: java.act}
            record_telemetry(Path(name), recorder.recording, acts)
    recording = recorder.recording
    frames = sorted(recording.frames, key=lambda one: (one.client, one.api, one.version, one.direction != REQUEST))
    print(f"{len(frames)} frames, {sum(len(one.data) for one in frames)} bytes; {recording.left_out} were too large")
    if only is None:
        save(about(frames), frames)
    return 0


if __name__ == "__main__":
    sys.exit(main())
