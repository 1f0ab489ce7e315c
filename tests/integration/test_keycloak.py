"""Members that get their tokens from a real Keycloak, on a broker that verifies them with the keys of the realm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.errors import AuthenticationError
from consumer_membership.health.verdict import HealthVerdict
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.kafka import create_topic, produce, unique
from tests.support.keycloak import AUDIENCE, Keycloak, RealmClient, running_keycloak
from tests.support.list_command import list_command
from tests.support.secured import Materials, over_sasl_and_tls, verifying
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

#: Keycloak is fetched and built once, and its start takes minutes on a machine with many other programs.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

#: The clients of the realm, each for one test, so that the server's log counts the requests of one member.
STEADY = RealmClient(client_id="steady-app")
RENEWED = RealmClient(client_id="renewed-app", lifetime_s=10)
#: The next token is requested after at most 48 s, and the present one is valid for 12 s more: longer than a request
#: without a response takes.
RESTARTED = RealmClient(client_id="restarted-app", lifetime_s=60)
SUSPENDED = RealmClient(client_id="suspended-app", lifetime_s=60)
REFUSED = RealmClient(client_id="refused-app")
WITHOUT_AUDIENCE = RealmClient(client_id="without-audience-app", audience=None)
SIGNING = RealmClient(client_id="signing-app", has_assertions=True)
COMMAND_LINE = RealmClient(client_id="command-line-app", has_assertions=True)
CLIENTS = (STEADY, RENEWED, RESTARTED, SUSPENDED, REFUSED, WITHOUT_AUDIENCE, SIGNING, COMMAND_LINE)
WRONG = "a-wrong-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Realm:
    """A Keycloak, and a broker that trusts its realm."""

    keycloak: Keycloak
    broker: Broker
    made: Materials

    def config(
        self, client: RealmClient, secret: str | None = None, *, has_assertion: bool = False
    ) -> dict[str, object]:
        """Return the settings of a Kafka client that gets its tokens as this client of the realm."""
        return {
            **over_sasl_and_tls(self.broker, self.made),
            **self.keycloak.client_config(client, secret=secret, has_assertion=has_assertion),
        }

    def topic(self) -> str:
        """Return a new topic of four partitions, with a record in each of them."""
        topic = create_topic(self.broker.bootstrap_servers, unique("topic"), 4)
        self.produce(topic)
        return topic

    def produce(self, topic: str) -> None:
        """Produce four records."""
        produce(self.broker.bootstrap_servers, topic, 4)

    def member(
        self, topic: str, client: RealmClient, errors: list[KafkaError], *, has_assertion: bool = False
    ) -> Worker:
        """Return an application whose `error_cb` appends to `errors`."""
        settings: dict[str, Any] = self.config(client, has_assertion=has_assertion)
        bootstrap = str(settings.pop("bootstrap.servers"))
        return Worker(bootstrap, unique("group"), [topic], error_cb=errors.append, **settings)


@pytest.fixture(scope="module")
def realm(
    broker_pool: RunBrokers, secured_materials: Materials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Realm]:
    """The Keycloak and the broker of this module."""
    with running_keycloak(tmp_path_factory.mktemp("keycloak"), secured_materials, CLIENTS) as keycloak:
        properties = verifying(keycloak.jwks_url, secured_materials.ca_file, AUDIENCE, keycloak.issuer)
        with broker_pool.own(NEWEST, properties=properties, security=secured_materials.security) as broker:
            yield Realm(keycloak=keycloak, broker=broker, made=secured_materials)


def read(worker: Worker, count: int, what: str) -> None:
    """Wait until the member has read exactly this number of records."""
    worker.wait(lambda w: len(w.notes.records) == count, what)


def wait_for_tokens(keycloak: Keycloak, client: RealmClient, count: int) -> None:
    """Wait until Keycloak has issued this number of tokens to the client, or more."""
    wait_until(lambda: keycloak.issued(client.client_id) >= count, f"token {count}")


def is_ready(worker: Worker) -> bool:
    """Return the result of the member's readiness probe."""
    return worker.consumer.health().is_ready


def assert_reports_unreachable(error: KafkaError, keycloak: Keycloak) -> None:
    """Assert that the error names the token endpoint, and that it could not be reached."""
    assert error.code() == KafkaError._AUTHENTICATION
    reason = f"the token endpoint {keycloak.token_url} cannot be reached"
    assert error.str().startswith(f"Failed to acquire SASL OAUTHBEARER token: {reason}")


def test_member_joins_and_reads_with_one_token_of_keycloak(realm: Realm) -> None:
    """One token serves the membership's connections and those of librdkafka, and the member is healthy."""
    errors: list[KafkaError] = []
    with realm.member(realm.topic(), STEADY, errors) as worker:
        worker.settled(4)
        read(worker, 4, "the records")
        wait_until(lambda: worker.consumer.health().verdict is HealthVerdict.IDLE, "a healthy member without records")
    assert errors == []
    assert realm.keycloak.issued(STEADY.client_id) == 1


