"""The guardian's leave over TLS and after SASL, to a broker that requires them."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.config import SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.runtime.guardian.guarded_member import from_anywhere
from consumer_membership.runtime.guardian.leaving import Level
from consumer_membership.wire.versions import Api
from tests.runtime.guardian.leave_requests import (
    HEARTBEAT,
    Clock,
    OneAttempt,
    heartbeat_response,
    leave_request,
    left,
    script,
)
from tests.runtime.guardian.sasl_script import WORDS, SaslScript
from tests.support.scripted_broker import NEWEST, Answer, Received, ScriptedBroker
from tests.support.secured import Materials, materials, server_context

MECHANISMS = [SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512]
ACCEPTS = script(ErrorCode.none)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give slow brokers on a busy machine enough time, so that they receive no second request."""
    monkeypatch.setattr("consumer_membership.runtime.guardian.asking._ANSWER_S", 60.0)


def account(mechanism: SaslMechanism, username: str = "alice", password: str = "pencil") -> SaslSettings:  # noqa: S107
    """Return the member's credentials."""
    return SaslSettings(mechanism=mechanism, username=username, password=password)


def connections(broker: ScriptedBroker) -> int:
    """Return the number of connections that sent a request."""
    return len({request.connection for request in broker.requests()})


# ---- TLS -------------------------------------------------------------------------------------------------------------


def test_leave_over_tls_reaches_the_coordinator(secured_materials: Materials, tmp_path: Path) -> None:
    """The broker's certificate is for its host, and its authority is given as a file or as text."""
    made = secured_materials
    with ScriptedBroker(ACCEPTS, tls=server_context(made, tmp_path)) as broker:
        for tls in (TlsSettings(ca_location=made.ca_file), TlsSettings(ca_pem=made.ca_pem)):
            assert left(leave_request(broker.servers[0], tls=tls)).level is Level.INFO
        assert [request.api_key for request in broker.requests()] == [18, HEARTBEAT, 18, HEARTBEAT]


