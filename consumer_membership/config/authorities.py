"""The authorities that a TLS client trusts: a file, a folder, text, or those of the system.

Brokers and the token endpoint of OIDC have keys of their own for this (`ssl.ca.*`, `https.ca.*`) with the same meaning.
Standard library only: the guardian's process also loads this module.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consumer_membership.errors import ConfigurationError

#: The value of `ssl.ca.location` and `https.ca.location` for the first of `_USUAL`.
PROBE = "probe"
#: Where systems keep the authorities that they trust (Fedora, SUSE, Alpine, Debian, BSD, macOS); if several exist,
#: librdkafka uses the first one in this order. It brings its own OpenSSL, which does not know the system's paths. A
#: Python whose OpenSSL reads the paths of its build, and finds nothing there, also uses this list.
_USUAL = (
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
    "/usr/local/etc/openssl/cert.pem",
)


def trust(context: ssl.SSLContext, key: str, location: str | None, pem: str | None) -> None:
    """Make the context trust these authorities, or the system's if there are none.

    Args:
        context: The context of a client.
        key: The beginning of the keys, `ssl.ca` or `https.ca`, for errors.
        location: A file, a folder of hashed certificates, or `PROBE`.
        pem: Certificates as text, in addition to `location`.

    Raises:
        ConfigurationError: a file or the text cannot be read; the message has the key, the value and the fix.
    """
    if location == PROBE:
        _trust_usual(context)
    elif location is not None:
        is_folder = Path(location).is_dir()
        what = f"a PEM file of certificates, a directory of hashed certificates, or {PROBE}"
        with readable(f"{key}.location", location, what):
            context.load_verify_locations(
                cafile=None if is_folder else location, capath=location if is_folder else None
            )
    elif pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        found = ssl.get_default_verify_paths()
        if not (found.cafile or found.capath):
            _trust_usual(context)
    if pem is not None:
        with readable(f"{key}.pem", "...", "certificates in PEM format"):
            context.load_verify_locations(cadata=pem)


def _trust_usual(context: ssl.SSLContext) -> None:
    """Trust the first existing file of the list, else the authorities that OpenSSL finds, as librdkafka does."""
    usual = next((path for path in _USUAL if Path(path).is_file()), None)
    if usual is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cafile=usual)


@contextmanager
def readable(key: str, value: str, what: str) -> Iterator[None]:
    """Convert errors of OpenSSL and the system about the value of this key, which should be `what`.

    Raises:
        ConfigurationError: the block raised such an error.
    """
    try:
        yield
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ConfigurationError(key, value, f"{reason}; set it to {what}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(key, value, f"{reason}; set it to {what}") from error
