"""Members that get their tokens from an identity provider, on a broker that verifies them with the provider's keys."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer_membership import Consumer
from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.errors import AuthenticationError, ConfigurationError
from tests.support.brokers import RunBrokers
from tests.support.consumer_thread import Worker
from tests.support.identity_provider import (
    AUDIENCE,
    ISSUER,
    Provider,
    assertion_config,
    client_key,
    identity_provider,
    oidc_config,
)
from tests.support.kafka import create_topic, produce, unique
from tests.support.list_command import list_command
from tests.support.secured import Materials, over_sasl_and_tls, verifying
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Seconds for which a token is valid in tests that wait for the next one.
SHORT_S = 6.0
WRONG = "a-wrong-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A provider, and a broker that trusts it."""

    provider: Provider
    broker: Broker
    made: Materials
    folder: Path

    def config(self, **keys: object) -> dict[str, object]:
        """The settings of a client; more keys with underscores, below `sasl.oauthbearer.`."""
        return {
            **over_sasl_and_tls(self.broker, self.made),
            **oidc_config(self.provider, self.made),
            **{f"sasl.oauthbearer.{key.replace('_', '.')}": value for key, value in keys.items()},
        }

    def signing(self) -> dict[str, object]:
        """The settings of a client that signs assertions with a key in a file."""
        return {
            **over_sasl_and_tls(self.broker, self.made),
            **assertion_config(self.provider, self.made, self.folder),
        }

    def topic(self, records: int = 4) -> str:
        """A new topic with these records."""
        topic = create_topic(self.broker.bootstrap_servers, unique("topic"), 4)
        produce(self.broker.bootstrap_servers, topic, records)
        return topic

    def member(self, topic: str, config: dict[str, object], **more: object) -> Worker:
        """An application in a thread."""
        settings: dict[str, Any] = {key.replace(".", "_"): value for key, value in config.items()} | more
        return Worker(str(settings.pop("bootstrap_servers")), unique("group"), [topic], **settings)


@pytest.fixture(scope="module")
def started(
    broker_pool: RunBrokers, secured_materials: Materials, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Identity]:
    """The provider and the broker of this module."""
    folder = tmp_path_factory.mktemp("provider")
    with identity_provider(secured_materials, folder) as provider:
        properties = verifying(provider.jwks_url, secured_materials.ca_file, AUDIENCE, ISSUER)
        with broker_pool.own(NEWEST, properties=properties, security=secured_materials.security) as broker:
            yield Identity(provider=provider, broker=broker, made=secured_materials, folder=folder)


@pytest.fixture
def identity(started: Identity) -> Identity:
    """The provider and the broker; the provider works normally and has received no request."""
    provider = started.provider
    provider.start()  # a test may have failed while it was stopped
    provider.requests.clear()
    provider.lifetime_s, provider.outage, provider.claims = 3600.0, None, {}
    return started


def test_member_reads_with_one_token_for_both_kinds_of_connections(identity: Identity) -> None:
    """One request to the provider serves the membership's connections and those of librdkafka."""
    config = identity.config(scope="kafka", extensions="tenant=blue")
    with identity.member(identity.topic(), config) as worker:
        worker.settled(4)
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")
    (request,) = identity.provider.requests
    assert request.form == {"grant_type": "client_credentials", "scope": "kafka"}


def test_member_reads_with_a_token_for_an_assertion(identity: Identity) -> None:
    """The provider exchanges an assertion that is signed with the client's key for a token."""
    config = identity.signing()
    del config["sasl.oauthbearer.assertion.private.key.file"]
    config["sasl.oauthbearer.assertion.private.key.pem"] = client_key(identity.folder)
    with identity.member(identity.topic(), config) as worker:
        worker.settled(4)
        worker.wait(lambda w: len(w.notes.records) == 4, "the records")
    (request,) = identity.provider.requests
    assert request.authorization is None


def test_group_admin_gets_its_token_from_the_provider(identity: Identity) -> None:
    """`GroupAdmin` takes the same keys."""
    assert GroupAdmin(identity.config()).list_groups().groups is not None
    assert len(identity.provider.requests) == 1


def test_command_line_takes_the_keys_of_both_grants(identity: Identity, capsys: pytest.CaptureFixture[str]) -> None:
    """`list` gets a token with client credentials, and with an assertion."""
    for config in (identity.config(), identity.signing()):
        assert main(list_command(config)) == 0, capsys.readouterr()
    assert [request.authorization is None for request in identity.provider.requests] == [False, True]


def test_token_is_renewed_before_it_expires_without_a_state_change(identity: Identity) -> None:
    """Each token costs one request, between 60 and 80 % of the lifetime of the former one; no connection ends."""
    identity.provider.lifetime_s = SHORT_S
    topic = identity.topic()
    with identity.member(topic, identity.config()) as worker:
        worker.settled(4)
        before = worker.consumer.membership().transitions
        wait_until(lambda: len(identity.provider.requests) >= 4, "three renewals")
        produce(identity.broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 8, "records after the renewals")
        assert worker.consumer.membership().transitions == before
    times = [request.at for request in identity.provider.requests]
    # No token is requested sooner, however many connections there are.
    assert all(later - sooner > 0.4 * SHORT_S for sooner, later in pairwise(times))


