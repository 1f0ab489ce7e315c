"""TLS and SASL for the connections of one client, with the credentials that are valid at that moment.

Their modules are imported only by clients that use them.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, assert_never

from consumer_membership.config import ConnectionSettings, SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.errors import AuthenticationError, InternalError
from consumer_membership.light_dataclasses import replace
from consumer_membership.runtime.network.daemon_thread import in_daemon_thread

if TYPE_CHECKING:
    import ssl

    from consumer_membership.wire.sasl import Mechanism


class ConnectionSecurity:
    """The TLS context and credentials of one client, created before it connects; `tls` is None without encryption.

    Raises:
        ConfigurationError: a file that TLS needs cannot be read.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.tls = None if settings.tls is None else _context(settings.tls)
        # One reference, replaced as a whole: connections of the membership's thread read it.
        self._sasl = settings.sasl

    @property
    def sasl(self) -> SaslSettings | None:
        """The settings of later authentications; None: without SASL."""
        return self._sasl

    def set_credentials(self, username: str, password: str) -> None:
        """Use these credentials for later authentications; may be called from any thread."""
        if self._sasl is not None:
            self._sasl = replace(self._sasl, username=username, password=password)

    def copy(self) -> ConnectionSecurity:
        """Return the same TLS context and the present credentials, which change independently from now on."""
        return copy(self)

    async def mechanism(self, host: str) -> Mechanism | None:
        """Return the mechanism that authenticates one connection to this host once; None: without SASL.

        Raises:
            AuthenticationError: there are no credentials, or none that the mechanism supports.
            TransportError: no KDC responds (GSSAPI).
        """
        sasl = self._sasl
        if sasl is None:
            return None
        try:
            return await _made(sasl, host)
        except ValueError as error:
            raise AuthenticationError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error


def _context(tls: TlsSettings) -> ssl.SSLContext:
    from consumer_membership.runtime.network.tls import tls_context

    return tls_context(tls)


async def _made(sasl: SaslSettings, host: str) -> Mechanism:
    match sasl.mechanism:
        case SaslMechanism.PLAIN | SaslMechanism.SCRAM_SHA_256 | SaslMechanism.SCRAM_SHA_512:
            from consumer_membership.runtime.network.passwords import password_mechanism

            return password_mechanism(sasl)
        case SaslMechanism.OAUTHBEARER:
            if sasl.token is None:
                raise InternalError("OAUTHBEARER is configured without a source of tokens")
            from consumer_membership.wire.sasl import OAuthBearer

            token = await in_daemon_thread("oauth_cb", sasl.token)
            return OAuthBearer(token.value, token.extensions)
        case SaslMechanism.GSSAPI:
            if sasl.kerberos is None:
                raise InternalError("GSSAPI is configured without Kerberos settings")
            from consumer_membership.runtime.network.kerberos import kerberos_mechanism

            # The KDC may not respond for half a minute.
            return await in_daemon_thread("kerberos", partial(kerberos_mechanism, sasl.kerberos, host))
        case _:
            assert_never(sasl.mechanism)
