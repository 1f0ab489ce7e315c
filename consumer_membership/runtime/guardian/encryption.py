"""TLS for the guardian's connections: what the member's own had (`runtime.tls`), around a blocking socket.

A module of its own because of what it imports: 6 MB, most of them OpenSSL's, for members with TLS alone.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from consumer_membership.config.settings import TlsSettings
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.network.tls import explain, tls_context


@contextmanager
def encrypted(sock: socket.socket, tls: TlsSettings, host: bytes | str) -> Iterator[ssl.SSLSocket]:
    """The same connection under TLS, to a peer that has shown as much of itself as `tls` asks for.

    Files are read now: what a certificate's renewal has put there since the member began is what is good.

    Raises:
        ConnectionError: there is no such connection, or not any more; why, and the remedy.
    """
    try:
        with tls_context(tls).wrap_socket(sock, server_hostname=host) as safe:
            yield safe
    except ConfigurationError as error:
        raise ConnectionError(str(error)) from error
    except ssl.SSLError as error:
        raise ConnectionError(explain(error)) from error
