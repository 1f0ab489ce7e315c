"""TLS as configured: Python's own ssl, with the meaning that the keys have for librdkafka's OpenSSL."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

# Not from the package's `__init__`, which loads pydantic: the guardian's process also has TLS from here.
from consumer_membership.config.settings import TlsSettings
from consumer_membership.errors import ConfigurationError

#: OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, for which Python has no names.
_OTHER_HOST = frozenset({62, 64})
#: Where systems keep the authorities that they trust (Debian, Fedora, SUSE, Alpine, macOS), for a Python whose OpenSSL
#: reads the paths of its build and finds nothing. librdkafka, which brings its own OpenSSL, also reads such a list.
_USUAL_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/etc/openssl/cert.pem",
)
#: OpenSSL's reasons for the bytes of a peer that uses another protocol.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})
_NO_CERTIFICATE = "the broker requires a client certificate; set ssl.certificate.location and ssl.key.location"
_BAD_CERTIFICATE = "the broker does not trust the client certificate (ssl.certificate.location)"
_NO_COMMON_VERSION = "the broker and this client have no TLS version in common; TLS 1.2 or later is required"
_ALERTS: Mapping[str, str] = MappingProxyType(
    {
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
        # The alert of TLS 1.2 brokers to a client without a certificate.
        "SSLV3_ALERT_BAD_CERTIFICATE": f"{_NO_CERTIFICATE} to a certificate that it trusts",
        "TLSV1_ALERT_UNKNOWN_CA": _BAD_CERTIFICATE,
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _BAD_CERTIFICATE,
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate (ssl.certificate.location) has expired",
        "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker and this client have no cipher in common (ssl.cipher.suites)",
        "TLSV1_ALERT_PROTOCOL_VERSION": _NO_COMMON_VERSION,
        "UNSUPPORTED_PROTOCOL": _NO_COMMON_VERSION,
    }
)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS configuration for connections; TLS 1.2 at least.

    Raises:
        ConfigurationError: a file cannot be read or is invalid; the message has key, file and fix.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A Python that follows a system's policy may allow older versions; a stricter policy stays.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    # In this order: a context that checks names does not allow its verification to be disabled.
    context.check_hostname = tls.verifies and tls.checks_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verifies else ssl.CERT_NONE
    _trust(context, tls)
    _identify(context, tls)
    if tls.cipher_suites is not None:
        try:
            context.set_ciphers(tls.cipher_suites)
        except ssl.SSLError as error:
            remedy = "OpenSSL supports none of them; use names that `openssl ciphers` prints, separated by colons"
            raise ConfigurationError("ssl.cipher.suites", tls.cipher_suites, remedy) from error
    return context


def explain(error: ssl.SSLError) -> str:
    """Explain why a handshake failed, with the fix."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return (
                f"the broker's certificate is for another host ({error.verify_message.strip()}); connect by a name "
                "in the certificate, or set ssl.endpoint.identification.algorithm=none"
            )
        return (
            f"the broker's certificate is not trusted ({error.verify_message}); set ssl.ca.location to "
            "the certificate of its authority"
        )
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return "the peer does not use TLS; check the port and security.protocol"
    return f"TLS failed: {_ALERTS.get(reason, reason.replace('_', ' ').lower() or str(error))}"


def _trust(context: ssl.SSLContext, tls: TlsSettings) -> None:
    if tls.ca_location is None and tls.ca_pem is None:
        _trust_the_system(context)
    if tls.ca_location is not None:
        is_folder = Path(tls.ca_location).is_dir()
        with _readable(
            "ssl.ca.location", tls.ca_location, "a PEM file of certificates, or a directory of hashed certificates"
        ):
            context.load_verify_locations(
                cafile=None if is_folder else tls.ca_location, capath=tls.ca_location if is_folder else None
            )
    if tls.ca_pem is not None:
        with _readable("ssl.ca.pem", "...", "certificates in PEM format"):
            context.load_verify_locations(cadata=tls.ca_pem)
    if tls.crl_location is not None:
        with _readable("ssl.crl.location", tls.crl_location, "a PEM file of revocation lists"):
            context.load_verify_locations(cafile=tls.crl_location)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _trust_the_system(context: ssl.SSLContext) -> None:
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    found = ssl.get_default_verify_paths()
    if not (found.cafile or found.capath):
        usual = next((path for path in _USUAL_AUTHORITIES if Path(path).is_file()), None)
        if usual is not None:
            context.load_verify_locations(cafile=usual)


def _identify(context: ssl.SSLContext, tls: TlsSettings) -> None:
    """Load this client's certificate and key, which Python accepts as files only."""
    with (
        _as_file("ssl.certificate", tls.certificate_location, tls.certificate_pem) as certificate,
        _as_file("ssl.key", tls.key_location, tls.key_pem) as key,
    ):
        if certificate is None:
            return
        # OpenSSL does not report which of the two is wrong.
        for location_key, location in (
            ("ssl.certificate.location", tls.certificate_location),
            ("ssl.key.location", tls.key_location),
        ):
            with _readable(location_key, location or "...", "a PEM file that this process can read"):
                _ = location is None or Path(location).read_bytes()
        shown = tls.certificate_location or "..."
        what = "a certificate and its key in PEM format, and set ssl.key.password if the key is encrypted"
        with _readable("ssl.certificate.location", shown, what):
            # Without a password OpenSSL would prompt for one at the terminal.
            context.load_cert_chain(certificate, key, password=lambda: tls.key_password or "")


@contextmanager
def _as_file(kind: str, location: str | None, text: str | None) -> Iterator[str | None]:
    """The file; for a text, one that only this user can read, and only during the block."""
    if location is not None or text is None:
        yield location
        return
    try:
        opened = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115 - the next statement closes it
    except OSError as error:
        remedy = f"no temporary file for OpenSSL can be created ({error.strerror}); set {kind}.location or TMPDIR"
        raise ConfigurationError(f"{kind}.pem", "...", remedy) from error
    with opened as file:
        file.write(text)
        file.flush()
        yield file.name


@contextmanager
def _readable(key: str, value: str, what: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ConfigurationError(key, value, f"{reason}; set it to {what}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(key, value, f"{reason}; set it to {what}") from error
