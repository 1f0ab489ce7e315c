"""Certificates, users and tokens for a secured broker and its clients, created for each run.

There are two certificate authorities: an authority that the broker and clients trust, and a foreign authority that they
do not trust.
"""

from __future__ import annotations

import base64
import fcntl
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import MappingProxyType

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from consumer_membership.devbroker import Broker, Security
from consumer_membership.devbroker.listeners import SASL
from tests.support.brokers import arguments_of
from tests.support.kinds import SHORT_SESSIONS

#: Bob's password has characters that are special in JAAS, in properties files, in SCRAM or in UTF-8.
USERS: Mapping[str, str] = MappingProxyType({"alice": "alice-secret", "bob": 'b=o,b "quoted" \\ ; ü'})

#: The hosts that the broker advertises.
HOSTS = ("localhost", "127.0.0.1")

#: The name in the client's certificate.
CLIENT_NAME = "member.test"

_KEY_PASSWORD = "key-secret"  # noqa: S105 - of a key that is used only during a test run


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Keys and certificates of a broker and its clients; files are absolute paths, because clients require them.

    Attributes:
        ca_file: The authority's certificate.
        client_cert_file: The client's certificate, issued by this authority.
        client_key_file: The client's key, PKCS #8, not encrypted.
        encrypted_key_file: The client's key, encrypted.
        encrypted_key_password: The password of the encrypted key.
        keystore_file: The client's certificate and key in PKCS#12.
        keystore_password: The password of the keystore and of the truststore.
        truststore_file: The authority's certificate in PKCS#12.
        foreign_ca_file: The certificate of the foreign authority.
        foreign_cert_file: A client's certificate, issued by the foreign authority.
        foreign_key_file: The key for this certificate.
        renewed_key_pem: A second key of the broker.
        renewed_certificate_chain_pem: The certificate for this key, with the names of the broker's first certificate.
        crl_file: A revocation list of the authority, with the broker's certificate.
        clean_crl_file: An empty revocation list of the authority.
        security: The security settings of the broker.
    """

    ca_file: str
    client_cert_file: str
    client_key_file: str
    encrypted_key_file: str
    encrypted_key_password: str
    keystore_file: str
    keystore_password: str
    truststore_file: str
    foreign_ca_file: str
    foreign_cert_file: str
    foreign_key_file: str
    renewed_key_pem: str
    renewed_certificate_chain_pem: str
    crl_file: str
    clean_crl_file: str
    security: Security

    @property
    def users(self) -> Mapping[str, str]:
        """The password of each user."""
        return self.security.users

    @property
    def ca_pem(self) -> str:
        """The contents of `ca_file`."""
        return Path(self.ca_file).read_text()

    @property
    def client_cert_pem(self) -> str:
        return Path(self.client_cert_file).read_text()

    @property
    def client_key_pem(self) -> str:
        return Path(self.client_key_file).read_text()

    @property
    def encrypted_key_pem(self) -> str:
        return Path(self.encrypted_key_file).read_text()

    @property
    def foreign_ca_pem(self) -> str:
        return Path(self.foreign_ca_file).read_text()


def materials(
    folder: Path, *, hosts: Sequence[str] = HOSTS, users: Mapping[str, str] = USERS, not_after: datetime | None = None
) -> Materials:
    """Create authorities, certificates and files in this existing folder.

    Args:
        folder: The folder of the files.
        hosts: The hosts in the broker's certificate. Clients reject the certificate if the broker advertises others.
        users: The password of each user.
        not_after: When the broker's certificate expires, as a naive UTC time. By default it is valid for centuries.
    """
    authority, foreign = trustme.CA(), trustme.CA()
    # A running broker accepts only a renewed certificate with the same subject.
    broker, renewed = (
        authority.issue_cert(*hosts, organization_unit_name="broker", not_after=not_after) for _ in range(2)
    )
    client = authority.issue_cert(CLIENT_NAME, common_name=CLIENT_NAME)
    stranger = foreign.issue_cert(CLIENT_NAME, common_name=CLIENT_NAME)

    def written(name: str, text: str) -> str:
        path = folder.absolute() / name
        path.write_text(text)
        return str(path)

    def stored(name: str, content: bytes) -> str:
        path = folder.absolute() / name
        path.write_bytes(content)
        return str(path)

    return Materials(
        ca_file=written("ca.pem", _text(authority.cert_pem)),
        client_cert_file=written("client.pem", _chain(client)),
        client_key_file=written("client-key.pem", _key(client)),
        encrypted_key_file=written(
            "client-key-encrypted.pem", _key(client, BestAvailableEncryption(_KEY_PASSWORD.encode()))
        ),
        encrypted_key_password=_KEY_PASSWORD,
        keystore_file=stored("client.p12", _keystore(client)),
        keystore_password=_KEY_PASSWORD,
        truststore_file=stored("ca.p12", _truststore(authority)),
        foreign_ca_file=written("foreign-ca.pem", _text(foreign.cert_pem)),
        foreign_cert_file=written("foreign.pem", _chain(stranger)),
        foreign_key_file=written("foreign-key.pem", _key(stranger)),
        renewed_key_pem=_key(renewed),
        renewed_certificate_chain_pem=_chain(renewed),
        crl_file=written("crl.pem", _revocation_list(authority, broker)),
        clean_crl_file=written("clean-crl.pem", _revocation_list(authority)),
        security=Security(
            key_pem=_key(broker),
            certificate_chain_pem=_chain(broker),
            client_authority_pem=_text(authority.cert_pem),
            users=users,
        ),
    )


def materials_of_run(folder: Path) -> Materials:
    """Return the materials of a test run; the first process creates them, so that all processes can share brokers."""
    stored = folder / "secured.json"
    with (folder / "secured.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            files = folder / "secured"
            files.mkdir()
            made = materials(files)
            values = {one.name: getattr(made, one.name) for one in fields(made)}
            stored.write_text(json.dumps(values | {"security": arguments_of(made.security)}))
    values = json.loads(stored.read_text())
    return Materials(**values | {"security": Security(**values["security"])})


class Way(Enum):
    """A way to connect to a secured broker: a listener, and the client's authentication."""

    TLS = "TLS"
    MUTUAL_TLS = "MUTUAL"
    PLAIN = "SASL PLAIN"
    SCRAM_256 = "SASL SCRAM-SHA-256"
    SCRAM_512_OVER_TLS = "SASL_TLS SCRAM-SHA-512"
    TOKEN_OVER_TLS = "SASL_TLS OAUTHBEARER"  # noqa: S105 - a mechanism

    @property
    def listener(self) -> str:
        """The broker's listener."""
        return self.value.partition(" ")[0]

    @property
    def mechanism(self) -> str:
        """The SASL mechanism; empty without SASL."""
        return self.value.partition(" ")[2]

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.listener != SASL

    @property
    def has_password(self) -> bool:
        """Whether the client authenticates with a password."""
        return self.mechanism not in ("", "OAUTHBEARER")


