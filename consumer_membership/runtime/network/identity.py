"""This client's certificate and key for brokers that authenticate clients by certificate: files, texts or a keystore.

Python's ssl accepts certificates and keys as paths only. Text therefore becomes a file in memory on Linux
(`memfd_create`), which no other user can open and which ends with the last use. Other systems have no such files: there
the text is a temporary file that only this user can read, for the milliseconds until `ssl` has read it. The key of a
PKCS#12 keystore is encrypted with a random password even there.
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.config.authorities import readable
from consumer_membership.config.settings import TlsSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.light_dataclasses import replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_KEYSTORE = "ssl.keystore.location"
_NO_KEY = "it has no private key with a certificate; create it with `openssl pkcs12 -export -inkey KEY -in CERTIFICATE`"
_WHAT = "a PKCS#12 file, and ssl.keystore.password to its password"


def identify(context: ssl.SSLContext, tls: TlsSettings) -> None:
    """Make the context present this client's certificate, if the settings have one.

    Raises:
        ConfigurationError: a file or a text cannot be read, or the key is not that of the certificate.
    """
    own = as_pem(tls)
    with (
        _as_file("ssl.certificate", own.certificate_location, own.certificate_pem) as certificate,
        _as_file("ssl.key", own.key_location, own.key_pem) as key,
    ):
        if certificate is None:
            return
        # OpenSSL does not report which of the two is wrong.
        for location_key, location in (
            ("ssl.certificate.location", own.certificate_location),
            ("ssl.key.location", own.key_location),
        ):
            with readable(location_key, location or "...", "a PEM file that this process can read"):
                _ = location is None or Path(location).read_bytes()
        shown = own.certificate_location or "..."
        what = "a certificate and its key in PEM format, and set ssl.key.password if the key is encrypted"
        with readable("ssl.certificate.location", shown, what):
            # Without a password OpenSSL would prompt for one at the terminal.
            context.load_cert_chain(certificate, key, password=lambda: own.key_password or "")


def as_pem(tls: TlsSettings) -> TlsSettings:
    """Return the settings with the keystore's certificates and key as PEM text, or unchanged without a keystore.

    Raises:
        ConfigurationError: the keystore cannot be read, or the package that reads it is missing.
    """
    if tls.keystore_location is None:
        return tls
    with readable(_KEYSTORE, tls.keystore_location, _WHAT):
        content = Path(tls.keystore_location).read_bytes()
    try:
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            pkcs12,
        )
    except ImportError as error:
        from consumer_membership.installation import install_command

        remedy = (
            "a PKCS#12 keystore is read with the package cryptography, which is not installed; run "
            f"`{install_command('pkcs12')}`, or convert the keystore with `openssl pkcs12` and set "
            "ssl.certificate.location and ssl.key.location"
        )
        raise ConfigurationError(_KEYSTORE, tls.keystore_location, remedy) from error
    with readable(_KEYSTORE, tls.keystore_location, _WHAT):
        found: PKCS12KeyAndCertificates = pkcs12.load_pkcs12(content, (tls.keystore_password or "").encode() or None)
    if found.key is None or found.cert is None:
        raise ConfigurationError(_KEYSTORE, tls.keystore_location, _NO_KEY)
    chain = [found.cert, *found.additional_certs]
    password = secrets.token_urlsafe()
    return replace(
        tls,
        keystore_location=None,
        keystore_password=None,
        certificate_pem="".join(entry.certificate.public_bytes(Encoding.PEM).decode() for entry in chain),
        key_pem=found.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
        ).decode(),
        key_password=password,
    )


@contextmanager
def _as_file(kind: str, location: str | None, text: str | None) -> Iterator[str | None]:
    """Yield the path; for a text, the path of a file that exists only during the block."""
    if location is not None or text is None:
        yield location
        return
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create(kind), "w") as in_memory:
            in_memory.write(text)
            in_memory.flush()
            # Each open of this path has a position of its own, at the beginning of the file.
            yield f"/proc/self/fd/{in_memory.fileno()}"
        return
    import tempfile

    try:
        opened = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115 - the next statement closes it
    except OSError as error:
        remedy = f"no temporary file for OpenSSL can be created ({error.strerror}); set {kind}.location or TMPDIR"
        raise ConfigurationError(f"{kind}.pem", "...", remedy) from error
    with opened as on_disk:
        on_disk.write(text)
        on_disk.flush()
        yield on_disk.name
