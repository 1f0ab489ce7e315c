"""Members over TLS and SASL on a real broker: each listener, sessions that expire, and refused connections."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.config import authorities
from consumer_membership.devbroker import Broker
from consumer_membership.errors import AuthenticationError
from consumer_membership.membership.states import MemberState
from tests.integration.environments import CONSUMER, COOPERATIVE
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.documents import ROOT
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.mounts import with_file_replaced
from tests.support.secured import Materials, Way, client_config, unsecured_token
from tests.support.tls_1_1_broker import tls_1_1_broker
from tests.support.versions import NEWEST, OLDEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Sessions that are renewed while a test runs (KIP-368).
SESSION_S = 10.0
RENEWING = {**SHORT_SESSIONS, "connections.max.reauth.ms": str(int(SESSION_S * 1000))}
#: Longer than any test may take.
NEVER_S = 3600.0
NETWORK = "consumer_membership.network"
#: Reads and commits four records.
FOUR_RECORDS = """
import json, sys
from consumer_membership import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
records = []
while len(records) < 4:
    records += consumer.consume(4, 1.0)
assert not any(record.error() for record in records)
consumer.commit(asynchronous=False)
consumer.close()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """A secured broker, and the settings that its clients need."""

    broker: Broker
    made: Materials

    def config(self, way: Way, user: str = "alice") -> dict[str, object]:
        """The settings to connect over this listener."""
        return client_config(self.broker, self.made, way, user)

    def topic(self, records: int = 0, partitions: int = 4) -> str:
        """A new topic with these records, produced over the plaintext listener."""
        topic = create_topic(self.broker.bootstrap_servers, unique("topic"), partitions)
        produce(self.broker.bootstrap_servers, topic, records)
        return topic

    def member(self, way: Way, group: str, topic: str, **config: object) -> Worker:
        """An application in a thread."""
        settings: dict[str, Any] = {key.replace(".", "_"): value for key, value in self.config(way).items()} | config
        return Worker(str(settings.pop("bootstrap_servers")), group, [topic], **settings)


@pytest.fixture
def doors(broker_pool: RunBrokers, secured_materials: Materials) -> Doors:
    """The newest broker with short sessions."""
    broker = broker_pool.shared(NEWEST, properties=RENEWING, security=secured_materials.security)
    return Doors(broker=broker, made=secured_materials)


# ---- each way in -----------------------------------------------------------------------------------------------------


def lives_in_a_group(doors: Doors, way: Way, mode: dict[str, object]) -> None:
    """Two members share a topic, read all of it and commit; the committed offsets equal the topic's ends."""
    topic, group = doors.topic(records=200), unique("group")
    with doors.member(way, group, topic, **mode) as first:
        first.settled(4)
        with doors.member(way, group, topic, **mode) as second:
            second.settled(2)
            first.settled(2)
        first.settled(4)
        first.wait(lambda w: len(w.notes.records) + len(second.notes.records) >= 200, "all records")
    seen = {(partition, offset) for _, partition, offset, _ in first.notes.records + second.notes.records}
    assert len(seen) == 200
    assert (first.notes.raised, second.notes.raised) == ([], [])
    reader = Consumer({**doors.config(way), "group.id": group})
    try:
        committed = reader.committed([Partition(topic, number) for number in range(4)], PATIENCE_S)
    finally:
        reader.close()
    assert [found.offset for found in committed] == [50] * 4


@pytest.mark.parametrize("way", Way)
def test_members_share_a_group_over_each_listener(doors: Doors, way: Way) -> None:
    """The member's connections are made from the same keys as librdkafka's."""
    lives_in_a_group(doors, way, dict(CONSUMER))


@pytest.mark.parametrize("way", [Way.MUTUAL_TLS, Way.SCRAM_512_OVER_TLS])
def test_classic_members_share_a_group_over_secured_listeners(doors: Doors, way: Way) -> None:
    """JoinGroup and SyncGroup have their own connection, which authenticates as the other connections do."""
    lives_in_a_group(doors, way, dict(COOPERATIVE))


@pytest.mark.parametrize("way", [Way.SCRAM_512_OVER_TLS, Way.TOKEN_OVER_TLS])
def test_oldest_broker_accepts_members_over_secured_listeners(
    broker_pool: RunBrokers, secured_materials: Materials, way: Way
) -> None:
    """Members share a group over TLS and SASL on Kafka 4.0."""
    broker = broker_pool.shared(OLDEST, properties=RENEWING, security=secured_materials.security)
    lives_in_a_group(Doors(broker=broker, made=secured_materials), way, dict(CONSUMER))