def client_config(broker: Broker, made: Materials, way: Way, user: str = "alice") -> dict[str, object]:
    """Return the configuration of a confluent-kafka client that connects to the broker in this way."""
    protocol = ("SASL_" if way.mechanism else "") + ("SSL" if way.has_tls else "PLAINTEXT")
    config: dict[str, object] = {"bootstrap.servers": broker.secured[way.listener], "security.protocol": protocol}
    if way.has_tls:
        config["ssl.ca.location"] = made.ca_file
    if way is Way.MUTUAL_TLS:
        config |= {"ssl.certificate.location": made.client_cert_file, "ssl.key.location": made.client_key_file}
    if way.mechanism:
        config["sasl.mechanism"] = way.mechanism
    if way.has_password:
        config |= {"sasl.username": user, "sasl.password": made.users[user]}
    elif way.mechanism:
        config["oauth_cb"] = lambda _: unsecured_token(user).answer
    return config


def over_sasl_and_tls(broker: Broker, made: Materials) -> dict[str, object]:
    """Return the settings of a client on the listener with SASL and TLS, without its credentials."""
    return {
        "bootstrap.servers": broker.secured["SASL_TLS"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": made.ca_file,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An OAUTHBEARER token with its attributes.

    Attributes:
        value: The token in compact form.
        subject: The principal.
        expires_at_s: The expiry of the token, in seconds since the epoch.
        extensions: The SASL extensions to send with the token.
    """

    value: str
    subject: str
    expires_at_s: float
    extensions: Mapping[str, str]

    @property
    def answer(self) -> tuple[str, float, str, dict[str, str]]:
        """The return value of confluent_kafka's `oauth_cb`."""
        return self.value, self.expires_at_s, self.subject, dict(self.extensions)


def unsecured_token(
    subject: str,
    lifetime_s: float = 3600,
    extensions: Mapping[str, str] = MappingProxyType({}),
    *,
    issued_at_s: float | None = None,
) -> Token:
    """Return an unsigned JSON Web Token (RFC 7515, section 8: alg none), which Kafka's default validator accepts.

    By default it is issued now. With an earlier `issued_at_s`, it may already be expired.
    """
    issued = time.time() if issued_at_s is None else issued_at_s
    claims = {"sub": subject, "iat": issued, "exp": issued + lifetime_s}
    # The third part, the signature, is empty.
    value = ".".join([_part({"alg": "none"}), _part(claims), ""])
    return Token(value=value, subject=subject, expires_at_s=issued + lifetime_s, extensions=extensions)


def _part(of_token: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(of_token).encode()).decode().rstrip("=")


def _text(blob: trustme.Blob) -> str:
    return blob.bytes().decode()


def _chain(certificate: trustme.LeafCert) -> str:
    return "".join(_text(blob) for blob in certificate.cert_chain_pems)


def _key(certificate: trustme.LeafCert, encryption: KeySerializationEncryption | None = None) -> str:
    """Return a key in PKCS #8, because Kafka reads only this format and trustme writes another one."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()).decode()


def _keystore(certificate: trustme.LeafCert) -> bytes:
    """Return the certificate, its intermediate certificates and its key in PKCS#12."""
    own, *others = x509.load_pem_x509_certificates(_chain(certificate).encode())
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "trustme's default"
    encryption = BestAvailableEncryption(_KEY_PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"client", key, own, others, encryption)


def _truststore(authority: trustme.CA) -> bytes:
    """Return the authority's certificate in PKCS#12, without a key."""
    own = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    encryption = BestAvailableEncryption(_KEY_PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(None, None, own, None, encryption)


def _revocation_list(authority: trustme.CA, *revoked: trustme.LeafCert) -> str:
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "trustme's default"
    now = datetime.now(UTC)
    building = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    building = building.last_update(now - timedelta(days=1)).next_update(now + timedelta(days=365))
    for one in revoked:
        serial = x509.load_pem_x509_certificate(one.cert_chain_pems[0].bytes()).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - timedelta(hours=1))
        building = building.add_revoked_certificate(entry.build())
    return building.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


def verifying(jwks_url: str, ca_file: str, audience: str, issuer: str, subject_claim: str = "sub") -> dict[str, str]:
    """Return the properties of a broker that verifies tokens on its SASL_TLS listener, and limits SASL sessions."""
    listener = "listener.name.sasl_tls"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        **SHORT_SESSIONS,
        "connections.max.reauth.ms": "3600000",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        f"{listener}.sasl.oauthbearer.expected.audience": audience,
        f"{listener}.sasl.oauthbearer.expected.issuer": issuer,
        f"{listener}.sasl.oauthbearer.sub.claim.name": subject_claim,
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{listener}.oauthbearer.sasl.jaas.config": (
            # The broker's own login, which no connection uses, needs an unsigned token.
            f'{module} required ssl.truststore.type="PEM" ssl.truststore.location="{ca_file}"'
            ' unsecuredLoginStringClaim_sub="broker";'
        ),
    }


def server_context(made: Materials, folder: Path, *, wants_certificate: bool = False) -> ssl.SSLContext:
    """Return the TLS context of a broker."""
    key, chain = folder / "key.pem", folder / "chain.pem"
    key.write_text(made.security.key_pem)
    chain.write_text(made.security.certificate_chain_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=made.ca_pem)
    return context