def test_member_outlives_an_outage_of_the_provider(identity: Identity) -> None:
    """The last token stays in use; `error_cb` receives the reason, and the next token is fetched after the outage."""
    # A token is renewed after 60 to 80 % of its lifetime; the rest has to be long enough for a busy machine.
    identity.provider.lifetime_s = 50.0
    topic = identity.topic()
    errors: list[KafkaError] = []
    with identity.member(topic, identity.config(), error_cb=errors.append) as worker:
        worker.settled(4)
        before = worker.consumer.membership().transitions
        identity.provider.stop()
        worker.wait(lambda _: bool(errors), "the report of the outage")
        produce(identity.broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 8, "records during the outage")
        identity.provider.start()
        wait_until(lambda: len(identity.provider.requests) >= 2, "a token after the outage")
        produce(identity.broker.bootstrap_servers, topic, 4)
        worker.wait(lambda w: len(w.notes.records) == 12, "records after the outage")
        assert worker.consumer.membership().transitions == before
    assert errors[0].code() == KafkaError._AUTHENTICATION
    away = f"the token endpoint {identity.provider.token_url} cannot be reached"
    assert errors[0].str().startswith(f"Failed to acquire SASL OAUTHBEARER token: {away}")


def test_token_that_is_still_valid_serves_a_replaced_handle(identity: Identity) -> None:
    """During an outage of the provider, a handle that replaces a lost one starts with the last token."""
    identity.provider.lifetime_s = 90.0
    topic, errors = identity.topic(), list[KafkaError]()
    settings = {**identity.config(), "group.id": unique("group"), "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "error_cb": errors.append})
    records: list[object] = []

    def polled() -> int:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            records.append(message)
        return len(records)

    try:
        consumer.subscribe([topic])
        wait_until(lambda: polled() == 4, "the records")
        identity.provider.stop()
        # Reported when the next token is due; the last one is valid for at least a fifth of its lifetime.
        wait_until(lambda: polled() == 4 and bool(errors), "the report of the outage", 2 * identity.provider.lifetime_s)
        consumer._session.fetcher.renew()  # type: ignore[union-attr]
        produce(identity.broker.bootstrap_servers, topic, 4)
        wait_until(lambda: polled() == 8, "records of the new handle during the outage")
    finally:
        identity.provider.start()
        consumer.close()
    assert len(identity.provider.requests) == 1


def test_wrong_secret_fails_the_constructor_with_the_keys_to_check(identity: Identity) -> None:
    """The error is that of confluent-kafka for a missing token, and comes at once."""
    with pytest.raises(AuthenticationError, match="invalid_client: Invalid client or secret; check") as caught:
        Consumer({**identity.config(client_secret=WRONG), "group.id": "any"})
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED
    assert WRONG not in str(caught.value)
    with pytest.raises(AuthenticationError, match=r"check sasl\.oauthbearer\.client\.id"):
        GroupAdmin(identity.config(client_secret=WRONG)).describe("any")
    assert len(identity.provider.requests) == 2


def test_secret_that_is_revoked_later_is_reported_to_error_cb(identity: Identity) -> None:
    """A member keeps its token, and `error_cb` receives the provider's reason and the keys to check."""
    identity.provider.lifetime_s = SHORT_S
    errors: list[KafkaError] = []
    with identity.member(identity.topic(), identity.config(), error_cb=errors.append) as worker:
        worker.settled(4)
        identity.provider.outage = (401, {"error": "invalid_client", "error_description": "Disabled"})
        worker.wait(lambda _: bool(errors), "the report")
        identity.provider.outage = None
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_client: Disabled; check sasl.oauthbearer.client.id" in errors[0].str()


def test_provider_that_starts_with_the_consumer_is_waited_for(identity: Identity) -> None:
    """A provider that is away for a moment does not fail the constructor."""
    identity.provider.stop()
    config = {**identity.config(), "group.id": "any"}
    made: list[Consumer] = []
    thread = threading.Thread(target=lambda: made.append(Consumer(config)))
    thread.start()
    identity.provider.start()
    thread.join(PATIENCE_S)
    made[0].close()
    assert len(identity.provider.requests) == 1


def test_token_for_another_audience_is_rejected_by_the_broker(identity: Identity) -> None:
    """The broker verifies the provider's tokens; the consumer waits, as with any rejected credentials."""
    identity.provider.claims = {"aud": "elsewhere"}
    with identity.member(identity.topic(), identity.config()) as worker:
        refusal = "rejected the credentials for OAUTHBEARER"
        worker.wait(lambda w: refusal in str(w.consumer.membership().last_error), "the refusal")
        assert worker.notes.records == []


def test_untrusted_endpoint_fails_the_constructor(identity: Identity) -> None:
    """https.ca.location is the authority of the endpoint, and a wrong path is an error of the configuration."""
    config = {**identity.config(), "group.id": "any"}
    with pytest.raises(AuthenticationError, match=r"set https\.ca\.location"):
        Consumer({**config, "https.ca.location": identity.made.foreign_ca_file})
    with pytest.raises(ConfigurationError) as caught:
        Consumer({**config, "https.ca.location": "/no/such/file"})
    assert caught.value.key == "https.ca.location"
    Consumer({**config, "https.ca.location": None, "https.ca.pem": identity.made.ca_pem}).close()
    assert len(identity.provider.requests) == 1
