"""TLS contexts from settings: the effect of each setting in a handshake, and the messages of failed handshakes."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from consumer_membership.config import TlsSettings, authorities
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.network import tls as tls_module
from consumer_membership.runtime.network.tls import explain, tls_context
from tests.support.secured import Materials, materials, server_context


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    """Certificates of a broker on localhost and of a client."""
    return materials(tmp_path_factory.mktemp("tls"))


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Perform both sides of a handshake in memory; return the server's first byte, or raise the client's error."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(to_client, to_server, server_hostname=host)
    right = server.wrap_bio(to_server, to_client, server_side=True)
    is_done = False
    while not is_done:
        with suppress(ssl.SSLWantReadError):
            left.do_handshake()
            is_done = True
        try:
            right.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            break  # the client receives an alert
    with suppress(ssl.SSLWantReadError):
        left.read(1)
    return left


def failure(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost") -> str:
    """Return the explanation of a handshake that fails."""
    with pytest.raises(ssl.SSLError) as caught:
        shake_hands(client, server, host)
    return explain(caught.value)


# ---- versions --------------------------------------------------------------------------------------------------------


def of_an_old_system(protocol: int) -> ssl.SSLContext:
    """Return a context of a Python on a system with old defaults."""
    context = ssl.SSLContext(protocol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    return context


def of_a_strict_system(protocol: int) -> ssl.SSLContext:
    """Return a context of a Python on a system that allows TLS 1.3 only."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


@pytest.mark.parametrize(
    ("made_by", "oldest"),
    [
        (of_an_old_system, ssl.TLSVersion.TLSv1_2),
        (of_a_strict_system, ssl.TLSVersion.TLSv1_3),
        (ssl.SSLContext, ssl.TLSVersion.TLSv1_2),
    ],
)
def test_tls_context_requires_tls_1_2_or_the_systems_minimum(
    monkeypatch: pytest.MonkeyPatch, made_by: Callable[[int], ssl.SSLContext], oldest: ssl.TLSVersion
) -> None:
    """If defaults of Python and the system are weaker, they are raised; a stricter policy stays."""
    monkeypatch.setattr(tls_module, "ssl", SimpleNamespace(**{**vars(ssl), "SSLContext": made_by}))
    assert tls_context(TlsSettings()).minimum_version is oldest


