"""TLS for the guardian's connections: the member's own configuration (`runtime.network.tls`), around a blocking socket.

A separate module because of its imports: 6 MB, most of them OpenSSL's, only for members with TLS.
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
    """Return the connection under TLS, to a peer that has proven its identity as `tls` requires.

    Files are read now: a renewal of the certificate may have replaced them since the member started.

    Raises:
        ConnectionError: the connection failed or ended; the message has the reason and the fix.
    """
    try:
        with tls_context(tls).wrap_socket(sock, server_hostname=host) as safe:
            yield safe
    except ConfigurationError as error:
        raise ConnectionError(str(error)) from error
    except ssl.SSLError as error:
        raise ConnectionError(explain(error)) from error
