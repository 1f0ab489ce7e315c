"""TLS as configured: Python's own ssl, with the meaning that the keys have for librdkafka's OpenSSL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType

# Not from the package's `__init__`, which loads pydantic: the guardian's process also has TLS from here.
from consumer_membership.config import authorities
from consumer_membership.config.authorities import readable
from consumer_membership.config.settings import TlsSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.network.identity import identify

#: OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, for which Python has no names.
_OTHER_HOST = frozenset({62, 64})
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
    identify(context, tls)
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
    authorities.trust(context, "ssl.ca", tls.ca_location, tls.ca_pem)
    if tls.crl_location is not None:
        with readable("ssl.crl.location", tls.crl_location, "a PEM file of revocation lists"):
            context.load_verify_locations(cafile=tls.crl_location)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