def test_tls_context_rejects_a_broker_with_tls_1_1_and_names_the_required_version(
    made: Materials, tmp_path: Path
) -> None:
    """The message contains the required version."""
    server = server_context(made, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        server.minimum_version = server.maximum_version = ssl.TLSVersion.TLSv1_1
    server.set_ciphers("ALL:@SECLEVEL=0")
    assert "1.2 or later is required" in failure(tls_context(TlsSettings(ca_pem=made.ca_pem)), server)


# ---- the broker's certificate ----------------------------------------------------------------------------------------


def test_tls_context_accepts_an_authority_as_file_folder_or_text(made: Materials, tmp_path: Path) -> None:
    """Each of the three makes the broker's certificate trusted."""
    hashed = tmp_path / "hashed"
    hashed.mkdir()
    # OpenSSL finds the file by its subject's hash, as `openssl rehash` names it.
    names = {f"{value}.0" for value in subject_hashes(made.ca_file)}
    for name in names:
        (hashed / name).write_text(made.ca_pem)
    server = server_context(made, tmp_path)
    for tls in (
        TlsSettings(ca_location=made.ca_file),
        TlsSettings(ca_location=str(hashed)),
        TlsSettings(ca_pem=made.ca_pem),
    ):
        assert (shake_hands(tls_context(tls), server).version() or "") >= "TLSv1.2"


def subject_hashes(certificate: str) -> list[str]:
    """Return the names under which OpenSSL finds this authority in a folder (ca-certificates uses such names)."""
    command = ["openssl", "x509", "-hash", "-noout", "-in", certificate]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_tls_context_rejects_an_unknown_authority(made: Materials, tmp_path: Path) -> None:
    """By default only the system's authorities are trusted."""
    server = server_context(made, tmp_path)
    for tls in (TlsSettings(), TlsSettings(ca_location=made.foreign_ca_file)):
        text = failure(tls_context(tls), server)
        assert text.startswith("the broker's certificate is not trusted (")
        assert "ssl.ca.location" in text


def test_tls_context_finds_the_systems_authorities_outside_openssls_paths(
    made: Materials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that was built elsewhere trusts the same authorities as librdkafka on the same machine."""
    server = server_context(made, tmp_path)
    nowhere = ssl.DefaultVerifyPaths(None, None, "", "", "", "")  # type: ignore[arg-type]  # as on a system without authorities
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    monkeypatch.setattr(authorities, "_USUAL", ("/no/such/file", made.ca_file))
    shake_hands(tls_context(TlsSettings()), server)
    monkeypatch.setattr(authorities, "_USUAL", ())
    assert "not trusted" in failure(tls_context(TlsSettings()), server)


def test_tls_context_rejects_a_certificate_of_another_host_unless_disabled(made: Materials, tmp_path: Path) -> None:
    """ssl.endpoint.identification.algorithm is https by default, for names and for addresses."""
    tls, server = TlsSettings(ca_location=made.ca_file), server_context(made, tmp_path)
    for host in ("elsewhere.test", "10.0.0.1"):
        text = failure(tls_context(tls), server, host)
        assert text.startswith("the broker's certificate is for another host")
        assert "ssl.endpoint.identification.algorithm" in text
    shake_hands(tls_context(replace(tls, checks_hostname=False)), server, "elsewhere.test")


def test_tls_context_without_verification_accepts_any_certificate(made: Materials, tmp_path: Path) -> None:
    """enable.ssl.certificate.verification=false accepts any broker, also with another host name."""
    shake_hands(tls_context(TlsSettings(verifies=False)), server_context(made, tmp_path), "elsewhere.test")


def test_tls_context_rejects_a_revoked_certificate(made: Materials, tmp_path: Path) -> None:
    """ssl.crl.location names the file of revoked certificates."""
    tls, server = TlsSettings(ca_location=made.ca_file), server_context(made, tmp_path)
    shake_hands(tls_context(replace(tls, crl_location=made.clean_crl_file)), server)
    assert "certificate revoked" in failure(tls_context(replace(tls, crl_location=made.crl_file)), server)


def test_tls_context_with_probe_trusts_only_the_first_usual_file(
    made: Materials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssl.ca.location=probe uses the first existing file of the list, as librdkafka does."""
    server, probe = server_context(made, tmp_path), TlsSettings(ca_location="probe")
    monkeypatch.setattr(authorities, "_USUAL", ("/no/such/file", made.ca_file, made.foreign_ca_file))
    shake_hands(tls_context(probe), server)
    monkeypatch.setattr(authorities, "_USUAL", (made.foreign_ca_file, made.ca_file))
    assert "not trusted" in failure(tls_context(probe), server)
    monkeypatch.setattr(authorities, "_USUAL", ())
    tls_context(probe)


# ---- the client's certificate ----------------------------------------------------------------------------------------


def test_tls_context_accepts_the_clients_certificate_as_files_or_text(made: Materials, tmp_path: Path) -> None:
    """The key may be encrypted, and text leaves no file behind."""
    server = server_context(made, tmp_path, wants_certificate=True)
    base = TlsSettings(ca_location=made.ca_file)
    assert "set ssl.certificate.location and ssl.key.location" in failure(tls_context(base), server)
    password = made.encrypted_key_password
    for tls in (
        replace(base, certificate_location=made.client_cert_file, key_location=made.client_key_file),
        replace(
            base,
            certificate_location=made.client_cert_file,
            key_location=made.encrypted_key_file,
            key_password=password,
        ),
        replace(base, certificate_pem=made.client_cert_pem, key_pem=made.client_key_pem),
        replace(base, certificate_pem=made.client_cert_pem, key_pem=made.encrypted_key_pem, key_password=password),
    ):
        shake_hands(tls_context(tls), server)


def test_tls_context_reads_a_keystore_with_its_password(made: Materials, tmp_path: Path) -> None:
    """ssl.keystore.location has the certificate and the key; a wrong password or file raises with the key."""
    server = server_context(made, tmp_path, wants_certificate=True)
    tls = TlsSettings(
        ca_location=made.ca_file, keystore_location=made.keystore_file, keystore_password=made.keystore_password
    )
    shake_hands(tls_context(tls), server)
    absent, empty = str(tmp_path / "absent.p12"), tmp_path / "empty.p12"
    empty.write_bytes(b"")
    for wrong in (
        replace(tls, keystore_password="wrong-secret"),  # noqa: S106
        replace(tls, keystore_password=None),
        replace(tls, keystore_location=absent),
        replace(tls, keystore_location=str(empty)),
        replace(tls, keystore_location=made.truststore_file),
    ):
        with pytest.raises(ConfigurationError) as caught:
            tls_context(wrong)
        assert caught.value.key == "ssl.keystore.location"
        assert caught.value.value == wrong.keystore_location
        assert "wrong-secret" not in str(caught.value)


def test_tls_context_without_cryptography_names_the_extra_for_keystores(
    made: Materials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only keystores require the package."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    tls = TlsSettings(keystore_location=made.keystore_file, keystore_password=made.keystore_password)
    with pytest.raises(ConfigurationError, match=r"\[pkcs12\]"):
        tls_context(tls)
    tls_context(TlsSettings(certificate_pem=made.client_cert_pem, key_pem=made.client_key_pem))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
def test_tls_context_writes_texts_and_keystores_to_no_disk(
    made: Materials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates and keys from text or keystores are files in memory while OpenSSL reads them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    server = server_context(made, tmp_path, wants_certificate=True)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    keystore = TlsSettings(keystore_location=made.keystore_file, keystore_password=made.keystore_password)
    for own in (TlsSettings(certificate_pem=made.client_cert_pem, key_pem=made.client_key_pem), keystore):
        shake_hands(tls_context(replace(own, ca_location=made.ca_file)), server)
    assert len(list(descriptors.iterdir())) == before


def test_tls_context_explains_a_client_certificate_that_the_broker_rejects(made: Materials, tmp_path: Path) -> None:
    """The broker reports it in an alert."""
    tls = TlsSettings(
        ca_location=made.ca_file, certificate_location=made.foreign_cert_file, key_location=made.foreign_key_file
    )
    server = server_context(made, tmp_path, wants_certificate=True)
    assert "does not trust the client certificate" in failure(tls_context(tls), server)


# ---- unreadable files and texts --------------------------------------------------------------------------------------


def test_tls_context_raises_for_unreadable_input_with_key_and_remedy(made: Materials, tmp_path: Path) -> None:
    """The error is raised when the client is created, not when it connects."""
    absent, empty = str(tmp_path / "absent.pem"), tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    certificate = TlsSettings(certificate_location=made.client_cert_file)
    cases = {
        TlsSettings(ca_location=absent): ("ssl.ca.location", "No such file"),
        TlsSettings(ca_location=str(empty)): ("ssl.ca.location", "PEM file of certificates"),
        TlsSettings(ca_pem="nothing"): ("ssl.ca.pem", "certificates in PEM"),
        TlsSettings(crl_location=absent): ("ssl.crl.location", "No such file"),
        TlsSettings(certificate_location=absent): ("ssl.certificate.location", "No such file"),
        # The key is expected in the certificate's file.
        certificate: ("ssl.certificate.location", "a certificate and its key in PEM"),
        replace(certificate, key_location=absent): ("ssl.key.location", "No such file"),
        replace(certificate, key_location=made.encrypted_key_file): ("ssl.certificate.location", "key"),
        replace(certificate, key_location=made.foreign_key_file): ("ssl.certificate.location", "key values mismatch"),
        TlsSettings(cipher_suites="ROT13"): ("ssl.cipher.suites", "openssl ciphers"),
    }
    for tls, (key, reason) in cases.items():
        with pytest.raises(ConfigurationError) as caught:
            tls_context(tls)
        assert caught.value.key == key
        assert reason in str(caught.value)


def test_tls_context_raises_for_an_encrypted_key_instead_of_prompting(made: Materials) -> None:
    """OpenSSL would read the password from the terminal, and the process would stall."""
    tls = TlsSettings(
        certificate_pem=made.client_cert_pem,
        key_pem=made.encrypted_key_pem,
        key_password="wrong-secret",  # noqa: S106
    )
    with pytest.raises(ConfigurationError) as caught:
        tls_context(tls)
    assert "wrong-secret" not in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)


def test_tls_context_without_files_in_memory_reads_texts_from_temporary_files(
    made: Materials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Systems such as macOS have no files in memory; the temporary file is removed."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    server = server_context(made, tmp_path, wants_certificate=True)
    keystore = TlsSettings(keystore_location=made.keystore_file, keystore_password=made.keystore_password)
    for own in (TlsSettings(certificate_pem=made.client_cert_pem, key_pem=made.client_key_pem), keystore):
        shake_hands(tls_context(replace(own, ca_location=made.ca_file)), server)
    assert list(folder.iterdir()) == []


def test_tls_context_with_certificate_text_raises_without_a_temporary_folder(
    made: Materials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a read-only system without files in memory, certificates must be files instead of text."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match=r"ssl\.certificate\.pem.*\.location or TMPDIR"):
        tls_context(TlsSettings(certificate_pem=made.client_cert_pem, key_pem=made.client_key_pem))


def test_tls_context_explains_a_peer_that_does_not_use_tls() -> None:
    """A plaintext listener responds with bytes that are not a TLS record."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls_context(TlsSettings()).wrap_bio(to_client, to_server, server_hostname="localhost")
    to_client.write(b"\x00\x00\x00\x04abcd")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    assert "does not use TLS; check the port" in explain(caught.value)