def test_encrypted_key_and_pem_texts_replace_files(doors: Doors) -> None:
    """A member connects with ssl.key.password, ssl.ca.pem, ssl.certificate.pem and ssl.key.pem."""
    made = doors.made
    texts = {
        "ssl_ca_location": None,
        "ssl_ca_pem": made.ca_pem,
        "ssl_certificate_location": None,
        "ssl_certificate_pem": made.client_cert_pem,
        "ssl_key_location": None,
        "ssl_key_pem": made.encrypted_key_pem,
        "ssl_key_password": made.encrypted_key_password,
    }
    topic = doors.topic(records=4)
    with doors.member(Way.MUTUAL_TLS, unique("group"), topic, **texts) as worker:
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")


def test_keystore_replaces_certificate_and_key_files(doors: Doors) -> None:
    """A member connects with ssl.keystore.location and ssl.keystore.password, on both kinds of connections."""
    made = doors.made
    keystore = {
        "ssl_certificate_location": None,
        "ssl_key_location": None,
        "ssl_keystore_location": made.keystore_file,
        "ssl_keystore_password": made.keystore_password,
    }
    topic = doors.topic(records=4)
    with doors.member(Way.MUTUAL_TLS, unique("group"), topic, **keystore) as worker:
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")


def test_probe_trusts_the_systems_authorities_on_both_kinds_of_connections(doors: Doors) -> None:
    """With ssl.ca.location=probe, a member joins and reads if the system's file has the authority, and only then."""
    config = {**doors.config(Way.TLS), "ssl.ca.location": "probe", "auto.offset.reset": "earliest"}
    topic = doors.topic(records=4)
    system = next(path for path in authorities._USUAL if Path(path).is_file())
    words = [json.dumps({**config, "group.id": unique("group")}), topic]
    command = with_file_replaced(system, doors.made.ca_file, [sys.executable, "-c", FOUR_RECORDS, *words])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    errors: list[KafkaError] = []
    with doors.member(Way.TLS, unique("group"), topic, ssl_ca_location="probe", error_cb=errors.append) as worker:
        worker.wait(lambda w: "not trusted" in str(w.consumer.membership().last_error), "the member's refusal")
        worker.wait(lambda _: any(error.code() == KafkaError._SSL for error in errors), "librdkafka's refusal")


def test_group_admin_connects_over_a_secured_listener(doors: Doors) -> None:
    """`GroupAdmin` takes the same keys as a consumer."""
    topic, group = doors.topic(), unique("group")
    with doors.member(Way.SCRAM_512_OVER_TLS, group, topic) as worker:
        worker.settled(4)
        described = GroupAdmin(doors.config(Way.SCRAM_512_OVER_TLS)).describe(group, with_offsets=False).group
        assert [len(member.assignment) for member in described.members] == [4]