def test_member_joins_and_reads_with_a_token_of_keycloak_for_an_assertion(realm: Realm) -> None:
    """The client authenticates by its secret, and signs an assertion of a user for which Keycloak issues the token."""
    errors: list[KafkaError] = []
    with realm.member(realm.topic(), SIGNING, errors, has_assertion=True) as worker:
        worker.settled(4)
        read(worker, 4, "the records")
    assert errors == []
    assert realm.keycloak.issued_for_assertions(SIGNING.client_id) == 1


@pytest.mark.parametrize("has_assertion", [False, True], ids=["client credentials", "assertion"])
def test_command_line_takes_the_keys_of_keycloak(
    realm: Realm, capsys: pytest.CaptureFixture[str], *, has_assertion: bool
) -> None:
    """`list` gets a token with each grant."""
    assert main(list_command(realm.config(COMMAND_LINE, has_assertion=has_assertion))) == 0, capsys.readouterr()
    counted = realm.keycloak.issued_for_assertions if has_assertion else realm.keycloak.issued
    assert counted(COMMAND_LINE.client_id) == 1


def test_token_of_keycloak_is_renewed_while_records_flow(realm: Realm) -> None:
    """Three renewals change no state of the member, which reads records after each of them."""
    errors: list[KafkaError] = []
    topic = realm.topic()
    with realm.member(topic, RENEWED, errors) as worker:
        worker.settled(4)
        read(worker, 4, "the records before the renewals")
        before = worker.consumer.membership().transitions
        for renewals in range(1, 4):
            wait_for_tokens(realm.keycloak, RENEWED, 1 + renewals)
            realm.produce(topic)
            read(worker, 4 + 4 * renewals, f"the records after renewal {renewals}")
        assert worker.consumer.membership().transitions == before
        assert is_ready(worker)
    assert errors == []


def test_member_survives_a_restart_of_keycloak_that_outlasts_its_token(realm: Realm) -> None:
    """The last token is used until it expires; then the member is not ready, and it recovers after the restart."""
    errors: list[KafkaError] = []
    topic, keycloak = realm.topic(), realm.keycloak
    with realm.member(topic, RESTARTED, errors) as worker:
        worker.settled(4)
        read(worker, 4, "the records before the outage")
        before = worker.consumer.membership().transitions
        keycloak.stop()
        try:
            worker.wait(lambda _: bool(errors), "the report that the next token is missing")
            realm.produce(topic)
            read(worker, 8, "the records with the last token")
            assert worker.consumer.membership().transitions == before
            wait_until(lambda: not is_ready(worker), "the end of the last token", seen=worker.consumer.health)
        finally:
            keycloak.start()
        realm.produce(topic)
        read(worker, 12, "the records after the restart")
        wait_until(lambda: is_ready(worker), "a healthy member after the restart", seen=worker.consumer.health)
    assert_reports_unreachable(errors[0], keycloak)


def test_member_survives_a_keycloak_that_accepts_connections_and_does_not_respond(realm: Realm) -> None:
    """The request for the next token ends by its timeout, after 10 s, without a state change; a later one succeeds."""
    errors: list[KafkaError] = []
    topic, keycloak = realm.topic(), realm.keycloak
    with realm.member(topic, SUSPENDED, errors) as worker:
        worker.settled(4)
        read(worker, 4, "the records before the outage")
        before = worker.consumer.membership().transitions
        keycloak.suspend()
        try:
            worker.wait(lambda _: bool(errors), "the report that the next token is missing")
            # The broker's session timeout is 6 s: the heartbeats continued during the request.
            assert worker.consumer.membership().transitions == before
        finally:
            keycloak.resume()
        wait_for_tokens(keycloak, SUSPENDED, 2)
        realm.produce(topic)
        read(worker, 8, "the records after the outage")
        wait_until(lambda: is_ready(worker), "a healthy member after the outage", seen=worker.consumer.health)
    assert_reports_unreachable(errors[0], keycloak)


def test_wrong_secret_fails_the_constructor_with_the_key_to_check(realm: Realm) -> None:
    """The error has Keycloak's reason and the keys to check, but not the secret."""
    config = realm.config(REFUSED, WRONG)
    expected = "unauthorized_client: Invalid client or Invalid client credentials; check sasl.oauthbearer.client.id and"
    with pytest.raises(AuthenticationError, match=f"{expected} sasl.oauthbearer.client.secret") as caught:
        Consumer({**config, "group.id": "any"})
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert WRONG not in str(caught.value)
    with pytest.raises(AuthenticationError, match=expected):
        GroupAdmin(config).describe("any")
    assert realm.keycloak.rejected(REFUSED.client_id) == 2
    assert realm.keycloak.issued(REFUSED.client_id) == 0


def test_token_of_a_client_without_an_audience_mapper_is_rejected_by_the_broker(realm: Realm) -> None:
    """Keycloak adds the audience of the brokers only if the client has an audience mapper."""
    errors: list[KafkaError] = []
    with realm.member(realm.topic(), WITHOUT_AUDIENCE, errors) as worker:
        rejection = "rejected the credentials for OAUTHBEARER"
        worker.wait(lambda w: rejection in str(w.consumer.membership().last_error), "the rejection")
        assert worker.notes.records == []