def test_leave_over_tls_presents_the_members_certificate(
    secured_materials: Materials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate and key may be files or text, and the key may be encrypted; text leaves no file behind."""
    made = secured_materials
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    base = TlsSettings(ca_location=made.ca_file)
    files = replace(base, certificate_location=made.client_cert_file, key_location=made.client_key_file)
    texts = replace(
        base,
        certificate_pem=made.client_cert_pem,
        key_pem=made.encrypted_key_pem,
        key_password=made.encrypted_key_password,
    )
    with ScriptedBroker(ACCEPTS, tls=server_context(made, tmp_path, wants_certificate=True)) as broker:
        for tls in (files, texts):
            assert left(leave_request(broker.servers[0], tls=tls)).level is Level.INFO
        assert list(place.iterdir()) == []
        assert left(leave_request(broker.servers[0], tls=base)).level is Level.WARNING
        assert len(broker.requests(HEARTBEAT)) == 2


def test_leave_over_tls_presents_the_certificate_of_a_keystore(secured_materials: Materials, tmp_path: Path) -> None:
    """The guardian receives the contents of the keystore as text, because its process cannot read the file."""
    made = secured_materials
    keystore = TlsSettings(
        ca_location=made.ca_file, keystore_location=made.keystore_file, keystore_password=made.keystore_password
    )
    tls = from_anywhere(keystore)
    assert tls.keystore_location is None
    with ScriptedBroker(ACCEPTS, tls=server_context(made, tmp_path, wants_certificate=True)) as broker:
        assert left(leave_request(broker.servers[0], tls=tls)).level is Level.INFO


def test_leave_over_tls_sends_nothing_to_an_unverified_broker(secured_materials: Materials, tmp_path: Path) -> None:
    """A broker with an unknown authority, another host or a revoked certificate receives neither leave nor password."""
    made = secured_materials
    trusting = TlsSettings(ca_location=made.ca_file)
    sasl = account(SaslMechanism.PLAIN)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = materials(elsewhere, hosts=("elsewhere.test",))
    with ScriptedBroker(ACCEPTS, tls=server_context(made, tmp_path)) as broker:
        for tls, reason in (
            (TlsSettings(ca_location=made.foreign_ca_file), "is not trusted"),
            (replace(trusting, crl_location=made.crl_file), "certificate revoked"),
        ):
            outcome = left(leave_request(broker.servers[0], broker.servers, tls=tls, sasl=sasl))
            assert outcome.level is Level.WARNING
            assert reason in outcome.text
        assert broker.requests() == []
    with ScriptedBroker(ACCEPTS, tls=server_context(other, tmp_path)) as broker:
        tls = TlsSettings(ca_location=other.ca_file)
        assert "is for another host" in left(leave_request(broker.servers[0], broker.servers, tls=tls, sasl=sasl)).text
        assert broker.requests() == []
        # With checks disabled, the guardian connects, as the member itself does.
        for lax in (replace(tls, checks_hostname=False), TlsSettings(verifies=False, checks_hostname=False)):
            assert left(leave_request(broker.servers[0], tls=lax)).level is Level.INFO


def test_leave_over_tls_explains_an_alert_after_the_handshake(secured_materials: Materials, tmp_path: Path) -> None:
    """With TLS 1.3, the client's handshake ends before the broker detects the missing certificate."""
    context = server_context(secured_materials, tmp_path, wants_certificate=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        refusal = threading.Thread(target=refuse_one, args=(server, context))
        refusal.start()
        tls = TlsSettings(ca_location=secured_materials.ca_file)
        outcome = left(leave_request(server.getsockname(), tls=tls), OneAttempt())
        refusal.join()
    assert outcome.level is Level.WARNING
    assert "the broker requires a client certificate; set ssl.certificate.location" in outcome.text


def refuse_one(server: socket.socket, context: ssl.SSLContext) -> None:
    """Accept one client and fail its handshake; the client can read the reason."""
    plain, _ = server.accept()
    with plain.dup() as raw:
        safe = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        with safe, pytest.raises(ssl.SSLError):
            safe.do_handshake()
        raw.shutdown(socket.SHUT_WR)
        # A close with unread bytes is a reset, which may arrive before the alert.
        while raw.recv(1024):
            pass


def test_leave_over_tls_names_a_missing_file_and_tries_again(secured_materials: Materials, tmp_path: Path) -> None:
    """A certificate renewal may be about to create the file; the message has the key and the path."""
    file = tmp_path / "ca.pem"
    request = leave_request(("127.0.0.1", 1), tls=TlsSettings(ca_location=str(file)))
    with ScriptedBroker(ACCEPTS, tls=server_context(secured_materials, tmp_path)) as broker:
        request = request._replace(coordinator=broker.servers[0], bootstrap_servers=broker.servers)
        assert f"ssl.ca.location='{file}': No such file or directory" in left(request).text

        class Renewal(Clock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                file.write_text(secured_materials.ca_pem)

        assert left(request, Renewal()).level is Level.INFO


# ---- SASL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [1, 2])
def test_leave_with_sasl_authenticates_first(mechanism: SaslMechanism, version: int) -> None:
    """The requests are ApiVersions, SaslHandshake and SaslAuthenticate in the newest version that both support."""
    versions = {**NEWEST, Api.SASL_AUTHENTICATE: (0, version)}
    with ScriptedBroker(SaslScript(ACCEPTS, mechanism.value), versions=versions) as broker:
        outcome = left(leave_request(broker.servers[0], sasl=account(mechanism)))
        assert outcome.level is Level.INFO, outcome
        asked = [(request.api_key, request.version) for request in broker.requests()]
        rounds = 1 if mechanism is SaslMechanism.PLAIN else 2
        assert asked == [(18, 0), (17, 1), *[(36, version)] * rounds, (HEARTBEAT, 1)]
        assert {request.client_id for request in broker.requests()} == {"tests"}
        assert connections(broker) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_leave_with_a_wrong_password_ends_with_the_brokers_message(mechanism: SaslMechanism) -> None:
    """The guardian sends a rejected password only once; the message has neither password nor proof.

    Some brokers lock an account after a few failures.
    """
    with ScriptedBroker(SaslScript(ACCEPTS, mechanism.value), nodes=2) as broker:
        clock = Clock()
        sasl = account(mechanism, password="hunter2")  # noqa: S106
        outcome = left(leave_request(broker.servers[0], broker.servers, sasl=sasl), clock)
        host, port = broker.servers[0]
        refusal = f"{host}:{port}: the broker rejected the credentials for {mechanism.value}: {WORDS}"
        assert outcome == (
            Level.WARNING,
            f"could not leave on its behalf: {refusal}; the coordinator removes it when its session ends",
        )
        assert (clock.slept, connections(broker)) == ([], 1)


def test_leave_with_an_unsupported_mechanism_ends_with_a_warning() -> None:
    """The message names the mechanisms that the broker supports."""
    with ScriptedBroker(SaslScript(ACCEPTS, "SCRAM-SHA-256")) as broker:
        outcome = left(leave_request(broker.servers[0], sasl=account(SaslMechanism.PLAIN)))
        assert outcome.level is Level.WARNING
        assert "does not support PLAIN; set sasl.mechanism to one of: SCRAM-SHA-256" in outcome.text
        assert [request.api_key for request in broker.requests()] == [18, 17]


def test_leave_with_scram_is_not_sent_to_a_broker_without_the_users_keys() -> None:
    """SCRAM authenticates the broker to the client also."""
    sasl_script = SaslScript(ACCEPTS, "SCRAM-SHA-512", is_genuine=False)
    with ScriptedBroker(sasl_script) as broker:
        outcome = left(leave_request(broker.servers[0], sasl=account(SaslMechanism.SCRAM_SHA_512)))
        assert outcome.level is Level.WARNING
        assert "the broker's signature is wrong" in outcome.text
        assert broker.requests(HEARTBEAT) == []


def test_leave_with_a_password_that_has_a_nul_ends_with_a_warning() -> None:
    """`set_sasl_credentials` accepts any text, so the guardian itself rejects a NUL."""
    with ScriptedBroker(SaslScript(ACCEPTS, "PLAIN")) as broker:
        outcome = left(leave_request(broker.servers[0], sasl=account(SaslMechanism.PLAIN, password="hunter\x002")))  # noqa: S106
        assert outcome.level is Level.WARNING
        assert "sasl.mechanism=PLAIN: the password has a NUL" in outcome.text
        assert "hunter" not in outcome.text


def test_leave_with_sasl_sends_no_credentials_to_a_broker_without_sasl() -> None:
    """The broker's ApiVersions response shows it before any credential is sent."""
    versions = {key: offered for key, offered in NEWEST.items() if key != Api.SASL_AUTHENTICATE}
    with ScriptedBroker(SaslScript(ACCEPTS, "PLAIN"), versions=versions) as broker:
        outcome = left(leave_request(broker.servers[0], sasl=account(SaslMechanism.PLAIN)))
        assert outcome.level is Level.WARNING
        assert {request.api_key for request in broker.requests()} == {18}


def test_leave_with_sasl_authenticates_for_the_coordinator_lookup(secured_materials: Materials, tmp_path: Path) -> None:
    """The guardian authenticates to the old coordinator, the bootstrap server and the new coordinator over TLS."""

    def moved(request: Received) -> Answer:
        if request.api_key != HEARTBEAT:
            return None
        return heartbeat_response(request, ErrorCode.not_coordinator if request.node_id == 1 else ErrorCode.none)

    mechanism = SaslMechanism.SCRAM_SHA_512
    sasl_script = SaslScript(moved, mechanism.value)
    with ScriptedBroker(sasl_script, nodes=2, tls=server_context(secured_materials, tmp_path)) as broker:
        broker.coordinator = 2
        request = leave_request(
            broker.servers[0],
            broker.servers,
            tls=TlsSettings(ca_location=secured_materials.ca_file),
            sasl=account(mechanism),
        )
        host, port = broker.servers[1]
        assert left(request) == (Level.INFO, f"left on its behalf (epoch -1) at coordinator {host}:{port}")
        assert [request.node_id for request in broker.requests(HEARTBEAT)] == [1, 2]
        assert connections(broker) == 3