# ---- sessions that end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [CONSUMER, COOPERATIVE], ids=["consumer", "classic"])
def test_sasl_sessions_are_renewed_without_a_state_change(
    doors: Doors, mode: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-368: Sessions are renewed on the same connections, between heartbeats and commits.

    A broker closes connections that are not renewed.
    """
    caplog.set_level(logging.DEBUG, NETWORK)
    topic = doors.topic(records=40)
    with doors.member(Way.SCRAM_256, unique("group"), topic, auto_commit_interval_ms=50, **mode) as worker:
        worker.settled(4)
        before = worker.consumer.membership().transitions
        wait_until(lambda: caplog.text.count("SASL session renewed") >= 2, "renewals of two connections")
        produce(doors.broker.bootstrap_servers, topic, 40)
        worker.wait(lambda w: len(w.notes.records) == 80, "what was written meanwhile")
        assert worker.consumer.membership().transitions == before
    assert [record.getMessage() for record in caplog.records if "lost" in record.getMessage()] == []


def test_oauth_cb_is_called_once_per_token_before_the_former_one_expires(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    """One thread at a time calls `oauth_cb`, once for each token, for librdkafka and the membership together."""
    caplog.set_level(logging.DEBUG, NETWORK)
    calls: list[float] = []
    overlaps: list[bool] = []
    busy = threading.Lock()

    def fetch(_: str | None) -> tuple[str, float, str, dict[str, str]]:
        overlaps.append(not busy.acquire(blocking=False))
        calls.append(time.monotonic())
        token = unsecured_token("carol", lifetime_s=6)
        busy.release()
        return token.answer

    topic = doors.topic(records=4)
    with doors.member(Way.TOKEN_OVER_TLS, unique("group"), topic, oauth_cb=fetch) as worker:
        worker.settled(4)
        before = worker.consumer.membership().transitions
        wait_until(lambda: len(calls) >= 3, "tokens that are fetched again")
        produce(doors.broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 8, "what was written meanwhile")
        assert worker.consumer.membership().transitions == before
    assert not any(overlaps)
    # A token is used for three quarters of its six seconds, however many connections there are.
    assert all(later - sooner > 4 for sooner, later in pairwise(calls))


# ---- doors that are shut ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [Way.PLAIN, Way.SCRAM_512_OVER_TLS])
def test_wrong_password_is_reported_and_corrected_by_set_sasl_credentials(
    doors: Doors, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """The member keeps trying, as librdkafka does, and connects after `set_sasl_credentials` without a restart."""
    topic = doors.topic(records=4)
    errors: list[KafkaError] = []
    wrong = {"sasl_password": "a-wrong-secret", "reconnect_backoff_max_ms": 200, "error_cb": errors.append}
    with doors.member(way, unique("group"), topic, **wrong) as worker:
        wait_until(lambda: "rejected the credentials" in caplog.text, "the refusal in the log")
        # The thread that connects writes the line a moment before the member receives the error.
        worker.wait(lambda w: getattr(w.consumer.membership().last_error, "code", None) == 58, "the error in the view")
        assert worker.consumer.membership().state is MemberState.JOINING
        worker.wait(lambda _: bool(errors), "librdkafka's own word")
        worker.order(lambda consumer: consumer.set_sasl_credentials("alice", doors.made.users["alice"]))
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")
        worker.settled(4)
        # A new handle also uses the new credentials.
        worker.order(lambda consumer: consumer._use().fetcher.renew())
        produce(doors.broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 8, "what came after the renewal")
    assert "a-wrong-secret" not in caplog.text
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_group_admin_with_a_wrong_password_fails_at_once(doors: Doors) -> None:
    """`GroupAdmin` does not retry until its timeout, because some brokers lock an account."""
    config = {**doors.config(Way.SCRAM_256), "sasl.password": "a-wrong-secret"}
    with pytest.raises(AuthenticationError, match="the broker rejected the credentials for SCRAM-SHA-256") as caught:
        # The test would fail long before this timeout.
        GroupAdmin(config, timeout_s=NEVER_S).describe("any")
    assert "a-wrong-secret" not in str(caught.value)


def test_oauth_cb_that_raises_fails_the_constructor(doors: Doors) -> None:
    """The constructor raises the callback's own error. confluent-kafka raises an error after ten seconds."""

    def fetch(_: str | None) -> object:
        raise OSError("the token's server is away")

    config = {**doors.config(Way.TOKEN_OVER_TLS), "oauth_cb": fetch, "group.id": "any"}
    with pytest.raises(AuthenticationError, match="oauth_cb raised OSError: the token's server is away") as caught:
        Consumer(config)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED


def test_broker_with_tls_1_1_only_is_refused_with_the_required_version(
    secured_materials: Materials, tmp_path: Path
) -> None:
    """The member waits, its last error names the required version, and librdkafka reports its own refusal."""
    errors: list[KafkaError] = []
    with tls_1_1_broker(secured_materials, tmp_path) as broker:
        config: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": secured_materials.ca_file}
        topic = create_topic(broker.bootstrap_servers, unique("topic"), 1)
        servers = broker.secured["TLS"]
        with Worker(servers, unique("group"), [topic], **config, error_cb=errors.append) as worker:
            words = "no TLS version in common; TLS 1.2 or later is required"
            worker.wait(lambda w: words in str(w.consumer.membership().last_error), words)
            worker.wait(lambda _: any(error.code() == KafkaError._SSL for error in errors), "librdkafka's report")


@pytest.mark.parametrize(
    ("listener", "keys", "words"),
    [
        ("TLS", {"security_protocol": "PLAINTEXT"}, "set security.protocol to ssl"),
        ("", {"security_protocol": "SSL"}, "the plaintext port of the"),
        ("SASL", {"security_protocol": "PLAINTEXT"}, "check whether the port needs SASL"),
        ("", {"security_protocol": "SASL_PLAINTEXT"}, "SASL is not enabled on this listener"),
        ("TLS", {"security_protocol": "SSL", "ssl_ca_location": None}, "set ssl.ca.location to"),
        ("MUTUAL", {"security_protocol": "SSL"}, "requires a client certificate"),
        ("SASL", {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}, ""),
    ],
)
def test_wrong_listener_setting_is_reported_with_its_remedy(
    doors: Doors, listener: str, keys: dict[str, object], words: str
) -> None:
    """The view names the wrong setting and its remedy, so the broker's log is not needed."""
    user = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": doors.made.users["alice"]}
    servers = doors.broker.secured.get(listener, doors.broker.bootstrap_servers)
    topic = doors.topic(records=4)
    config: dict[str, Any] = {"ssl_ca_location": doors.made.ca_file, **user, **keys}
    with Worker(servers, unique("group"), [topic], **config) as worker:
        if words:
            worker.wait(lambda w: words in str(w.consumer.membership().last_error), words)
            assert worker.notes.records == []
        else:
            worker.wait(lambda w: len(w.notes.records) == 4, "the records")
